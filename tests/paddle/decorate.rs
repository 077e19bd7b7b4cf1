//! `paddle.amp.decorate` against `rewrite::decorate`: in which dtype each parameter is stored and saved, and the misuse.

use std::{collections::BTreeMap, fs};

use precast::{
    Grads,
    cell::Node,
    prelude::*,
    rewrite::{Decorate, Decorated, decorate},
    weights,
};
use safetensors::SafeTensors;
use serde::Deserialize;

use super::{
    networks::{kind, network, path},
    tally::Tally,
};

#[derive(Deserialize)]
struct Golden {
    #[serde(default)]
    cases: Vec<Case>,
    #[serde(default)]
    errors: Vec<Misuse>,
    #[serde(default)]
    cpu_public: Vec<OnCpu>,
}

/// One call and what it left.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    net: String,
    level: String,
    dtype: String,
    options: Options,
    /// Whether the optimizer keeps masters.
    multi_precision: bool,
    use_master_grad: bool,
    n_master_grad_params: usize,
    params: BTreeMap<String, String>,
    buffers: BTreeMap<String, String>,
    #[serde(default)]
    state_dict: BTreeMap<String, String>,
    #[serde(default)]
    layer_dtype: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    master_weight: Option<bool>,
    master_grad: Option<bool>,
    save_dtype: Option<String>,
    /// A path, a class, `self`, or a list of them.
    excluded_layers: Option<String>,
}

/// A call that was refused, or that does something of its own.
#[derive(Deserialize)]
struct Misuse {
    case: String,
    error: Option<String>,
    result: Option<String>,
}

/// A call on a machine without accelerator, which Paddle ignores.
#[derive(Deserialize)]
struct OnCpu {
    level: String,
    params: Vec<String>,
    multi_precision: bool,
}

