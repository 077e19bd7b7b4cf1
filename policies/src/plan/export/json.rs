//! JSON formatted as in the files of other libraries: indented by two spaces.

use std::fmt::Write as _;

use precast_base::DType;

/// A JSON value.
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(usize),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    /// Creates a map with this order.
    pub fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Json)>) -> Self {
        Json::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// Creates a list.
    pub fn list<T: Into<Json>>(values: impl IntoIterator<Item = T>) -> Self {
        Json::List(values.into_iter().map(Into::into).collect())
    }

    /// Returns the formatted text.
    pub fn pretty(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, 0);
        text
    }

    fn write(&self, text: &mut String, depth: usize) {
        match self {
            Json::Null => *text += "null",
            Json::Bool(value) => *text += if *value { "true" } else { "false" },
            Json::Number(value) => *text += &value.to_string(),
            Json::Text(value) => quoted(text, value),
            Json::List(values) => block(text, depth, "[]", values, |text, value| value.write(text, depth + 1)),
            Json::Map(entries) => block(text, depth, "{}", entries, |text, (key, value)| {
                quoted(text, key);
                *text += ": ";
                value.write(text, depth + 1);
            }),
        }
    }
}

/// Writes values between two brackets, each on its own line.
fn block<T>(text: &mut String, depth: usize, brackets: &str, values: &[T], write: impl Fn(&mut String, &T)) {
    let (open, close) = brackets.split_at(1);
    *text += open;
    for (i, value) in values.iter().enumerate() {
        *text += if i == 0 { "\n" } else { ",\n" };
        *text += &"  ".repeat(depth + 1);
        write(text, value);
    }
    if !values.is_empty() {
        *text += "\n";
        *text += &"  ".repeat(depth);
    }
    *text += close;
}

fn quoted(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => *text += "\\n",
            '\r' => *text += "\\r",
            '\t' => *text += "\\t",
            '\u{8}' => *text += "\\b",
            '\u{c}' => *text += "\\f",
            c if c < ' ' => _ = write!(text, "\\u{:04x}", u32::from(c)),
            c => text.push(c),
        }
    }
    text.push('"');
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Json::Bool(value)
    }
}

impl From<usize> for Json {
    fn from(value: usize) -> Self {
        Json::Number(value)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Json::Text(value.into())
    }
}

impl From<String> for Json {
    fn from(value: String) -> Self {
        Json::Text(value)
    }
}

impl From<DType> for Json {
    fn from(value: DType) -> Self {
        Json::Text(value.long_name().into())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Json::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// serde_json writes the same text and reads the same value back.
    #[test]
    fn it_is_json() {
        let odd: String = (0..0x300).filter_map(char::from_u32).collect();
        let value = Json::map([
            ("none", Json::Null),
            (&odd, Json::list([0usize, 12])),
            ("empty", Json::map::<String>([])),
            ("no", Json::list::<Json>([])),
            ("deep", Json::list([Json::map([("a", true.into()), ("b", DType::F16.into())])])),
        ]);
        let theirs: serde_json::Value = serde_json::from_str(&value.pretty()).unwrap();
        assert_eq!(theirs[&odd], serde_json::json!([0, 12]));
        assert_eq!(theirs["deep"][0], serde_json::json!({ "a": true, "b": "float16" }));
        // serde_json sorts its maps, and so are these.
        let sorted = Json::map([("a", Json::Null), ("b", Json::list([Json::map([("c", Json::from(odd.as_str()))])]))]);
        let theirs: serde_json::Value = serde_json::from_str(&sorted.pretty()).unwrap();
        assert_eq!(serde_json::to_string_pretty(&theirs).unwrap(), sorted.pretty());
    }
}
