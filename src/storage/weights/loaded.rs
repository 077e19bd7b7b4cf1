//! The report of a load.

use std::fmt;

use crate::printable::printable;

/// Report of [`load_with`](super::load_with) on each tensor of the file and each parameter of the network. `Display`
/// lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// Paths of the parameters and buffers that were read, in network order.
    pub loaded: Vec<String>,
    /// Paths of those missing from the file and left unchanged.
    pub left: Vec<String>,
    /// Names in the file that were not read, in alphabetical order, like the following.
    pub ignored: Vec<String>,
    /// Names in the file with their new names.
    pub renamed: Vec<(String, String)>,
    /// Names in the file with the paths of their parts.
    pub split: Vec<(String, Vec<String>)>,
    /// Paths of the transposed matrices, in network order.
    pub transposed: Vec<String>,
    /// Paths of the parameters that were rounded or widened, in network order.
    pub cast: Vec<String>,
    /// Paths of those that were read and hold infinity or NaN, in network order.
    pub not_finite: Vec<String>,
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loaded { loaded, left, ignored, renamed, split, transposed, cast, not_finite } = self;
        write!(f, "{} of {} parameters loaded", loaded.len(), loaded.len() + left.len())?;
        let plain = |names: &[String]| names.to_vec();
        let lists = [
            ("left as they were", plain(left)),
            ("ignored", plain(ignored)),
            ("renamed", renamed.iter().map(|(from, to)| format!("{from} to {to}")).collect()),
            ("split", split.iter().map(|(from, to)| format!("{from} into {}", to.join(" "))).collect()),
            ("transposed", plain(transposed)),
            ("cast", plain(cast)),
            ("not all numbers finite", plain(not_finite)),
        ];
        for (what, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
            match &lines(names)[..] {
                [line] => write!(f, "\n{what}: {line}")?,
                lines => write!(f, "\n{what}:\n  {}", lines.join("\n  "))?,
            }
        }
        Ok(())
    }
}

/// Joins names with commas, wrapped to readable lines.
fn lines(names: &[String]) -> Vec<String> {
    const WIDTH: usize = 100;
    let mut lines: Vec<String> = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let name = format!("{}{}", printable(name), if i + 1 < names.len() { "," } else { "" });
        match lines.last_mut() {
            Some(line) if line.chars().count() + name.chars().count() < WIDTH => *line += &format!(" {name}"),
            _ => lines.push(name),
        }
    }
    lines
}
