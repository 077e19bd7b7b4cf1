//! Additional cases in `tests/goldens-extra/paddle`, of forms that recordings may contain. Arguments of every type were
//! recorded; parameters listed under several names, `var` and `std` of low inputs, and classes that a network lacks
//! were derived by hand from Paddle's rule.

use serde_json::Value;

use super::{context, decorate, names::dtype, ops};
use crate::{
    common::golden::recorded_beside,
    replay::{Case, Verdict, replay},
};
use precast::DType;

/// Compares these cases in addition to those of any other folder.
fn judged(file: &str, verdicts: &str, judge: fn(&Value) -> Vec<Case>) {
    let recording = recorded_beside(&format!("paddle/{file}.json"));
    replay("paddle", verdicts, recording, |recorded, tally| tally.count_all(judge(recorded)));
}

#[test]
fn ops_that_nobody_recorded() {
    judged("ops", "ops-made-up", ops::judge);
}

#[test]
fn arguments_of_every_type() {
    judged("context", "context-arguments", context::judge);
}

#[test]
fn decorations_that_nobody_recorded() {
    judged("decorate", "decorate-made-up", decorate::judge);
}

#[test]
fn dtypes_are_read_in_every_printed_form() {
    for (printed, expected) in [
        ("'bfloat16'", DType::Bf16),
        ("BFLOAT16", DType::Bf16),
        ("paddle.bfloat16", DType::Bf16),
        ("DataType.BFLOAT16", DType::Bf16),
        ("<DataType.BFLOAT16: 16>", DType::Bf16),
        ("VarType.FP16", DType::F16),
        ("<VarType.FP16: 4>", DType::F16),
        ("paddle.base.libpaddle.DataType.FLOAT32", DType::F32),
        ("6", DType::F64),
    ] {
        assert_eq!(dtype(printed), Some(expected), "{printed}");
    }
    for nothing in ["", "paddle", "float8_e4m3fn", "99", "<>"] {
        assert_eq!(dtype(nothing), None, "{nothing}");
    }
}

/// An unrecognized case fails, without affecting others, and a result that is not ours is seen.
#[test]
fn what_is_not_understood_fails() {
    let case = |json: &str| serde_json::from_str::<Value>(json).unwrap();
    let unknown = case(
        r#"{"cases": [
            {"api": "nonsense", "level": "O1", "dtype": "bfloat16", "inputs": "f32", "out": "float32"},
            {"api": "exp", "level": "O1", "dtype": "float8", "inputs": "f32", "out": "float32"},
            {"api": "exp", "level": "O1", "dtype": "bfloat16", "inputs": "f32", "out": "float32", "new": 1},
            {"api": "exp", "level": "O1", "dtype": "bfloat16", "inputs": "low", "out": "bfloat16", "ops": ["exp:bfloat16"]},
            {"api": "linear", "level": "O1", "dtype": "bfloat16", "inputs": "f32", "out": "float32", "ops": ["matmul:float32"]},
            {"case": "auto_cast(level='O1')", "result": ["AmpLevel.O1", true, "float16"]},
            {"case": "pir: auto_cast(colour='red')", "result": ["AmpLevel.O1", true, "float16"]},
            {"case": "pir: auto_cast(dtype=paddle.bfloat16)", "result": ["AmpLevel.O1", true, "float16"]},
            {"case": "pir: auto_cast(level='O2')", "error": "ValueError", "message": "level should be O0, OD, O1 or O2."},
            {"net": "LeNet", "level": "O3", "dtype": "float16"}
        ]}"#,
    );
    let judges: [fn(&Value) -> Vec<Case>; 3] = [ops::judge, context::judge, decorate::judge];
    for (judge, cases) in judges.into_iter().zip([0..5, 5..9, 9..10]) {
        for at in cases {
            let judged = judge(&serde_json::json!({ "cases": [unknown["cases"][at]] }));
            let is_seen = |(_, judged): &Case| matches!(judged, Err(_) | Ok(Verdict::Differs));
            assert!(!judged.is_empty() && judged.iter().all(is_seen), "case {at}: {judged:?}");
        }
    }
}
