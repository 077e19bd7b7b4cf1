//! Matching of a file's tensors to the parameters of a network: the value of each, or all differences.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use precast_base::names::{did_you_mean, nearest};
use precast_tensor::{Beyond, internals::TensorInternals as _};

use super::{LoadOptions, Loaded, Named, file::Stored, loaded::Placed, options::Rules};
use crate::{
    Param, Tensor,
    error::{Error, Result},
    printable::printable,
};

/// Maximum number of names for which a similar one is sought, since each is compared with all others.
const HINTS: usize = 32;

/// A tensor for a path of the network.
struct Found<'a> {
    /// Its name in the file.
    name: &'a str,
    /// `true` when the tensor is stored under another name, to which this one is tied.
    tied: bool,
    stored: Stored<'a>,
}

/// Computes the new value of each parameter. All errors are found here, before any parameter is set.
pub(super) fn fit(bytes: &[u8], params: &[Named], options: &LoadOptions) -> Result<(Vec<(Param, Tensor)>, Loaded)> {
    let (stored, tied) = Stored::all(bytes)?;
    let by_path: HashMap<&str, &Named> =
        params.iter().flat_map(|named| named.paths.iter().map(move |path| (path.as_str(), named))).collect();
    let paths: Vec<&str> = params.iter().flat_map(|named| named.paths.iter().map(String::as_str)).collect();
    let rules = options.rules(paths.iter().copied())?;
    let mut fit = Fit { by_path, rules, found: BTreeMap::new(), failed: BTreeSet::new(), wrong: Vec::new() };
    let mut loaded = Loaded::default();

    for (name, tensor) in &stored {
        fit.place(name, name, tensor, &mut loaded);
    }
    loaded.form.tied.clone_from(&tied);
    // A tied name counts only if the file does not store it itself.
    for (alias, name) in &tied {
        if let Some((name, tensor)) = stored.get_key_value(name)
            && !stored.contains_key(alias)
        {
            fit.place(name, alias, tensor, &mut Loaded::default());
        }
    }
    let used: BTreeSet<&str> = (fit.found.iter())
        .filter(|(path, _)| fit.by_path.contains_key(path.as_str()))
        .flat_map(|(_, found)| found.iter().map(|found| found.name))
        .collect();
    let left_over: Vec<(&String, &str)> = (fit.found.iter())
        .filter(|(path, _)| !fit.by_path.contains_key(path.as_str()))
        .flat_map(|(path, found)| found.iter().map(move |found| (path, found)))
        .filter(|(_, found)| !found.tied && !used.contains(found.name))
        .map(|(path, found)| (path, found.name))
        .collect();

    let (mut values, mut missing, mut wrong) = (Vec::new(), Vec::new(), std::mem::take(&mut fit.wrong));
    for Named { paths, param } in params {
        let may_be_missing = paths.iter().filter(|path| fit.rules.may_be_missing(path)).count() > 0;
        let transposed = paths.iter().filter(|path| fit.rules.transposes(path)).count() > 0;
        let mut hits = paths.iter().filter_map(|path| fit.found.get(path)).flatten();
        let Some(Found { name, stored, .. }) = hits.next() else {
            match may_be_missing {
                _ if paths.iter().any(|path| fit.failed.contains(path)) => {}
                true => loaded.left.push(paths[0].clone()),
                false => missing.push(paths[0].as_str()),
            }
            continue;
        };
        if let Some(other) = hits.find(|other| !other.stored.is_same(stored)) {
            let other = other.name;
            wrong.push(format!(
                "`{name}` and `{other}` are one parameter in the network and two different ones in the file"
            ));
            continue;
        }
        match value_of(stored, param, transposed, options.cast) {
            Ok((value, cast)) => {
                let finite = !value.dtype().is_float() || value.has_only_finite();
                loaded.not_finite.extend((!finite).then(|| paths[0].clone()));
                values.push((param.clone(), value));
                loaded.loaded.push(paths[0].clone());
                loaded.transposed.extend(transposed.then(|| paths[0].clone()));
                loaded.cast.extend(cast.then(|| paths[0].clone()));
            }
            Err(error) => wrong.push(format!("`{}` {error}", both(name, &paths[0]))),
        }
    }

    let unread: Vec<&str> = left_over.iter().map(|(path, _)| path.as_str()).collect();
    let parts = in_parts(&left_over);
    // A part has another meaning than the weight that has nearly its name.
    let mut hints = if parts.is_some() { 0 } else { HINTS };
    let mut near = |name: &str, all: &[&str]| {
        hints = hints.saturating_sub(1);
        if hints == 0 { String::new() } else { same_end_or_near(name, all) }
    };
    let mut all = fit.rules.unused(&stored.keys().map(String::as_str).collect::<Vec<_>>(), &paths);
    all.extend(prefix(&left_over, &missing));
    all.extend(parts);
    all.extend(missing.iter().map(|path| format!("`{path}` is not in the file{}", near(path, &unread))));
    all.extend(
        left_over
            .iter()
            .map(|(path, name)| format!("`{}` is not in the network{}", both(name, path), near(path, &missing))),
    );
    all.extend(wrong);
    match &all[..] {
        [] => Ok((values, loaded)),
        [one] => Err(Error::weights(one.clone())),
        all => Err(Error::weights(format!("{} differences:\n- {}", all.len(), all.join("\n- ")))),
    }
}

