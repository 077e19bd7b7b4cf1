//! Events of a recorded `torch.amp.GradScaler`, and the observations after each.

use precast::{DType, Tensor};
use serde_json::Value;

use crate::scalers::numbers::{Number, Numbers, dtype, number};

/// Numbers of a scaler, as in its constructor and its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub init: f64,
    pub growth: f64,
    pub backoff: f64,
    pub interval: i64,
    pub enabled: bool,
}

/// Parameters of an optimizer, which is plain gradient descent.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub params: Vec<Vec<f64>>,
    pub dtype: DType,
    pub lr: f64,
}

/// Gradients of the parameters of an optimizer; `None` where there is none.
pub type Given = Vec<Option<Vec<f64>>>;

/// A call. Optimizers are given by number; a missing gradient is `None`.
#[derive(Clone, Debug)]
pub enum Event {
    Scale(Vec<Loss>),
    /// Losses are scaled and differentiated: the additions to the gradients of each optimizer.
    Backward(Vec<(usize, Given)>),
    Grads(usize, Given),
    AddGrads(usize, Given),
    ZeroGrad(usize),
    Unscale(usize),
    Clip(usize, f64),
    Step(usize),
    Update,
    /// `update(new_scale)`, which ends a step without counting it.
    SetScale(f64),
    GetScale,
    IsEnabled,
    /// Reads a number of the constructor, by its name.
    Get(String),
    Set(String, f64),
    State,
    /// Settings and tracker; `None` for an incomplete state.
    Load(Option<(Settings, i64)>),
    /// Transfers the state to a new scaler.
    Reload,
    /// Writes and reads the whole scaler.
    Pickle,
    /// A call without a counterpart, because it does not compile, with torch's error. Empty: any.
    NoSuchForm(&'static str),
}

/// A loss: by default, one number without axes.
#[derive(Clone, Debug)]
pub struct Loss {
    pub values: Vec<f64>,
    pub has_axes: bool,
    pub dtype: DType,
}

impl Loss {
    /// Returns whether our rule accepts it.
    pub fn is_scalar(&self) -> bool {
        self.dtype.is_float() && self.values.len() == 1
    }

    pub fn tensor(&self) -> Tensor {
        let shape = if self.has_axes { vec![self.values.len()] } else { vec![] };
        Tensor::from_f64(&self.values, &shape, self.dtype).expect("as many numbers as the shape says")
    }
}

/// Progress of an optimizer since the last update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    Ready,
    Unscaled,
    Stepped,
}

/// Observations after an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub failed: bool,
    pub returns: Vec<Numbers>,
    pub scale: Number,
    pub tracker: i64,
    /// Number of updates by each optimizer.
    pub stepped: Vec<usize>,
    pub params: Vec<Vec<Numbers>>,
    pub grads: Vec<Vec<Option<Numbers>>>,
    /// torch has no stages when it does not scale.
    pub stages: Vec<Stage>,
}

pub fn settings(config: &Value, usual: &Settings) -> Option<Settings> {
    let or = |key: &str, usual: f64| config.get(key).map_or(Some(usual), number);
    Some(Settings {
        init: or("init_scale", usual.init)?,
        growth: or("growth_factor", usual.growth)?,
        backoff: or("backoff_factor", usual.backoff)?,
        interval: or("growth_interval", usual.interval as f64)? as i64,
        enabled: config.get("enabled").map_or(Some(usual.enabled), Value::as_bool)?,
    })
}

pub fn optimizer(recorded: &Value) -> Option<Recorded> {
    let params: Option<Vec<_>> = recorded["params"].as_array()?.iter().map(numbers).collect();
    let dtype = recorded.get("dtype").map_or(Some(DType::F32), |name| dtype(name.as_str()?))?;
    Some(Recorded { params: params?, dtype, lr: recorded.get("lr").map_or(Some(1.0), number)? })
}

fn numbers(list: &Value) -> Option<Vec<f64>> {
    list.as_array()?.iter().map(number).collect()
}

/// Returns all numbers of nested lists.
fn flat(list: &Value) -> Option<Vec<f64>> {
    match list.as_array() {
        Some(items) => Some(items.iter().map(flat).collect::<Option<Vec<_>>>()?.concat()),
        None => Some(vec![number(list)?]),
    }
}

/// Words in the names of events that differentiate losses.
const BACKWARD: [&str; 3] = ["backward", "loss", "penalty"];

