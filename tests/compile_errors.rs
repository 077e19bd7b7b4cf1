//! Mistakes that `children!` turns into compile errors: the messages say what to do.

#[test]
fn children_explains_itself() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
