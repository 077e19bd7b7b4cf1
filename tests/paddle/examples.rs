//! The examples of Paddle's documentation, and inputs of other dtypes than f32 and the low one.

use precast::{DType, Tensor, autocast};
use serde::Deserialize;

use super::{
    forms::{FORMS, Written},
    names::{dtype, named},
    ops::{ANYWHERE, Verdict, tensor},
    rule::Region,
};

const NO_MIXED_PRODUCTS: &str = "a product of two dtypes is refused";
const INTEGERS: &str = "integers may be added to floats";

/// An example of Paddle's documentation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// `eager_cpu`, where regions do nothing, or `pir`.
    mode: String,
    dtype: String,
    example: String,
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
    case: String,
    inputs: Vec<String>,
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
    use_promote: Option<bool>,
    custom_white_list: Vec<String>,
    custom_black_list: Vec<String>,
}

impl Keywords {
    fn region(&self) -> Option<Region> {
        Some(Region {
            enabled: self.enable.unwrap_or(true),
            level: self.level.clone().unwrap_or("O1".into()),
            dtype: self.dtype.as_deref().map_or(Some(None), |name| dtype(name).map(Some))?,
            promote: self.use_promote.unwrap_or(true),
            white: self.custom_white_list.clone(),
            black: self.custom_black_list.clone(),
        })
    }

    /// As they are written in a call.
    fn name(&self) -> String {
        let promote = (self.use_promote == Some(false)).then(|| "no promotion".to_string());
        let off = (self.enable == Some(false)).then(|| "off".to_string());
        let list = |word: &str, names: &[String]| (!names.is_empty()).then(|| format!("{word} {}", names.join(" ")));
        let lists = [list("white", &self.custom_white_list), list("black", &self.custom_black_list)];
        let said = [self.level.clone(), self.dtype.clone(), off, promote].into_iter().chain(lists);
        said.flatten().collect::<Vec<_>>().join(" ")
    }
}

impl Example {
    pub fn is_a_sibling_of(&self, other: &Example) -> bool {
        other.mode == self.mode && other.dtype == "default(float16)"
    }

    pub fn name(&self) -> String {
        format!("example {} {} {} {}", self.mode, self.dtype, self.example, self.kwargs.name()).trim_end().into()
    }

    /// `documented`: what Paddle's documentation says of the five examples in its default dtype.
    pub fn judge(&self, documented: Option<DType>) -> Result<Verdict, String> {
        let mut region = self.kwargs.region().ok_or("not understood")?;
        if self.dtype != "default(float16)" {
            region.dtype = Some(dtype(&self.dtype).ok_or("not understood")?);
        }
        let x = tensor(&[2, 3, 8, 8], DType::F32);
        let kernel = tensor(&[4, 3, 3, 3], DType::F32);
        let (x, written) = match self.example.as_str() {
            "conv2d(data)" => (vec![x, kernel], Written::Ops(|x| x[0].conv2d(&x[1], None, &Default::default()))),
            "a+b" => (vec![x.clone(), x], Written::Ops(|x| x[0].add(&x[1]))),
            _ => return Err("not understood".into()),
        };
        let ours = autocast(region.autocast(), || written.usual(&x)).map_err(|error| error.to_string())?;
        written.holds(&region, &x, &ours)?;
        let ours = ours.out;
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
    pub fn name(&self) -> String {
        format!("odd {} {} {}", self.case, self.inputs.join(" "), self.kwargs.name())
    }

    pub fn judge(&self) -> Result<Verdict, String> {
        let dtypes: Option<Vec<DType>> = self.inputs.iter().map(|name| dtype(name)).collect();
        let dtypes = dtypes.ok_or("not understood")?;
        let x: Vec<Tensor> = dtypes.iter().map(|dtype| tensor(&[4, 4], *dtype)).collect();
        let form = FORMS.iter().find(|form| form.api.trim_start_matches("F.") == self.case).ok_or("not understood")?;
        let region = self.kwargs.region().ok_or("not understood")?;
        let ours = autocast(region.autocast(), || form.written.usual(&x));
        match &ours {
            Ok(ours) => form.written.holds(&region, &x, ours)?,
            Err(error) => {
                let op = named(&self.case).map_err(|error| error.to_string())?[0];
                if region.ours(op, &dtypes) != Err(error.kind()) {
                    return Err(format!("our rule does not demand `{error}`"));
                }
            }
        }
        let mixes_integers = dtypes.contains(&DType::I64) && dtypes.iter().any(|dtype| dtype.is_float());
        match (dtype(&self.result), ours) {
            (Some(theirs), Ok(ours)) if theirs == ours.out => Ok(Verdict::Agree),
            (None, Err(_)) if self.result.starts_with("TypeError: ") => Ok(Verdict::Agree),
            (None, Ok(_)) if self.result.starts_with("TypeError: ") && mixes_integers => {
                Ok(Verdict::OnPurpose(INTEGERS))
            }
            // Paddle casts one of the two, and writes down a graph that cannot run.
            (Some(_), Err(_)) if dtypes.contains(&DType::F64) => Ok(Verdict::OnPurpose(NO_MIXED_PRODUCTS)),
            (_, ours) => Err(format!("ours {ours:?}, theirs {}", self.result)),
        }
    }
}
