//! Options with one value per spatial axis, and their written form.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};

use crate::{
    Error, Padding,
    options::{Range, Takes},
};
use serde_json::{Value, json};

/// One number per axis, for `N` axes: `3.into()` for the same on all, `[3, 5].into()` or `(3, 5).into()` for one each.
///
/// In files a number, or a list of `N` numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerAxis<const N: usize>(pub [usize; N]);

impl<const N: usize> PerAxis<N> {
    pub(super) fn to_vec(self) -> Vec<usize> {
        self.0.to_vec()
    }
}

impl<const N: usize> From<usize> for PerAxis<N> {
    fn from(all: usize) -> Self {
        PerAxis([all; N])
    }
}

impl<const N: usize> From<[usize; N]> for PerAxis<N> {
    fn from(each: [usize; N]) -> Self {
        PerAxis(each)
    }
}

impl From<(usize, usize)> for PerAxis<2> {
    fn from((first, second): (usize, usize)) -> Self {
        PerAxis([first, second])
    }
}

impl From<(usize, usize, usize)> for PerAxis<3> {
    fn from((first, second, third): (usize, usize, usize)) -> Self {
        PerAxis([first, second, third])
    }
}

impl<const N: usize> Serialize for PerAxis<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [first, ..] = self.0[..] else { return serializer.serialize_none() };
        if self.0.iter().all(|&x| x == first) {
            serializer.serialize_u64(first as u64)
        } else {
            serializer.collect_seq(self.0)
        }
    }
}

impl<'de, const N: usize> Deserialize<'de> for PerAxis<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PerAxisVisitor<const N: usize>;

        impl<'de, const N: usize> Visitor<'de> for PerAxisVisitor<N> {
            type Value = PerAxis<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number that is not negative, or a list of {N} of them")
            }

            fn visit_u64<E: de::Error>(self, all: u64) -> Result<Self::Value, E> {
                number(all, &self).map(PerAxis::from)
            }

            fn visit_i64<E: de::Error>(self, all: i64) -> Result<Self::Value, E> {
                u64::try_from(all)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(all), &self))
                    .and_then(|x| self.visit_u64(x))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut each = [0; N];
                for (i, place) in each.iter_mut().enumerate() {
                    *place = list.next_element()?.ok_or_else(|| de::Error::invalid_length(i, &self))?;
                }
                match list.next_element::<usize>()? {
                    None => Ok(PerAxis(each)),
                    Some(_) => Err(de::Error::invalid_length(N + 1, &self)),
                }
            }
        }

        deserializer.deserialize_any(PerAxisVisitor)
    }
}

fn number<E: de::Error>(x: u64, expected: &dyn de::Expected) -> Result<usize, E> {
    usize::try_from(x).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(x), expected))
}

impl<const N: usize> Takes for PerAxis<N> {
    fn takes(range: &Range) -> String {
        format!("{}, or a list of {N} of them", usize::takes(range))
    }

    fn schema(range: &Range) -> Value {
        json!({"anyOf": [usize::schema(range), <[usize; N]>::schema(range)]})
    }

    fn out_of_range(&self, name: &str, range: &Range) -> Option<Error> {
        self.0.out_of_range(name, range)
    }
}

/// The accepted values of a padding.
const PADDING: &str = "`valid`, `same`, a number, or a list with a number or a pair [before, after] for each axis";

impl Takes for Padding {
    fn takes(_: &Range) -> String {
        PADDING.into()
    }

    fn schema(_: &Range) -> Value {
        let count = || json!({"type": "integer", "minimum": 0});
        let pair = json!({"type": "array", "items": count(), "minItems": 2, "maxItems": 2});
        json!({"anyOf": [{"enum": ["valid", "same"]}, count(), {"type": "array", "items": {"anyOf": [count(), pair]}}]})
    }

    fn written(&self) -> Value {
        padding::serialize(self, serde_json::value::Serializer).unwrap_or_default()
    }
}

/// The written form of [`Padding`]: `valid`, `same`, a number for all sides, or a list with, per axis, a number or a
/// pair `[before, after]`.
pub(super) mod padding {
    use super::*;

    /// The padding of one axis.
    #[derive(Clone, Copy, Serialize, Deserialize)]
    #[serde(untagged, expecting = "a number that is not negative, or a pair of them: [before, after]")]
    enum Sides {
        Both(usize),
        Each(usize, usize),
    }

    impl From<(usize, usize)> for Sides {
        fn from((before, after): (usize, usize)) -> Self {
            if before == after { Sides::Both(before) } else { Sides::Each(before, after) }
        }
    }

    pub fn serialize<S: Serializer>(padding: &Padding, serializer: S) -> Result<S::Ok, S::Error> {
        match padding {
            Padding::Valid => serializer.serialize_str("valid"),
            Padding::Same => serializer.serialize_str("same"),
            Padding::Explicit(axes) => match axes[..] {
                [(before, after)] if before == after => before.serialize(serializer),
                _ => serializer.collect_seq(axes.iter().map(|&sides| Sides::from(sides))),
            },
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Padding, D::Error> {
        struct PaddingVisitor;

        impl<'de> Visitor<'de> for PaddingVisitor {
            type Value = Padding;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(PADDING)
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Padding, E> {
                match name {
                    "valid" => Ok(Padding::Valid),
                    "same" => Ok(Padding::Same),
                    _ => Err(E::invalid_value(de::Unexpected::Str(name), &self)),
                }
            }

            fn visit_u64<E: de::Error>(self, all: u64) -> Result<Padding, E> {
                number(all, &self).map(Padding::all)
            }

            fn visit_i64<E: de::Error>(self, all: i64) -> Result<Padding, E> {
                u64::try_from(all)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(all), &self))
                    .and_then(|x| self.visit_u64(x))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Padding, A::Error> {
                let mut axes = Vec::new();
                while let Some(sides) = list.next_element()? {
                    axes.push(match sides {
                        Sides::Both(both) => (both, both),
                        Sides::Each(before, after) => (before, after),
                    });
                }
                Ok(Padding::Explicit(axes))
            }
        }

        deserializer.deserialize_any(PaddingVisitor)
    }
}
