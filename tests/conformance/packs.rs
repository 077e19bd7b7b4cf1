//! The packs shipped with the library: their lists match the recorded ones, op by op, and none changes after its
//! release.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use flate2::Crc;
use precast::{
    catalogue::System,
    policy::{self, GraphList, GraphPolicy, Pack},
    precision::Treatment,
    prelude::*,
};
use precast_graph::Graph;
use serde_json::Value;

use crate::{
    common::golden::{golden, left_out},
    replay::{items, table},
};

/// Each released pack with the CRC-32 and the length of its file.
const RELEASED: &[(&str, u32, u32)] = &[
    ("burn-0.22", 0xe05ae42d, 5841),
    ("candle-0.11", 0xa7ecfced, 1140),
    ("mindspore-2.10", 0x9ea76740, 2444),
    ("mindspore-2.3", 0x77f2bcc6, 896),
    ("mindspore-2.4", 0xea94ea04, 1871),
    ("modelopt-0.47", 0x305038eb, 520),
    ("onnx-1", 0x8bb44a4a, 2313),
    ("onnxconverter-common-1.16", 0xb7823c73, 747),
    ("onnxruntime-1.32", 0xd42091fe, 761),
    ("paddle-2.3", 0x15b63939, 2292),
    ("paddle-3.3", 0x9f1344c7, 3813),
    ("precast-1", 0xef6f60fe, 14126),
    ("tensorflow-2.21-bf16", 0x29479e2d, 4657),
    ("tensorflow-2.21-cpu", 0xcf514e77, 4888),
    ("tensorflow-2.21-fp16", 0x247d00bd, 4851),
    ("torch-2.15-cpu", 0x1ec5523b, 2609),
    ("torch-2.15-cuda", 0xd4224341, 2830),
];

#[test]
fn a_released_pack_never_changes() {
    let mut names: Vec<&str> = Pack::names().collect();
    names.sort_unstable();
    assert_eq!(names, RELEASED.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), "packs of the library");
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("policies/packs");
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

#[test]
fn converters_of_onnx_lower_every_op_but_those_on_their_lists() {
    // Resize is on the list of one of them.
    for (name, count, resize) in [
        ("onnxconverter-common-1.16", 28, GraphList::Deny),
        ("onnxruntime-1.32", 28, GraphList::Allow),
        ("modelopt-0.47", 3, GraphList::Allow),
    ] {
        let pack = Pack::named(name).unwrap();
        let policy = GraphPolicy::from_pack(DType::F16, pack.clone()).unwrap();
        assert_eq!(pack.graph_lists().unwrap().ops_with(Treatment::Full).count(), count, "{name}");
        assert_eq!(pack.graph_lists().unwrap().ops().len(), count, "{name}");
        for (op, list) in [
            ("Upsample", GraphList::Deny),
            ("NonMaxSuppression", GraphList::Deny),
            ("Resize", resize),
            ("Softmax", GraphList::Allow),
            ("onnx::Hardmax", GraphList::Allow),
            ("NeverMet", GraphList::Allow),
        ] {
            assert_eq!(policy.list(op), Some(list), "{name}: {op}");
        }
        // A network that is recorded is rewritten by them as well.
        let mut rng = Rng::seed(1);
        let net = Child::new(Dense::new(4, 3, &mut rng));
        let x = Tensor::randn(&[2, 4], &mut rng).unwrap();
        let graph = Graph::trace(&net, std::slice::from_ref(&x)).unwrap();
        let low = graph.rewrite(&policy).unwrap();
        let met = low.graph.run(std::slice::from_ref(&x)).unwrap()[0].to_f64();
        let wanted = net.call(&x).unwrap().to_f64();
        assert!(met != wanted && met.iter().zip(&wanted).all(|(met, wanted)| (met - wanted).abs() < 1e-2), "{name}");
    }
    assert_eq!(GraphPolicy::named("onnx").unwrap().list("NeverMet"), None);
}

/// Recorded lists: the treatment and the names.
type Lists = Vec<(Treatment, Vec<String>)>;

