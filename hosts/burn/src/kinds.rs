//! Kinds of modules, read from what burn prints: a visitor is given the kind of a parent only, so that of a module
//! without parameters, such as an activation, is in no other place.

use std::collections::BTreeMap;

use burn::module::{DisplaySettings, ModuleDisplay};

/// Returns the kind of each module by its path, as far as it is printed.
pub(crate) fn printed<M: ModuleDisplay>(net: &M) -> BTreeMap<String, String> {
    let text = net.format(DisplaySettings::new().with_show_all_attributes(true));
    let mut reader = Reader { rest: &text, kinds: BTreeMap::new() };
    reader.value("", 0);
    reader.kinds
}

/// Deepest nesting that is read.
const MAX_DEPTH: usize = 64;

/// Reads `Kind {name: value, name: value}`, with commas or line breaks between the attributes.
struct Reader<'a> {
    rest: &'a str,
    kinds: BTreeMap<String, String>,
}

impl Reader<'_> {
    fn value(&mut self, path: &str, depth: usize) {
        let (mut nested, mut end) = (0i32, self.rest.len());
        for (at, letter) in self.rest.char_indices() {
            match letter {
                '(' | '[' | '<' => nested += 1,
                ')' | ']' | '>' => nested -= 1,
                '{' | '}' | '\n' => end = at,
                ',' if nested <= 0 => end = at,
                _ => continue,
            }
            if end != self.rest.len() {
                break;
            }
        }
        let (kind, rest) = self.rest.split_at(end);
        self.kinds.insert(path.to_string(), kind.trim().to_string());
        self.rest = rest;
        let Some(rest) = self.rest.strip_prefix('{').filter(|_| depth < MAX_DEPTH) else { return };
        self.rest = rest;
        loop {
            self.rest = self.rest.trim_start_matches([' ', ',', '\n']);
            if let Some(rest) = self.rest.strip_prefix('}') {
                self.rest = rest;
                return;
            }
            // Damaged, or what a field of another crate prints: the kinds read so far count.
            let Some((name, rest)) = self.rest.split_once(':') else {
                self.rest = "";
                return;
            };
            let inside = if path.is_empty() { name.trim().to_string() } else { format!("{path}.{}", name.trim()) };
            self.rest = rest;
            self.value(&inside, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String)> {
        let mut reader = Reader { rest: text, kinds: BTreeMap::new() };
        reader.value("", 0);
        reader.kinds.into_iter().collect()
    }

    #[test]
    fn nested_values_on_one_line_and_on_many_are_read() {
        let text = "Net {\n  act: Gelu {\n    _0: Gelu {\n      approximate: false\n    }\n  }\n  pair: (L0, L1) {\n    0: \
                    Linear {d: [1, 2], bias: true}\n    1: Relu\n  }\n  none: None\n}";
        let kinds = read(text);
        let of = |path: &str| kinds.iter().find(|(at, _)| at == path).map(|(_, kind)| kind.as_str());
        assert_eq!(of(""), Some("Net"));
        assert_eq!(of("act._0"), Some("Gelu"));
        assert_eq!(of("pair.0"), Some("Linear"));
        assert_eq!(of("pair.1"), Some("Relu"));
        assert_eq!(of("none"), Some("None"));
        assert_eq!(of("pair.0.d"), Some("[1, 2]"));
    }

    #[test]
    fn no_text_stops_the_reader() {
        for text in ["", "{", "}", "A {b", "A {b: {{{", "A {: }", "a > b, c", "A {x: Wrapper(B { y: 1 })}"] {
            read(text);
        }
        read(&"A {b: ".repeat(10_000));
    }
}
