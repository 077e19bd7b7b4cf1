//! Scripts of nested regions: the state and the dtype after every step.

use std::{collections::BTreeMap, slice::Iter};

use precast::{Autocast, DType, Error, ErrorKind, Param, Reduction, Result, Tensor, no_grad, precision};
use serde_json::Value;

use crate::{
    forms::IN_PLACE,
    rule::{self, Region},
    tally::Tally,
};

/// A script being run: its variables, and what torch did at each step.
struct Script<'a> {
    name: &'a str,
    steps: std::iter::Enumerate<std::iter::Zip<Iter<'a, Value>, Iter<'a, Value>>>,
    variables: BTreeMap<String, Tensor>,
    /// Whether the innermost region is one that is refused here. The script goes on in a region that is off, as torch's is.
    refused: bool,
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

/// What our rule demands of an op of the scripts.
fn demanded(name: &str, x: &[&Tensor]) -> rule::Answer {
    let region = precision::region().filter(|region| region.enabled);
    let region = Region { device: "cpu", low: region.map(|region| region.dtype) };
    let inputs: Vec<DType> = x.iter().map(|x| x.dtype()).filter(|dtype| dtype.is_float()).collect();
    match name {
        "bce" => rule::demands("binary_cross_entropy_with_logits", region, &inputs),
        "pow" => rule::demands("pow_scalar_exp", region, &inputs),
        "to_f16" => Ok(vec![DType::F16]),
        "to_bf16" => Ok(vec![DType::Bf16]),
        "to_f64" => Ok(vec![DType::F64]),
        _ => rule::demands(name, region, &inputs),
    }
}

fn dtype(name: &Value) -> Option<DType> {
    name.as_str()?.parse().ok()
}

/// A step with what torch did at it.
#[derive(Clone, Copy)]
struct Step<'a> {
    at: usize,
    said: &'a Value,
    theirs: &'a Value,
}

/// How a block of a script ended.
enum Ended<'a> {
    /// At the step that closes it.
    Closed(Step<'a>),
    /// With the script.
    Over,
    /// At a step that is not understood.
    Parted,
}

const REFUSED: &str = "a region's dtype is f16 or bf16 and one of the pack";

impl<'a> Script<'a> {
    fn case(&self, step: Step<'_>) -> String {
        format!("{} {} {}", self.name, step.at, step.said)
    }

    fn fail(&mut self, step: Step<'_>, why: impl std::fmt::Display) {
        self.tally.fail(self.case(step), why);
    }

    /// Judges a step that has no result but the state it leaves.
    fn judge_state(&mut self, step: Step<'_>) {
        match self.other_state(step.theirs) {
            None => self.tally.agree(self.case(step)),
            Some(why) => self.fail(step, why),
        }
    }

    /// Where the state is not the recorded one.
    fn other_state(&self, theirs: &Value) -> Option<String> {
        let outside = precision::AutocastState { enabled: false, dtype: DType::Bf16, cache: true };
        let ours = precision::region().unwrap_or(outside);
        let state = &theirs["state"];
        // Of a region that is refused here there is no dtype.
        let same = state["enabled"] == ours.enabled
            && (self.refused || dtype(&state["dtype"]) == Some(ours.dtype))
            && state["cache_enabled"] == ours.cache;
        (!same).then(|| format!("ours {ours:?}, torch's {state}"))
    }

