//! A call of `auto_cast` in Python syntax, and its faults by our rule.

use precast::{DType, ErrorKind, Op};

use super::{
    names::{dtype, is_called, is_object},
    rule::{LEVELS, Region, is_known},
};

/// Arguments in positional order.
const PARAMETERS: [&str; 6] = ["enable", "custom_white_list", "custom_black_list", "level", "dtype", "use_promote"];

/// A value in Python syntax.
#[derive(Clone, Debug, PartialEq)]
enum Value<'a> {
    None,
    Bool(bool),
    Word(&'a str),
    /// A list, tuple or set, or the keys of a dict.
    List(Vec<Value<'a>>),
    /// A dtype object of Paddle.
    Object(DType),
    /// Numbers and bytes.
    Other(&'a str),
}

impl<'a> Value<'a> {
    fn read(text: &'a str) -> Self {
        let text = text.trim();
        let collection = text.trim_start_matches("frozenset").trim_start_matches("set");
        // Objects of the older class, `VarType`, are refused like numbers.
        let is_dtype = is_object(text) && !text.contains("VarType") && text.parse::<f64>().is_err();
        match text {
            "None" => Value::None,
            "True" => Value::Bool(true),
            "False" => Value::Bool(false),
            word if word.starts_with(['\'', '"']) => Value::Word(word.trim_matches(['\'', '"'])),
            _ if collection.starts_with(['[', '(', '{']) => {
                let inside = collection.trim_start_matches(['[', '(', '{']).trim_end_matches([']', ')', '}']);
                let keys = split(inside).into_iter().map(|item| item.split_once(": ").map_or(item, |(key, _)| key));
                Value::List(keys.map(Value::read).collect())
            }
            _ => dtype(text).filter(|_| is_dtype).map_or(Value::Other(text), Value::Object),
        }
    }

    fn word(&self) -> Option<&'a str> {
        match self {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Returns whether it is truthy in Python.
    fn is_true(&self) -> bool {
        match self {
            Value::None => false,
            Value::Bool(value) => *value,
            Value::Word(word) => !word.is_empty(),
            Value::List(items) => !items.is_empty(),
            Value::Object(_) => true,
            Value::Other(number) => number.parse() != Ok(0.0),
        }
    }
}

/// Splits at the commas outside of brackets.
fn split(inside: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, vec![]);
    for (at, c) in inside.char_indices() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// A call that Python makes, or refuses because of an unknown keyword.
pub struct Call<'a> {
    arguments: Vec<(&'a str, Value<'a>)>,
    has_unknown: bool,
}

impl<'a> Call<'a> {
    pub fn read(text: &'a str) -> Option<Self> {
        let inside = text.strip_prefix("auto_cast(")?.strip_suffix(')')?;
        let is_name = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let mut call = Call { arguments: vec![], has_unknown: false };
        for (at, part) in split(inside).into_iter().enumerate() {
            let (key, value) = match part.split_once('=').filter(|(key, _)| is_name(key)) {
                Some(pair) => pair,
                None => (*PARAMETERS.get(at)?, part),
            };
            call.has_unknown |= !PARAMETERS.contains(&key) || call.get(key).is_some();
            call.arguments.push((key, Value::read(value)));
        }
        Some(call)
    }

    fn get(&self, key: &str) -> Option<&Value<'a>> {
        self.arguments.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Returns whether the call cannot be written here: a keyword, or a value of another type.
    pub fn has_no_form(&self) -> bool {
        let names = |items: &[Value<'_>]| items.iter().all(|item| item.word().is_some());
        let has_form = |(key, value): &(&str, Value<'_>)| match *key {
            "enable" | "use_promote" => matches!(value, Value::Bool(_)),
            "level" => value.word().is_some(),
            "dtype" => matches!(value, Value::Word(_) | Value::Object(_)),
            // None is an absent list.
            _ => matches!(value, Value::None) || matches!(value, Value::List(items) if names(items)),
        };
        self.has_unknown || !self.arguments.iter().all(has_form)
    }

    /// Returns the names on a list.
    fn names(&self, key: &str) -> Vec<&'a str> {
        match self.get(key) {
            Some(Value::List(items)) => items.iter().filter_map(Value::word).collect(),
            _ => vec![],
        }
    }

    fn level(&self) -> &'a str {
        self.get("level").and_then(Value::word).unwrap_or("O1")
    }

    /// Converts the call, valid or not: a Paddle object becomes a dtype of ours, a word must be written as in our
    /// files.
    pub fn region(&self) -> precast::Result<Region> {
        let names = |key| self.names(key).into_iter().map(String::from).collect();
        let dtype = match self.get("dtype") {
            Some(Value::Object(dtype)) => Some(*dtype),
            Some(Value::Word(word)) => Some(word.parse()?),
            _ => None,
        };
        Ok(Region {
            enabled: self.get("enable").is_none_or(Value::is_true),
            level: self.level().into(),
            dtype,
            promote: self.get("use_promote").is_none_or(Value::is_true),
            white: names("custom_white_list"),
            black: names("custom_black_list"),
        })
    }

    /// Returns whether the dtype is an object. Some of the older class are printed in this form as well.
    pub fn names_an_object(&self) -> bool {
        matches!(self.get("dtype"), Some(Value::Object(_)))
    }

    /// Returns the faults of the call by our rule.
    pub fn faults(&self) -> Vec<ErrorKind> {
        let mut faults = vec![];
        let level = self.level();
        if !LEVELS.contains(&level) {
            faults.push(ErrorKind::Level);
        }
        if self.get("use_promote") == Some(&Value::Bool(false)) && level != "O2" {
            faults.push(ErrorKind::Level);
        }
        match self.get("dtype") {
            Some(Value::Object(dtype)) if !dtype.is_low() => faults.push(ErrorKind::DType),
            Some(Value::Word("float16" | "bfloat16" | "f16" | "bf16")) => {}
            // Other words, or these in capital letters.
            Some(Value::Word(_)) => faults.push(ErrorKind::DType),
            _ => {}
        }
        let (white, black) = (self.names("custom_white_list"), self.names("custom_black_list"));
        if white.iter().chain(&black).any(|name| !is_known(name, &[])) {
            faults.push(ErrorKind::List);
        }
        let names = |list: &[&str], op: Op| list.iter().any(|name| is_called(op, name));
        let is_on_both = |op: &Op| names(&white, *op) && names(&black, *op);
        if white.iter().any(|name| black.contains(name)) || Op::ALL.iter().any(is_on_both) {
            faults.push(ErrorKind::List);
        }
        faults
    }
}
