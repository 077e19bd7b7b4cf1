//! The values of a hand-written text, with their positions.

use std::{borrow::Cow, collections::HashSet};

use granit_parser::{self, ErrorKind as Fault, Event, Parser, ScalarStyle, ScanError};

use super::source::{Place, Source};

/// Value with its position.
pub(super) struct Node<'a> {
    pub place: Place,
    pub value: Value<'a>,
}

pub(super) enum Value<'a> {
    /// Text without quotes: a number, a truth value, nothing, or text.
    Plain(Cow<'a, str>),
    /// Text in quotes, or in a block.
    Quoted(Cow<'a, str>),
    List(Vec<Node<'a>>),
    /// Keys, each followed by its value.
    Map(Vec<Node<'a>>),
}

/// Position of a mistake in the form of a text, and the words for it.
pub(super) type Refusal = (Place, String);

/// Reads the values of a text: one document, without anchors, aliases, tags, merge keys and duplicate keys, within limits
/// on the depth of lists and maps and on the number of values.
pub(super) fn tree<'a>(source: &Source<'a>, max_depth: usize, max_nodes: usize) -> Result<Node<'a>, Refusal> {
    // The parser treats a NUL as the end of the text.
    if let Some(byte) = source.text.bytes().position(|b| b.is_ascii_control() && !matches!(b, b'\t' | b'\n' | b'\r')) {
        let met = source.text.as_bytes()[byte];
        let words = format!("a control character, 0x{met:02x}, which YAML forbids");
        return Err((source.place(byte), words));
    }
    let options = granit_parser::options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_comments: false,
    };
    // The lists and maps that have begun, the outermost first.
    let mut open: Vec<Node<'a>> = Vec::new();
    let (mut root, mut nodes, mut duplicate) = (None, 0, None);
    for event in Parser::new_from_str_with_options(source.text, options) {
        let (event, span) = event.map_err(|error| not_yaml(source, &error))?;
        let place = Place::of(&span.start);
        let refuse = |words: &str| Err((place, words.to_string()));
        let (value, anchor, has_tag) = match event {
            Event::DocumentStart(..) if root.is_some() => {
                return refuse("a second document begins here; a file has one");
            }
            Event::Alias(..) | Event::UnresolvedAlias(..) => {
                return refuse(
                    "an unquoted `*` begins a YAML alias, which is not allowed here; put a pattern in quotes, as \
                     \"*.norm\"",
                );
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<" => {
                return refuse("merge keys (`<<`) are not allowed here");
            }
            Event::Scalar(text, ScalarStyle::Plain, anchor, tag) => (Value::Plain(text), anchor, tag.is_some()),
            Event::Scalar(text, _, anchor, tag) => (Value::Quoted(text), anchor, tag.is_some()),
            Event::SequenceStart(_, anchor, tag) => (Value::List(Vec::new()), anchor, tag.is_some()),
            Event::MappingStart(_, anchor, tag) => (Value::Map(Vec::new()), anchor, tag.is_some()),
            Event::SequenceEnd | Event::MappingEnd => {
                let node = open.pop().expect("a list or a map has begun");
                duplicate = duplicate.or_else(|| duplicate_key(&node));
                put(node, &mut open, &mut root);
                continue;
            }
            _ => continue,
        };
        nodes += 1;
        let is_scalar = matches!(value, Value::Plain(_) | Value::Quoted(_));
        if !is_scalar && open.len() == max_depth {
            return refuse(&format!("lists and maps are nested deeper than {max_depth}"));
        }
        if nodes > max_nodes {
            return refuse(&format!("more than {max_nodes} values"));
        }
        if anchor != 0 {
            return refuse("YAML anchors (`&`) are not allowed here; put text with `&` in quotes");
        }
        if has_tag {
            return refuse("YAML tags (`!`) are not allowed here; put text with `!` in quotes");
        }
        let node = Node { place, value };
        if is_scalar { put(node, &mut open, &mut root) } else { open.push(node) }
    }
    match (duplicate, root) {
        (Some(duplicate), _) => Err(duplicate),
        (None, Some(root)) => Ok(root),
        (None, None) => Err((Place::START, "the file is empty".into())),
    }
}

/// Adds a complete value to the innermost list or map.
fn put<'a>(node: Node<'a>, open: &mut [Node<'a>], root: &mut Option<Node<'a>>) {
    match open.last_mut() {
        Some(Node { value: Value::List(items) | Value::Map(items), .. }) => items.push(node),
        _ => *root = Some(node),
    }
}

/// Returns the first key of a map that occurs twice.
fn duplicate_key(node: &Node<'_>) -> Option<Refusal> {
    let Value::Map(entries) = &node.value else { return None };
    let mut seen = HashSet::new();
    entries.iter().step_by(2).find_map(|key| match &key.value {
        Value::Plain(text) | Value::Quoted(text) if !seen.insert(text) => {
            Some((key.place, format!("duplicate key `{text}`")))
        }
        _ => None,
    })
}

/// Returns the position and the words for a text that is not YAML, with what has probably been written.
fn not_yaml(source: &Source<'_>, error: &ScanError) -> Refusal {
    let place = Place::of(error.marker());
    let meant = match error.kind() {
        Fault::TabNotAllowed
        | Fault::TabInBlockIndentation
        | Fault::TabInIndentation
        | Fault::TabInPlainScalar
        | Fault::TabAtBlockScalarStart => {
            // The parser reports a tab at the end of the value before it, or after it.
            let words = "a tab; YAML is indented by spaces, and a space, no tab, separates a key from its value";
            return (source.first_tab(place.line).unwrap_or(place), words.into());
        }
        Fault::SimpleKeyExpected => "expected: a key, then a colon and a space, then its value",
        Fault::ExpectedFlowMappingSeparator => "a bracket before is not closed",
        Fault::ExpectedNodeContent
        | Fault::ExpectedBlockMappingKey
        | Fault::ExpectedBlockSequenceEntry
        | Fault::ExpectedDocumentStart => {
            "expected: the keys of one map, and the items of one list, begin in the same column"
        }
        Fault::MappingValueNotAllowed => {
            "a `: ` inside a value: a map goes in braces, `{key: value}`, or into lines of its own"
        }
        Fault::UnknownQuotedScalarEscape => {
            "a `\\` in double quotes begins an escape: a path has `/`, or single quotes"
        }
        Fault::InvalidQuotedScalarIndent => "a quote before is not closed",
        Fault::DocumentIndicatorInQuotedScalar => "a quote is not closed",
        Fault::UnexpectedCharacter { .. } | Fault::MissingAnchorOrAliasName => {
            "text that begins with this character goes in quotes"
        }
        _ => return (place, format!("not YAML: {}", error.info())),
    };
    (place, format!("not YAML: {}; {meant}", error.info()))
}
