//! The types of options: the values that they accept, in words and as JSON Schema.

use std::path::PathBuf;

use precast_base::document;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Options, Range, schema_of};
use crate::{DType, Error, policy::LossScaleSpec};

/// The type of an option.
pub trait Takes {
    /// `true` when a list of such values may be a single one in files.
    const ALONE: bool = false;

    /// Describes the accepted values in words.
    fn takes(range: &Range) -> String;

    /// Describes the accepted values as JSON Schema.
    fn schema(range: &Range) -> Value;

    /// Returns the value as files have it.
    fn written(&self) -> Value
    where
        Self: Serialize,
    {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the error for a number outside a range, [about](Error::word) the option.
    fn out_of_range(&self, _name: &str, _range: &Range) -> Option<Error> {
        None
    }
}

/// Options inside options.
impl<O: Options> Takes for O {
    fn takes(_: &Range) -> String {
        format!("a map with the options of {}", O::CALLED)
    }

    fn schema(_: &Range) -> Value {
        schema_of(&O::options())
    }

    fn out_of_range(&self, _: &str, _: &Range) -> Option<Error> {
        Options::out_of_range(self).map(|(_, error)| error)
    }
}

macro_rules! numbers {
    ($($number:ty: $words:literal $json:literal $least:expr;)*) => { $(
        impl Takes for $number {
            fn takes(range: &Range) -> String {
                match range.words.is_empty() {
                    true => range.after(concat!($words, $least)),
                    false => range.after($words),
                }
            }

            fn schema(range: &Range) -> Value {
                let mut schema = range.schema($json);
                if !$least.is_empty() && range.at_least.is_none() && range.above.is_none() {
                    schema["minimum"] = 0.into();
                }
                schema
            }

            fn out_of_range(&self, name: &str, range: &Range) -> Option<Error> {
                range.refusal(name, *self as f64)
            }
        }
    )* };
}
numbers! {
    usize: "a whole number" "integer" " of at least 0";
    u32: "a whole number" "integer" " of at least 0";
    u64: "a whole number" "integer" " of at least 0";
    isize: "a whole number" "integer" "";
    i64: "a whole number" "integer" "";
    f64: "a number" "number" "";
    f32: "a number" "number" "";
}

macro_rules! plain {
    ($($name:ty: $words:literal $json:expr;)*) => { $(
        impl Takes for $name {
            fn takes(_: &Range) -> String {
                $words.into()
            }

            fn schema(_: &Range) -> Value {
                $json
            }
        }
    )* };
}
plain! {
    bool: "true or false" json!({"type": "boolean"});
    char: "a character" json!({"type": "string", "minLength": 1, "maxLength": 1});
    PathBuf: "a path" json!({"type": "string"});
    DType: "a dtype, such as bfloat16" json!({"enum": ["float16", "bfloat16"]});
    LossScaleSpec: "a map with `kind`: none, fixed or dynamic" json!({"type": "object", "required": ["kind"]});
}

impl Takes for String {
    const ALONE: bool = true;

    fn takes(_: &Range) -> String {
        "text".into()
    }

    fn schema(_: &Range) -> Value {
        json!({"type": "string"})
    }
}

/// A list of words as hand-written files have it.
impl Takes for document::Words {
    fn takes(range: &Range) -> String {
        <Vec<String>>::takes(range)
    }

    fn schema(range: &Range) -> Value {
        <Vec<String>>::schema(range)
    }
}

/// A choice as hand-written files have it.
impl<T: Takes> Takes for document::Choice<T> {
    fn takes(range: &Range) -> String {
        T::takes(range)
    }

    fn schema(range: &Range) -> Value {
        T::schema(range)
    }

    fn out_of_range(&self, name: &str, range: &Range) -> Option<Error> {
        self.0.out_of_range(name, range)
    }
}

/// A value with its position in a file.
impl<T: Takes> Takes for document::At<T> {
    fn takes(range: &Range) -> String {
        T::takes(range)
    }

    fn schema(range: &Range) -> Value {
        T::schema(range)
    }

    fn out_of_range(&self, name: &str, range: &Range) -> Option<Error> {
        self.value.out_of_range(name, range)
    }
}

impl<T: Takes> Takes for Option<T> {
    fn takes(range: &Range) -> String {
        T::takes(range)
    }

    fn schema(range: &Range) -> Value {
        T::schema(range)
    }

    fn out_of_range(&self, name: &str, range: &Range) -> Option<Error> {
        self.as_ref()?.out_of_range(name, range)
    }
}

impl<T: Takes> Takes for Vec<T> {
    fn takes(range: &Range) -> String {
        if T::ALONE { format!("{}, or a list", T::takes(range)) } else { "a list".into() }
    }

    fn schema(range: &Range) -> Value {
        let list = json!({"type": "array", "items": T::schema(range)});
        if T::ALONE { json!({"anyOf": [T::schema(range), list]}) } else { list }
    }

    fn out_of_range(&self, name: &str, range: &Range) -> Option<Error> {
        self.iter().find_map(|x| x.out_of_range(name, range))
    }
}

impl<T: Takes, const N: usize> Takes for [T; N] {
    fn takes(range: &Range) -> String {
        format!("a list of {N} numbers, each {}", T::takes(range))
    }

    fn schema(range: &Range) -> Value {
        json!({"type": "array", "items": T::schema(range), "minItems": N, "maxItems": N})
    }

    fn out_of_range(&self, name: &str, range: &Range) -> Option<Error> {
        self.iter().find_map(|x| x.out_of_range(name, range))
    }
}

impl<T: Takes> Takes for (T, T) {
    fn takes(range: &Range) -> String {
        <[T; 2]>::takes(range)
    }

    fn schema(range: &Range) -> Value {
        <[T; 2]>::schema(range)
    }

    fn out_of_range(&self, name: &str, range: &Range) -> Option<Error> {
        let part = |at: usize| format!("{name}[{at}]");
        let error = self.0.out_of_range(&part(0), range).or_else(|| self.1.out_of_range(&part(1), range));
        error.map(|error| error.about(name))
    }
}
