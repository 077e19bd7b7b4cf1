//! Dtypes: their properties, their names, the only promotion rules, and the Rust types of elements.

use std::{borrow::Cow, fmt, str::FromStr};

use half::{bf16, f16};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    error::{Error, Result},
    names::did_you_mean,
};

/// The run-time element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 binary64. Never cast by a policy.
    F64,
    /// IEEE 754 binary32: the full precision of training.
    F32,
    /// IEEE 754 binary16: 11 significant bits, largest finite value 65504.
    F16,
    /// bfloat16: the upper half of a binary32, 8 significant bits.
    Bf16,
    /// 64-bit signed integer: indices and labels.
    I64,
    /// Truth value: masks and comparisons.
    Bool,
}

impl DType {
    /// All dtypes, widest first.
    pub const ALL: [DType; 6] = [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::I64, DType::Bool];

    /// The two dtypes to which a policy may lower.
    pub const LOW: [DType; 2] = [DType::F16, DType::Bf16];

    /// Returns the short name, as printed: `f32`.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::I64 => "i64",
            DType::Bool => "bool",
        }
    }

    /// Returns the short name with its article: `an f32`.
    pub fn with_article(self) -> &'static str {
        match self {
            DType::F64 => "an f64",
            DType::F32 => "an f32",
            DType::F16 => "an f16",
            DType::Bf16 => "a bf16",
            DType::I64 => "an i64",
            DType::Bool => "a bool",
        }
    }

    /// Returns the long name, as written in policy files: `float32`.
    pub fn long_name(self) -> &'static str {
        match self {
            DType::F64 => "float64",
            DType::F32 => "float32",
            DType::F16 => "float16",
            DType::Bf16 => "bfloat16",
            DType::I64 => "int64",
            DType::Bool => "bool",
        }
    }

    /// Returns whether this is a floating-point dtype.
    pub fn is_float(self) -> bool {
        !matches!(self, DType::I64 | DType::Bool)
    }

    /// Returns whether this is one of the two 16-bit floating-point dtypes.
    pub fn is_low(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16)
    }

    /// Returns the dtype of arithmetic on it: f64 for f64, f32 for all others.
    pub fn wide(self) -> DType {
        if self == DType::F64 { DType::F64 } else { DType::F32 }
    }

    /// Returns whether a policy may cast tensors of this dtype: f32, f16 and bf16. Integers and booleans have no
    /// precision to choose, and an explicit f64 is kept.
    pub fn is_castable(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::Bf16)
    }

    /// Returns the size of one element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::Bool => 1,
        }
    }

    /// Returns the distance from 1 to the next larger number; 0 for integers and booleans.
    pub fn epsilon(self) -> f64 {
        match self {
            DType::F64 => f64::EPSILON,
            DType::F32 => f32::EPSILON as f64,
            DType::F16 => 2f64.powi(-10),
            DType::Bf16 => 2f64.powi(-7),
            DType::I64 | DType::Bool => 0.0,
        }
    }

    /// Returns the dtype of the result of arithmetic between the two.
    ///
    /// The lattice is `bool < i64 < {f16, bf16} < f32 < f64`; f16 and bf16 promote to f32, because neither holds the
    /// other.
    ///
    /// ```
    /// use precast_base::DType::*;
    /// assert_eq!(F16.promote(F32), F32);
    /// assert_eq!(F16.promote(Bf16), F32);
    /// assert_eq!(I64.promote(Bf16), Bf16);
    /// ```
    pub fn promote(self, other: DType) -> DType {
        let rank = |d: DType| match d {
            DType::Bool => 0,
            DType::I64 => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::F32 => 3,
            DType::F64 => 4,
        };
        match rank(self).cmp(&rank(other)) {
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Equal if self == other => self,
            std::cmp::Ordering::Equal => DType::F32,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Reads the short (`bf16`) or the long name (`bfloat16`).
    fn from_str(text: &str) -> Result<Self> {
        DType::ALL.into_iter().find(|d| d.name() == text || d.long_name() == text).ok_or_else(|| {
            let names = DType::ALL.map(DType::long_name);
            let all = names.into_iter().chain(DType::ALL.map(DType::name));
            Error::dtype(format!("unknown dtype `{text}`{}; allowed: {}", did_you_mean(text, all), names.join(", ")))
        })
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.long_name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A Rust type that can be an element of a tensor.
pub trait Element: Copy + PartialEq + PartialOrd + Default + fmt::Debug + Send + Sync + 'static {
    /// The run-time name of this type.
    const DTYPE: DType;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}
element!(f64 => F64, f32 => F32, f16 => F16, bf16 => Bf16, i64 => I64, bool => Bool);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_a_semilattice() {
        for a in DType::ALL {
            assert_eq!(a.promote(a), a);
            for b in DType::ALL {
                assert_eq!(a.promote(b), b.promote(a));
                for c in DType::ALL {
                    assert_eq!(a.promote(b).promote(c), a.promote(b.promote(c)));
                }
            }
        }
    }

    #[test]
    fn both_names_are_read_and_a_near_miss_is_named() {
        for d in DType::ALL {
            assert_eq!(d.name().parse::<DType>().unwrap(), d);
            assert_eq!(d.long_name().parse::<DType>().unwrap(), d);
        }
        let message = "flaot16".parse::<DType>().unwrap_err().to_string();
        assert!(message.contains("did you mean `float16`"), "{message}");
    }
}
