//! The ops of scripts of nested regions: their arguments, their equivalents here, and the requirements of our rule.

use std::collections::BTreeMap;

use precast::{DType, ErrorKind, Param, Reduction, Result, Tensor, layers::Rng, precision};
use serde_json::Value;

use crate::torch::{
    forms::{FORMS, Written},
    rule::{self, Answer, Region},
};

/// Returns f32 `a`, `b`, `c`, `d`, f16 `h`, bf16 `g`, f64 `z`, a trained f32 `w`, all 8 x 8, and 8 classes `i`.
pub fn variables() -> BTreeMap<String, Tensor> {
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

/// Arguments of an op: variables, a dtype by its name or keyword, and plain values.
#[derive(Default)]
pub struct Arguments {
    pub names: Vec<String>,
    pub x: Vec<Tensor>,
    dtype: Option<DType>,
    values: Vec<Value>,
}

impl Arguments {
    /// Parses arguments; `None` for a missing variable or an unknown keyword.
    pub fn read(given: &[Value], variables: &BTreeMap<String, Tensor>) -> Option<Arguments> {
        let mut arguments = Arguments::default();
        for value in given {
            match value {
                Value::String(name) if variables.contains_key(name) => {
                    arguments.names.push(name.clone());
                    arguments.x.push(variables[name].clone());
                }
                Value::String(dtype) => arguments.dtype = Some(dtype.parse().ok()?),
                Value::Object(keywords) => {
                    for (key, value) in keywords {
                        match (&key[..], value) {
                            (_, Value::Null) => {}
                            ("dtype", dtype) => arguments.dtype = Some(dtype.as_str()?.parse().ok()?),
                            ("size" | "fill_value", value) => arguments.values.push(value.clone()),
                            _ => return None,
                        }
                    }
                }
                value => arguments.values.push(value.clone()),
            }
        }
        Some(arguments)
    }

    /// Returns the shape given as a list of lengths, or as separate lengths; else 8 x 8.
    fn shape(&self) -> Vec<usize> {
        let length = |value: &Value| value.as_u64().map(|length| length as usize);
        match self.values.iter().find_map(Value::as_array) {
            Some(list) => list.iter().filter_map(length).collect(),
            None if self.values.is_empty() => vec![8, 8],
            None => self.values.iter().filter_map(length).collect(),
        }
    }

    /// Returns the number of elements of a row.
    fn count(&self) -> usize {
        self.values.first().and_then(Value::as_u64).map_or(8, |count| count as usize)
    }
}

/// Ops that create tensors. A script may append a size to the name.
const MAKERS: &str = "randint randperm randn rand zeros ones empty full eye linspace arange scalar_tensor tensor";

fn maker(name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches("torch.").trim_start_matches("creation_").trim_start_matches("new_");
    MAKERS.split_whitespace().find(|maker| name.starts_with(maker))
}

/// Returns the dtype of a created tensor: the given one; else integer for integers, and f32 for all other numbers.
fn dtype_of_made(maker: &str, a: &Arguments) -> DType {
    let mut values = a.values.iter().filter(|value| !value.is_array());
    match maker {
        _ if a.dtype.is_some() => a.dtype.expect("seen"),
        "arange" if values.any(Value::is_f64) => DType::F32,
        "arange" | "randint" | "randperm" => DType::I64,
        "tensor" | "full" if values.clone().any(Value::is_boolean) => DType::Bool,
        "tensor" | "full" if values.any(Value::is_i64) => DType::I64,
        _ => DType::F32,
    }
}

/// Creates a tensor.
fn made(maker: &str, a: &Arguments) -> Result<Tensor> {
    let (dtype, mut rng) = (dtype_of_made(maker, a), Rng::seed(0));
    match maker {
        "zeros" | "empty" => return Tensor::try_full(&a.shape(), 0.0, dtype),
        "ones" | "full" => return Tensor::try_full(&a.shape(), 1.0, dtype),
        "rand" => Tensor::rand(&a.shape(), &mut rng),
        "randn" => Tensor::randn(&a.shape(), &mut rng),
        "eye" => Tensor::eye(a.count()),
        "linspace" => Tensor::linspace(0.0, 1.0, 8),
        "arange" | "randint" | "randperm" => Ok(Tensor::arange(a.count())),
        _ => return Ok(Tensor::scalar(1.0, dtype)),
    }
    .map(|tensor| tensor.cast(dtype))
}

/// Creates a tensor with the shape and dtype of another.
fn like(name: &str, x: &Tensor, dtype: DType) -> Option<Tensor> {
    let value = match name {
        "zeros_like" | "empty_like" => 0.0,
        "ones_like" => 1.0,
        "rand_like" | "randn_like" | "full_like" => 0.5,
        _ => return None,
    };
    Some(Tensor::full(x.shape(), value, dtype))
}

/// Returns the name of the form, which a script may abbreviate.
fn form(name: &str) -> &str {
    match name {
        "bce" => "binary_cross_entropy_with_logits",
        "pow" => "pow_scalar_exp",
        "linear" => "linear_nobias",
        "layer_norm" => "layer_norm_noaffine",
        name => name,
    }
}

/// Runs the equivalent of an op of the scripts; `None` if it is not recognized.
pub fn run(name: &str, a: &Arguments) -> Option<Result<Tensor>> {
    let x = &a.x[..];
    match (name, x) {
        (_, []) => return maker(name).map(|maker| made(maker, a)),
        ("to" | "to_f32" | "to_f16" | "to_bf16" | "to_f64" | "to_i64", [x]) => {
            return Some(Ok(x.cast(target(name, a)?)));
        }
        ("t", [x]) => return Some(x.t()),
        // The form has four classes.
        ("cross_entropy", [x, t]) => return Some(x.cross_entropy(t)),
        ("nll_loss", [x, t]) => return Some(x.nll_loss(t, Reduction::Mean)),
        ("cat" | "stack", x) => {
            let x: Vec<&Tensor> = x.iter().collect();
            return Some(if name == "cat" { Tensor::concat(&x, 0) } else { Tensor::stack(&x, 0) });
        }
        ("layer_norm", [x]) => return Some(x.layer_norm(&[8], None, None, 1e-5)),
        (_, [x]) if name.ends_with("_like") => return like(name, x, a.dtype.unwrap_or(x.dtype())).map(Ok),
        _ => {}
    }
    let form = FORMS.iter().find(|known| known.name == form(name) && known.shapes.len() == x.len())?;
    Some(match form.written {
        Written::One(f) | Written::First(f) => f(x),
        Written::Many(f) => f(x).map(|mut all| all.swap_remove(0)),
        Written::Decided(_) | Written::Nothing => return None,
    })
}

fn target(name: &str, a: &Arguments) -> Option<DType> {
    a.dtype.or_else(|| name.strip_prefix("to_")?.parse().ok())
}

/// Returns whether an op changes a tensor in place, or writes into a given one.
pub fn is_in_place(name: &str) -> bool {
    name.contains("inplace") || name.contains("in-place") || name.ends_with('_') || name.contains("out=")
}

/// Ops that support integers here: arithmetic, sums, and moving of elements.
const OF_INTEGERS: &str =
    "add sub mul maximum minimum add_scalar mul_scalar_int sum sum_dim cat stack hstack topk sort clone t";
const COMPARISONS: &[&str] = &["eq", "lt", "equal"];

/// Returns the requirement of our rule on an op of the scripts.
pub fn demanded(name: &str, a: &Arguments) -> Answer {
    let region = precision::region().filter(|region| region.enabled);
    let region = Region { device: "cpu", low: region.map(|region| region.dtype) };
    let all: Vec<DType> = a.x.iter().map(Tensor::dtype).collect();
    let floats: Vec<DType> = all.iter().copied().filter(|dtype| dtype.is_float()).collect();
    if name == "to" || name.starts_with("to_") {
        return Ok(target(name, a).into_iter().collect());
    }
    match (&floats[..], &all[..]) {
        // A created tensor has the given dtype, in any region.
        ([], []) => Ok(maker(name).map(|maker| dtype_of_made(maker, a)).into_iter().collect()),
        (_, [first, ..]) if name.ends_with("_like") => Ok(vec![a.dtype.unwrap_or(*first)]),
        ([], _) if COMPARISONS.contains(&name) => Ok(vec![DType::Bool]),
        ([], _) if name == "argmax" || OF_INTEGERS.split_whitespace().any(|known| known == name) => {
            Ok(vec![DType::I64])
        }
        ([], _) => Err(ErrorKind::DType),
        (floats, all) if ["cat", "stack"].contains(&name) && floats.len() < all.len() => Err(ErrorKind::DType),
        ([first, ..], _) if name == "t" => Ok(vec![*first]),
        (floats, _) => rule::demands(form(name), region, floats).map(|mut all| {
            all.truncate(1);
            all
        }),
    }
}
