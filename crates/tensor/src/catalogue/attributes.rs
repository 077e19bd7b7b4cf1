//! Attributes: the arguments of an op besides its tensors, as data that a graph writes to a file and runs again.

use std::{fmt, ops::Range};

use precast_base::names::did_you_mean;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    DType,
    error::{Error, Result},
};

/// The arguments of an op other than tensors, by name: `axis`, `eps`, `stride`.
///
/// They are JSON: numbers, booleans, strings, lists and maps. A non-finite number is the string `inf`, `-inf` or `nan`.
///
/// ```
/// # use precast_tensor as precast;
/// use precast::{DType, Op, Tensor, catalogue::Attributes};
/// let mut attributes = Attributes::default();
/// attributes.set("axis", &-1isize);
/// assert_eq!(attributes.to_string(), "axis: -1");
/// let x = Tensor::zeros(&[1, 2], DType::F32);
/// assert_eq!(precast::run_with(Op::Softmax, &attributes, &[&x])?[0].to_f64(), [0.5, 0.5]);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attributes(Map<String, Value>);

/// A type of attributes.
pub trait Attribute: Sized {
    /// Converts the value to JSON.
    fn to_value(&self) -> Value;

    /// Converts JSON to a value; `None` when it has another type.
    fn of_value(value: &Value) -> Option<Self>;

    /// Returns the expected type in words: `a whole number`.
    fn wanted() -> &'static str;
}

impl Attributes {
    /// Sets an attribute.
    pub fn set<T: Attribute>(&mut self, name: &str, value: &T) {
        self.0.insert(name.into(), value.to_value());
    }

    /// Returns an attribute.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when there is no attribute of this name, with the nearest one, and
    /// when it has another type.
    pub fn get<T: Attribute>(&self, name: &str) -> Result<T> {
        let Some(value) = self.0.get(name) else {
            let near = did_you_mean(name, self.0.keys().map(String::as_str));
            return Err(Error::value(format!("the attribute `{name}` is missing{near}")));
        };
        let wrong = || Error::value(format!("the attribute `{name}` is {value}; allowed: {}", T::wanted()));
        T::of_value(value).ok_or_else(wrong)
    }

    /// Returns whether there is an attribute of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns whether there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Iterates over names and values, sorted by name, to change the values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        self.0.iter_mut().map(|(name, value)| (name.as_str(), value))
    }
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.iter().enumerate() {
            write!(f, "{}{name}: {value}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl Attribute for f64 {
    fn to_value(&self) -> Value {
        match *self {
            x if x.is_finite() => json!(x),
            x if x.is_nan() => json!("nan"),
            x => json!(if x > 0.0 { "inf" } else { "-inf" }),
        }
    }

    fn of_value(value: &Value) -> Option<f64> {
        match value {
            Value::String(word) => match &word[..] {
                "inf" => Some(f64::INFINITY),
                "-inf" => Some(f64::NEG_INFINITY),
                "nan" => Some(f64::NAN),
                _ => None,
            },
            value => value.as_f64(),
        }
    }

    fn wanted() -> &'static str {
        "a number"
    }
}

impl Attribute for Option<f64> {
    fn to_value(&self) -> Value {
        self.map_or(Value::Null, |x| x.to_value())
    }

    fn of_value(value: &Value) -> Option<Option<f64>> {
        if value.is_null() { Some(None) } else { f64::of_value(value).map(Some) }
    }

    fn wanted() -> &'static str {
        "a number or null"
    }
}

impl Attribute for DType {
    fn to_value(&self) -> Value {
        json!(self.long_name())
    }

    fn of_value(value: &Value) -> Option<DType> {
        value.as_str()?.parse().ok()
    }

    fn wanted() -> &'static str {
        "the name of a dtype"
    }
}

impl Attribute for Range<usize> {
    fn to_value(&self) -> Value {
        json!([self.start, self.end])
    }

    fn of_value(value: &Value) -> Option<Range<usize>> {
        let [start, end] = <[usize; 2]>::deserialize(value).ok()?;
        Some(start..end)
    }

    fn wanted() -> &'static str {
        "the first index and the one behind the last"
    }
}

/// Implements the trait for types with serde's JSON.
macro_rules! as_serde_has_them {
    ($($type:ty: $wanted:literal;)*) => { $(
        impl $crate::catalogue::Attribute for $type {
            fn to_value(&self) -> serde_json::Value {
                serde_json::to_value(self).unwrap_or_default()
            }

            fn of_value(value: &serde_json::Value) -> Option<Self> {
                serde::Deserialize::deserialize(value).ok()
            }

            fn wanted() -> &'static str {
                $wanted
            }
        }
    )* };
}
pub(crate) use as_serde_has_them;

as_serde_has_them! {
    bool: "true or false";
    u32: "a whole number, not negative";
    u64: "a whole number, not negative";
    usize: "a whole number, not negative";
    i64: "a whole number";
    isize: "a whole number";
    String: "a word";
    Vec<f64>: "a list of numbers";
    Vec<usize>: "a list of whole numbers, not negative";
    Vec<isize>: "a list of whole numbers";
    Vec<(usize, usize)>: "a list of pairs of whole numbers, not negative";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_from_json() {
        let mut attributes = Attributes::default();
        attributes.set("a", &f64::NEG_INFINITY);
        attributes.set("b", &DType::Bf16);
        attributes.set("c", &(2..5usize));
        attributes.set("d", &vec![-1isize, 3]);
        attributes.set("e", &u64::MAX);
        let text = serde_json::to_string(&attributes).unwrap();
        assert_eq!(text, r#"{"a":"-inf","b":"bfloat16","c":[2,5],"d":[-1,3],"e":18446744073709551615}"#);
        let back: Attributes = serde_json::from_str(&text).unwrap();
        assert_eq!(back, attributes);
        assert_eq!(back.get::<f64>("a").unwrap(), f64::NEG_INFINITY);
        assert_eq!(back.get::<DType>("b").unwrap(), DType::Bf16);
        assert_eq!(back.get::<Range<usize>>("c").unwrap(), 2..5);
        assert_eq!(back.get::<u64>("e").unwrap(), u64::MAX);
        let message = |e: Result<usize>| e.unwrap_err().to_string();
        assert_eq!(message(back.get("d")), "the attribute `d` is [-1,3]; allowed: a whole number, not negative");
        attributes.set("axis", &0isize);
        assert_eq!(message(attributes.get("axes")), "the attribute `axes` is missing (did you mean `axis`?)");
    }
}
