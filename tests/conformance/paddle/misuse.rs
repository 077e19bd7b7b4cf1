//! Calls of `paddle.amp.decorate` that are refused or have side effects, and calls on a machine without accelerator.

use precast::{
    Grads,
    prelude::*,
    storage::{Decorate, decorate},
};
use serde::Deserialize;

use super::{
    decorate::{paddle, saved},
    networks::network,
};
use crate::replay::{Judged, Verdict};

/// A call that was refused, or that has a side effect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Misuse {
    pub case: String,
    error: Option<String>,
    message: Option<String>,
    result: Option<String>,
}

/// Forms that do not exist here, by the beginning of their name: one network, one dtype type, no level and no optimizer
/// are accepted.
const NO_FORM: [&str; 8] = [
    "level ",
    "dtype paddle.float16 object",
    "models=",
    "optimizers",
    "excluded_layers=[1]",
    "excluded_layers tuple",
    "list of models returns list",
    "one model + [one opt]",
];

/// A call on a machine without accelerator, which Paddle ignores.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnCpu {
    #[serde(rename = "returns")]
    _returns: String,
    pub level: String,
    params: Vec<String>,
    multi_precision: bool,
}

/// Returns the dtypes of a LeNet after being decorated in turn.
fn dtypes(ways: impl IntoIterator<Item = Decorate>) -> Result<Vec<&'static str>> {
    let net = network("LeNet").unwrap();
    for how in ways {
        decorate(&net, how)?;
    }
    let mut dtypes: Vec<_> = net.named_params().iter().map(|(_, param)| param.dtype().long_name()).collect();
    dtypes.sort_unstable();
    dtypes.dedup();
    Ok(dtypes)
}

impl Misuse {
    /// Returns whether Paddle raised this error, with these first words.
    fn raised(&self, error: &str, words: &str) -> bool {
        self.error.as_deref() == Some(error) && self.message.as_deref().is_some_and(|said| said.starts_with(words))
    }

    pub fn judge(&self) -> Judged {
        if NO_FORM.iter().any(|form| self.case.starts_with(form)) {
            return Ok(Verdict::Differs);
        }
        let half = || paddle(DType::F16);
        let refused = |outcome: Result<Vec<&str>>, kind: ErrorKind, raised: bool| match outcome {
            Err(error) if error.kind() == kind && raised => Ok(Verdict::Agree),
            other => Err(format!("{other:?}, theirs {:?} {:?}", self.error, self.message)),
        };
        let agree = |holds: bool| if holds { Ok(Verdict::Agree) } else { Err("it does not hold here".into()) };
        let result = self.result.as_deref().unwrap_or_default();
        match self.case.as_str() {
            "dtype float32" => {
                let raised = self.raised("ValueError", "dtype only support");
                refused(dtypes([paddle(DType::F32)]), ErrorKind::DType, raised)
            }
            "save_dtype int8" => {
                let raised = self.raised("ValueError", "save_dtype can only be");
                refused(dtypes([half().save_dtype(DType::I64)]), ErrorKind::DType, raised)
            }
            "excluded_layers=[int]" => {
                let raised = self.raised("TypeError", "excluded_layers must be");
                refused(dtypes([half().exclude_kind("int")]), ErrorKind::Path, raised)
            }
            "excluded_layers=\"fc\"" => match half().exclude_path("fc").and_then(|how| dtypes([how])) {
                Ok(dtypes)
                    if dtypes == ["float16", "float32"] && self.raised("TypeError", "excluded_layers must be") =>
                {
                    Ok(Verdict::Differs)
                }
                other => Err(format!("{other:?}")),
            },
            "excluded_layers=ReLU type" => {
                agree(format!("{:?}", dtypes([half().exclude_kind("ReLU")]).unwrap()).replace('"', "'") == result)
            }
            "save_dtype float64" => {
                let net = network("LeNet").unwrap();
                decorate(&net, half().save_dtype(DType::F64)).unwrap();
                agree(result == "{'float64'}" && saved(&net).values().all(|dtype| dtype == "F64"))
            }
            "decorate bfloat16 then float16" => {
                let met = dtypes([paddle(DType::Bf16), half()]).unwrap();
                agree(met == ["float16"] && !result.contains("bfloat16") && result.contains("float16"))
            }
            "decorate float16 then bfloat16" => match dtypes([half(), paddle(DType::Bf16)]).unwrap()[..] {
                ["bfloat16"] if !result.contains("bfloat16") => Ok(Verdict::Differs),
                ref other => Err(format!("{other:?}")),
            },
            "SGD multi_precision after O2" => agree(result == "True" && masters_appear()),
            "optimizer _multi_precision before/after" => {
                let named = |name: &str| result.contains(&format!("'{name}': [False, True]"));
                agree(masters_appear() && ["SGD", "Momentum", "Adam", "AdamW"].into_iter().all(named))
            }
            other => Err(format!("the case `{other}` is not understood")),
        }
    }
}

/// Returns whether a plain call gives every low parameter a master, which it lacked before, and every optimizer updates
/// it.
fn masters_appear() -> bool {
    let net = network("LeNet").unwrap();
    let having = |net: &Child| net.params().iter().filter(|(_, param)| param.master().is_some()).count();
    let before = having(&net);
    decorate(&net, paddle(DType::F16)).unwrap();
    let moved = |optimizer: &mut dyn Optimizer| {
        let (params, mut grads) = (net.params(), Grads::default());
        let sum = || -> f64 { params.iter().flat_map(|(_, param)| param.master().unwrap().to_f64()).sum() };
        params.iter().for_each(|(_, param)| grads.set(param, Tensor::ones(&param.shape(), param.dtype())));
        let earlier = sum();
        optimizer.update(&grads).unwrap();
        sum() != earlier
    };
    before == 0
        && having(&net) == net.params().len()
        && moved(&mut Sgd::new(net.params(), 1e-6))
        && moved(&mut Sgd::new(net.params(), 1e-6).momentum(0.9))
        && moved(&mut Adam::new(net.params(), 1e-6))
        && moved(&mut AdamW::new(net.params(), 1e-6))
}

impl OnCpu {
    /// Judges a call, which has the same meaning on every machine here: O1 is not a call, O2 stores low.
    pub fn judge(&self) -> Judged {
        let untouched = self.params == ["float32"] && !self.multi_precision;
        match self.level.as_str() {
            "O1" if untouched => Ok(Verdict::Agree),
            "O2" if untouched && dtypes([paddle(DType::F16)]).unwrap() == ["float16"] => Ok(Verdict::Differs),
            other => Err(format!("level {other} with {:?} is not understood", self.params)),
        }
    }
}
