//! Scripts of nested regions: the state and the dtype after every step.

use std::{collections::BTreeMap, slice::Iter};

use precast::{Autocast, DType, Param, Reduction, Result, Tensor, no_grad, precision};
use serde_json::Value;

use crate::tally::Tally;

/// A script being run: its variables, and what torch did at each step.
struct Script<'a> {
    name: &'a str,
    steps: std::iter::Zip<Iter<'a, Value>, Iter<'a, Value>>,
    variables: BTreeMap<String, Tensor>,
    tally: &'a mut Tally,
}

/// f32 `a`, `b`, `c`, `d`, f16 `h`, bf16 `g`, f64 `z`, a trained f32 `w`, all 8 x 8, and 8 classes `i`.
fn variables() -> BTreeMap<String, Tensor> {
    let matrix = |dtype| {
        let data: Vec<f64> = (0..64).map(|i| (i as f64 * 0.618_034).fract()).collect();
        Tensor::from_f64(&data, &[8, 8], dtype).unwrap()
    };
    let dtypes = [("h", DType::F16), ("g", DType::Bf16), ("z", DType::F64)];
    let wide = ["a", "b", "c", "d"].map(|name| (name, DType::F32));
    let matrices = wide.into_iter().chain(dtypes).map(|(name, dtype)| (name.to_string(), matrix(dtype)));
    let weight = Param::new(matrix(DType::F32)).tensor();
    matrices.chain([("w".into(), weight), ("i".into(), Tensor::arange(8))]).collect()
}

/// What one writes for an op of the scripts; `None` when it is not understood.
fn op(name: &str, x: &[&Tensor]) -> Option<Result<Tensor>> {
    let mean = Reduction::Mean;
    Some(match (name, x) {
        ("mm" | "matmul", [a, b]) => a.matmul(b),
        ("linear", [a, w]) => a.linear(w, None),
        ("cat", [a, b]) => Tensor::concat(&[a, b], 0),
        ("stack", [a, b]) => Tensor::stack(&[a, b], 0),
        ("add", [a, b]) => a.add(b),
        ("sub", [a, b]) => a.sub(b),
        ("mul", [a, b]) => a.mul(b),
        ("div", [a, b]) => a.div(b),
        ("relu", [x]) => x.relu(),
        ("gelu", [x]) => x.gelu(),
        ("sigmoid", [x]) => x.sigmoid(),
        ("tanh", [x]) => x.tanh(),
        ("exp", [x]) => x.exp(),
        ("log", [x]) => x.log(),
        ("sqrt", [x]) => x.sqrt(),
        ("pow", [x]) => x.powf(2.0),
        ("softmax", [x]) => x.softmax(-1),
        ("log_softmax", [x]) => x.log_softmax(-1),
        ("layer_norm", [x]) => x.layer_norm(&[8], None, None, 1e-5),
        ("sum", [x]) => x.sum_all(),
        ("mean", [x]) => x.mean_all(),
        ("prod", [x]) => x.prod(&[], false),
        ("norm", [x]) => x.norm(2.0, &[], false),
        ("mse_loss", [x, t]) => x.mse_loss(t, mean),
        ("l1_loss", [x, t]) => x.l1_loss(t, mean),
        ("cross_entropy", [x, t]) => x.cross_entropy(t),
        ("bce", [x, t]) => x.bce_with_logits(t, mean),
        ("to_f32", [x]) => Ok(x.cast(DType::F32)),
        ("to_f16", [x]) => Ok(x.cast(DType::F16)),
        ("to_bf16", [x]) => Ok(x.cast(DType::Bf16)),
        ("to_f64", [x]) => Ok(x.cast(DType::F64)),
        _ => return None,
    })
}

/// The region that `enter` opens. No dtype and no cache means those around it.
fn region(arguments: &Value) -> Option<Result<Autocast>> {
    let mut region = Autocast::new("torch-2.15-cpu").ok()?;
    for (name, value) in arguments.as_object()? {
        region = match name.as_str() {
            "dtype" => match value.as_str()?.parse() {
                Ok(dtype) => region.dtype(dtype),
                Err(error) => return Some(Err(error)),
            },
            "enabled" => region.enabled(value.as_bool()?),
            "cache_enabled" => region.cache(value.as_bool()?),
            _ => return None,
        };
    }
    Some(Ok(region))
}

fn dtype(name: &Value) -> Option<DType> {
    name.as_str()?.parse().ok()
}

/// How a block of a script ended.
enum Ended<'a> {
    /// At the step that closes it.
    Closed(&'a Value, &'a Value),
    /// With the script.
    Over,
    /// At a step after which ours and theirs have nothing more in common.
    Parted,
}

impl<'a> Script<'a> {
    fn fail(&mut self, step: &Value, why: impl std::fmt::Display) {
        self.tally.fail(format!("{} {step}: {why}", self.name));
    }

