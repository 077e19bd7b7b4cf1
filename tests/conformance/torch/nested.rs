//! Scripts of nested regions: the state and the dtype after every step.

use std::{collections::BTreeMap, slice::Iter};

use precast::{Autocast, DType, Error, ErrorKind, Result, Tensor, no_grad, precision};
use serde_json::Value;

use crate::common::golden::{golden, recorded_beside};
use crate::replay::{Tally, Verdict, entries, replay};
use crate::torch::steps::{self, Arguments};

/// A running script: its variables, and torch's result at each step.
struct Script<'a> {
    name: &'a str,
    steps: std::iter::Enumerate<std::iter::Zip<Iter<'a, Value>, Iter<'a, Value>>>,
    variables: BTreeMap<String, Tensor>,
    /// `true` when the innermost region is refused here. The script continues in a disabled region, as in torch.
    refused: bool,
    tally: &'a mut Tally,
}

/// Parses the region that `enter` opens. A missing dtype or cache is inherited.
fn region(arguments: &Value) -> Option<Result<Autocast>> {
    let mut region = Autocast::new("torch-2.15-cpu").ok()?;
    for (name, value) in arguments.as_object()? {
        region = match name.as_str() {
            // Not given.
            _ if value.is_null() => region,
            "device_type" if value == "cpu" => region,
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

/// A step with torch's result.
#[derive(Clone, Copy)]
struct Step<'a> {
    at: usize,
    said: &'a Value,
    theirs: &'a Value,
}

/// End of a block of a script.
enum Ended<'a> {
    /// At the step that closes it.
    Closed(Step<'a>),
    /// With the script.
    Over,
    /// At an unrecognized step.
    Parted,
}

impl<'a> Script<'a> {
    fn case(&self, step: Step<'_>) -> String {
        format!("{} {} {}", self.name, step.at, step.said)
    }

    fn fail(&mut self, step: Step<'_>, why: impl std::fmt::Display) {
        self.tally.fail(self.case(step), why);
    }

    /// Judges a step that has no result except the state it leaves.
    fn judge_state(&mut self, step: Step<'_>) {
        match self.other_state(step.theirs) {
            None => self.tally.agree(self.case(step)),
            Some(why) => self.fail(step, why),
        }
    }

    /// Returns the deviation from the recorded state, if any.
    fn other_state(&self, theirs: &Value) -> Option<String> {
        let outside = precision::AutocastState { enabled: false, dtype: DType::Bf16, cache: true };
        let ours = precision::region().unwrap_or(outside);
        let state = &theirs["state"];
        // A region refused here has no dtype.
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
        // torch disables a region of such a dtype, with a warning if it was enabled, and likewise an inner one without
        // a dtype.
        let named = step.said[1].get("dtype").filter(|named| !named.is_null());
        let refused = match named {
            Some(named) => !dtype(named).is_some_and(DType::is_low),
            None => self.refused,
        };
        let named = named.is_some();
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
                    None => self.tally.differs(self.case(step)),
                    Some(why) => self.fail(step, why),
                }
                self.block()
            }
        };
        self.refused = outer;
        ended
    }

    fn op(&mut self, step: Step<'a>) {
        let said = step.said.as_array().map(Vec::as_slice).unwrap_or_default();
        let [_, Value::String(out), Value::String(name), arguments @ ..] = said else {
            return self.fail(step, "not understood");
        };
        if steps::is_in_place(name) {
            return self.tally.absent(self.case(step));
        }
        let Some(arguments) = Arguments::read(arguments, &self.variables) else {
            return self.fail(step, "a variable is not there, or a keyword is not known");
        };
        let Some(ours) = steps::run(name, &arguments) else { return self.fail(step, "the op is not understood") };
        let dtypes = ours.as_ref().map(|y| vec![y.dtype()]).map_err(Error::kind);
        let demanded = steps::demanded(name, &arguments);
        if dtypes != demanded {
            return self.fail(step, format!("ours {dtypes:?}, our rule demands {demanded:?}"));
        }
        if let Some(why) = self.other_state(step.theirs) {
            return self.fail(step, why);
        }
        let said = step.theirs["error"]["message"].as_str();
        let is_of_dtypes =
            |said: &str| said.contains("same dtype") || arguments.x.iter().any(|x| !x.dtype().is_float());
        let (theirs, case) = (step.theirs, self.case(step));
        let agrees = match (&ours, said) {
            (Ok(y), None) => {
                dtype(&theirs["out_dtype"]) == Some(y.dtype()) && theirs["requires_grad"] == y.is_tracked()
            }
            (Err(_), Some(said)) => is_of_dtypes(said),
            _ => false,
        };
        self.tally.count(case, Ok(Verdict::of(agrees)));
        self.variables.extend(ours.ok().filter(|_| said.is_none()).map(|y| (out.clone(), y)));
    }
}

fn judge(golden: &Value, tally: &mut Tally) {
    for (name, case) in entries(&golden["cases"]) {
        let (Some(steps), Some(results)) = (case["script"].as_array(), case["results"].as_array()) else {
            tally.fail(name, "not understood");
            continue;
        };
        let paired = steps.iter().zip(results).enumerate();
        let mut script =
            Script { name, steps: paired, variables: steps::variables(), refused: false, tally: &mut *tally };
        if let Ended::Closed(step) = script.block() {
            script.fail(step, "nothing is open to be closed");
        }
        assert_eq!(precision::region(), None, "{name} leaves nothing behind");
    }
}

#[test]
fn every_script() {
    replay("torch", "nested", golden("torch/nested.json"), judge);
}

/// Ops that create tensors, and every op on integers, f64 and low numbers, recorded by `tools/peers/torch/regions.py`.
#[test]
fn every_script_of_other_ops() {
    replay("torch", "nested-ops", recorded_beside("torch/nested.json"), judge);
}
