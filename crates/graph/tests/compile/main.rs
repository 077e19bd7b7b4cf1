//! Mistakes that are compile errors: the messages give the remedy.

/// Compiles the library once more.
#[test]
#[ignore = "`cargo xtask nightly messages`"]
fn mistakes_do_not_compile_and_say_why() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