/// Returns the call of a step. `before` is the previous step.
pub fn event(step: &Value, before: Option<&Value>) -> Option<Event> {
    let event = step["event"].as_array()?;
    let which = || Some(event.get(1)?.as_u64()? as usize);
    let float = |at: usize| number(event.get(at)?);
    let grads = || grads_of(event.get(2)?);
    let loss = |values: Vec<f64>, has_axes, dtype| Loss { values, has_axes, dtype };
    let raised = step.get("error").is_some();
    Some(match event.first()?.as_str()? {
        "scale" => {
            let dtype = event.get(2).map_or(Some(DType::F32), |name| dtype(name.as_str()?))?;
            let given = event.get(1)?;
            Event::Scale(vec![loss(flat(given)?, given.is_array(), dtype)])
        }
        name if name.starts_with("scale_bad") => Event::NoSuchForm(if event.len() == 1 { "ValueError" } else { "" }),
        name if name.starts_with("scale_") && !name.contains("backward") => match event.get(1).and_then(flat) {
            Some(losses) => Event::Scale(losses.into_iter().map(|x| loss(vec![x], false, DType::F32)).collect()),
            None if raised => Event::NoSuchForm(""),
            None => return None,
        },
        name if BACKWARD.iter().any(|word| name.contains(word)) => {
            if raised {
                Event::NoSuchForm("")
            } else {
                Event::Backward(added(step, before)?)
            }
        }
        "grads" => Event::Grads(which()?, grads()?),
        "add_grads" => Event::AddGrads(which()?, grads()?),
        "zero_grad" => Event::ZeroGrad(which()?),
        "sparse_grad" => {
            let (places, values) = (numbers(event.get(2)?)?, numbers(event.get(3)?)?);
            let grad = dense(&places, &values, numbers(&step["params"][which()?][0]["v"])?.len())?;
            Event::Grads(which()?, vec![Some(grad)])
        }
        "unscale" => Event::Unscale(which()?),
        "clip" => Event::Clip(which()?, float(2)?),
        "step" => Event::Step(which()?),
        "update" => Event::Update,
        "update_new" => {
            let new = event.get(1)?;
            Event::SetScale(number(new).or_else(|| numbers(new)?.first().copied())?)
        }
        "get_scale" => Event::GetScale,
        "is_enabled" => Event::IsEnabled,
        "set" => Event::Set(event.get(1)?.as_str()?.into(), float(2)?),
        "state_dict" => Event::State,
        "load_state_dict" => {
            let keys = event.get(1)?.as_object()?;
            let f = |key: &str| number(keys.get(key)?);
            let whole = || {
                let (growth, backoff) = (f("growth_factor")?, f("backoff_factor")?);
                let interval = f("growth_interval")? as i64;
                let settings = Settings { init: f("scale")?, growth, backoff, interval, enabled: true };
                Some((settings, f("_growth_tracker")? as i64))
            };
            Event::Load(whole())
        }
        "reload" => Event::Reload,
        "pickle" => Event::Pickle,
        "scale_bad" => Event::NoSuchForm("ValueError"),
        "step_closure" => Event::NoSuchForm("RuntimeError"),
        "update_int" => Event::NoSuchForm("AttributeError"),
        "update_tensor2" | "update_tensor_grad" => Event::NoSuchForm("AssertionError"),
        name => match name.strip_prefix("get_") {
            Some(name) => Event::Get(name.into()),
            // Any other source of gradients: only they may change.
            None => Event::Backward(added(step, before).filter(|reached| !reached.is_empty())?),
        },
    })
}

fn grads_of(list: &Value) -> Option<Given> {
    list.as_array()?.iter().map(|g| Some(if g.is_null() { None } else { Some(numbers(g)?) })).collect()
}

