//! The report of a load.

use std::{collections::BTreeMap, fmt};

use crate::{DType, printable::printable};

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
    /// Form of the file, for [`SaveOptions::like`](super::SaveOptions::like).
    pub(super) form: Form,
}

/// Form of a file that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// The tensors that were read, in alphabetical order.
    pub tensors: Vec<Placed>,
    /// Map from each tied name to that of a tensor.
    pub tied: BTreeMap<String, String>,
}

/// Tensor of a file with its place in the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Its name in the file.
    pub name: String,
    pub dtype: Option<DType>,
    pub shape: Vec<usize>,
    /// Paths of the parameters with its numbers: several if it was split.
    pub paths: Vec<String>,
    /// Axis along which it was split.
    pub axis: usize,
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loaded { loaded, left, ignored, renamed, split, transposed, cast, not_finite, form: _ } = self;
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
