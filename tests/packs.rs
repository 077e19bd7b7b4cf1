//! The packs that come with the library: their lists against the recorded ones, op by op, and that none changes after its
//! release.

use std::{collections::BTreeMap, fs, path::Path};

use flate2::Crc;
use precast::{DType, Op, catalogue::System, policy::Pack, precision::Treatment};
use serde_json::Value;

#[path = "common/golden.rs"]
mod common;

/// Each released pack with the CRC-32 and the length of its file.
const RELEASED: &[(&str, u32, u32)] = &[
    ("mindspore-2.10", 0x5e382d4f, 2382),
    ("paddle-3.3", 0xb5cd1090, 3821),
    ("precast-1", 0x8faa749c, 11582),
    ("tensorflow-2.21-bf16", 0x896c8618, 3175),
    ("tensorflow-2.21-cpu", 0x89e19029, 3497),
    ("tensorflow-2.21-fp16", 0x150a25fa, 3460),
    ("torch-2.15-cpu", 0x90734420, 2606),
    ("torch-2.15-cuda", 0xc33f877d, 2760),
];

#[test]
fn a_released_pack_never_changes() {
    let mut names: Vec<&str> = Pack::names().collect();
    names.sort_unstable();
    assert_eq!(names, RELEASED.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), "packs of the library");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/packs");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), RELEASED.len(), "files in {}", folder.display());
    let changed: Vec<String> = RELEASED
        .iter()
        .filter_map(|&(name, sum, length)| {
            let mut crc = Crc::new();
            crc.update(&fs::read(folder.join(format!("{name}.yaml"))).unwrap());
            let is = (crc.sum(), crc.amount());
            (is != (sum, length))
                .then(|| format!("{name}: recorded (0x{sum:08x}, {length}), is (0x{:08x}, {})", is.0, is.1))
        })
        .collect();
    assert!(
        changed.is_empty(),
        "a released pack never changes: put new lists into a new version\n{}",
        changed.join("\n")
    );
}

/// The names of one recorded list and what it says of them.
type Lists = Vec<(Treatment, Vec<String>)>;

/// What a pack says beyond the recorded lists, and names on them that do nothing.
#[derive(Default)]
struct Known {
    /// Ops on no list of the system, each with the system's ops that it stands for: it is treated as those of them that are
    /// listed, which are all on one list.
    stands_for: &'static [(Op, &'static [&'static str])],
    /// Names on a list that no op of the system goes by.
    inert: &'static [&'static str],
}

impl Known {
    /// What is demanded of each op that stands for others.
    fn demands<'a>(&'a self, recorded: &'a Lists) -> impl Iterator<Item = (Op, Treatment)> + 'a {
        self.stands_for.iter().filter_map(|(op, pieces)| {
            let mut on = recorded.iter().filter(|(_, names)| names.iter().any(|name| pieces.contains(&name.as_str())));
            // Nobody names the dtype of what comes out of a piece.
            let treatment = |list: &(Treatment, _)| match list.0 {
                Treatment::FullUnlessDtype => Treatment::Full,
                treatment => treatment,
            };
            let first = treatment(on.next()?);
            assert!(on.all(|list| treatment(list) == first), "{op} stands for ops of several lists: {pieces:?}");
            Some((*op, first))
        })
    }
}

/// Compares the op lists of one level of a pack, for one low dtype, with the recorded ones: every recorded name is known and
/// treated so, those that stand for others as these, and nothing else is listed.
fn compare(pack: &Pack, level: &str, dtype: DType, recorded: &Lists, known: &Known) {
    let (lists, system) = (pack.region(level).unwrap(), pack.system.unwrap());
    let mut expected: BTreeMap<Op, Treatment> = BTreeMap::new();
    for (treatment, names) in recorded {
        for name in names {
            let ops = Op::named(&format!("{system}:{name}")).unwrap_or_else(|error| panic!("{}: {error}", lists.name));
            if known.inert.contains(&name.as_str()) {
                continue;
            }
            for op in ops {
                let earlier = expected.insert(op, *treatment);
                assert!(
                    earlier.is_none_or(|earlier| earlier == *treatment),
                    "{}: {name} ({op}) is on two lists",
                    lists.name
                );
            }
        }
    }
    for (op, treatment) in known.demands(recorded) {
        assert_eq!(expected.insert(op, treatment), None, "{}: {op} is on a list of {system}'s by itself", lists.name);
    }
    for op in Op::ALL {
        let said = lists.entry(*op, dtype).map(|entry| entry.treatment);
        assert_eq!(said, expected.get(op).copied(), "{} for {dtype}: {op}", lists.name);
    }
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().expect("a list").iter().map(|name| name.as_str().expect("a name").into()).collect()
}

