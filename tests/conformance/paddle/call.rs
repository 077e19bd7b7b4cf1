//! A call of `auto_cast` in Python syntax: Paddle's interpretation, and its faults by our rule.

use precast::{DType, ErrorKind, Op};

use super::{
    names::{dtype, is_called, is_object},
    ops::HEEDED,
    rule::{LEVELS, Region, is_known},
};

/// The intentional differences, as named in COMPARE.md.
const EXACT: &str = "names are exact";
const CHECKED: &str = "a region is checked also where it does nothing";
const O2_ALONE: &str = "`use_promote` is O2's";

/// Arguments in positional order.
const PARAMETERS: [&str; 6] = ["enable", "custom_white_list", "custom_black_list", "level", "dtype", "use_promote"];

/// Level, whether anything is cast, and the low dtype.
pub type State = (String, bool, DType);

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

    /// Returns the state of Paddle in such a region, or the class of its error. On a CPU it warns and does nothing.
    pub fn by_paddle(&self, place: &str) -> Result<State, &'static str> {
        if self.has_unknown {
            return Err("TypeError");
        }
        let level = match self.get("level") {
            None => "O1".to_string(),
            Some(Value::Word(level)) => level.to_uppercase(),
            // Bytes have capital letters, too.
            Some(Value::Other(bytes)) if bytes.starts_with("b'") => return Err("ValueError"),
            Some(_) => return Err("AttributeError"),
        };
        if !LEVELS.contains(&&*level) {
            return Err("ValueError");
        }
        let named = match self.get("dtype") {
            None => Some(DType::F16),
            Some(Value::Object(dtype)) => Some(*dtype),
            Some(Value::Word(word)) => {
                ["float16", "bfloat16"].contains(&&*word.to_lowercase()).then(|| dtype(word)).flatten()
            }
            Some(_) => return Err("AttributeError"),
        };
        let low = named.filter(|dtype| dtype.is_low());
        let is_on = self.get("enable").is_none_or(Value::is_true);
        match low {
            None if is_on => return Err("ValueError"),
            // A dtype without lists.
            None if level != "O0" => return Err("KeyError"),
            _ => {}
        }
        if level != "O0" {
            self.lists_by_paddle()?;
        }
        let casts = place == "pir" && is_on && level != "O0";
        Ok((if casts { level } else { "O0".into() }, casts, low.unwrap_or(DType::F16)))
    }

    /// Returns the class of Paddle's error for its lists, which it iterates by elements, or a word by letters.
    fn lists_by_paddle(&self) -> Result<(), &'static str> {
        let given = ["custom_white_list", "custom_black_list"].map(|key| self.get(key).filter(|list| list.is_true()));
        let mut elements: [Vec<Value<'_>>; 2] = Default::default();
        for (list, elements) in given.into_iter().zip(&mut elements) {
            *elements = match list {
                None => vec![],
                Some(Value::List(items)) => items.clone(),
                Some(Value::Word(word)) => word.split_inclusive(|_| true).map(Value::Word).collect(),
                Some(_) => return Err("TypeError"),
            };
        }
        if elements[0].iter().any(|item| elements[1].contains(item)) {
            return Err("ValueError");
        }
        let is_word = |item: &Value<'_>| item.word().is_some();
        if elements.iter().flatten().all(is_word) { Ok(()) } else { Err("TypeError") }
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

    /// Returns whether the dtype is an object. Some of the older class are printed in this form, too.
    pub fn names_an_object(&self) -> bool {
        matches!(self.get("dtype"), Some(Value::Object(_)))
    }

    /// Returns whether the dtype has its short name, which Paddle lacks.
    pub fn says_dtype_shortly(&self) -> bool {
        self.get("dtype").and_then(Value::word).is_some_and(|word| ["f16", "bf16"].contains(&word))
    }

    /// Returns the faults of the call by our rule, each with the difference it represents if Paddle accepts it.
    pub fn faults(&self) -> Vec<(ErrorKind, &'static str)> {
        let mut faults = vec![];
        let level = self.level();
        if !LEVELS.contains(&level) {
            faults.push((ErrorKind::Level, EXACT));
        }
        if self.get("use_promote") == Some(&Value::Bool(false)) && level != "O2" {
            faults.push((ErrorKind::Level, O2_ALONE));
        }
        match self.get("dtype") {
            Some(Value::Object(dtype)) if !dtype.is_low() => faults.push((ErrorKind::DType, CHECKED)),
            Some(Value::Word("float16" | "bfloat16" | "f16" | "bf16")) => {}
            Some(Value::Word(word)) if !dtype(word).is_some_and(DType::is_low) => {
                faults.push((ErrorKind::DType, CHECKED));
            }
            Some(Value::Word(_)) => faults.push((ErrorKind::DType, EXACT)),
            _ => {}
        }
        let (white, black) = (self.names("custom_white_list"), self.names("custom_black_list"));
        if white.iter().chain(&black).any(|name| !is_known(name, &[])) {
            faults.push((ErrorKind::List, HEEDED));
        }
        let names = |list: &[&str], op: Op| list.iter().any(|name| is_called(op, name));
        if white.iter().any(|name| black.contains(name)) {
            faults.push((ErrorKind::List, CHECKED));
        } else if Op::ALL.iter().any(|op| names(&white, *op) && names(&black, *op)) {
            faults.push((ErrorKind::List, HEEDED));
        }
        faults
    }
}