enum Verdict {
    Agree,
    OnPurpose(&'static str),
    Fail(String),
}

/// The differences on purpose, as COMPARE.md names them.
const INSIDE: &str = "an excluded kind takes what is inside with it";
const NO_OTHER_FORM: &str = "what cannot be said need not be checked";
const PATHS: &str = "layers are excluded by path, too";
const LAST_IN_FORCE: &str = "a second decoration replaces the first";
const ANYWHERE: &str = "decorating works on every device";

fn dtype(name: &str) -> DType {
    // An integer is an integer here.
    let name = if name == "uint8" { "int64" } else { name };
    DType::ALL.into_iter().find(|dtype| dtype.long_name() == name).unwrap_or_else(|| panic!("the dtype `{name}`"))
}

fn paddle(low: DType) -> Decorate {
    Decorate::new(low).pack("paddle-3.3").unwrap()
}

impl Case {
    /// What was excluded: paths and kinds of this network.
    fn excluded(&self, net: &Child) -> (Vec<String>, Vec<String>) {
        let Some(written) = &self.options.excluded_layers else { return Default::default() };
        let (mut paths, mut kinds) = (vec![], vec![]);
        for name in written.trim_matches(['[', ']']).split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "self" => kinds.push(self.net.clone()),
                name if net.at(name, |_| ()).is_ok() => paths.push(name.to_string()),
                name => kinds.push(kind(name).to_string()),
            }
        }
        (paths, kinds)
    }

    /// The call that says the same here. O1 of Paddle changes nothing, and is not called.
    fn run(&self, net: &Child) -> Result<Option<Decorated>> {
        match self.level.as_str() {
            "O1" => return Ok(None),
            "O2" => {}
            other => panic!("the level `{other}`"),
        }
        let (paths, kinds) = self.excluded(net);
        let mut how = paddle(dtype(&self.dtype)).masters(self.options.master_weight != Some(false));
        if let Some(saved) = &self.options.save_dtype {
            how = how.save_dtype(dtype(saved));
        }
        for path in paths {
            how = how.exclude_path(&path)?;
        }
        how = kinds.into_iter().fold(how, |how, kind| how.exclude_kind(kind));
        decorate(net, how).map(Some)
    }

    /// Whether Paddle stores a parameter low although the user excluded a kind around it: an excluded class is compared
    /// with the very layer that has the parameter, and one place where it is another is enough.
    fn is_inside(&self, net: &Child, param: &Param) -> bool {
        let (_, excluded) = self.excluded(net);
        let (mut above, mut inside, mut elsewhere) = (vec![], false, false);
        net.walk(&mut |entry| {
            above.truncate(entry.depth);
            above.push(excluded.iter().any(|kind| kind == entry.slot.cell.kind()));
            entry.slot.cell.visit(&mut |_, node| {
                if let Node::Param(met) = node
                    && met.is_same(param)
                {
                    inside |= above.contains(&true);
                    elsewhere |= above.last() == Some(&false);
                }
            });
        });
        inside && elsewhere
    }

    fn judge(&self) -> Verdict {
        let Some(net) = network(&self.net) else { return Verdict::Fail("the network is not understood".into()) };
        let decorated = match self.run(&net) {
            Ok(decorated) => decorated,
            Err(error) => return Verdict::Fail(error.to_string()),
        };
        let ours: BTreeMap<String, Param> = net.named_params().into_iter().rev().collect();
        let (mut wrong, mut on_purpose) = (vec![], None);
        let mut seen = vec![];
        for (theirs, expected) in self.params.iter().chain(&self.buffers) {
            let Some(param) = ours.get(&path(theirs)) else {
                wrong.push(format!("no `{theirs}` here"));
                continue;
            };
            seen.push(param);
            let (expected, met) = (dtype(expected), param.dtype());
            if met == expected {
                continue;
            }
            // Stored f32, because the user excluded something around it.
            if (met, expected) == (DType::F32, dtype(&self.dtype)) && self.is_inside(&net, param) {
                on_purpose = Some(INSIDE);
            } else {
                wrong.push(format!("`{theirs}` is {met}, expected {expected}"));
            }
        }
        for (path, param) in &ours {
            if !seen.iter().any(|known| known.is_same(param)) {
                wrong.push(format!("`{path}` is not recorded"));
            }
        }
        wrong.extend(self.layers(&net));
        wrong.extend(self.saved(&net));
        wrong.extend(self.optimizer(&net));
        if let Some(decorated) = decorated {
            decorated.undo();
        }
        if ours.values().any(|param| param.dtype().is_low()) {
            wrong.push("undoing left low parameters".into());
        }
        match (wrong.is_empty(), on_purpose) {
            (false, _) => Verdict::Fail(wrong.join("; ")),
            (true, None) => Verdict::Agree,
            (true, Some(name)) => Verdict::OnPurpose(name),
        }
    }

    /// Layers whose floating parameters of their own are stored in another dtype than the layer says.
    fn layers(&self, net: &Child) -> Vec<String> {
        let mut wrong = vec![];
        for (layer, expected) in self.layer_dtype.iter().filter(|(_, expected)| *expected != "None") {
            let layer = if layer == "<self>" { "" } else { layer };
            let own = net.at(layer, |slot| {
                let mut own = vec![];
                slot.cell.visit(&mut |_, node| {
                    if let Node::Param(param) = node {
                        own.push(param.dtype());
                    }
                });
                own
            });
            match own {
                Ok(own) if own.iter().all(|met| !met.is_float() || *met == dtype(expected)) => {}
                Ok(own) => wrong.push(format!("the layer `{layer}` is {expected}, here it has {own:?}")),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        wrong
    }

    /// Dtypes in a weight file.
    fn saved(&self, net: &Child) -> Vec<String> {
        if self.state_dict.is_empty() {
            return vec![];
        }
        let file = std::env::temp_dir().join(format!("precast-paddle-{}.safetensors", std::process::id()));
        weights::save(net, &file).unwrap();
        let bytes = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let stored = SafeTensors::deserialize(&bytes).unwrap();
        let mut wrong = vec![];
        for (theirs, expected) in &self.state_dict {
            let expected = dtype(expected).name().to_uppercase();
            match stored.tensor(&path(theirs)) {
                Ok(view) if view.dtype().to_string() == expected => {}
                Ok(view) => wrong.push(format!("`{theirs}` is saved in {}, expected {expected}", view.dtype())),
                Err(error) => wrong.push(format!("`{theirs}`: {error}")),
            }
        }
        wrong
    }

    /// What an optimizer works with: masters behind every low parameter or behind none, and gradients in f32.
    fn optimizer(&self, net: &Child) -> Vec<String> {
        let mut wrong = vec![];
        let params = net.params();
        let low = || params.iter().filter(|(_, param)| param.dtype().is_low());
        if let Some((path, _)) = low().find(|(_, param)| param.master().is_some() != self.multi_precision) {
            wrong.push(format!("masters are expected: {}, `{path}` differs", self.multi_precision));
        }
        if self.use_master_grad != self.options.master_grad.unwrap_or(false)
            || self.n_master_grad_params != if self.use_master_grad { self.params.len() } else { 0 }
        {
            wrong.push("the record of master gradients is not understood".into());
        }
        let mut grads = Grads::default();
        params.iter().for_each(|(_, param)| grads.set(param, Tensor::ones(&param.shape(), param.dtype())));
        LossScale::none().unscale(&mut grads, &params);
        if params.iter().any(|(_, param)| grads.get(param).unwrap().dtype() != DType::F32) {
            wrong.push("a gradient reaches the optimizer in another dtype than f32".into());
        }
        wrong
    }
}

/// Dtypes of a LeNet after being decorated in turn.
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
    fn judge(&self) -> Verdict {
        let half = || paddle(DType::F16);
        let refused = |outcome: Result<Vec<&str>>, kind: ErrorKind| match outcome {
            Err(error) if error.kind() == kind && self.error.is_some() => Verdict::Agree,
            other => Verdict::Fail(format!("{other:?}")),
        };
        let agree = |holds: bool| if holds { Verdict::Agree } else { Verdict::Fail("it does not hold here".into()) };
        let result = self.result.as_deref().unwrap_or_default();
        match self.case.as_str() {
            // There is one level, one network, one dtype type, and no optimizer: the wrong form does not compile.
            "level O0"
            | "level OD"
            | "level o2 (lower case)"
            | "dtype paddle.float16 object"
            | "models=None"
            | "models=tuple"
            | "models=[1]"
            | "models=[]"
            | "models=None level O1 (no validation)"
            | "optimizers=1"
            | "optimizers=[1]"
            | "optimizers tuple"
            | "excluded_layers=[1]"
            | "excluded_layers tuple"
            | "list of models returns list, list of opts returns list"
            | "one model + [one opt]" => Verdict::OnPurpose(NO_OTHER_FORM),
            "dtype float32" => refused(dtypes([paddle(DType::F32)]), ErrorKind::DType),
            "save_dtype int8" => refused(dtypes([half().save_dtype(DType::I64)]), ErrorKind::DType),
            "excluded_layers=[int]" => refused(dtypes([half().exclude_kind("int")]), ErrorKind::Path),
            "excluded_layers=\"fc\"" => match half().exclude_path("fc").and_then(|how| dtypes([how])) {
                Ok(dtypes) if dtypes == ["float16", "float32"] => Verdict::OnPurpose(PATHS),
                other => Verdict::Fail(format!("{other:?}")),
            },
            "excluded_layers=ReLU type" => {
                agree(format!("{:?}", dtypes([half().exclude_kind("ReLU")]).unwrap()).replace('"', "'") == result)
            }
            "save_dtype float64" => {
                let net = network("LeNet").unwrap();
                decorate(&net, half().save_dtype(DType::F64)).unwrap();
                let file = std::env::temp_dir().join(format!("precast-paddle-f64-{}.safetensors", std::process::id()));
                weights::save(&net, &file).unwrap();
                let bytes = fs::read(&file).unwrap();
                fs::remove_file(&file).unwrap();
                let stored = SafeTensors::deserialize(&bytes).unwrap();
                agree(result == "{'float64'}" && stored.iter().all(|(_, view)| view.dtype().to_string() == "F64"))
            }
            "decorate bfloat16 then float16" => {
                let met = dtypes([paddle(DType::Bf16), half()]).unwrap();
                agree(met == ["float16"] && !result.contains("bfloat16") && result.contains("float16"))
            }
            "decorate float16 then bfloat16" => match dtypes([half(), paddle(DType::Bf16)]).unwrap()[..] {
                ["bfloat16"] if !result.contains("bfloat16") => Verdict::OnPurpose(LAST_IN_FORCE),
                ref other => Verdict::Fail(format!("{other:?}")),
            },
            "SGD multi_precision after O2" => agree(result == "True" && masters_appear()),
            "optimizer _multi_precision before/after" => {
                let named = |name: &str| result.contains(&format!("'{name}': [False, True]"));
                agree(masters_appear() && ["SGD", "Momentum", "Adam", "AdamW"].into_iter().all(named))
            }
            other => Verdict::Fail(format!("the case `{other}` is not understood")),
        }
    }
}