/// Additions of a pack to the recorded lists, and names on them without effect.
#[derive(Default)]
struct Known {
    /// Ops on no list of the system, each with the system's ops that it corresponds to: it is treated like the listed
    /// ones among them, which are all on one list.
    stands_for: &'static [(Op, &'static [&'static str])],
    /// Names on a list that no op of the system has.
    inert: &'static [&'static str],
}

impl Known {
    /// Iterates over the required treatment of each op that corresponds to others.
    fn demands<'a>(&'a self, recorded: &'a Lists) -> impl Iterator<Item = (Op, Treatment)> + 'a {
        self.stands_for.iter().filter_map(|(op, pieces)| {
            let mut on = recorded.iter().filter(|(_, names)| names.iter().any(|name| pieces.contains(&name.as_str())));
            let first = on.next()?.0;
            assert!(on.all(|list| list.0 == first), "{op} stands for ops of several lists: {pieces:?}");
            Some((*op, first))
        })
    }
}

/// Compares the op lists of one level of a pack, for one low dtype, with the recorded ones: every recorded name is
/// known and treated accordingly, as are the ops that correspond to others, and nothing else is listed.
fn compare(pack: &Pack, level: &str, dtype: DType, recorded: &Lists, known: &Known) {
    let (lists, system) = (pack.region(Some(level)).unwrap(), pack.system.unwrap());
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
        let said = lists.op(*op, dtype).map(|entry| entry.treatment);
        assert_eq!(said, expected.get(op).copied(), "{} for {dtype}: {op}", lists.name);
    }
}

fn names(list: &Value) -> Vec<String> {
    items(list).map(|name| name.as_str().expect("a name").into()).collect()
}

#[test]
fn paddles_lists_are_told_op_for_op() {
    let Some(recorded) = golden("paddle/lists.json") else { return };
    let pack = Pack::named("paddle-3.3").unwrap();
    // Decomposed there (see `eager_op_names` of the recorded ops).
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
            let of = |list: &str| &recorded[list][dtype.long_name()][level];
            if of("white").is_null() || of("black").is_null() {
                left_out(&format!("the lists of Paddle's {level} for {dtype}"));
                continue;
            }
            let of = |list: &str| names(of(list));
            let lists = vec![(Treatment::Low, of("white")), (Treatment::Full, of("black"))];
            compare(&pack, level, dtype, &lists, &known);
        }
    }
    // A level that casts nothing needs no lists.
    for list in ["white", "black"] {
        match recorded["O0"].get(list) {
            Some(names) => assert_eq!(*names, Value::Array(vec![])),
            None => left_out(&format!("the {list} list of Paddle's O0")),
        }
    }
}