#[test]
fn mindspores_lists_are_told_op_for_op() {
    let Some(golden) = common::golden("mindspore/golden.json") else { return };
    let Some(recorded) = golden["misc"].get("lists") else { return };
    let pack = Pack::named("mindspore-2.10").unwrap();
    let of = |key: &str| recorded.get(key).map(names).unwrap_or_default();
    let auto = vec![
        (Treatment::Low, of("auto_white")),
        (Treatment::Full, of("auto_black")),
        (Treatment::Widest, of("promote")),
        (Treatment::FullUnlessDtype, [of("set_dtype"), of("set_dtype_opt")].concat()),
    ];
    for dtype in DType::LOW {
        compare(&pack, "auto", dtype, &auto, &Known::default());
    }
    // The lists of O1 and O2 name cells as `nn.Dense` and ops as `ops.MatMul`.
    let kind = |prefix: &str, names: &[String]| -> Vec<String> {
        names.iter().filter_map(|name| Some(name.strip_prefix(prefix)?.to_string())).collect()
    };
    for (list, recorded) in [(&pack.white, of("white")), (&pack.black, of("black"))] {
        let mut cells = kind("nn.", &recorded);
        cells.sort();
        assert_eq!(list.cells().keys().map(|name| name.to_string()).collect::<Vec<_>>(), cells);
        let mut ops: Vec<Op> =
            kind("ops.", &recorded).iter().flat_map(|name| Op::named_in(System::MindSpore, name).unwrap()).collect();
        ops.sort();
        ops.dedup();
        assert_eq!(list.ops().keys().copied().collect::<Vec<_>>(), ops);
    }
}

#[test]
fn paddles_lists_are_told_op_for_op() {
    let Some(recorded) = common::golden("paddle/lists.json") else { return };
    let pack = Pack::named("paddle-3.3").unwrap();
    // In pieces there (`eager_op_names` of the recorded ops tells them).
    let known = Known {
        stands_for: &[
            (Op::Conv1d, &["conv2d"]),
            (Op::CosineSimilarity, &["elementwise_mul", "reduce_sum", "clip", "sqrt", "elementwise_div"]),
            (Op::L1Loss, &["elementwise_sub", "abs", "mean"]),
            (Op::MseLoss, &["elementwise_sub", "square", "reduce_mean"]),
            (Op::SmoothL1Loss, &["huber_loss", "reduce_mean"]),
            (Op::Std, &["reduce_mean", "elementwise_sub", "pow", "reduce_sum", "elementwise_div", "sqrt"]),
            (Op::Var, &["reduce_mean", "elementwise_sub", "pow", "reduce_sum", "elementwise_div"]),
        ],
        inert: &["pnorm"],
    };
    for dtype in DType::LOW {
        for level in ["OD", "O1", "O2"] {
            let of = |list: &str| names(&recorded[list][dtype.long_name()][level]);
            let lists = vec![(Treatment::Low, of("white")), (Treatment::Full, of("black"))];
            compare(&pack, level, dtype, &lists, &known);
        }
    }
    // A level that casts nothing needs no lists.
    for list in ["white", "black"] {
        assert_eq!(recorded["O0"][list], Value::Array(vec![]));
    }
}

#[test]
fn torchs_policies_are_told_op_for_op() {
    let Some(recorded) = common::golden("torch/op_policy.json") else { return };
    for device in ["cpu", "cuda"] {
        let pack = Pack::named(&format!("torch-2.15-{device}")).unwrap();
        let mut lists: BTreeMap<Treatment, Vec<String>> = BTreeMap::new();
        for (name, policy) in recorded[device].as_object().expect("a map of policies") {
            let treatment = match policy.as_str().expect("a policy") {
                "lower_precision_fp" => Treatment::Low,
                "fp32" => Treatment::Full,
                "fp32_set_opt_dtype" | "fp32_append_dtype" => Treatment::FullUnlessDtype,
                "promote" => Treatment::Widest,
                "banned" => Treatment::Banned,
                custom if custom.contains("to lower_precision_fp") => Treatment::Low,
                other => panic!("{name} has the policy {other}"),
            };
            lists.entry(treatment).or_default().push(name.clone());
        }
        // Made of others there.
        let stands_for: &[(Op, &[&str])] = match device {
            "cpu" => &[
                (Op::AffineGrid, &["aten::bmm"]),
                (Op::Einsum, &["aten::bmm"]),
                (Op::Inner, &["aten::mm"]),
                (Op::MultiDot, &["aten::mm"]),
                (Op::RnnCell, &["aten::linear"]),
                (Op::Tensordot, &["aten::mm"]),
            ],
            _ => &[
                (Op::CrossEntropy, &["aten::log_softmax.int", "aten::nll_loss"]),
                (Op::Inner, &["aten::tensordot"]),
                (Op::Softmin, &["aten::softmax.int"]),
                (Op::Square, &["aten::pow.Tensor_Scalar"]),
            ],
        };
        let known = Known { stands_for, ..Known::default() };
        for dtype in DType::LOW {
            compare(&pack, "auto", dtype, &lists.clone().into_iter().collect(), &known);
        }
    }
}

#[test]
fn tensorflows_lists_are_told_op_for_op() {
    let Some(recorded) = common::golden("tensorflow/lists.json") else { return };
    for (pack, mode) in [
        ("fp16", "CUDA (cuda>=9010,cudnn>=8000)"),
        ("bf16", "BF16 (onednn bfloat16)"),
        ("cpu", "CPU (fp16 emulation; cuda=10000,cudnn=8000 hard coded)"),
    ] {
        let lists = recorded["header"].get(mode).unwrap_or_else(|| panic!("no lists of {mode}"));
        let pack = Pack::named(&format!("tensorflow-2.21-{pack}")).unwrap();
        let of = |list: &str| names(&lists[list]);
        let lists = vec![
            (Treatment::Low, of("allow")),
            (Treatment::Full, of("deny")),
            (Treatment::Infer, of("infer")),
            (Treatment::Clear, of("clear")),
        ];
        compare(&pack, "auto", pack.dtypes[0], &lists, &Known::default());
    }
}
