//! Policy files: what the shipped ones mean, what the lists are, and how a broken file is answered.

use std::path::Path;

use precast::{
    DType, ErrorKind, Level, Policy,
    policy::{self, Pack},
};

fn shipped(name: &str) -> Policy {
    Policy::load(Path::new(env!("CARGO_MANIFEST_DIR")).join("policies").join(name)).unwrap()
}

#[test]
fn shipped_policies_say_what_their_names_say() {
    for (name, level, dtype) in [
        ("o0", Level::O0, DType::F16),
        ("o1", Level::O1, DType::F16),
        ("o2", Level::O2, DType::F16),
        ("o3", Level::O3, DType::F16),
        ("o1-bf16", Level::O1, DType::Bf16),
        ("o2-bf16", Level::O2, DType::Bf16),
        ("o3-bf16", Level::O3, DType::Bf16),
    ] {
        let mut policy = shipped(&format!("{name}.yaml"));
        assert_eq!(policy.name.as_deref(), Some(name));
        policy.name = None;
        assert_eq!(policy, Policy::new(level, dtype).unwrap(), "{name}");
    }
}

#[test]
fn lists_are_fresh_copies_of_the_default_pack() {
    let pack = Pack::named(Pack::DEFAULT).unwrap();
    let mut white = policy::white_list();
    assert_eq!(white, pack.white);
    assert!(white.remove_cell("Dense"));
    assert_eq!(policy::white_list(), pack.white);
    assert_eq!(policy::black_list(), pack.black);
}

#[test]
fn dtype_is_checked_before_the_level() {
    assert_eq!(Policy::new("O9", DType::F32).unwrap_err().kind(), ErrorKind::DType);
    assert_eq!(Policy::new(Level::O0, DType::F32).unwrap_err().kind(), ErrorKind::DType);
    assert_eq!(Policy::new("o1", DType::F16).unwrap_err().kind(), ErrorKind::Level);
    let text = "version: 1\nlevel: O9\ndtype: float32\npack: nobody\n";
    assert_eq!(Policy::parse(text, "p").unwrap_err().kind(), ErrorKind::DType);
    let text = text.replace("float32", "float16");
    assert_eq!(Policy::parse(&text, "p").unwrap_err().kind(), ErrorKind::Level);
    assert_eq!(Policy::parse(&text.replace("O9", "O1"), "p").unwrap_err().kind(), ErrorKind::List);
}
