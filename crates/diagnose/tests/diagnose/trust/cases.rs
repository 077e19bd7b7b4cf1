//! The networks of SPEC.md as cells.

use precast::{
    layers::{Conv2dSpec, Flatten, GELU, LayerNormSpec, Sigmoid},
    prelude::*,
    storage::{Decorate, decorate},
};
use serde_json::Value;

/// Numbers of a tensor by its name: uniform in [-1, 1).
pub fn uniform(name: &str, seed: u64, n: usize) -> Vec<f64> {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let start = hash ^ seed.wrapping_mul(STEP);
    let number = |i: u64| {
        let mut z = start.wrapping_add(STEP.wrapping_mul(i));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (1..=n as u64).map(number).collect()
}

/// Reads a number; NaN and infinities are text.
pub fn number(value: &Value) -> f64 {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_else(|| panic!("no number: {value}"))
}

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// One case of a file.
pub struct Case<'a>(pub &'a Value);

impl Case<'_> {
    pub fn seed(&self) -> u64 {
        self.0["seed"].as_u64().unwrap()
    }

    pub fn id(&self) -> &str {
        text(&self.0["id"])
    }

    pub fn low(&self) -> DType {
        if self.0["dtype"] == "bfloat16" { DType::Bf16 } else { DType::F16 }
    }

    /// Makes a tensor, with the overrides of the case.
    fn tensor(&self, name: &str, shape: &[usize], seed: u64, scale: f64, offset: f64) -> Tensor {
        let numbers = uniform(name, seed, shape.iter().product());
        let mut numbers: Vec<f32> = numbers.into_iter().map(|x| (x * scale + offset) as f32).collect();
        for change in self.0["overrides"].as_array().into_iter().flatten().filter(|of| of["tensor"] == name) {
            for x in &mut numbers {
                *x = change.get("fill").map_or(*x, |fill| number(fill) as f32);
                *x = change.get("mul").map_or(*x, |by| (f64::from(*x) * number(by)) as f32);
                *x = change.get("add").map_or(*x, |by| (f64::from(*x) + number(by)) as f32);
            }
            for set in change["set"].as_array().into_iter().flatten() {
                numbers[set[0].as_u64().unwrap() as usize] = number(&set[1]) as f32;
            }
        }
        Tensor::from_vec(numbers, shape).unwrap()
    }

    /// Makes the input of the batch with this number.
    pub fn input(&self, batch: u64) -> Tensor {
        let input = &self.0["input"];
        let (scale, offset) = (number(&input["scale"]), number(&input["offset"]));
        self.tensor("x", &numbers(&input["shape"]), self.seed() + batch, scale, offset)
    }

    /// Makes the network in f32, with its parameters.
    pub fn net(&self) -> Child<Sequential> {
        let rng = &mut Rng::seed(1);
        let layers = self.0["layers"].as_array().unwrap();
        let net = Child::new(Sequential::new(layers.iter().map(|layer| build(layer, rng)).collect()));
        let params = net.named_params();
        for (path, param) in &params {
            let (shape, name) = (param.shape(), plain(path));
            let matrix =
                |path: &str| params.iter().any(|(other, param)| plain(other) == path && param.shape().len() >= 2);
            let weight = format!("{}.weight", name.rsplit_once('.').unwrap().0);
            let value = match (shape.len(), matrix(&weight)) {
                (2.., _) => {
                    let fan: usize = shape[1..].iter().product();
                    let scale = self.layer_of(&name)["w_scale"].as_f64();
                    self.tensor(&name, &shape, self.seed(), scale.unwrap_or((3.0 / fan as f64).sqrt()), 0.0)
                }
                (_, true) => self.tensor(&name, &shape, self.seed(), 0.125, 0.0),
                _ if name.ends_with("running_mean") => {
                    let mean = self.layer_of(&name).get("mean").map_or(0.0, number);
                    self.tensor(&name, &shape, self.seed(), 0.0, mean)
                }
                _ if name.ends_with("running_var") => {
                    let var = self.layer_of(&name).get("var").map_or(1.0, number);
                    self.tensor(&name, &shape, self.seed(), 0.0, var)
                }
                _ => self.tensor(&name, &shape, self.seed(), 0.0, if name.ends_with("weight") { 1.0 } else { 0.0 }),
            };
            param.set(&value).unwrap();
        }
        net
    }

    /// Returns the description of the layer that a parameter belongs to.
    fn layer_of(&self, name: &str) -> Value {
        let mut layers = &self.0["layers"];
        let mut found = Value::Null;
        for part in name.split('.') {
            let Some(layer) = layers.as_array().into_iter().flatten().find(|layer| layer["name"] == part) else {
                break;
            };
            found = layer.clone();
            layers = &layer["body"];
        }
        found
    }

    /// Makes the network, wrapped by the policy of the case with further rules.
    pub fn lowered(&self, change: impl FnOnce(Policy) -> Policy) -> Result<Child<Sequential>> {
        let mut net = self.net();
        if self.0["storage"] == "low" {
            let _ = decorate(&net, Decorate::new(self.low()).masters(false))?;
        }
        if self.0["dtype"] != "float32" {
            change(Policy::new(text(&self.0["level"]), self.low())?).plan(&net)?.apply(&mut net)?;
        }
        net.set_train(true);
        Ok(net)
    }

    /// Computes the loss of the case.
    pub fn loss(&self, y: &Tensor) -> Result<Tensor> {
        let weights: Vec<f32> = uniform("loss", self.seed(), y.len()).into_iter().map(|x| x as f32).collect();
        let loss = y.mul(&Tensor::from_vec(weights, y.shape())?)?.sum_all()?;
        match self.0["loss"].get("by") {
            Some(by) => loss.mul(&Tensor::scalar(number(by), DType::F32)),
            None => Ok(loss),
        }
    }

    pub fn lr(&self) -> f64 {
        self.0["optimizer"].get("lr").map_or(1e-3, number)
    }

    pub fn loss_scale(&self) -> f32 {
        self.0.get("loss_scale").map_or(1.0, |scale| number(scale) as f32)
    }
}