/// Suggests renaming when all names unknown to the network share a prefix that the network's names lack.
fn prefix(left_over: &[(&String, &str)], missing: &[&str]) -> Option<String> {
    let (first, rest) = left_over.first()?.0.split_once('.')?;
    let begins = |path: &str| path.strip_prefix(first).and_then(|rest| rest.strip_prefix('.')).map(String::from);
    let all = left_over.iter().all(|(path, _)| begins(path).is_some());
    (left_over.len() > 1 && all && missing.contains(&rest)).then(|| {
        let first = printable(first);
        format!("all of these names in the file begin with `{first}.`: `.rename(\"{first}.**\", \"**\")` takes it off")
    })
}

/// Describes a weight that torch stores in parts, from which its value is computed, and what makes one of them.
fn in_parts(left_over: &[(&String, &str)]) -> Option<String> {
    let of = |name: &str| match name {
        _ if name.contains(".parametrizations.") => Some("parametrize.remove_parametrizations"),
        _ if name.ends_with(".weight_g") => Some("remove_weight_norm"),
        _ if name.ends_with(".weight_u") => Some("remove_spectral_norm"),
        _ if name.ends_with(".weight_mask") => Some("prune.remove"),
        _ => None,
    };
    let (name, cure) = left_over.iter().find_map(|(_, name)| Some((name, of(name)?)))?;
    let name = printable(name);
    Some(format!(
        "`{name}` is a part from which torch computes a weight: `torch.nn.utils.{cure}` stores the weight, before the file is written"
    ))
}

struct Fit<'a> {
    by_path: HashMap<&'a str, &'a Named>,
    rules: Rules,
    /// Found tensors by target path, which the network may not have.
    found: BTreeMap<String, Vec<Found<'a>>>,
    /// Paths whose values exist but could not be split off.
    failed: BTreeSet<String>,
    wrong: Vec<String>,
}

impl<'a> Fit<'a> {
    /// Finds the path or paths for a tensor that has this name in the file, or is tied to it.
    fn place(&mut self, name: &'a str, alias: &str, stored: &Stored<'a>, loaded: &mut Loaded) {
        if self.rules.ignores(alias) {
            loaded.ignored.push(alias.to_string());
            return;
        }
        let path = self.rules.renamed(alias);
        if path != alias {
            loaded.renamed.push((alias.to_string(), path.clone()));
        }
        let Some((parts, axis)) = self.rules.split(&path) else {
            loaded.form.tensors.push(placed(alias, stored, vec![path.clone()], 0));
            self.found.entry(path).or_default().push(Found { name, tied: name != alias, stored: stored.clone() });
            return;
        };
        match self.split(stored, &parts, axis) {
            Ok(tensors) => {
                loaded.split.push((alias.to_string(), parts.clone()));
                loaded.form.tensors.push(placed(alias, stored, parts.clone(), axis));
                for (part, stored) in parts.into_iter().zip(tensors) {
                    self.found.entry(part).or_default().push(Found { name, tied: name != alias, stored });
                }
            }
            Err(error) => {
                self.wrong.push(format!("`{}` {error}", both(name, &path)));
                self.failed.extend(parts);
            }
        }
    }