    /// Judges a step that has no result but the state it leaves.
    fn judge_state(&mut self, step: &Value, theirs: &Value) {
        match self.other_state(theirs) {
            None => self.tally.agree(),
            Some(why) => self.fail(step, why),
        }
    }

    /// Where the state is not the recorded one.
    fn other_state(&self, theirs: &Value) -> Option<String> {
        let outside = precision::RegionState { enabled: false, dtype: DType::Bf16, cache: true };
        let ours = precision::region().unwrap_or(outside);
        let state = &theirs["state"];
        let same = state["enabled"] == ours.enabled
            && dtype(&state["dtype"]) == Some(ours.dtype)
            && state["cache_enabled"] == ours.cache;
        (!same).then(|| format!("ours {ours:?}, torch's {state}"))
    }

    /// Runs the steps up to the one that closes this block.
    fn block(&mut self) -> Ended<'a> {
        while let Some((step, theirs)) = self.steps.next() {
            let inner = match step[0].as_str() {
                Some("exit") => return Ended::Closed(step, theirs),
                Some("op") => {
                    self.op(step, theirs);
                    continue;
                }
                Some("enter") => self.enter(step, theirs),
                Some("no_grad") => {
                    self.judge_state(step, theirs);
                    no_grad(|| self.block())
                }
                _ => {
                    self.fail(step, "the step is not understood");
                    return Ended::Parted;
                }
            };
            match inner {
                Ended::Closed(step, theirs) => self.judge_state(step, theirs),
                over => return over,
            }
        }
        Ended::Over
    }

    fn enter(&mut self, step: &'a Value, theirs: &'a Value) -> Ended<'a> {
        let entered = match region(&step[1]) {
            None => {
                self.fail(step, "the arguments are not understood");
                return Ended::Parted;
            }
            Some(region) => region.and_then(|region| region.enter()),
        };
        match entered {
            Ok(_region) => {
                self.judge_state(step, theirs);
                self.block()
            }
            // torch switches such a region off, and warns if it was on.
            Err(_) if step[1].get("dtype").is_some_and(|named| !dtype(named).is_some_and(DType::is_low)) => {
                self.tally.on_purpose("a region of another dtype is an error");
                Ended::Parted
            }
            Err(error) => {
                self.fail(step, error);
                Ended::Parted
            }
        }
    }

    fn op(&mut self, step: &'a Value, theirs: &'a Value) {
        let words: Vec<&str> = step.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let [_, out, name, arguments @ ..] = &words[..] else { return self.fail(step, "not understood") };
        if name.contains("inplace") {
            return self.tally.outside(1);
        }
        let Some(x) = arguments.iter().map(|name| self.variables.get(*name)).collect::<Option<Vec<_>>>() else {
            return self.fail(step, "a variable is not there");
        };
        let Some(ours) = op(name, &x) else { return self.fail(step, "the op is not understood") };
        let said = theirs["error"]["message"].as_str().unwrap_or_default();
        if let Some(why) = self.other_state(theirs) {
            return self.fail(step, why);
        }
        match ours {
            Err(_) if theirs["error"].is_object() => self.tally.agree(),
            Err(error) => self.fail(step, error),
            Ok(_) if said.contains("at::autocast::prioritize") => self.tally.on_purpose("promotion looks at no order"),
            // A low copy of the other dtype had been kept.
            Ok(_) if said.contains("to have the same dtype") && arguments.contains(&"w") => {
                self.tally.on_purpose("low copies of a parameter are kept by dtype");
            }
            Ok(_) if theirs["error"].is_object() => self.fail(step, format!("torch said {said}")),
            Ok(y) => {
                let same = dtype(&theirs["out_dtype"]) == Some(y.dtype()) && theirs["requires_grad"] == y.is_tracked();
                match same {
                    true => self.tally.agree(),
                    false => {
                        self.fail(step, format!("ours {}, tracked {}, torch's {theirs}", y.dtype(), y.is_tracked()))
                    }
                }
                self.variables.insert(out.to_string(), y);
            }
        }
    }
}

#[test]
fn every_script() {
    let Some(golden) = crate::common::golden("torch/nested.json") else { return };
    let mut tally = Tally::new("torch", "nested");
    for (name, case) in golden["cases"].as_object().into_iter().flatten() {
        let (Some(steps), Some(results)) = (case["script"].as_array(), case["results"].as_array()) else {
            tally.fail(format!("{name} is not understood"));
            continue;
        };
        let steps = steps.iter().zip(results);
        let mut script = Script { name, steps, variables: variables(), tally: &mut tally };
        if let Ended::Closed(step, _) = script.block() {
            script.fail(step, "nothing is open to be closed");
        }
        assert_eq!(precision::region(), None, "{name} leaves nothing behind");
    }
    tally.close();
}