/// Returns a path as the cases write it: without the field of a residual block.
pub fn plain(path: &str) -> String {
    path.split('.').filter(|name| *name != "body").collect::<Vec<_>>().join(".")
}

/// A cell of one op or of several, written by hand.
#[derive(Cell, Debug)]
struct Hand {
    of: String,
    by: f64,
}

impl Forward for Hand {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let constant = |value: f64| Tensor::scalar(value, DType::F32);
        let by = constant(self.by);
        let mean = |x: &Tensor| x.mean(&[-1], true);
        let length = x.shape().last().copied().unwrap_or(1);
        match self.of.as_str() {
            "Exp" => x.exp(),
            "Log" => x.log(),
            "Sqrt" => x.sqrt(),
            "Rsqrt" => x.rsqrt(),
            "Square" => x.square(),
            "Reciprocal" => x.reciprocal(),
            "Abs" => x.abs(),
            "Neg" => x.neg(),
            "Mul" => x.mul(&by),
            "Add" => x.add(&by),
            "Div" => x.div(&by),
            "Softmax" => x.softmax(-1),
            "HandRms" => x.mul(&mean(&x.square()?)?.add(&by)?.rsqrt()?),
            "HandVar" => {
                let m = mean(x)?;
                let variance = mean(&x.square()?)?.sub(&m.square()?)?.relu()?;
                x.sub(&m)?.mul(&variance.add(&by)?.rsqrt()?)
            }
            "HandStd" => {
                let m = mean(x)?;
                x.div(&mean(&x.square()?)?.sub(&m.square()?)?.sqrt()?)
            }
            "ThereAndBack" => x.add(&by)?.sub(&by),
            "RunSum" => {
                let mut sum = x.slice(-1, 0..1)?;
                for round in 0..self.by as usize {
                    for i in usize::from(round == 0)..length {
                        sum = sum.add(&x.slice(-1, i..i + 1)?)?;
                    }
                }
                x.sub(&sum.mul(&constant(1.0 / (length as f64 * self.by)))?)
            }
            "SumDiv" => x.sub(&x.sum(&[-1], true)?.mul(&constant(1.0 / length as f64))?),
            "NormDiv" => x.div(&x.square()?.sum(&[-1], true)?.sqrt()?),
            "HandSoftmax" => {
                let y = x.exp()?;
                y.div(&y.sum(&[-1], true)?)
            }
            other => panic!("no cell {other}"),
        }
    }
}

#[derive(Cell, Debug)]
struct Residual {
    body: Vec<Child>,
}

