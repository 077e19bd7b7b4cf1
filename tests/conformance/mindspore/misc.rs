//! Recordings other than networks: the lists, the errors of arguments and the order of their checks, and the lowering
//! of cells for training.

use std::collections::BTreeMap;

use precast::{
    DType, ErrorKind, Level, Policy, Sgd, Tensor,
    catalogue::System,
    compat::mindspore::{CustomLists, custom_mixed_precision},
    plan::Region,
    policy::{DynamicScale, Lists, LossScaleSpec, Pack},
    precision::Treatment,
};
use precast_train::mindspore::{BuildOptions, build_train_network};
use serde_json::Value;

use crate::{
    common::golden::golden,
    mindspore::networks::{Kit, build},
    replay::{Tally, entries, items, replay},
};

/// Recordings of loss scalers, by name. They have a separate summary in tests/conformance/scalers/mindspore.rs.
const SCALERS: &str = "
    DynamicLossScaleManager_traces DynamicLossScaleUpdateCell_traces DynamicLossScaler_traces
    StaticLossScaler_adjust_returns all_finite scale_int_input scale_int_result scale_python_float scale_unscale
    unscale_empty_tuple unscale_nested_tuple unscale_with_None
";

/// Returns whether a recording is of a loss scaler.
pub fn is_of_a_scaler(key: &str) -> bool {
    SCALERS.split_whitespace().any(|known| known == key)
}

/// Returns whether a call makes a loss scaler or a manager, which tests/conformance/scalers/mindspore.rs covers as well.
fn makes_a_scaler(call: &str) -> bool {
    call.contains("LossScale") && !call.starts_with("build_")
}

#[test]
fn misc() {
    replay("mindspore", "misc", golden("mindspore/golden.json"), |json, tally| {
        for (key, recorded) in entries(&json["misc"]) {
            match key.as_str() {
                "lists" => lists(recorded, tally),
                "errors" => errors(recorded, tally),
                "build_train_network_structure_mlp" => structures(recorded, tally),
                key if is_of_a_scaler(key) => {}
                key => tally.fail(key, "the key is not understood"),
            }
        }
    });
}

fn names(list: &Value) -> Vec<&str> {
    items(list).map(|name| name.as_str().expect("a name")).collect()
}

/// Judges every entry of every list as one case, and checks that an op is on one of our lists only if one of its names
/// is on MindSpore's.
fn lists(recorded: &Value, tally: &mut Tally) {
    let pack = Pack::named("mindspore-2.10").expect("a shipped pack");
    let [o1, o2, auto] = [Level::O1, Level::O2, Level::Auto].map(|level| pack.lists(level).expect("lists"));
    for (list, entries) in entries(recorded) {
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
                    let said = |op, low| auto.op(op, low).map(|entry| entry.treatment);
                    let is_said = |op: &precast::Op| DType::LOW.iter().all(|low| said(*op, *low) == Some(treatment));
                    !ops(name).is_empty() && ops(name).iter().all(is_said)
                }
                _ if list == "__all__" => {
                    tally.absent(case);
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
            let mut copy = precast::policy::low_list();
            let changed = copy.remove_cell("Dense").is_some() && copy != precast::policy::low_list();
            if Some(changed) == entries.as_bool() {
                tally.agree("lists get_white_list_is_copy")
            } else {
                tally.fail("lists get_white_list_is_copy", "ours is not")
            }
        }
    }
}

/// Counterpart here of a call in MindSpore: success, or the kind of its error.
type Here = Result<(), ErrorKind>;

