//! The examples of Paddle's documentation, and inputs of dtypes other than f32 and the low one.

use precast::{DType, Tensor, autocast};
use serde::Deserialize;
use serde_json::Value;

use super::{
    forms::{FORMS, Written},
    names::{dtype, named},
    ops::tensor,
    rule::Region,
};
use crate::replay::{Case, Judged, Verdict, each};

const DEFAULT: &str = "default(float16)";

/// An example of Paddle's documentation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    /// Either `eager_cpu`, where regions do nothing, or `pir`.
    mode: String,
    dtype: String,
    example: String,
    kwargs: Keywords,
    out: Option<String>,
    #[serde(rename = "error")]
    _error: Option<String>,
    amp_dest: Option<String>,
}

/// Inputs of dtypes other than f32 and the low one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Odd {
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

    /// Returns the call as written.
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
    fn name(&self) -> String {
        format!("example {} {} {} {}", self.mode, self.dtype, self.example, self.kwargs.name()).trim_end().into()
    }

    /// Judges an example. `documented` is the dtype given by Paddle's documentation for the five examples in its
    /// default dtype.
    fn judge(&self, documented: Option<DType>) -> Judged {
        let mut region = self.kwargs.region().ok_or("not understood")?;
        if self.dtype != DEFAULT {
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
            "pir" | "eager_cpu" => Ok(Verdict::of(ours == theirs)),
            _ => Err("not understood".into()),
        }
    }
}

impl Odd {
    fn name(&self) -> String {
        format!("odd {} {} {}", self.case, self.inputs.join(" "), self.kwargs.name())
    }

    fn judge(&self) -> Judged {
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
        // A result of dtypes that are mixed is an error there, or a graph that cannot run.
        let agrees = match (dtype(&self.result), ours) {
            (Some(theirs), Ok(ours)) => theirs == ours.out,
            (theirs, ours) => theirs.is_none() && ours.is_err() && self.result.starts_with("TypeError: "),
        };
        Ok(Verdict::of(agrees))
    }
}

/// Returns the dtypes documented by Paddle for its examples in the default dtype, in the order of the examples of a
/// mode.
fn documented(golden: &Value) -> Vec<Option<DType>> {
    let said = golden.get("documented_seed_result").and_then(Value::as_array);
    said.into_iter().flatten().map(|name| dtype(name.as_str()?)).collect()
}

/// Judges the examples and the other dtypes of a file.
pub fn judge(golden: &Value) -> Vec<Case> {
    let documented = documented(golden);
    let of_default = |example: &Value, mode: &str| example["dtype"] == DEFAULT && example["mode"] == mode;
    let examples = golden.get("seed_examples").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut judged = vec![];
    for (i, value) in examples.iter().enumerate() {
        let alone = serde_json::json!({ "seed_examples": [value] });
        judged.extend(each(&alone, "seed_examples", |example: Example| {
            let is_sibling = |other: &&Value| of_default(other, &example.mode);
            // They can be identified only if all of them are recorded.
            let complete = examples.iter().filter(is_sibling).count() == documented.len();
            let place = examples[..i].iter().filter(is_sibling).count();
            let said = (complete && of_default(value, &example.mode)).then(|| documented[place]).flatten();
            vec![(example.name(), example.judge(said))]
        }));
    }
    judged.extend(each(golden, "odd_dtypes", |odd: Odd| vec![(odd.name(), odd.judge())]));
    judged
}