#[test]
fn torchs_policies_are_told_op_for_op() {
    let Some(recorded) = golden("torch/op_policy.json") else { return };
    for device in ["cpu", "cuda"] {
        let pack = Pack::named(&format!("torch-2.15-{device}")).unwrap();
        let mut lists: BTreeMap<Treatment, Vec<String>> = BTreeMap::new();
        let Some(policies) = recorded[device].as_object() else {
            left_out(&format!("the policies for {device}"));
            continue;
        };
        for (name, policy) in policies {
            let treatment = match policy.as_str().expect("a policy") {
                "lower_precision_fp" => Treatment::Low,
                // The two that look at the caller's `dtype=` are full: here it applies in every region anyway.
                "fp32" | "fp32_set_opt_dtype" | "fp32_append_dtype" => Treatment::Full,
                "promote" => Treatment::Widest,
                "banned" => Treatment::Banned,
                custom if custom.contains("to lower_precision_fp") => Treatment::Low,
                other => panic!("{name} has the policy {other}"),
            };
            lists.entry(treatment).or_default().push(name.clone());
        }
        // Composed of others there.
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

/// Ops without a TensorFlow op of the same name, each with the TensorFlow ops it is composed of.
const OURS: &str = "
    Linear: MatMul BiasAdd; Ger: Mul; Dot: MatMul; Addmm: MatMul AddV2; Addbmm: BatchMatMulV2 AddV2;
    Baddbmm: BatchMatMulV2 AddV2; Addmv: MatMul AddV2; Mv: MatMul; Conv1d: Conv2D BiasAdd;
    ConvTranspose1d: Conv2DBackpropInput BiasAdd; ScaledDotProductAttention: Einsum Softmax Mul; MultiDot: MatMul;
    Inner: Einsum; Vecdot: Einsum; Tensordot: MatMul Transpose Reshape; Bilinear: Einsum AddV2; Addr: Mul AddV2;
    RnnCell: MatMul BiasAdd Tanh; MaxPool1d: MaxPool Squeeze; AvgPool1d: AvgPool Squeeze; AdaptiveAvgPool1d: AvgPool;
    AdaptiveAvgPool2d: AvgPool; AdaptiveAvgPool3d: AvgPool3D; AdaptiveMaxPool1d: MaxPool; AdaptiveMaxPool2d: MaxPool;
    AdaptiveMaxPool3d: MaxPool3D; LayerNorm: FusedBatchNormV3; GroupNorm: FusedBatchNormV3;
    InstanceNorm: FusedBatchNormV3; RmsNorm: FusedBatchNormV3; Prelu: Relu Neg Mul AddV2; Gelu: Erf Mul AddV2;
    Silu: Sigmoid Mul; Mish: Softplus Tanh Mul; LogSigmoid: Softplus Neg; HardSigmoid: Relu6 AddV2 Mul;
    HardSwish: Relu6 AddV2 Mul; HardTanh: ClipByValue; Dropout: Mul SelectV2 GreaterEqual; Celu: Elu Mul;
    Glu: Split Sigmoid Mul; Softmin: Softmax Neg; TanhShrink: Tanh Sub; Softshrink: Sub AddV2 SelectV2;
    Addcdiv: RealDiv AddV2 Mul; Addcmul: Mul AddV2; Log2: Log RealDiv; Log10: Log RealDiv; Hypot: Square AddV2 Sqrt;
    Lerp: Sub Mul AddV2; Trunc: Floor Ceil SelectV2; Var: Mean SquaredDifference; Std: Mean SquaredDifference Sqrt;
    Norm: Abs Pow Sum; LogSumExp: Exp Sum Log; Renorm: Abs Pow Sum Mul; Dist: Sub Abs Pow Sum; Pdist: Sub Abs Pow Sum;
    Cdist: Sub Abs Pow Sum; CosineSimilarity: Mul Sum Rsqrt; Trace: Sum; Flatten: Reshape; Gather: GatherNd;
    IndexSelect: GatherV2; Sort: TopKV2; ReplicationPad: MirrorPad; MaskedFill: SelectV2; NllLoss: GatherV2 Neg Mean;
    MseLoss: SquaredDifference Mean; L1Loss: Sub Abs Mean; SmoothL1Loss: Sub Abs Mul SelectV2 Mean;
    BceWithLogits: Exp Log1p Mean; KlDiv: Exp Sub Mul Sum; BinaryCrossEntropy: Log Mul Mean;
    CosineEmbeddingLoss: Mul Sum Rsqrt Mean; HingeEmbeddingLoss: Sub Maximum SelectV2 Mean;
    HuberLoss: Sub Abs Mul SelectV2 Mean; MarginRankingLoss: Sub Mul Maximum Mean;
    MultilabelMarginLoss: Sub Maximum GatherNd Mean; MultiMarginLoss: Sub Maximum Pow Mean;
    PoissonNllLoss: Exp Sub Mul Mean; SoftMarginLoss: Exp Log1p Mean; TripletMarginLoss: Sub Pow Sum Maximum Mean;
    GaussianNllLoss: Log SquaredDifference RealDiv Mean;
";

/// Returns the list on which the packs for graphs put an op composed of these: an op that TensorFlow never paints keeps
/// f32 among inferred and clear ones.
fn list_of_pieces(pieces: &str, recorded: &Lists) -> Option<Treatment> {
    let on = |piece: &str| {
        recorded.iter().find(|(_, names)| names.iter().any(|name| name == piece)).map(|(treatment, _)| *treatment)
    };
    let on: Vec<Option<Treatment>> = pieces.split(' ').map(on).collect();
    let order = [Some(Treatment::Full), Some(Treatment::Low), None, Some(Treatment::Infer), Some(Treatment::Clear)];
    order.into_iter().find(|list| on.contains(list)).flatten()
}

#[test]
fn tensorflows_lists_are_told_op_for_op() {
    let Some(recorded) = golden("tensorflow/lists.json") else { return };
    for (pack, mode) in [
        ("fp16", "CUDA (cuda>=9010,cudnn>=8000)"),
        ("bf16", "BF16 (onednn bfloat16)"),
        ("cpu", "CPU (fp16 emulation; cuda=10000,cudnn=8000 hard coded)"),
    ] {
        let Some(lists) = recorded["header"].get(mode) else {
            left_out(&format!("the lists of TensorFlow for {mode}"));
            continue;
        };
        let pack = Pack::named(&format!("tensorflow-2.21-{pack}")).unwrap();
        let of = |list: &str| names(&lists[list]);
        let lists = vec![
            (Treatment::Low, of("allow")),
            (Treatment::Full, of("deny")),
            (Treatment::Infer, of("infer")),
            (Treatment::Clear, of("clear")),
        ];
        compare(&pack, "auto", pack.dtypes[0], &lists, &Known::default());
        // Graphs use the same lists, with our ops treated by their components.
        let (region, graph) = (pack.region(None).unwrap(), pack.graph_lists().unwrap());
        for op in Op::ALL {
            let ours = table(OURS).find(|(own, _)| *own == op.name());
            assert!(ours.is_none() || op.names(System::TensorFlow).next().is_none(), "{op} has a name there");
            let listed = |lists: &policy::Lists| lists.op(*op, pack.dtypes[0]).map(|entry| entry.treatment);
            let expected = ours.map_or_else(|| listed(region), |(_, pieces)| list_of_pieces(pieces, &lists));
            assert_eq!(listed(graph), expected, "{}: {op}", pack.name);
        }
    }
}

/// The graph lists of precast's own pack differ from its region lists only as documented: a product or a denied op is
/// treated the same.
#[test]
fn our_own_lists_for_graphs_follow_those_for_regions() {
    let pack = Pack::named(Pack::DEFAULT).unwrap();
    let (region, graph) = (pack.region(None).unwrap(), pack.graph_lists().unwrap());
    for low in DType::LOW {
        for op in Op::ALL {
            let of = |lists: &policy::Lists| lists.op(*op, low).map(|entry| entry.treatment);
            match (of(region), of(graph)) {
                (Some(Treatment::Full), graph) => assert_eq!(graph, Some(Treatment::Full), "{op}"),
                (_, Some(Treatment::Full)) => assert_eq!(*op, Op::GaussianNllLoss, "is denied in graphs only"),
                (Some(Treatment::Low), Some(Treatment::Low | Treatment::Infer)) => {}
                (Some(Treatment::Low), graph) => panic!("{op} is {graph:?} in graphs"),
                _ => {}
            }
        }
    }
    // Every op that a network can be made of is on a list, except those that the pack names in a comment.
    let unlisted: Vec<&str> =
        Op::ALL.iter().filter(|op| op.has_kernel() && !graph.ops().contains_key(op)).map(|op| op.name()).collect();
    let known = "Cast Dot Vecdot Cross Asin Acos Erfinv Atan2 Acosh Atanh LogicalNot LogicalAnd LogicalOr \
                 Embedding ScatterAdd IndexPut GridSampler2d AffineGrid GridSampler3d Scatter IndexAdd";
    assert_eq!(unlisted.join(" "), known);
}

/// Under our own lists, a transformer block is low from its first product to its last, and its loss is f32.
#[test]
fn our_own_lists_make_a_block_low() {
    use precast_graph::{
        GraphPolicy, Port,
        conformance::{Device, TypeGraph, casts, paint},
    };
    for low in DType::LOW {
        let mut graph = TypeGraph::default();
        let mut add = |name: &str, op: &str, inputs: &[Port]| graph.add(name, op, DType::F32, inputs).unwrap();
        let (x, w, target) = (add("x", "Input", &[]), add("w", "Param", &[]), add("target", "Input", &[]));
        let embedded = add("embedded", "Embedding", &[w, x]);
        let query = add("query", "Linear", &[embedded, w]);
        let attention = add("attention", "ScaledDotProductAttention", &[query, query, query]);
        let residual = add("residual", "Add", &[embedded, attention]);
        let norm = add("norm", "LayerNorm", &[residual, w]);
        let up = add("up", "Linear", &[norm, w]);
        let gelu = add("gelu", "Gelu", &[up]);
        let dropout = add("dropout", "Dropout", &[gelu]);
        let head = add("head", "Linear", &[dropout, w]);
        add("loss", "CrossEntropy", &[head, target]);
        let policy = GraphPolicy::new(low).unwrap();
        let painting = paint(&graph, &policy, &Device::any()).unwrap();
        for (node, n) in graph.nodes.iter().enumerate() {
            let is_f32 = ["x", "w", "target", "embedded", "loss"].contains(&n.name.as_str());
            assert_eq!(painting.is_low(node, 0), !is_f32, "{}", painting.explain(&n.name).unwrap());
        }
        let casts: Vec<Port> = casts(&graph, &painting).iter().map(|cast| cast.of).collect();
        assert_eq!(casts, [w, embedded, head], "one each for the weight, the input of the block, and the loss");
    }
}

/// Returns the lists written out in the oldest documents, copied by hand: see `note` in the file.
fn written_out(pack: &str, list: &str, count: usize) -> Vec<String> {
    let all: Value = serde_json::from_str(include_str!("../seeds/lists.json")).unwrap();
    let names = names(&all[pack][list]);
    assert_eq!(names.len(), count, "{pack}: {list}");
    names
}

#[test]
fn mindspore_2_4_is_its_documentation() {
    let pack = Pack::named("mindspore-2.4").unwrap();
    let of = |list, count| written_out("mindspore-2.4", list, count);
    let auto = vec![
        (Treatment::Low, of("auto_whitelist", 13)),
        (Treatment::Full, of("auto_blacklist", 38)),
        (Treatment::Widest, of("promote_list", 8)),
    ];
    for dtype in DType::LOW {
        compare(&pack, "auto", dtype, &auto, &Known::default());
    }
    assert_eq!(pack.regions[0].1.unlisted, Treatment::AsIs, "other ops run in the dtype of their inputs");
    // O1 and O2 are those of 2.3.
    let older = Pack::named("mindspore-2.3").unwrap();
    for level in [Level::O1, Level::O2] {
        let [ours, theirs] = [&pack, &older].map(|pack| pack.lists(level).unwrap());
        assert!(ours.cells().keys().eq(theirs.cells().keys()) && ours.ops().keys().eq(theirs.ops().keys()), "{level}");
    }
}

#[test]
fn mindspore_2_3_is_its_documentation() {
    let pack = Pack::named("mindspore-2.3").unwrap();
    for (level, list, count, treatment) in
        [(Level::O1, "white_list", 19, Treatment::Low), (Level::O2, "black_list", 4, Treatment::Full)]
    {
        let lists = pack.lists(level).unwrap();
        let (mut cells, mut ops) = (vec![], vec![]);
        for name in written_out("mindspore-2.3", list, count) {
            match name.strip_prefix("mindspore.nn.") {
                Some(kind) => cells.push(kind.to_string()),
                None => {
                    let name = name.strip_prefix("mindspore.ops.").expect("a cell or an op");
                    ops.extend(Op::named_in(System::MindSpore, name).unwrap());
                }
            }
        }
        cells.sort();
        ops.sort();
        ops.dedup();
        assert_eq!(lists.cells().keys().cloned().collect::<Vec<_>>(), cells);
        assert_eq!(lists.ops().keys().copied().collect::<Vec<_>>(), ops);
        let entries = lists.cells().values().chain(lists.ops().values());
        assert!(entries.clone().count() > 0 && entries.clone().all(|entry| entry.treatment == treatment));
    }
    // Level auto was added later.
    assert_eq!(pack.lists(Level::Auto).unwrap_err().kind(), ErrorKind::Level);
    assert!(pack.regions.is_empty());
}

#[test]
fn paddle_2_3_is_its_documentation() {
    let pack = Pack::named("paddle-2.3").unwrap();
    let white = written_out("paddle-2.3", "white_list", 6);
    let mut black = written_out("paddle-2.3", "black_list", 13);
    // The catalogue has no op for this name of Paddle's.
    black.retain(|name| name != "cos_sim");
    black.push("CosineSimilarity".into());
    let of = |names: &[String]| names.iter().flat_map(|name| pack.op(name).unwrap()).collect::<BTreeSet<Op>>();
    let listed =
        |op_level, treatment| pack.region(Some(op_level)).unwrap().ops_with(treatment).collect::<BTreeSet<Op>>();
    // Paddle runs a one-dimensional convolution as a two-dimensional one.
    let conv1d = BTreeSet::from([Op::Conv1d]);
    assert_eq!(listed("O1", Treatment::Low), &of(&white) | &conv1d);
    assert_eq!(listed("O1", Treatment::Full), of(&black));
    assert_eq!(pack.region(Some("O1")).unwrap().unlisted, Treatment::Gray);
    // "All ... will be casted to fp16, except operators in black_list, don't support fp16 kernel and batchnorm."
    assert_eq!(listed("O2", Treatment::Full), &of(&black) | &BTreeSet::from([Op::BatchNorm]));
    let o2 = pack.region(Some("O2")).unwrap();
    assert_eq!((o2.unlisted, o2.ops().len()), (Treatment::Low, listed("O2", Treatment::Full).len()));
}

/// The five results printed in the documentation of Paddle 2.3.
#[test]
fn the_examples_of_paddle_2_3() {
    let o1 = || Autocast::new("paddle-2.3").unwrap();
    let data = Tensor::ones(&[10, 3, 32, 32], DType::F32);
    let conv2d = Child::new(Conv2d::new(3, 2, 3, &mut Rng::seed(1)));
    let (a, b) = (Tensor::ones(&[2, 3], DType::F32), Tensor::ones(&[2, 3], DType::F32));
    let conv = |region: Autocast| autocast(region, || conv2d.call(&data)).unwrap().dtype();
    let sum = |region: Autocast| autocast(region, || a.add(&b)).unwrap().dtype();
    assert_eq!(conv(o1()), DType::F16);
    assert_eq!(conv(o1().enabled(false)), DType::F32);
    assert_eq!(conv(o1().full(["conv2d"])), DType::F32);
    assert_eq!(sum(o1().low(["elementwise_add"])), DType::F16);
    assert_eq!(sum(o1().low(["elementwise_add"]).op_level("O2")), DType::F16);
    // At O2 unlisted ops are low as well, and batch norm is not.
    assert_eq!(sum(o1().op_level("O2")), DType::F16);
    assert_eq!(sum(o1()), DType::F32);
    let norm = |op_level: &str| {
        let mut norm = Child::new(BatchNorm2d::new(3));
        norm.set_train(false);
        autocast(o1().op_level(op_level), || norm.call(&data.cast(DType::F16))).unwrap().dtype()
    };
    assert_eq!((norm("O1"), norm("O2")), (DType::F16, DType::F32));
    let softmax = autocast(o1().op_level("O2"), || a.softmax(-1)).unwrap();
    assert_eq!(softmax.dtype(), DType::F32, "on the black list");
}