fn errors(recorded: &Value, tally: &mut Tally) {
    for (call, outcome) in entries(recorded).filter(|(call, _)| !makes_a_scaler(call)) {
        let case = format!("errors {call}");
        let theirs = outcome["error"].as_str();
        let said = outcome["message"].as_str().unwrap_or_default();
        let Some(ours) = here(call) else {
            // What has no form here is refused there.
            match theirs {
                Some(_) => tally.absent(case),
                None => tally.fail(case, "works there, and is not understood"),
            }
            continue;
        };
        // The type of an exception in Python corresponds to a kind of error here; both are about an unsuitable value.
        let same = match (theirs, &ours) {
            (None, Ok(())) => true,
            (Some("ValueError"), Err(kind)) => {
                let about = if said.contains("dtype") || said.contains("dst_type") {
                    ErrorKind::DType
                } else if said.contains("amp level") || said.contains("'level'") {
                    ErrorKind::Level
                } else {
                    ErrorKind::Value
                };
                *kind == about
            }
            // A wrong element in a list is a type error there, because classes are types.
            (Some("TypeError"), Err(kind)) => *kind == ErrorKind::List,
            _ => false,
        };
        match (same, &ours) {
            (true, _) => tally.agree(case),
            // Refused there alone.
            (false, Ok(())) => tally.differs(case),
            (false, Err(kind)) => tally.fail(case, format!("{outcome} there, {kind:?} here")),
        }
    }
}

fn said<T>(result: precast::Result<T>) -> Option<Here> {
    Some(result.map(drop).map_err(|error| error.kind()))
}

/// Parses a dtype in a call; int32 and int8 are i64 here.
fn dtype(name: &str) -> Option<DType> {
    Some(match name.to_lowercase().as_str() {
        "float16" => DType::F16,
        "bfloat16" => DType::Bf16,
        "float32" => DType::F32,
        "float64" => DType::F64,
        "int8" | "int32" | "int64" => DType::I64,
        _ => return None,
    })
}

/// Returns our counterpart of a recorded call.
fn here(call: &str) -> Option<Here> {
    let (function, arguments) = call.split_once('(')?;
    let arguments = arguments.strip_suffix(')');
    match function {
        "auto" => match arguments {
            Some(arguments) => auto(&arguments.split(',').collect::<Vec<_>>()),
            None if call == "auto(cell) default" => auto(&["cell"]),
            None => None,
        },
        "custom" => custom(call),
        "to_float" => to_float(arguments?),
        "build_train_network" => train_network(arguments?),
        _ => None,
    }
}

/// Runs `auto_mixed_precision(network, level, dtype)`.
fn auto(arguments: &[&str]) -> Option<Here> {
    let (network, level, low) = match *arguments {
        [network] => (network, "\"O0\"", "float16"),
        [network, level] => (network, level, "float16"),
        [network, level, low] => (network, level, low),
        _ => return None,
    };
    let word = level.strip_prefix('"').and_then(|level| level.strip_suffix('"'));
    match (network, word?) {
        ("cell", level) => {
            let mut net = build("mlp_bn1d", Kit::Library)?;
            said(Policy::new(level, dtype(low)?).and_then(|policy| policy.apply(&mut net)))
        }
        // A wrapped function there corresponds to a region here.
        ("fn" | "lambda", "auto") => {
            let region = precast::Autocast::new("mindspore-2.10").ok()?.op_level("auto").dtype(dtype(low)?);
            said(precast::autocast(region, || Ok(Tensor::ones(&[1], DType::F32))))
        }
        _ => None,
    }
}

/// Runs `custom_mixed_precision(network, white_list=.., black_list=.., dtype=..)`.
fn custom(call: &str) -> Option<Here> {
    let lower = |list, dtype| {
        let mut net = build("mlp_bn1d", Kit::Library).expect("a network of this name");
        said(custom_mixed_precision(&mut net, list, dtype))
    };
    let white = |kind: &str| CustomLists::White(Lists::new().low(kind));
    let black = |kind: &str| CustomLists::Black(Lists::new().full(kind));
    let product = "mindspore:MatMul";
    let white_op = || CustomLists::White(Lists::new().low_op(product).expect("an op"));
    let black_op = || CustomLists::Black(Lists::new().full_op(product).expect("an op"));
    match call {
        "custom(cell, white=[ops.MatMul])" => lower(white_op(), DType::F16),
        "custom(cell, black=[ops.MatMul])" => lower(black_op(), DType::F16),
        "custom(cell, black=[Dense])" => lower(black("Dense"), DType::F16),
        "custom(cell, both None/[])" => lower(CustomLists::Black(Lists::new()), DType::F16),
        "custom(cell, white=[Dense], dtype=float32)" => lower(white("Dense"), DType::F32),
        // An invalid list and an invalid dtype: the dtype is checked first.
        "custom(cell, bad list, bad dtype)" => lower(black_op(), DType::I64),
        _ => None,
    }
}

