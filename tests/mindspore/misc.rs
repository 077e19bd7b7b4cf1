//! What was recorded besides networks: the lists, the errors of arguments and the order in which they are looked at, and
//! how cells are lowered for training.

use std::collections::BTreeMap;

use precast::{
    DType, ErrorKind, Level, Policy, Sgd, Tensor,
    catalogue::System,
    policy::{Lists, LossScaleSpec, Pack},
    precision::Treatment,
    rewrite::{Custom, Region, custom_mixed_precision},
    train::{BuildOptions, build_train_network},
};
use serde_json::Value;

use crate::{
    networks::{Kit, build},
    tally::Tally,
};

/// Recordings of loss scalers, by name. They have a summary of their own, in tests/scalers/mindspore.rs.
const SCALERS: &[&str] = &[
    "DynamicLossScaleManager_traces",
    "DynamicLossScaleUpdateCell_traces",
    "DynamicLossScaler_traces",
    "StaticLossScaler_adjust_returns",
    "all_finite",
    "scale_int_input",
    "scale_int_result",
    "scale_python_float",
    "scale_unscale",
    "unscale_empty_tuple",
    "unscale_nested_tuple",
    "unscale_with_None",
];

/// Whether a call makes a loss scaler or a manager, which tests/scalers/mindspore.rs does, too.
fn makes_a_scaler(call: &str) -> bool {
    call.contains("LossScale") && !call.starts_with("build_")
}

#[test]
fn misc() {
    let Some(json) = crate::common::golden("mindspore/golden.json") else { return };
    let mut tally = Tally::new("mindspore", "misc");
    for (key, recorded) in json["misc"].as_object().into_iter().flatten() {
        match key.as_str() {
            "lists" => lists(recorded, &mut tally),
            "errors" => errors(recorded, &mut tally),
            "build_train_network_structure_mlp" => structures(recorded, &mut tally),
            key if SCALERS.contains(&key) => {}
            key => tally.fail(key, "the key is not understood"),
        }
    }
    tally.close();
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|name| name.as_str().expect("a name")).collect()
}

/// Every entry of every list is one case; and an op is on a list of ours only where one of its names is on MindSpore's.
fn lists(recorded: &Value, tally: &mut Tally) {
    let pack = Pack::named("mindspore-2.10").expect("a shipped pack");
    let [o1, o2, auto] = [Level::O1, Level::O2, Level::Auto].map(|level| pack.lists(level).expect("lists"));
    for (list, entries) in recorded.as_object().into_iter().flatten() {
        let ours = match list.as_str() {
            "white" => Some(&o1),
            "black" => Some(&o2),
            _ => None,
        };
        let treatment = match list.as_str() {
            "auto_white" => Some(Treatment::Low),
            "auto_black" => Some(Treatment::Full),
            "promote" => Some(Treatment::Widest),
            _ => None,
        };
        let ops = |name: &str| precast::Op::named_in(System::MindSpore, name).unwrap_or_default();
        for name in names(entries) {
            let case = format!("lists {list} {name}");
            let agree = match (ours, treatment, name.split_once('.')) {
                (Some(ours), _, Some(("nn", kind))) => ours.cells().contains_key(kind),
                (Some(ours), _, Some(("ops", op))) => {
                    !ops(op).is_empty() && ops(op).iter().all(|op| ours.ops().contains_key(op))
                }
                (_, Some(treatment), _) => {
                    let said = |op: &precast::Op| auto.op(*op, DType::F16).map(|entry| entry.treatment);
                    !ops(name).is_empty() && ops(name).iter().all(|op| said(op) == Some(treatment))
                }
                _ if list == "__all__" => {
                    tally.not_covered(case, "a Python name; what each does is compared, not what it is called");
                    continue;
                }
                _ => false,
            };
            if agree { tally.agree(case) } else { tally.fail(case, "is not on our list") }
        }
        if let Some(ours) = ours {
            let extra = |kind: &str| !names(entries).contains(&kind);
            let cells = ours.cells().keys().map(|kind| format!("nn.{kind}")).filter(|kind| extra(kind));
            let listed = |op: &precast::Op| op.names(System::MindSpore).any(|name| !extra(&format!("ops.{name}")));
            let ops = ours.ops().keys().filter(|op| !listed(op)).map(|op| op.name().to_string());
            cells.chain(ops).for_each(|name| tally.fail(format!("lists {list}"), format!("{name} is on ours only")));
        }
        if let Some(treatment) = treatment {
            let listed = |op: &precast::Op| op.names(System::MindSpore).any(|name| names(entries).contains(&name));
            for op in auto.ops_with(treatment).filter(|op| !listed(op)) {
                tally.fail(format!("lists {list}"), format!("{op} is on ours only"));
            }
        }
        if list == "get_white_list_is_copy" {
            let mut copy = precast::policy::white_list();
            let changed = copy.remove_cell("Dense").is_some() && copy != precast::policy::white_list();
            if Some(changed) == entries.as_bool() {
                tally.agree("lists get_white_list_is_copy")
            } else {
                tally.fail("lists get_white_list_is_copy", "ours is not")
            }
        }
    }
}