/// Whether a plain call gives every low parameter a master, and had none before; every optimizer updates it.
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
        && moved(&mut Adam::decoupled(net.params(), 1e-6))
}

impl OnCpu {
    /// Here a call means the same on every machine: O1 is no call, O2 stores low.
    fn judge(&self) -> Verdict {
        let untouched = self.params == ["float32"] && !self.multi_precision;
        match self.level.as_str() {
            "O1" if untouched => Verdict::Agree,
            "O2" if untouched && dtypes([paddle(DType::F16)]).unwrap() == ["float16"] => Verdict::OnPurpose(ANYWHERE),
            other => Verdict::Fail(format!("level {other} with {:?} is not understood", self.params)),
        }
    }
}

#[test]
fn every_recorded_case() {
    let Some(json) = super::common::golden("paddle/decorate.json") else {
        println!("goldens paddle decorate: the folder has no paddle/decorate.json");
        return;
    };
    let golden: Golden = serde_json::from_value(json).unwrap_or_else(|e| panic!("paddle/decorate.json: {e}"));
    let verbose = std::env::var_os("PRECAST_GOLDENS_VERBOSE").is_some_and(|v| v == "1");
    let cases = golden.cases.iter().map(|case| {
        let Options { master_weight, master_grad, save_dtype, excluded_layers } = &case.options;
        let options = format!("{master_weight:?} {master_grad:?} {save_dtype:?} {excluded_layers:?}");
        (format!("{} {} {} {options}", case.net, case.level, case.dtype), case.judge())
    });
    let misuse = golden.errors.iter().map(|misuse| (misuse.case.clone(), misuse.judge()));
    let on_cpu = golden.cpu_public.iter().map(|call| (format!("on a CPU, {}", call.level), call.judge()));
    let mut tally = Tally::new("paddle", "decorate");
    for (name, verdict) in cases.chain(misuse).chain(on_cpu) {
        let line = match verdict {
            Verdict::Agree => {
                tally.agree();
                "agree".into()
            }
            Verdict::OnPurpose(difference) => {
                tally.on_purpose(difference);
                format!("differ on purpose: {difference}")
            }
            Verdict::Fail(why) => {
                tally.fail(format!("{name}: {why}"));
                "FAIL".into()
            }
        };
        if verbose {
            println!("{name}: {line}");
        }
    }
    tally.close();
}
