//! Recorded numbers, and their comparison.

use half::{bf16, f16};
use precast::{DType, Tensor};
use serde_json::Value;

/// Reads a recorded text.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text, got {value}")).to_string()
}

/// Reads a recorded number; non-finite ones are words.
pub fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some(word) => word.parse().ok(),
        None => value.as_f64(),
    }
}

/// A number for which NaN equals itself.
#[derive(Clone, Copy, Debug)]
pub struct Number(pub f64);

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.0 == other.0 || self.0.is_nan() && other.0.is_nan()
    }
}

/// A dtype and numbers of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    pub dtype: DType,
    pub numbers: Vec<Number>,
}

impl Numbers {
    pub fn new(dtype: DType, numbers: impl IntoIterator<Item = f64>) -> Numbers {
        Numbers { dtype, numbers: numbers.into_iter().map(Number).collect() }
    }

    pub fn of(tensor: &Tensor) -> Numbers {
        Numbers::new(tensor.dtype(), tensor.to_f64())
    }
}

/// Parses the short name of a dtype, or torch's long one.
pub fn dtype(name: &str) -> Option<DType> {
    Some(match name.strip_prefix("torch.").unwrap_or(name) {
        "f16" | "float16" => DType::F16,
        "bf16" | "bfloat16" => DType::Bf16,
        "f32" | "float32" => DType::F32,
        "f64" | "float64" => DType::F64,
        "i32" | "int32" | "i64" | "int64" => DType::I64,
        _ => return None,
    })
}

/// Rounds to the nearest number of a dtype.
pub fn round(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => x,
        DType::F16 => f16::from_f64(x).to_f64(),
        DType::Bf16 => bf16::from_f64(x).to_f64(),
        _ => f64::from(x as f32),
    }
}