    /// Splits a tensor into parts as long as the network's parameters.
    fn split(&mut self, stored: &Stored<'_>, parts: &[String], axis: usize) -> Result<Vec<Stored<'static>>> {
        let mut lens = Vec::new();
        for part in parts {
            let Some(named) = self.by_path.get(part.as_str()) else {
                let near = did_you_mean(part, self.by_path.keys().copied());
                return Err(Error::weights(format!("is split into `{part}`, which is not in the network{near}")));
            };
            let mut shape = named.param.shape();
            if self.rules.transposes(part) {
                shape.reverse();
            }
            lens.push(shape.get(axis).copied().ok_or_else(|| {
                Error::weights(format!("is split along axis {axis}; its part `{part}` has the shape {shape:?}"))
            })?);
        }
        if stored.shape.get(axis).copied() != lens.iter().try_fold(0usize, |sum, &len| sum.checked_add(len)) {
            return Err(Error::weights(format!(
                "has the shape {:?}; its parts in the network have the lengths {lens:?} along axis {axis}",
                stored.shape
            )));
        }
        stored.parts(axis, &lens)
    }
}

/// Describes a tensor that was read.
fn placed(name: &str, stored: &Stored<'_>, paths: Vec<String>, axis: usize) -> Placed {
    Placed { name: name.to_string(), dtype: stored.dtype(), shape: stored.shape.clone(), paths, axis }
}

/// Converts a stored tensor to the value of a parameter; the flag is whether it was cast.
fn value_of(stored: &Stored<'_>, param: &Param, transposed: bool, may_cast: bool) -> Result<(Tensor, bool)> {
    let stored = if transposed { stored.clone().transposed()? } else { stored.clone() };
    let now = param.value();
    if stored.shape != now.shape() {
        let behind = if transposed { " after it was transposed" } else { "" };
        let swapped = stored.shape.len() == 2 && stored.shape.iter().eq(now.shape().iter().rev());
        let hint = if swapped && !transposed { "; `LoadOptions::transpose` swaps the axes" } else { "" };
        return Err(Error::weights(format!(
            "has the shape {:?}{behind}; the network's is {:?}{hint}",
            stored.shape,
            now.shape()
        )));
    }
    let value = stored.tensor()?;
    // A parameter with a master takes the master's dtype as well as its own.
    let (from, to, full) = (value.dtype(), now.dtype(), param.full().dtype());
    let floating = from.is_float() && to.is_float();
    let same = from == to || from == full;
    if same || (floating && may_cast) {
        // Every number must fit both the master and the value rounded from it.
        let refused = |beyond: Beyond| Error::weights(format!("{beyond}; {}", beyond.way_out()));
        let value = if same {
            value
        } else {
            Beyond::check(value.array(), full).map_err(refused)?;
            value.cast(full)
        };
        Beyond::check(value.array(), to).map_err(refused)?;
        Ok((value, !same))
    } else {
        let hint = if floating { "; `LoadOptions::cast` rounds or widens it" } else { "" };
        Err(Error::weights(format!("is {}; the network's is {}{hint}", from.long_name(), to.long_name())))
    }
}

/// Formats a name in the file, with its target path if that differs.
fn both(name: &str, path: &str) -> String {
    match name == path {
        true => printable(name).into_owned(),
        false => format!("{}` for `{}", printable(name), printable(path)),
    }
}

/// Returns ` (did you mean ...?)` for a name that differs only in its prefix, or for a similar one.
fn same_end_or_near(met: &str, all: &[&str]) -> String {
    let ends = |long: &str, short: &str| long.strip_suffix(short).is_some_and(|before| before.ends_with('.'));
    match all.iter().find(|name| ends(name, met) || ends(met, name)).or_else(|| nearest(met, all, |name| name)) {
        Some(name) => format!(" (did you mean `{}`?)", printable(name)),
        None => String::new(),
    }
}