    /// Runs the steps up to the one that closes this block.
    fn block(&mut self) -> Ended<'a> {
        while let Some((at, (said, theirs))) = self.steps.next() {
            let step = Step { at, said, theirs };
            let inner = match said[0].as_str() {
                Some("exit") => return Ended::Closed(step),
                Some("op") => {
                    self.op(step);
                    continue;
                }
                Some("enter") => self.enter(step),
                Some("no_grad") => {
                    self.judge_state(step);
                    no_grad(|| self.block())
                }
                _ => {
                    self.fail(step, "the step is not understood");
                    return Ended::Parted;
                }
            };
            match inner {
                Ended::Closed(step) => self.judge_state(step),
                over => return over,
            }
        }
        Ended::Over
    }

    fn enter(&mut self, step: Step<'a>) -> Ended<'a> {
        let Some(region) = region(&step.said[1]) else {
            self.fail(step, "the arguments are not understood");
            return Ended::Parted;
        };
        // torch switches a region of such a dtype off, and warns if it was on; so it does with one inside that names none.
        let refused = match step.said[1].get("dtype") {
            Some(named) => !dtype(named).is_some_and(DType::is_low),
            None => self.refused,
        };
        let named = step.said[1].get("dtype").is_some();
        let entered = region.and_then(|region| region.enter());
        let entered = match entered {
            Err(error) if refused && named && error.kind() == ErrorKind::DType => None,
            Ok(_) if refused && !named => None,
            Ok(scope) if !refused => Some(scope),
            Ok(_) => {
                self.fail(step, "a dtype that is not low is accepted");
                return Ended::Parted;
            }
            Err(error) => {
                self.fail(step, error);
                return Ended::Parted;
            }
        };
        let outer = std::mem::replace(&mut self.refused, refused);
        let ended = match entered {
            Some(_scope) => {
                self.judge_state(step);
                self.block()
            }
            None => {
                let off = Autocast::new("torch-2.15-cpu").expect("a pack of the library").enabled(false);
                let _off = off.enter().expect("a region that is off");
                match self.other_state(step.theirs) {
                    None => self.tally.on_purpose(self.case(step), REFUSED),
                    Some(why) => self.fail(step, why),
                }
                self.block()
            }
        };
        self.refused = outer;
        ended
    }

    fn op(&mut self, step: Step<'a>) {
        let words: Vec<&str> = step.said.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let [_, out, name, arguments @ ..] = &words[..] else { return self.fail(step, "not understood") };
        if name.contains("inplace") {
            return self.tally.not_covered(self.case(step), IN_PLACE);
        }
        let Some(x) = arguments.iter().map(|name| self.variables.get(*name)).collect::<Option<Vec<_>>>() else {
            return self.fail(step, "a variable is not there");
        };
        let Some(ours) = op(name, &x) else { return self.fail(step, "the op is not understood") };
        let (dtypes, demanded) = (ours.as_ref().map(|y| vec![y.dtype()]).map_err(Error::kind), demanded(name, &x));
        if dtypes != demanded {
            return self.fail(step, format!("ours {dtypes:?}, our rule demands {demanded:?}"));
        }
        if let Some(why) = self.other_state(step.theirs) {
            return self.fail(step, why);
        }
        let said = step.theirs["error"]["message"].as_str();
        let mixed = said.is_some_and(|said| said.contains("same dtype"));
        match (ours, said) {
            (Err(error), Some(_)) if error.kind() == ErrorKind::DType && mixed => self.tally.agree(self.case(step)),
            (Ok(_), Some(said)) if said.contains("at::autocast::prioritize") => {
                self.tally.on_purpose(self.case(step), "promotion looks at no order");
            }
            // A low copy of the other dtype had been kept.
            (Ok(_), Some(_)) if mixed && arguments.contains(&"w") => {
                self.tally.on_purpose(self.case(step), "one weight in regions of both dtypes");
            }
            (Ok(y), None) => {
                let theirs = step.theirs;
                match dtype(&theirs["out_dtype"]) == Some(y.dtype()) && theirs["requires_grad"] == y.is_tracked() {
                    true => self.tally.agree(self.case(step)),
                    false => {
                        self.fail(step, format!("ours {}, tracked {}, torch's {theirs}", y.dtype(), y.is_tracked()))
                    }
                }
                self.variables.insert(out.to_string(), y);
            }
            (ours, said) => self.fail(step, format!("ours {:?}, torch said {said:?}", ours.map(|y| y.dtype()))),
        }
    }
}

#[test]
fn every_script() {
    let Some(golden) = crate::common::golden("torch/nested.json") else { return };
    let mut tally = Tally::new("torch", "nested");
    for (name, case) in golden["cases"].as_object().into_iter().flatten() {
        let (Some(steps), Some(results)) = (case["script"].as_array(), case["results"].as_array()) else {
            tally.fail(name, "not understood");
            continue;
        };
        let steps = steps.iter().zip(results).enumerate();
        let mut script = Script { name, steps, variables: variables(), refused: false, tally: &mut tally };
        if let Ended::Closed(step) = script.block() {
            script.fail(step, "nothing is open to be closed");
        }
        assert_eq!(precision::region(), None, "{name} leaves nothing behind");
    }
    tally.close();
}