/// What a call of MindSpore's is here.
enum Here {
    /// A call: whether it works, or the kind of its error.
    Call(Result<(), ErrorKind>),
    /// Nothing that could be compared, and why.
    Nothing(&'static str),
}

const BY_TYPE: &str = "Rust's types leave no such call";
const NOT_HERE: &str =
    "Rust's types leave no room for the argument, it is none here, or MindSpore refuses loss scales on CPUs";
fn errors(recorded: &Value, tally: &mut Tally) {
    for (call, outcome) in recorded.as_object().into_iter().flatten().filter(|(call, _)| !makes_a_scaler(call)) {
        let case = format!("errors {call}");
        let theirs = outcome["error"].as_str();
        let ours = match here(call) {
            None => {
                tally.fail(case, "the call is not understood");
                continue;
            }
            Some(Here::Nothing(why)) => {
                tally.not_covered(case, why);
                continue;
            }
            Some(Here::Call(ours)) => ours,
        };
        // What Python tells by the type of an exception is told by a kind here; both are about a value that does not fit.
        let same = match (theirs, &ours) {
            (None, Ok(())) => true,
            (Some("ValueError"), Err(kind)) => {
                let said = outcome["message"].as_str().unwrap_or_default();
                let about = if said.contains("dtype") || said.contains("dst_type") {
                    ErrorKind::DType
                } else if said.contains("amp level") || said.contains("'level'") {
                    ErrorKind::Level
                } else {
                    ErrorKind::Value
                };
                *kind == about
            }
            // A list that holds what it cannot hold is a type there, because classes are.
            (Some("TypeError"), Err(kind)) => *kind == ErrorKind::List,
            _ => false,
        };
        match same {
            true => tally.agree(case),
            false if call == "custom(cell, black=[ops.MatMul])" && ours.is_ok() => {
                tally.on_purpose(case, "a black list may name ops");
            }
            false => tally.fail(case, format!("{outcome} there, {ours:?} here")),
        }
    }
}

fn said<T>(result: precast::Result<T>) -> Option<Here> {
    Some(Here::Call(result.map(drop).map_err(|error| error.kind())))
}

/// The call of ours that a recorded one is.
fn here(call: &str) -> Option<Here> {
    use Here::Nothing;
    let net = || build("mlp_bn1d", Kit::Library).expect("a network of this name");
    let white = |kind: &str| Custom::White(Lists::new().white(kind));
    let black = |kind: &str| Custom::Black(Lists::new().black(kind));
    let auto = |level: &str, dtype| said(Policy::new(level, dtype).and_then(|policy| policy.apply(&mut net())));
    let custom = |list, dtype| said(custom_mixed_precision(&mut net(), list, dtype));
    let product = "mindspore:MatMul";
    let white_op = || Custom::White(Lists::new().white_op(product).expect("an op"));
    let black_op = || Custom::Black(Lists::new().black_op(product).expect("an op"));
    match call {
        "auto(cell) default" => auto("O0", DType::F16),
        "auto(cell,\"O2\",bfloat16)" => auto("O2", DType::Bf16),
        "auto(cell,\"O0\",float32)" => auto("O0", DType::F32),
        "auto(cell,\"O2\",float32)" => auto("O2", DType::F32),
        "auto(cell,\"O1\",float64)" => auto("O1", DType::F64),
        // The dtype is looked at before the level.
        "auto(cell,\"bad\",int32)" => auto("bad", DType::I64),
        "auto(cell,\"O4\")"
        | "auto(cell,\"o1\")"
        | "auto(cell,\"\")"
        | "auto(cell,\"AUTO\")"
        | "auto(cell,\"O2 \")" => auto(call.split('"').nth(1)?, DType::F16),
        // A region of code is what a wrapped function is there.
        "auto(fn,\"auto\")" | "auto(lambda,\"auto\")" => said(region("auto", DType::F16)),
        "auto(fn,\"auto\",float32)" => said(region("auto", DType::F32)),
        "auto(cell,None)"
        | "auto(cell,1)"
        | "auto(cell,\"O2\",\"float16\")"
        | "auto(cell,\"O2\",np.float16)"
        | "auto(cell,\"O2\",None)" => Some(Nothing(BY_TYPE)),
        "custom(cell, white=[ops.MatMul])" => custom(white_op(), DType::F16),
        "custom(cell, black=[ops.MatMul])" => custom(black_op(), DType::F16),
        "custom(cell, black=[Dense])" => custom(black("Dense"), DType::F16),
        "custom(cell, both None/[])" => custom(Custom::Black(Lists::new()), DType::F16),
        "custom(cell, white=[Dense], dtype=float32)" => custom(white("Dense"), DType::F32),
        // A list that is none, and a dtype that is none: the dtype is looked at first.
        "custom(cell, bad list, bad dtype)" => custom(black_op(), DType::I64),
        "to_float(int32)" => said(net().to_float(DType::I64)),
        "to_float(float64)" => said(net().to_float(DType::F64)),
        "to_float(\"float16\")" => Some(Nothing(BY_TYPE)),
        _ if call.starts_with("auto(") || call.starts_with("custom(") => Some(Nothing(BY_TYPE)),
        _ => train_network(call),
    }
}

fn region(level: &str, dtype: DType) -> precast::Result<Tensor> {
    let region = precast::Autocast::new("mindspore-2.10")?.op_level(level).dtype(dtype);
    precast::autocast(region, || Ok(Tensor::ones(&[1], DType::F32)))
}

fn train_network(call: &str) -> Option<Here> {
    let arguments = call.strip_prefix("build_train_network(")?.strip_suffix(')')?;
    let none = Some(LossScaleSpec::None);
    let (level, options) = match arguments {
        "level=O4" => ("O4", BuildOptions::default()),
        "" => ("O0", BuildOptions::default()),
        "level=O0" | "level=O1" | "level=O3" | "level=auto" => (&arguments[6..], BuildOptions::default()),
        "cast_model_type=Float16" => {
            ("O0", BuildOptions { cast_model_type: Some(DType::F16), ..BuildOptions::default() })
        }
        "level=O2,loss_scale_manager=None" => {
            ("O2", BuildOptions { loss_scale_manager: none, ..BuildOptions::default() })
        }
        "level=O2,keep_batchnorm_fp32=False,loss_scale_manager=None" => (
            "O2",
            BuildOptions { loss_scale_manager: none, keep_batchnorm_fp32: Some(false), ..BuildOptions::default() },
        ),
        "level=2" | "level=None" => return Some(Here::Nothing(BY_TYPE)),
        _ => return Some(Here::Nothing(NOT_HERE)),
    };
    let net = build("mlp_bn1d", Kit::Unfused).expect("a network of this name");
    said(build_train_network(net, |params| Sgd::new(params, 0.1), level, &options))
}

/// How `build_train_network` lowers a network before it wraps it for training: the flags and wrappers of its cells. The
/// root's `_OutputTo32` is not there; the loss casts instead.
fn structures(recorded: &Value, tally: &mut Tally) {
    for (arguments, structure) in recorded.as_object().into_iter().flatten() {
        let case = format!("build_train_network_structure_mlp {arguments}");
        let given: BTreeMap<&str, &str> =
            arguments.trim_matches(['{', '}']).split(", ").filter_map(|pair| pair.split_once(": ")).collect();
        let given = |name: &str| given.get(format!("'{name}'").as_str()).map(|value| value.trim_matches('\''));
        let Some(level) = given("level").and_then(|level| level.parse::<Level>().ok()) else {
            tally.fail(case, "the level is not understood");
            continue;
        };
        let options = BuildOptions {
            keep_batchnorm_fp32: given("keep_batchnorm_fp32").map(|keeps| keeps == "True"),
            cast_model_type: given("cast_model_type")
                .map(|cast| if cast == "Float16" { DType::F16 } else { DType::F32 }),
            ..BuildOptions::default()
        };
        let net = build("mlp_bn1d", Kit::Unfused).expect("a network of this name");
        let model = build_train_network(net, |params| Sgd::new(params, 0.1), level, &options);
        let plan = model.expect("a network to train").plan().clone();
        let level = plan.policy.level;
        let mut wrong = vec![];
        for cell in structure["net"].as_array().into_iter().flatten() {
            let (path, class) = (cell[0].as_str().unwrap_or("?"), cell[1].as_str().unwrap_or("?"));
            let wrapped = cell[2].as_array().is_some_and(|wrappers| !wrappers.is_empty());
            let flag = cell[3].as_str().map(crate::golden::dtype);
            match plan.decision(path) {
                Ok(decision) => {
                    let run = match decision.run {
                        Region::Fixed(dtype) if level != Level::O1 => Some(dtype),
                        _ => None,
                    };
                    let island = run == Some(DType::F32) && decision.adapter.is_some();
                    if (run, island, decision.kind.as_ref()) != (flag, wrapped, class) {
                        wrong.push(format!("`{path}`: {cell} there, {decision:?} here"));
                    }
                }
                Err(error) => wrong.push(error.to_string()),
            }
        }
        if wrong.is_empty() { tally.agree(case) } else { tally.fail(case, wrong.join("; ")) }
    }
}