fn to_float(argument: &str) -> Option<Here> {
    let dtype = dtype(argument)?;
    said(build("mlp_bn1d", Kit::Library)?.to_float(dtype))
}

/// Parses a `loss_scale_manager` argument.
fn manager(argument: &str) -> Option<LossScaleSpec> {
    Some(match argument {
        "None" => LossScaleSpec::None,
        "FixedLossScaleManager(drop=True)" | "FixedLossScaleManager(drop=False)" => {
            LossScaleSpec::Fixed { scale: 128.0 }
        }
        "DynamicLossScaleManager(drop=True)" => LossScaleSpec::Dynamic(DynamicScale::mindspore_manager()),
        _ => return None,
    })
}

fn train_network(arguments: &str) -> Option<Here> {
    let (mut level, mut options) = ("O0", BuildOptions::default());
    for argument in arguments.split(',').filter(|argument| !argument.is_empty()) {
        match argument.split_once('=')? {
            ("level", word) if !matches!(word, "2" | "None") => level = word,
            ("cast_model_type", name) => options.cast_model_type = Some(dtype(name)?),
            ("keep_batchnorm_fp32", "True") => options.keep_batchnorm_fp32 = Some(true),
            ("keep_batchnorm_fp32", "False") => options.keep_batchnorm_fp32 = Some(false),
            ("loss_scale_manager", word) => options.loss_scale_manager = Some(manager(word)?),
            _ => return None,
        }
    }
    let net = build("mlp_bn1d", Kit::Unfused).expect("a network of this name");
    said(build_train_network(net, |params| Sgd::new(params, 0.1), level, &options))
}

/// MindSpore refuses `cast_model_type=bfloat16`.
#[test]
fn a_network_is_trained_in_either_low_dtype() {
    for low in DType::LOW {
        let net = build("mlp_bn1d", Kit::Unfused).expect("a network of this name");
        let options = BuildOptions::default().cast_model_type(Some(low));
        let model = build_train_network(net, |params| Sgd::new(params, 0.1), "O0", &options).unwrap();
        assert!(model.plan.decisions.iter().all(|decision| decision.run == Region::Fixed(low)), "{}", model.plan);
    }
}

/// Judges the lowering by `build_train_network` before it wraps a network for training: the flags and wrappers of its
/// cells. The root's `_OutputTo32` is absent; the loss casts instead.
fn structures(recorded: &Value, tally: &mut Tally) {
    for (arguments, structure) in entries(recorded) {
        let case = format!("build_train_network_structure_mlp {arguments}");
        let given: BTreeMap<&str, &str> =
            arguments.trim_matches(['{', '}']).split(", ").filter_map(|pair| pair.split_once(": ")).collect();
        let given = |name: &str| given.get(format!("'{name}'").as_str()).map(|value| value.trim_matches('\''));
        let Some(level) = given("level").and_then(|level| level.parse::<Level>().ok()) else {
            tally.fail(case, "the level is not understood");
            continue;
        };
        let cast_model_type = given("cast_model_type").map(dtype);
        if cast_model_type == Some(None) {
            tally.fail(case, "the dtype is not understood");
            continue;
        }
        let options = BuildOptions::default()
            .keep_batchnorm_fp32(given("keep_batchnorm_fp32").map(|keeps| keeps == "True"))
            .cast_model_type(cast_model_type.flatten());
        let net = build("mlp_bn1d", Kit::Unfused).expect("a network of this name");
        let model = build_train_network(net, |params| Sgd::new(params, 0.1), level, &options);
        let plan = model.expect("a network to train").plan;
        let level = plan.policy.level;
        let mut wrong = vec![];
        let cells = structure["net"].as_array().map_or(&[][..], |cells| cells);
        if cells.len() != plan.decisions.len() {
            wrong.push(format!("{} cells there, {} here", cells.len(), plan.decisions.len()));
        }
        for cell in cells {
            let (path, class) = (cell[0].as_str().unwrap_or("?"), cell[1].as_str().unwrap_or("?"));
            let wrapped = cell[2].as_array().is_some_and(|wrappers| !wrappers.is_empty());
            let flag = cell[3].as_str().map(crate::mindspore::golden::dtype);
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
