//! The examples of Paddle's documentation, and inputs of other dtypes than f32 and the low one.

use precast::{Autocast, DType, Result, Tensor, autocast};
use serde::Deserialize;

use super::{
    forms::FORMS,
    names::dtype,
    ops::{ANYWHERE, Verdict, region, tensor},
};

const NO_MIXED_PRODUCTS: &str = "a product of two dtypes is refused";
const INTEGERS: &str = "integers may be added to floats";

/// An example of Paddle's documentation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// `eager_cpu`, where regions do nothing, or `pir`.
    pub mode: String,
    pub dtype: String,
    pub example: String,
    kwargs: Keywords,
    out: Option<String>,
    #[serde(rename = "error")]
    _error: Option<String>,
    amp_dest: Option<String>,
}

/// Inputs of other dtypes than f32 and the low one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Odd {
    pub case: String,
    pub inputs: Vec<String>,
    kwargs: Keywords,
    /// A dtype, or an error.
    result: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Keywords {
    enable: Option<bool>,
    level: Option<String>,
    dtype: Option<String>,
    custom_white_list: Vec<String>,
    custom_black_list: Vec<String>,
}

impl Keywords {
    fn region(&self) -> Option<Autocast> {
        let mut region = region().enabled(self.enable.unwrap_or(true));
        if let Some(level) = &self.level {
            region = region.level(level);
        }
        if let Some(name) = &self.dtype {
            region = region.dtype(dtype(name)?);
        }
        Some(region.white(&self.custom_white_list).black(&self.custom_black_list))
    }
}

impl Example {
    fn ours(&self) -> Option<Result<DType>> {
        let region = self.kwargs.region()?;
        let region = match self.dtype.as_str() {
            "default(float16)" => region,
            name => region.dtype(dtype(name)?),
        };
        let x = tensor(&[2, 3, 8, 8], DType::F32);
        let kernel = tensor(&[4, 3, 3, 3], DType::F32);
        Some(match self.example.as_str() {
            "conv2d(data)" => autocast(region, || Ok(x.conv2d(&kernel, None, &Default::default())?.dtype())),
            "a+b" => autocast(region, || Ok(x.add(&x)?.dtype())),
            _ => return None,
        })
    }

    /// `documented`: what Paddle's documentation says of the five examples in its default dtype.
    pub fn judge(&self, documented: Option<DType>) -> Result<Verdict, String> {
        let ours = self.ours().ok_or("not understood")?.map_err(|error| error.to_string())?;
        let theirs = self.out.as_deref().or(self.amp_dest.as_deref()).and_then(dtype).ok_or("not understood")?;
        let documented = documented.is_none_or(|documented| documented == ours);
        match self.mode.as_str() {
            _ if !documented => Err(format!("ours {ours}, not as documented")),
            "pir" | "eager_cpu" if ours == theirs => Ok(Verdict::Agree),
            "eager_cpu" if theirs == DType::F32 => Ok(Verdict::OnPurpose(ANYWHERE)),
            _ => Err(format!("ours {ours}, theirs {theirs}")),
        }
    }
}

impl Odd {
    pub fn judge(&self) -> Result<Verdict, String> {
        let dtypes: Option<Vec<DType>> = self.inputs.iter().map(|name| dtype(name)).collect();
        let x: Vec<Tensor> = dtypes.ok_or("not understood")?.into_iter().map(|dtype| tensor(&[4, 4], dtype)).collect();
        let form = FORMS.iter().find(|form| form.api.trim_start_matches("F.") == self.case).ok_or("not understood")?;
        let region = self.kwargs.region().ok_or("not understood")?;
        let ours = autocast(region, || form.written.usual(&x)).map(|outcome| outcome.out);
        match (dtype(&self.result), ours) {
            (Some(theirs), Ok(ours)) if theirs == ours => Ok(Verdict::Agree),
            (None, Err(_)) => Ok(Verdict::Agree),
            (None, Ok(DType::F32)) if self.case == "add" && self.inputs == ["int32", "float32"] => {
                Ok(Verdict::OnPurpose(INTEGERS))
            }
            // Paddle casts one of the two, and writes down a graph that cannot run.
            (Some(_), Err(error)) if self.case == "matmul" && self.inputs[0] != self.inputs[1] => {
                assert_eq!(error.kind(), precast::ErrorKind::DType);
                Ok(Verdict::OnPurpose(NO_MIXED_PRODUCTS))
            }
            (_, ours) => Err(format!("ours {ours:?}, theirs {}", self.result)),
        }
    }
}
