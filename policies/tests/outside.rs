//! The view of a library with its own tensors: this package alone plans, explains, compares, exports, wraps, checks and
//! times networks whose kinds and ops precast has no code for.

use std::sync::Arc;

use precast_policy::{
    Adapter, DType, ErrorKind, Op, Outline, OutlinedCell, Plan, Policy, Result,
    catalogue::System,
    host::{Costs, Outlined, RanOp, Recorded, Takes, Timed, Wrap},
    plan::{Exporter, Reason, Region},
    policy::{Lists, Prefer, Rule, RunAs},
    precision::{Frame, OpRules, resolve},
    scale::ScaleMachine,
};

/// A module of burn's, as its walk over modules would show it.
struct Module {
    path: &'static str,
    kind: &'static str,
    /// The dtype in which it was made to run, and that in which it returns.
    runs: (DType, DType),
}

/// A small network of burn's modules.
struct Net(Vec<Module>);

impl Net {
    fn new() -> Self {
        let modules = [
            ("", "Classifier"),
            ("conv1", "Conv2d"),
            ("norm", "BatchNorm"),
            ("activation", "Relu"),
            ("encoder", "MyEncoder"),
            ("encoder.fc", "Linear"),
            ("encoder.gate", "SwiGlu"),
            ("head", "Linear"),
        ];
        Net(modules.map(|(path, kind)| Module { path, kind, runs: (DType::F32, DType::F32) }).into())
    }

    fn runs(&self, path: &str) -> DType {
        self.0.iter().find(|module| module.path == path).unwrap().runs.0
    }
}

impl Outlined for Net {
    fn outline(&self) -> Outline {
        let cell = |module: &Module| {
            let cell = OutlinedCell::new(module.path, module.kind);
            if matches!(module.kind, "Conv2d" | "Linear" | "SwiGlu") { cell.matrices() } else { cell }
        };
        Outline::new(self.0.iter().map(cell)).unwrap().system(System::Burn)
    }
}

impl Wrap for Net {
    type Applied = usize;

    fn wrap(&mut self, plan: Plan) -> Result<usize> {
        let depths: Vec<usize> = self.outline().cells().iter().map(|cell| cell.depth).collect();
        let mut around = vec![DType::F32];
        for (module, depth) in self.0.iter_mut().zip(depths) {
            around.truncate(depth + 1);
            let outside = around[depth];
            let decision = plan.decision(module.path)?;
            module.runs = match decision.adapter.as_ref().and_then(Adapter::cast) {
                Some(cast) => (cast.inward, cast.outward),
                None => (outside, outside),
            };
            around.push(module.runs.0);
        }
        Ok(plan.wrapped())
    }
}

fn policy(text: &str) -> Result<Policy> {
    Policy::parse(&format!("version: 1\ndtype: float16\n{text}"), "burn.yaml")
}

#[test]
fn lists_of_a_pack_count_for_kinds_by_their_names_in_a_system() {
    let plan = Policy::named("o2").unwrap().plan(&Net::new()).unwrap();
    let why = |path: &str| plan.decision(path).unwrap().because.to_string();
    let runs = |path: &str| plan.decision(path).unwrap().run;
    // burn has one BatchNorm for the three of precast.
    assert!(why("norm").starts_with("full list, precast-1"), "{}", why("norm"));
    assert_eq!(runs("norm"), Region::Fixed(DType::F32));
    for path in ["", "conv1", "encoder", "encoder.fc", "encoder.gate", "head"] {
        assert_eq!(runs(path).dtype(), Some(DType::F16), "{path}");
    }
    let plan = Policy::named("o1").unwrap().plan(&Net::new()).unwrap();
    assert_eq!(plan.decision("head").unwrap().because.to_string(), "low list, precast-1");
    assert!(matches!(plan.decision("encoder.gate").unwrap().because, Reason::Level(_)));
    // Without the system, `Linear` is a kind of nobody's.
    let cells = Net::new().outline().cells().to_vec();
    let plan = Policy::named("o1").unwrap().plan(&Outline::new(cells).unwrap()).unwrap();
    assert!(matches!(plan.decision("head").unwrap().because, Reason::Level(_)));
}