/// Returns the additions of a backward pass to the gradients of each optimizer that it reached.
fn added(step: &Value, before: Option<&Value>) -> Option<Vec<(usize, Given)>> {
    let read = |grad: &Value| if grad.is_null() { Some(None) } else { Some(Some(numbers(&grad["v"])?)) };
    let mut reached = vec![];
    for (at, grads) in step["grads"].as_array()?.iter().enumerate() {
        let mut more = vec![];
        for (i, grad) in grads.as_array()?.iter().enumerate() {
            let old = before.map_or(Some(None), |before| read(&before["grads"][at][i]))?;
            more.push(match (read(grad)?, old) {
                (Some(new), Some(old)) if new == old => None,
                // They were set to zero on the way.
                (Some(new), Some(old))
                    if new.iter().zip(&old).any(|(new, old)| new.is_finite() && !old.is_finite()) =>
                {
                    Some(new)
                }
                (Some(new), Some(old)) => Some(new.iter().zip(&old).map(|(new, old)| new - old).collect()),
                (new, _) => new,
            });
        }
        if more.iter().any(Option::is_some) {
            reached.push((at, more));
        }
    }
    Some(reached)
}

fn dense(places: &[f64], values: &[f64], len: usize) -> Option<Vec<f64>> {
    let mut sums = vec![0.0_f32; len];
    for (place, value) in places.iter().zip(values) {
        *sums.get_mut(*place as usize)? += *value as f32;
    }
    Some(sums.into_iter().map(f64::from).collect())
}

/// Returns the tensors of a result, in any container.
fn leaves(value: &Value) -> Option<Vec<Numbers>> {
    match value {
        Value::Array(items) => Some(items.iter().map(leaves).collect::<Option<Vec<_>>>()?.concat()),
        Value::Object(fields) if fields.contains_key("v") => {
            Some(vec![Numbers::new(dtype(value["dtype"].as_str()?)?, numbers(&value["v"])?)])
        }
        Value::Object(fields) => Some(fields.values().map(leaves).collect::<Option<Vec<_>>>()?.concat()),
        _ => Some(vec![Numbers::new(DType::F32, [number(value)?])]),
    }
}

/// Returns torch's observations after an event.
pub fn seen(event: &Event, recorded: &Value) -> Option<Seen> {
    let array = |value: &Value| Some(Numbers::new(dtype(value["dtype"].as_str()?)?, numbers(&value["v"])?));
    let tensor = |value: &Value, len: usize| match value["sparse"].as_bool() {
        Some(true) => {
            let (places, values) = (numbers(&value["indices"][0])?, numbers(&value["values"])?);
            Some(Numbers::new(dtype(value["dtype"].as_str()?)?, dense(&places, &values, len)?))
        }
        _ => array(value),
    };
    let one = |x: f64| vec![Numbers::new(DType::F64, [x])];
    let returned = &recorded["returns"];
    let returns = match event {
        _ if recorded.get("error").is_some() => vec![],
        Event::Scale(_) => leaves(returned)?,
        Event::Clip(..) | Event::GetScale | Event::Get(_) => one(number(returned)?),
        Event::IsEnabled => one(f64::from(returned.as_bool()?)),
        Event::State => {
            let keys = ["scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"];
            let state: Vec<f64> = keys.iter().filter_map(|key| number(returned.get(key)?)).collect();
            vec![Numbers::new(DType::F64, state)]
        }
        _ => vec![],
    };
    let params: Vec<Vec<Numbers>> = recorded["params"]
        .as_array()?
        .iter()
        .map(|params| params.as_array()?.iter().map(array).collect())
        .collect::<Option<_>>()?;
    let grads_of = |(grads, params): (&Value, &Vec<Numbers>)| {
        let maybe = |(grad, param): (&Value, &Numbers)| match grad.is_null() {
            true => Some(None),
            false => Some(Some(tensor(grad, param.numbers.len())?)),
        };
        grads.as_array()?.iter().zip(params).map(maybe).collect::<Option<Vec<_>>>()
    };
    let grads = recorded["grads"].as_array()?.iter().zip(&params).map(grads_of).collect::<Option<_>>()?;
    let stage = |name: &Value| match name.as_str()? {
        "READY" => Some(Stage::Ready),
        "UNSCALED" => Some(Stage::Unscaled),
        "STEPPED" => Some(Stage::Stepped),
        _ => None,
    };
    Some(Seen {
        failed: recorded.get("error").is_some(),
        returns,
        scale: Number(number(&recorded["scale"])?),
        tracker: recorded["growth_tracker"].as_i64()?,
        stepped: recorded["step_taken"]
            .as_array()?
            .iter()
            .map(|n| Some(n.as_u64()? as usize))
            .collect::<Option<_>>()?,
        params,
        grads,
        stages: recorded["stage"].as_array().map_or(Some(vec![]), |all| all.iter().map(stage).collect())?,
    })
}
