//! Policies and packs that come with the library.

use std::{
    fs,
    path::{Path, PathBuf},
};

use precast::{
    DType, Level, Op, Policy,
    catalogue::System,
    policy::{self, GraphPolicy, Lists, Pack},
    precision::Treatment,
};

use crate::common::{
    folder::Folder,
    golden::{golden, left_out},
};

/// Returns a path in the repository.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Loads a policy that comes with the library.
pub fn shipped(name: &str) -> Policy {
    Policy::load(folder("policies").join(format!("{name}.yaml"))).unwrap()
}

/// The name of a shipped policy is suggested if there is no such file, and only then.
#[test]
fn shipped_policies_are_found_by_name_where_no_file_is() {
    let folder = Folder::new("named");
    fs::create_dir(folder.at("o2.yaml")).unwrap();
    let message = |name: &str| Policy::load(folder.at(name)).unwrap_err().to_string();
    let (missing, is_folder) = (message("o1.yaml"), message("o2.yaml"));
    assert!(missing.contains("; the policy that comes with the library is `Policy::named(\"o1\")`"), "{missing}");
    assert!(!is_folder.contains("comes with the library"), "{is_folder}");
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
        ("auto", Level::Auto, DType::F16),
        ("auto-bf16", Level::Auto, DType::Bf16),
    ] {
        let mut policy = shipped(name);
        assert_eq!(policy.name.as_deref(), Some(name));
        policy.name = None;
        assert_eq!(policy, Policy::new(level, dtype).unwrap(), "{name}");
    }
    for (name, dtype) in [("graph", DType::F16), ("graph-bf16", DType::Bf16)] {
        let mut policy = GraphPolicy::load(folder("policies").join(format!("{name}.yaml"))).unwrap();
        assert_eq!(policy.name.as_deref(), Some(name));
        policy.name = None;
        assert_eq!(policy, GraphPolicy::new(dtype).unwrap(), "{name}");
    }
}

#[test]
fn lists_are_fresh_copies_of_the_default_pack() {
    let pack = Pack::named(Pack::DEFAULT).unwrap();
    let of_pack = |level| pack.lists(level).unwrap();
    let mut white = policy::low_list();
    assert_eq!(white, of_pack(Level::O1));
    assert!(white.remove_cell("Dense").is_some());
    assert_eq!(policy::low_list(), of_pack(Level::O1));
    assert_eq!(policy::full_list(), of_pack(Level::O2));
}

/// The pack lists, name by name, what was recorded of MindSpore's own lists, and every name finds its op.
#[test]
fn the_mindspore_pack_is_mindspores_lists() {
    let Some(golden) = golden("mindspore/golden.json") else { return };
    let Some(lists) = golden["misc"].get("lists") else { return left_out("the lists of MindSpore") };
    let recorded = |list: &str, prefix: &str| -> Option<Vec<String>> {
        let Some(names) = lists[list].as_array() else {
            left_out(&format!("the list {list} of MindSpore"));
            return None;
        };
        Some(names.iter().filter_map(|name| name.as_str().unwrap().strip_prefix(prefix)).map(String::from).collect())
    };
    let text = fs::read_to_string(folder("policies/packs/mindspore-2.10.yaml")).unwrap();
    let written: serde_json::Value = precast_base::document::from_str(&text).unwrap();
    let pack = Pack::named("mindspore-2.10").unwrap();
    let [o1, o2, auto] = [Level::O1, Level::O2, Level::Auto].map(|level| pack.lists(level).unwrap());
    let kinds = |lists: &Lists| lists.cells().keys().cloned().collect::<Vec<_>>();
    let ops = |treatment| auto.ops_with(treatment).collect::<Vec<_>>();
    let same_names = |place: &str, recorded: &[String]| {
        let written = written.pointer(place).unwrap().as_array().unwrap();
        assert_eq!(written.iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>(), recorded, "{place}");
    };
    for (recorded, place, cells) in [
        (recorded("white", "nn."), "/levels/O1/cells/low", &o1),
        (recorded("black", "nn."), "/levels/O2/cells/full", &o2),
    ] {
        let Some(mut recorded) = recorded else { continue };
        same_names(place, &recorded);
        recorded.sort();
        assert_eq!(kinds(cells), recorded, "{place}");
    }
    for (recorded, place, ops) in [
        (recorded("white", "ops."), "/levels/O1/ops/low", o1.ops().keys().copied().collect()),
        (recorded("auto_white", ""), "/regions/0/low", ops(Treatment::Low)),
        (recorded("auto_black", ""), "/regions/0/full", ops(Treatment::Full)),
        (recorded("promote", ""), "/regions/0/widest", ops(Treatment::Widest)),
    ] {
        let Some(recorded) = recorded else { continue };
        same_names(place, &recorded);
        let is_one = |op: &&Op| recorded.iter().any(|name| op.names(System::MindSpore).any(|known| known == name));
        let mut expected: Vec<Op> = Op::ALL.iter().filter(is_one).copied().collect();
        expected.sort();
        expected.dedup();
        assert_eq!(ops, expected, "{place}");
    }
}
