//! `paddle.amp.decorate` compared with `storage::decorate`: the stored and the saved dtype of each parameter, and
//! misuse.

use std::{
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicUsize, Ordering},
};

use precast::{
    Error, Grads,
    cell::Part,
    prelude::*,
    storage::{Decorate, decorate, weights},
};
use safetensors::SafeTensors;
use serde::Deserialize;
use serde_json::Value;

use super::{
    misuse::{Misuse, OnCpu},
    networks::{Named, kind, network},
};
use crate::{
    common::golden::golden,
    replay::{self, Judged, Verdict, each, replay},
};

/// One call and its result.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    net: String,
    level: String,
    dtype: String,
    options: Options,
    /// `true` when the optimizer keeps masters.
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

pub fn paddle(low: DType) -> Decorate {
    Decorate::new(low).pack("paddle-3.3").unwrap()
}

/// Kinds of cells whose own parameters Paddle keeps in f32, with the low dtype for which it does.
const STAYS: &[(&str, Option<DType>)] = &[
    ("BatchNorm1d", None),
    ("BatchNorm2d", None),
    ("BatchNorm3d", None),
    ("LayerNorm", Some(DType::F16)),
    ("InstanceNorm1d", Some(DType::F16)),
    ("InstanceNorm2d", Some(DType::F16)),
];

/// A call's request for a network, in our terms.
struct Asked {
    low: DType,
    /// Exclusions, by path and by kind.
    paths: Vec<String>,
    kinds: Vec<String>,
    how: Decorate,
}

impl Asked {
    /// Returns the dtype in which our rule stores a parameter: an excluded cell keeps everything inside it, and a
    /// parameter is kept if any of its places is.
    fn stores(&self, net: &Child, param: &Param, made: DType) -> DType {
        if made != DType::F32 {
            return made;
        }
        let (mut above, mut keeps): (Vec<bool>, bool) = Default::default();
        net.walk(&mut |entry| {
            above.truncate(entry.depth);
            let kind = entry.slot.cell.kind();
            let by_path = above.last() == Some(&true) || self.paths.iter().any(|path| path == entry.path);
            let excluded = by_path || self.kinds.iter().any(|excluded| excluded == kind);
            above.push(excluded);
            let stays = STAYS.iter().any(|(kept, only)| *kept == kind && only.is_none_or(|only| only == self.low));
            entry.slot.cell.visit(&mut |_, node| {
                keeps |= matches!(node, Part::Param(met) if met.is_same(param)) && (excluded || stays);
            });
        });
        if keeps { made } else { self.low }
    }
}

