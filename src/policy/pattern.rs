//! Path patterns: whole segments, `*` for one, `**` for any number. Never a substring.

use std::fmt;

use crate::error::{Error, Result};

/// A pattern for cell paths.
///
/// ```
/// use precast::policy::Pattern;
/// let norms: Pattern = "encoder.**.norm".parse()?;
/// assert!(norms.matches("encoder.norm") && norms.matches("encoder.layers.3.norm"));
/// assert!(!norms.matches("encoder.layers.3.norm2"));
/// assert!(!"wo".parse::<Pattern>()?.matches("word_embedding"));
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Segment {
    Exactly(String),
    One,
    Any,
}

impl Pattern {
    /// Whether it has no wildcard, and so names one path.
    pub fn is_exact(&self) -> bool {
        self.segments.iter().all(|segment| matches!(segment, Segment::Exactly(_)))
    }

    /// Whether a path matches. The root's path is the empty string; only `**` matches it.
    pub fn matches(&self, path: &str) -> bool {
        // The classic wildcard walk: at a mismatch go back to the last `**` and let it take one segment more. Linear in
        // practice and quadratic at worst, where trying all splits would be exponential in the number of `**`.
        fn cut(path: &str) -> (&str, Option<&str>) {
            path.split_once('.').map_or((path, None), |(first, after)| (first, Some(after)))
        }
        let (mut rest, mut s) = ((!path.is_empty()).then_some(path), 0);
        let mut retry: Option<(usize, &str)> = None;
        while let Some(from) = rest {
            let (part, after) = cut(from);
            match self.segments.get(s) {
                Some(Segment::Any) => {
                    retry = Some((s, from));
                    s += 1;
                }
                Some(Segment::One) => (rest, s) = (after, s + 1),
                Some(Segment::Exactly(name)) if name == part => (rest, s) = (after, s + 1),
                _ => {
                    let Some((any, taken)) = retry else { return false };
                    rest = cut(taken).1;
                    s = any + 1;
                    retry = rest.map(|rest| (any, rest));
                }
            }
        }
        self.segments[s..].iter().all(|segment| *segment == Segment::Any)
    }
}

impl std::str::FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let segments = text
            .split('.')
            .map(|part| match part {
                "" => Err(Error::policy(format!("the path pattern `{text}` has an empty segment"))),
                "*" => Ok(Segment::One),
                "**" => Ok(Segment::Any),
                part if part.contains('*') => Err(Error::policy(format!(
                    "the path pattern `{text}` has a `*` inside the segment `{part}`; a segment is a name, `*` (any one) or `**` (any number)"
                ))),
                name => Ok(Segment::Exactly(name.to_string())),
            })
            .collect::<Result<_>>()?;
        Ok(Pattern { segments })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.segments.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            f.write_str(match segment {
                Segment::Exactly(name) => name,
                Segment::One => "*",
                Segment::Any => "**",
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ways to lay the pattern on the path, tried one by one.
    fn by_definition(segments: &[Segment], parts: &[&str]) -> bool {
        match (segments.first(), parts.first()) {
            (None, None) => true,
            (Some(Segment::Any), _) => (0..=parts.len()).any(|n| by_definition(&segments[1..], &parts[n..])),
            (Some(Segment::One), Some(_)) => by_definition(&segments[1..], &parts[1..]),
            (Some(Segment::Exactly(name)), Some(part)) => name == part && by_definition(&segments[1..], &parts[1..]),
            _ => false,
        }
    }

    proptest::proptest! {
        #[test]
        fn matches_as_defined(
            pattern in proptest::collection::vec("a|b|\\*|\\*\\*", 1..6),
            path in proptest::collection::vec("a|b", 0..7),
        ) {
            let pattern: Pattern = pattern.join(".").parse().unwrap();
            let parts: Vec<&str> = path.iter().map(String::as_str).collect();
            proptest::prop_assert_eq!(pattern.matches(&path.join(".")), by_definition(&pattern.segments, &parts));
        }
    }

    #[test]
    fn a_star_inside_a_name_is_refused() {
        let message = "layers.fc*".parse::<Pattern>().unwrap_err().to_string();
        assert!(message.contains("inside the segment `fc*`"), "{message}");
        assert!("a..b".parse::<Pattern>().is_err());
        assert!("".parse::<Pattern>().is_err());
    }
}
