//! Path patterns of whole segments: `*` matches one segment, `**` any number. Substrings never match.

use std::fmt;

use precast_base::{Error, Result};

/// Pattern for the paths of cells and parameters.
///
/// ```
/// use precast_policy::policy::Pattern;
/// let norms: Pattern = "encoder.**.norm".parse()?;
/// assert!(norms.matches("encoder.norm") && norms.matches("encoder.layers.3.norm"));
/// assert!(!norms.matches("encoder.layers.3.norm2"));
/// assert!(!"wo".parse::<Pattern>()?.matches("word_embedding"));
/// # Ok::<(), precast_policy::Error>(())
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
    /// Returns whether the pattern has no wildcards and so matches a single path.
    pub fn is_exact(&self) -> bool {
        self.segments.iter().all(|segment| matches!(segment, Segment::Exactly(_)))
    }

    /// Returns whether a path matches. The path of the root is the empty string, which only `**` matches.
    pub fn matches(&self, path: &str) -> bool {
        self.lay(&parts(path)).is_some()
    }

    /// Returns the text captured by each wildcard, or `None` if the path does not match. An earlier `**` takes as few
    /// segments as possible.
    pub fn captures(&self, path: &str) -> Option<Vec<String>> {
        let parts = parts(path);
        let starts = self.lay(&parts)?;
        let ends = starts.iter().skip(1).copied().chain([parts.len()]);
        let laid = self.segments.iter().zip(starts.iter().copied().zip(ends));
        Some(
            laid.filter(|(segment, _)| segment.is_wildcard())
                .map(|(_, (from, to))| parts[from..to].join("."))
                .collect(),
        )
    }

    /// Returns the path with the captures substituted for the wildcards, one for each; see
    /// [`Pattern::has_wildcards_of`].
    pub fn filled(&self, captures: &[String]) -> String {
        let mut captures = captures.iter();
        let parts = self.segments.iter().map(|segment| match segment {
            Segment::Exactly(name) => name.as_str(),
            Segment::One | Segment::Any => captures.next().map_or("", String::as_str),
        });
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
    }

    /// Returns whether both patterns have the same wildcards in the same order, so that the captures of one fill the
    /// other.
    pub fn has_wildcards_of(&self, other: &Pattern) -> bool {
        let wildcards = |pattern: &'_ Pattern| -> Vec<Segment> {
            pattern.segments.iter().filter(|segment| segment.is_wildcard()).cloned().collect()
        };
        wildcards(self) == wildcards(other)
    }

    /// Returns the index of the part of the path at which each segment begins, if the whole path matches.
    fn lay(&self, parts: &[&str]) -> Option<Vec<usize>> {
        // The classic wildcard walk: on a mismatch, backtrack to the last `**` and let it take one more part. Linear in
        // practice and quadratic at worst; trying all splits would be exponential in the number of `**`.
        let mut starts = Vec::with_capacity(self.segments.len());
        let mut at = 0;
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let part = parts.get(at).copied();
            match (self.segments.get(starts.len()), part) {
                (Some(Segment::Any), _) => {
                    retry = Some((starts.len(), at));
                    starts.push(at);
                    continue;
                }
                (None, None) => return Some(starts),
                (Some(segment), Some(part)) if segment.takes(part) => starts.push(at),
                _ => {
                    let (any, end) = retry.filter(|(_, end)| *end < parts.len())?;
                    starts.truncate(any + 1);
                    at = end;
                    retry = Some((any, end + 1));
                }
            }
            at += 1;
        }
    }
}

impl Segment {
    fn is_wildcard(&self) -> bool {
        !matches!(self, Segment::Exactly(_))
    }

    /// Returns whether the segment matches a single part of a path.
    fn takes(&self, part: &str) -> bool {
        match self {
            Segment::Exactly(name) => name == part,
            Segment::One | Segment::Any => true,
        }
    }
}

/// Splits a path into its parts. The path of the root has none.
fn parts(path: &str) -> Vec<&str> {
    if path.is_empty() { Vec::new() } else { path.split('.').collect() }
}

impl std::str::FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let segments = text
            .split('.')
            .map(|part| match part {
                "(root)" => Err(Error::policy(
                    "the path of the root cell is empty; a rule for it has the pattern `**`, which matches all cells, or its kind",
                )),
                "" => Err(Error::policy(format!("the path pattern `{text}` has an empty segment"))),
                "*" => Ok(Segment::One),
                "**" => Ok(Segment::Any),
                part if part.contains(['[', ']', '{', '}', '?']) => Err(Error::policy(format!(
                    "the path pattern `{text}` has the segment `{part}`; there are no ranges, alternatives or `?`: a segment is a \
                     name, `*` (any one) or `**` (any number)"
                ))),
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

    /// Reference matcher: tries every alignment of pattern and path.
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
            pattern in proptest::collection::vec("a|b|ab|\\*|\\*\\*", 1..6),
            path in proptest::collection::vec("a|b|ab", 0..7),
        ) {
            let pattern: Pattern = pattern.join(".").parse().unwrap();
            let parts: Vec<&str> = path.iter().map(String::as_str).collect();
            proptest::prop_assert_eq!(pattern.matches(&path.join(".")), by_definition(&pattern.segments, &parts));
        }
    }

    #[test]
    fn what_other_patterns_have_is_told() {
        for text in ["layers.[0-3].norm", "layers.{0,1}", "fc?"] {
            let message = text.parse::<Pattern>().unwrap_err().to_string();
            assert!(message.contains("there are no ranges, alternatives or `?`"), "{message}");
        }
    }

    #[test]
    fn captures_fill_another_pattern() {
        let renamed = |from: &str, to: &str, path: &str| {
            let (from, to): (Pattern, Pattern) = (from.parse().unwrap(), to.parse().unwrap());
            assert!(from.has_wildcards_of(&to));
            from.captures(path).map(|captures| to.filled(&captures))
        };
        let blocks = |path| renamed("bert.*.attn.**", "blocks.*.**", path);
        assert_eq!(blocks("bert.3.attn.q.weight").as_deref(), Some("blocks.3.q.weight"));
        assert_eq!(blocks("bert.3.attn").as_deref(), Some("blocks.3"));
        assert_eq!(blocks("bert.attn.q"), None);
        // The first `**` takes as few segments as possible.
        assert_eq!(renamed("**.a.**", "**.b.**", "x.a.y.a.z").as_deref(), Some("x.b.y.a.z"));
        assert_eq!(renamed("**.gamma", "**.weight", "gamma").as_deref(), Some("weight"));
        let (one, any): (Pattern, Pattern) = ("a.*".parse().unwrap(), "a.**".parse().unwrap());
        assert!(!one.has_wildcards_of(&any));
    }

    #[test]
    fn a_star_inside_a_name_is_refused() {
        let message = "layers.fc*".parse::<Pattern>().unwrap_err().to_string();
        assert!(message.contains("inside the segment `fc*`"), "{message}");
        assert!("a..b".parse::<Pattern>().is_err());
        assert!("".parse::<Pattern>().is_err());
    }
}