impl Forward for Residual {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut y = x.clone();
        for cell in &self.body {
            y = cell.call(&y)?;
        }
        x.add(&y)
    }
}

#[derive(Cell, Debug)]
struct Attention {
    q: Child<Dense>,
    k: Child<Dense>,
    v: Child<Dense>,
    o: Child<Dense>,
    width: usize,
    mask: String,
    value: f32,
    pad: usize,
}

impl Attention {
    /// Returns the planes of the mask, added to each other.
    fn mask(&self, t: usize) -> Result<Option<Tensor>> {
        let plane = |masked: &dyn Fn(usize, usize) -> bool| {
            let of = |i: usize| if masked(i / t, i % t) { self.value } else { 0.0 };
            Tensor::from_vec((0..t * t).map(of).collect::<Vec<f32>>(), &[t, t])
        };
        let causal = || plane(&|i, j| j > i);
        Ok(match self.mask.as_str() {
            "" => None,
            "full_row" => Some(plane(&|i, j| j > i || i == 0)?),
            "causal+padding" => Some(causal()?.add(&plane(&|_, j| j + self.pad >= t && self.pad > 0)?)?),
            _ => Some(causal()?),
        })
    }
}

impl Forward for Attention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (q, k, v) = (self.q.call(x)?, self.k.call(x)?, self.v.call(x)?);
        let scale = Tensor::scalar(1.0 / (self.width as f64).sqrt(), DType::F32);
        let mut scores = q.matmul_ext(&k.transpose(-1, -2)?)?.mul(&scale)?;
        if let Some(mask) = self.mask(x.shape()[x.rank() - 2])? {
            scores = scores.add(&mask)?;
        }
        self.o.call(&scores.softmax(-1)?.matmul_ext(&v)?)
    }
}

fn build(layer: &Value, rng: &mut Rng) -> Child {
    let size = |key: &str| layer[key].as_u64().unwrap_or_else(|| panic!("{key} in {layer}")) as usize;
    let value = |key: &str, default: f64| layer.get(key).map_or(default, number);
    let hand = |of: &str, by: f64| Child::of(Hand { of: of.into(), by });
    match text(&layer["kind"]) {
        "Dense" => Child::of(Dense::new(size("in"), size("out"), rng)),
        "Conv2d" => {
            let spec = Conv2dSpec::new(size("in"), size("out"), size("kernel"));
            Child::of(spec.padding(value("padding", 0.0) as usize).build(rng).unwrap())
        }
        "ReLU" => Child::of(ReLU),
        "Tanh" => Child::of(Tanh),
        "GELU" => Child::of(GELU::default()),
        "Sigmoid" => Child::of(Sigmoid),
        "Flatten" => Child::of(Flatten::default()),
        "MaxPool2d" => Child::of(MaxPool2d::new(size("kernel"))),
        "LayerNorm" => Child::of(LayerNormSpec::new([size("n")]).eps(value("eps", 1e-5)).build().unwrap()),
        "BatchNorm1d" => Child::of(BatchNorm1d::new(size("n"))),
        "HandRms" => hand("HandRms", value("eps", 1e-6)),
        "HandVar" => hand("HandVar", value("eps", 1e-3)),
        "ThereAndBack" => hand("ThereAndBack", value("by", 0.0)),
        "RunSum" => hand("RunSum", value("rounds", 1.0)),
        "Fn" => hand(text(&layer["op"]), value("by", 0.0)),
        kind @ ("HandStd" | "SumDiv" | "NormDiv" | "Softmax" | "HandSoftmax") => hand(kind, 0.0),
        "Residual" => {
            let body = layer["body"].as_array().unwrap().iter().map(|layer| build(layer, rng)).collect();
            Child::of(Residual { body })
        }
        "Attention" => {
            let width = size("d");
            let mut dense = || {
                let spec =
                    precast::layers::DenseSpec::new(width, width).bias(layer.get("bias").is_some_and(|b| b == true));
                Child::new(spec.build(rng).unwrap())
            };
            let (q, k, v, o) = (dense(), dense(), dense(), dense());
            let mask = layer["mask"].as_str().unwrap_or_default().into();
            let (value, pad) = (value("mask_value", 0.0) as f32, value("pad", 0.0) as usize);
            Child::of(Attention { q, k, v, o, width, mask, value, pad })
        }
        kind => panic!("no kind {kind}"),
    }
}