#[test]
fn rules_and_lists_name_kinds_that_precast_does_not_have() {
    let text = "
level: O2
rules: [{ path: head, run: float32-out, because: logits }, { kind: MyEncoder, run: float32 }]
cells: { black: { add: [SwiGlu, \"burn::Linear\", \"burn::DeformConv2d\"] } }
";
    let plan = policy(text).unwrap().plan(&Net::new()).unwrap();
    let why = |path: &str| plan.decision(path).unwrap().because.to_string();
    assert_eq!(why("head"), "rule path head (run: float32-out), burn.yaml:5:9: logits");
    assert_eq!(why("encoder"), "rule kind MyEncoder (run: float32), burn.yaml:5:60");
    assert_eq!(why("encoder.fc"), "inside encoder");
    let explained = plan.explain("encoder.gate").unwrap().to_string();
    assert!(explained.contains("full list, burn.yaml:6:25"), "{explained}");
    // The error of a slip suggests the right name.
    for (list, words) in [
        ("Liner", "no cell is of the kind `Liner` (did you mean `Linear`?)"),
        ("SwiGLU", "no cell is of the kind `SwiGLU` (did you mean `SwiGlu`?)"),
        ("\"brun::Linear\"", "no cell is of the kind `brun::Linear`"),
    ] {
        let text = format!("level: O2\ncells: {{ black: {{ add: [{list}] }} }}\n");
        let error = policy(&text).unwrap().plan(&Net::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::List);
        assert!(error.to_string().contains(words), "{error}");
    }
    // A kind of the library that this network does not have is none.
    assert!(policy("level: O2\ncells: { black: { add: [Conv1d] } }\n").unwrap().plan(&Net::new()).is_ok());
}

#[test]
fn ops_of_other_systems_stand_on_lists_and_resolve() {
    let text = "level: auto\nops: { white: { add: [\"burn::float_matmul\", \"onnx::Scan\"] }, black: { add: [\"onnx::Hardmax\"] } }\n";
    let policy = policy(text).unwrap();
    let frame = Frame::Lists(Arc::new(policy.lists.rules(DType::F16)));
    let cast = |name: &str| {
        let op = Op::named(name).unwrap()[0];
        resolve(Some(&frame), op, &[DType::F32, DType::F16, DType::I64]).unwrap().inputs
    };
    assert_eq!(cast("burn::float_matmul"), [Some(DType::F16), Some(DType::F16), None]);
    assert_eq!(cast("onnx::Hardmax"), [Some(DType::F32), Some(DType::F32), None]);
    assert_eq!(cast("burn::float_cumsum"), [None; 3], "it is on no list");
    // The operators that precast has are the same ops by any name.
    assert_eq!(Op::named("onnx::MatMul").unwrap(), Op::named("aten::matmul").unwrap()[..1]);
    let again = Policy::parse(&policy.to_yaml().unwrap(), "again.yaml").unwrap();
    assert_eq!(again.lists.ops().keys().collect::<Vec<_>>(), policy.lists.ops().keys().collect::<Vec<_>>());
    // Typos of the prefix, and of names of systems that are not open.
    for (op, words) in [
        ("brun::float_matmul", "no system is called `brun` (did you mean `burn`?)"),
        ("torch::matmull", "no op of torch is called `matmull` (did you mean `matmul`?)"),
        ("float_matmul", "no op is called `float_matmul`"),
    ] {
        let message =
            self::policy(&format!("level: auto\nops: {{ white: {{ add: [\"{op}\"] }} }}\n")).unwrap_err().to_string();
        assert!(message.starts_with("burn.yaml:4:23: ") && message.contains(words), "{message}");
    }
    let lists = Lists::named("mine").low_op("burn::float_matmul").unwrap();
    assert_eq!(lists.ops().len(), 1);
}

#[test]
fn a_plan_is_data() {
    let before = Policy::named("o2").unwrap().plan(&Net::new()).unwrap();
    let after = Policy::named("o3").unwrap().plan(&Net::new()).unwrap();
    let read: Plan = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
    assert_eq!(read, before);
    let changes: Vec<String> = before.diff(&after).changes.into_iter().map(|change| change.path).collect();
    assert!(changes.contains(&"norm".to_string()), "{changes:?}");
    for to in Exporter::ALL {
        assert!(!before.export(to).text.is_empty(), "{to}");
    }
    assert_eq!(before.to_string().lines().count(), 1 + 8 + 1);
}

#[test]
fn a_library_wraps_its_own_networks() {
    let mut net = Net::new();
    let policy = Policy::named("o2-bf16").unwrap().rule(Rule::path("head", RunAs::Full).unwrap()).unwrap();
    let changed = policy.apply(&mut net).unwrap();
    assert_eq!(changed, policy.plan(&net).unwrap().wrapped());
    assert_eq!([net.runs("conv1"), net.runs("norm"), net.runs("head")], [DType::Bf16, DType::F32, DType::F32]);
    // What ran is compared with the plan.
    struct Ran(Vec<(&'static str, [DType; 1])>);
    impl Recorded for Ran {
        fn ran_ops(&self) -> impl Iterator<Item = RanOp<'_>> {
            let op = Op::named("burn::float_matmul").unwrap()[0];
            self.0.iter().map(move |(path, inputs)| RanOp {
                path,
                op,
                inputs,
                output: inputs[0],
                backward: false,
                by_cell: true,
            })
        }
    }
    let plan = policy.plan(&net).unwrap();
    plan.check(&Ran(vec![("conv1", [DType::Bf16]), ("head", [DType::F32])])).unwrap();
    let message = plan.check(&Ran(vec![("head", [DType::Bf16])])).unwrap_err().to_string();
    assert!(message.starts_with("burn::float_matmul of `head` (Linear) ran in bf16; the plan says f32"), "{message}");
    assert_eq!(plan.ops(&Ran(vec![("head", [DType::F32])])).unwrap().rows[0].because.to_string(), "region of head");
}

/// Machines on which a cell takes these nanoseconds in f32 and in 16 bits; a cast takes 10.
struct Machine([f64; 2]);

impl Costs for Machine {
    fn host(&self) -> &str {
        "a machine"
    }

    fn own(&self, _cell: usize, run: Region, around: Region) -> Takes {
        let low = run.dtype().is_some_and(DType::is_low);
        let cast = if run.dtype() == around.dtype() { 0.0 } else { 10.0 };
        Takes { nanos: self.0[usize::from(low)] + cast, kept: 0.0 }
    }

    fn wide_weight_grads(&self, _cell: usize, _run: Region) -> u64 {
        0
    }

    fn inputs(&self, _cell: usize) -> usize {
        1
    }
}

impl Timed for Net {
    type Speeds = [f64; 2];
    type Trace = ();

    fn costs<'a>(&self, _: &(), speeds: &'a [f64; 2], _: Option<&OpRules>) -> Result<Box<dyn Costs + 'a>> {
        Ok(Box::new(Machine(*speeds)))
    }
}

#[test]
fn speed_decides_by_what_a_library_says_of_its_cells() {
    let policy = Policy::named("o2").unwrap().with_prefer(Prefer::Speed);
    let net = Net::new();
    let low = |speeds: [f64; 2]| {
        let plan = policy.plan_for(&net, &(), &speeds).unwrap();
        plan.decisions.iter().filter(|decision| decision.run.dtype().is_some_and(DType::is_low)).count()
    };
    // 7 cells that are not on the full list.
    assert_eq!(low([100.0, 1.0]), 7);
    assert_eq!(low([1.0, 100.0]), 0);
    let settled = policy.settled(&net, &(), &[1.0, 100.0]).unwrap();
    assert_eq!(settled.rules[0].because.as_deref(), Some("faster in float32 on a machine"));
    assert!(policy.plan(&net).unwrap_err().to_string().starts_with("the policy prefers speed"));
}

/// The rule of `torch.amp.GradScaler`: halve after a step that is not finite, double after `growth_interval` others.
#[test]
fn the_loss_scale_needs_no_tensor() {
    let policy = policy("level: O2\nloss_scale: { kind: dynamic, init: 1024, interval: 3 }\n").unwrap();
    let mut scale = ScaleMachine::new(policy.loss_scale).unwrap();
    let mut met = Vec::new();
    for finite in [true, false, true, true, true, true] {
        scale.adjust(finite);
        met.push(scale.value());
    }
    assert_eq!(met, [1024.0, 512.0, 512.0, 512.0, 1024.0, 1024.0]);
}

#[test]
fn lists_have_the_names_of_other_systems_too() {
    let auto = |ops: &str| self::policy(&format!("level: auto\nops: {{ {ops} }}\n"));
    let ours = "low: { remove: [Einsum] }, full: { add: [Tanh] }, widest: { add: [Einsum] }";
    let theirs = ours.replace("low:", "white:").replace("full:", "black:").replace("widest:", "promote:");
    let written = auto(ours).unwrap().to_yaml().unwrap();
    assert_eq!(auto(&theirs).unwrap().to_yaml().unwrap(), written);
    assert!(written.contains("full:") && !written.contains("black"), "{written}");
    let error = auto("full: { add: [Tanh] }, black: { add: [Exp] }").unwrap_err().to_string();
    assert!(error.contains("duplicate") && error.contains("full"), "{error}");
    let error = auto("fulll: { add: [Tanh] }").unwrap_err().to_string();
    assert!(error.contains("`fulll` (did you mean `full`?); allowed: low, full, widest"), "{error}");
}