impl Case {
    fn name(&self) -> String {
        let Options { master_weight, master_grad, save_dtype, excluded_layers } = &self.options;
        let said = [
            master_weight.map(|masters| format!("master_weight={masters}")),
            master_grad.map(|masters| format!("master_grad={masters}")),
            save_dtype.as_ref().map(|dtype| format!("save_dtype={dtype}")),
            excluded_layers.as_ref().map(|layers| format!("excluded_layers={layers}")),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        format!("{} {} {} {}", self.net, self.level, self.dtype, said.join(" ")).trim_end().into()
    }

    /// Returns the equivalent call here. O1 of Paddle changes nothing, and has none.
    fn asked(&self, net: &Child) -> Result<Option<Asked>, String> {
        match self.level.as_str() {
            "O1" => return Ok(None),
            "O2" => {}
            other => return Err(format!("the level `{other}` is not understood")),
        }
        let low = named(&self.dtype)?;
        let (mut paths, mut kinds): (Vec<String>, Vec<String>) = Default::default();
        let written = self.options.excluded_layers.as_deref().unwrap_or_default();
        for name in written.trim_matches(['[', ']']).split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "self" => kinds.push(self.net.clone()),
                name if net.at(name, |_| ()).is_ok() => paths.push(name.to_string()),
                name => kinds.push(kind(name).to_string()),
            }
        }
        let mut how = paddle(low).masters(self.options.master_weight != Some(false));
        if let Some(saved) = &self.options.save_dtype {
            how = how.save_dtype(named(saved)?);
        }
        for path in &paths {
            how = how.exclude_path(path).map_err(|error| error.to_string())?;
        }
        how = kinds.iter().fold(how, |how, kind| how.exclude_kind(kind));
        Ok(Some(Asked { low, paths, kinds, how }))
    }

    /// Judges the parameters, the layers, the weight file and the masters; then the gradients.
    fn judge(&self) -> [Judged; 2] {
        let failed = |why: String| [Err(why.clone()), Err(why)];
        let Some(net) = network(&self.net) else { return failed("the network is not understood".into()) };
        let asked = match self.asked(&net) {
            Ok(asked) => asked,
            Err(why) => return failed(why),
        };
        let named = Named::of(&net);
        let made: Vec<DType> = named.iter().map(|(_, param)| param.dtype()).collect();
        let mut decorated = None;
        if let Some(asked) = &asked {
            match decorate(&net, asked.how.clone()) {
                Ok(done) => decorated = Some(done),
                Err(error) => {
                    let refused = matches_nothing(&net, asked, &error);
                    return [refused.clone(), refused];
                }
            }
        }
        // Whatever the difference, our result is the one required by our rule.
        for ((path, param), made) in named.iter().zip(made) {
            let demanded = asked.as_ref().map_or(made, |asked| asked.stores(&net, param, made));
            if param.dtype() != demanded {
                return failed(format!("`{path}` is {}, our rule demands {demanded}", param.dtype()));
            }
        }
        let stored = self.stored(&named).and_then(|verdict| {
            self.layers(&net)?;
            self.saved(&net, &named)?;
            self.masters(&net)?;
            Ok(verdict)
        });
        let gradients = self.gradients(&net, &named);
        if let Some(decorated) = decorated {
            decorated.undo().unwrap();
        }
        match named.iter().find(|(_, param)| param.dtype().is_low()) {
            Some((path, _)) => failed(format!("undoing left `{path}` low")),
            None => [stored, gradients],
        }
    }

    /// Compares every parameter and buffer with the recording.
    fn stored(&self, named: &Named) -> Judged {
        let (mut seen, mut agrees): (Vec<&Param>, _) = (vec![], true);
        for (theirs, recorded) in self.params.iter().chain(&self.buffers) {
            let param = named.find(theirs).ok_or_else(|| format!("no `{theirs}` here"))?;
            seen.push(param);
            agrees &= param.dtype() == self::named(recorded)?;
        }
        match named.iter().find(|(_, param)| !seen.iter().any(|known| known.is_same(param))) {
            Some((path, _)) => Err(format!("`{path}` is not recorded")),
            None => Ok(Verdict::of(agrees)),
        }
    }

    /// Checks for layers whose own floating-point parameters are stored in another dtype than the layer reports.
    fn layers(&self, net: &Child) -> Result<(), String> {
        for (layer, recorded) in self.layer_dtype.iter().filter(|(_, recorded)| *recorded != "None") {
            let layer = if layer == "<self>" { "" } else { layer };
            let mut own = vec![];
            net.at(layer, |slot| {
                slot.cell.visit(&mut |_, node| {
                    if let Part::Param(param) = node {
                        own.push(param.dtype());
                    }
                });
            })
            .map_err(|error| error.to_string())?;
            let recorded = named(recorded)?;
            if own.iter().any(|met| met.is_float() && *met != recorded) {
                return Err(format!("the layer `{layer}` is {recorded}, here it has {own:?}"));
            }
        }
        Ok(())
    }

    /// Checks the dtypes in a weight file. A tied parameter appears there once, under the first of its paths.
    fn saved(&self, net: &Child, named: &Named) -> Result<(), String> {
        if self.state_dict.is_empty() {
            return Ok(());
        }
        let stored = saved(net);
        for (theirs, recorded) in &self.state_dict {
            let param = named.find(theirs).ok_or_else(|| format!("no `{theirs}` here"))?;
            let met = named.paths(param).find_map(|path| stored.get(path));
            let recorded = self::named(recorded)?.name().to_uppercase();
            if met != Some(&recorded) {
                return Err(format!("`{theirs}` is saved in {met:?}, recorded {recorded}"));
            }
        }
        Ok(())
    }

    /// Checks that either every low parameter has a master or none has.
    fn masters(&self, net: &Child) -> Result<(), String> {
        let params = net.params();
        let mut low = params.iter().filter(|(_, param)| param.dtype().is_low());
        match low.find(|(_, param)| param.master().is_some() != self.multi_precision) {
            Some((path, _)) => Err(format!("masters are recorded: {}, `{path}` differs", self.multi_precision)),
            None => Ok(()),
        }
    }

    /// Judges the dtype in which gradients reach the optimizer: with `master_grad` f32, else that of the parameter. By
    /// our rule a backward pass gives the parameter's dtype, and unscaling f32.
    fn gradients(&self, net: &Child, named: &Named) -> Judged {
        let mut distinct: Vec<&Param> = vec![];
        for theirs in self.params.keys() {
            let param = named.find(theirs).ok_or_else(|| format!("no `{theirs}` here"))?;
            if !distinct.iter().any(|known| known.is_same(param)) {
                distinct.push(param);
            }
        }
        let counted = if self.use_master_grad { distinct.len() } else { 0 };
        if self.use_master_grad != self.options.master_grad.unwrap_or(false) || self.n_master_grad_params != counted {
            return Err("the record of master gradients is not understood".into());
        }
        let params = net.params();
        let sums = params.iter().map(|(_, param)| Ok(param.tensor().sum_all()?.cast(DType::F32)));
        let sums = sums.collect::<Result<Vec<Tensor>>>().map_err(|error| error.to_string())?;
        let loss = Tensor::stack(&sums.iter().collect::<Vec<_>>(), 0).and_then(|sums| sums.sum_all());
        let grads = loss.and_then(|loss| loss.backward()).map_err(|error| error.to_string())?;
        let dtypes = |grads: &Grads| {
            let of = |(path, param): (&str, &Param)| {
                grads.get(param).map(|grad| grad.dtype()).ok_or_else(|| format!("`{path}` has no gradient"))
            };
            params.iter().map(of).collect::<Result<Vec<DType>, String>>()
        };
        let own: Vec<DType> = params.iter().map(|(_, param)| param.dtype()).collect();
        if dtypes(&grads)? != own {
            return Err("a gradient has not the dtype of its parameter".into());
        }
        let grads = LossScale::none().already_scaled(grads).unscale(&params).map_err(|error| error.to_string())?;
        if let Some(path) = grads.non_finite() {
            return Err(format!("the gradient of `{path}` is not finite"));
        }
        let ours = dtypes(&grads)?;
        if ours.iter().any(|met| *met != DType::F32) {
            return Err("a gradient reaches the optimizer in another dtype than f32".into());
        }
        let theirs = if self.use_master_grad { vec![DType::F32; own.len()] } else { own };
        Ok(Verdict::of(ours == theirs))
    }
}

/// Judges an excluded class that the network lacks: an error here, while Paddle ignores it.
fn matches_nothing(net: &Child, asked: &Asked, error: &Error) -> Judged {
    let mut kinds = vec![];
    net.walk(&mut |entry| kinds.push(entry.slot.cell.kind()));
    let is_known = asked.kinds.iter().all(|kind| kinds.contains(&kind.as_str()));
    if error.kind() != ErrorKind::Path || is_known { Err(error.to_string()) } else { Ok(Verdict::Differs) }
}

fn named(dtype: &str) -> Result<DType, String> {
    super::names::dtype(dtype).ok_or_else(|| format!("the dtype `{dtype}` is not understood"))
}

/// Returns the dtype of each entry of a network's weight file.
pub fn saved(net: &Child) -> BTreeMap<String, String> {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("precast-paddle-{}-{number}.safetensors", std::process::id()));
    weights::save(net, &file).unwrap();
    let bytes = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    stored.iter().map(|(path, view)| (path.to_string(), view.dtype().to_string())).collect()
}

/// Judges the calls in a file.
pub fn judge(golden: &Value) -> Vec<replay::Case> {
    let mut judged = each(golden, "cases", |case: Case| {
        let [stored, gradients] = case.judge();
        vec![(case.name(), stored), (format!("{}, gradients", case.name()), gradients)]
    });
    judged.extend(each(golden, "errors", |case: Misuse| vec![(format!("misuse: {}", case.case), case.judge())]));
    judged.extend(each(golden, "cpu_public", |case: OnCpu| vec![(format!("on a CPU {}", case.level), case.judge())]));
    judged
}

#[test]
fn every_recorded_case() {
    replay("paddle", "decorate", golden("paddle/decorate.json"), |recorded, tally| tally.count_all(judge(recorded)));
}
