//! Options for loading tensors that do not match the network exactly.

use std::collections::HashSet;

use precast_base::names::did_you_mean;

use crate::{
    cell::Pattern,
    error::{Error, Result},
};

/// Options of [`load_with`](super::load_with) for files that do not match the network exactly.
///
/// Patterns are those of policies: `*` matches one segment of a name, `**` any number ([`Pattern`]). Names in the file
/// are first [ignored](LoadOptions::ignore), then [renamed](LoadOptions::rename), then [split](LoadOptions::split),
/// which yields paths of the network. A pattern that is malformed or matches nothing is an error at load time.
///
/// ```
/// use precast::{storage::weights::{self, LoadOptions}, prelude::*};
/// let file = std::env::temp_dir().join(format!("precast-doc-options-{}.safetensors", std::process::id()));
/// let kernel = Tensor::from_vec(vec![1f32, 2., 3., 4., 5., 6.], &[2, 3])?;
/// weights::write(&file, [("encoder.dense.kernel", &kernel), ("encoder.step", &Tensor::scalar(7.0, DType::I64))])?;
///
/// let net = Child::of(sequential![Dense::new(2, 3, &mut Rng::seed(1)), ReLU]);
/// let options = LoadOptions::new()
///     .rename("encoder.dense.kernel", "0.weight")
///     .transpose("0.weight")        // the file has [in, out]
///     .ignore("encoder.step")
///     .partial("*.bias");           // may be missing, and stays as it is
/// let loaded = weights::load_with(&net, &file, &options)?;
/// assert_eq!((&loaded.loaded[..], &loaded.left[..]), (&["0.weight".to_string()][..], &["0.bias".to_string()][..]));
/// # std::fs::remove_file(file).unwrap();
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    pub(super) cast: bool,
    rules: Vec<Rule<String>>,
}

/// One option, with its patterns as text or parsed.
#[derive(Clone, Debug)]
struct Rule<P> {
    what: What,
    from: P,
    /// The new name, or the parts.
    to: Vec<P>,
    /// Axis along which a tensor is split.
    axis: usize,
    /// `true` for a rule of a preset, which may match nothing and gives way to a network that has such a path itself.
    preset: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Ignore,
    Rename,
    Split,
    Partial,
    Transpose,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Ignore => "ignore",
            What::Rename => "rename",
            What::Split => "split",
            What::Partial => "partial",
            What::Transpose => "transpose",
        }
    }

    /// Returns whether it applies to names in the file rather than paths of the network.
    fn is_of_file(self) -> bool {
        matches!(self, What::Ignore | What::Rename | What::Split)
    }
}

impl LoadOptions {
    /// Creates strict options: names, shapes and dtypes must match.
    pub fn new() -> Self {
        LoadOptions::default()
    }

    /// Creates options for a state dict of torch, as written by `safetensors.torch.save_file`.
    ///
    /// - `num_batches_tracked` of batch norm is ignored;
    /// - `in_proj_weight` and `in_proj_bias` of `nn.MultiheadAttention` are split into `q_proj`, `k_proj` and `v_proj`;
    /// - `gamma` and `beta`, the names in old models, become `weight` and `bias`;
    /// - `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0` and `bias_hh_l0` of `nn.RNN`, `nn.GRU` and `nn.LSTM` become those
    ///   of a single-step cell, such as an [`LSTMCell`](crate::layers::LSTMCell);
    /// - the prefixes `module.` of `nn.DataParallel` and `_orig_mod.` of `torch.compile` are removed.
    ///
    /// Each rule applies only to names that are not paths of the network: an [`LSTM`](crate::layers::LSTM) uses torch's
    /// names itself. User rules take precedence.
    pub fn torch() -> Self {
        let mut options = LoadOptions::new().ignore("**.num_batches_tracked");
        for prefix in ["module", "_orig_mod"] {
            options = options.rename(format!("{prefix}.**"), "**");
        }
        for (theirs, ours) in [("gamma", "weight"), ("beta", "bias")] {
            options = options.rename(format!("**.{theirs}"), format!("**.{ours}"));
        }
        for name in ["weight_ih", "weight_hh", "bias_ih", "bias_hh"] {
            options = options.rename(format!("**.{name}_l0"), format!("**.{name}"));
        }
        for name in ["weight", "bias"] {
            let parts = ["q_proj", "k_proj", "v_proj"].map(|part| format!("**.{part}.{name}"));
            options = options.split(format!("**.in_proj_{name}"), parts, 0);
        }
        options.rules.iter_mut().for_each(|rule| rule.preset = true);
        options
    }

    /// Sets whether floating-point tensors of another dtype are rounded or widened to the parameter's dtype. Default:
    /// false, which makes another dtype an error, except that a parameter with a [master](crate::Param::master) also
    /// takes f32.
    #[must_use]
    pub fn cast(mut self, cast: bool) -> Self {
        self.cast = cast;
        self
    }

    /// Skips tensors of the file.
    #[must_use]
    pub fn ignore(self, names: impl Into<String>) -> Self {
        self.and(What::Ignore, names, vec![], 0)
    }

    /// Renames tensors of the file. Both patterns have the same wildcards in the same order: the text matched by each
    /// in the first replaces it in the second. Several renames apply one after the other.
    #[must_use]
    pub fn rename(self, in_file: impl Into<String>, in_network: impl Into<String>) -> Self {
        self.and(What::Rename, in_file, vec![in_network.into()], 0)
    }

    /// Splits tensors of the file, by their new names, into several parameters concatenated along an axis. The network
    /// determines the length of each part. The patterns of the parts have the same wildcards as that of the whole.
    ///
    /// ```
    /// use precast::storage::weights::LoadOptions;
    /// let parts = ["**.query.weight", "**.key.weight", "**.value.weight"];
    /// let options = LoadOptions::new().split("**.qkv.weight", parts, 0);
    /// ```
    #[must_use]
    pub fn split<P: Into<String>>(
        self,
        whole: impl Into<String>,
        parts: impl IntoIterator<Item = P>,
        axis: usize,
    ) -> Self {
        self.and(What::Split, whole, parts.into_iter().map(Into::into).collect(), axis)
    }

    /// Allows parameters and buffers of the network to be missing from the file and keep their values; `**` matches
    /// all.
    #[must_use]
    pub fn partial(self, paths: impl Into<String>) -> Self {
        self.and(What::Partial, paths, vec![], 0)
    }

    /// Transposes matrices of the network that the file stores with swapped axes.
    #[must_use]
    pub fn transpose(self, paths: impl Into<String>) -> Self {
        self.and(What::Transpose, paths, vec![], 0)
    }

    fn and(mut self, what: What, from: impl Into<String>, to: Vec<String>, axis: usize) -> Self {
        self.rules.push(Rule { what, from: from.into(), to, axis, preset: false });
        self
    }

    /// Parses the patterns of the options, for a network with these paths.
    ///
    /// # Errors
    /// [`ErrorKind::Weights`](crate::ErrorKind::Weights) with every pattern that is malformed.
    pub(super) fn rules<'a>(&self, paths: impl Iterator<Item = &'a str>) -> Result<Rules> {
        let (mut rules, mut wrong) = (Vec::new(), Vec::new());
        let (presets, own): (Vec<_>, Vec<_>) = self.rules.iter().partition(|rule| rule.preset);
        for written in own.into_iter().chain(presets) {
            match written.read() {
                Ok(rule) => rules.push((rule, false)),
                Err(error) => wrong.push(format!("{}: {error}", written.what.name())),
            }
        }
        let paths = paths.map(String::from).collect();
        if wrong.is_empty() { Ok(Rules { rules, paths }) } else { Err(Error::weights(wrong.join("; "))) }
    }
}

impl Rule<String> {
    fn read(&self) -> Result<Rule<Pattern>> {
        let from: Pattern = self.from.parse()?;
        let to: Vec<Pattern> = self.to.iter().map(|to| to.parse()).collect::<Result<_>>()?;
        if let Some(other) = to.iter().find(|to| !to.has_wildcards_of(&from)) {
            return Err(Error::weights(format!(
                "`{other}` has other wildcards than `{from}`; allowed: the same in the same order"
            )));
        }
        if self.what == What::Split && to.is_empty() {
            return Err(Error::weights(format!("`{from}` has no parts; allowed: one or more")));
        }
        Ok(Rule { what: self.what, from, to, axis: self.axis, preset: self.preset })
    }
}

/// Options with parsed patterns, each with a flag for whether it has matched.
pub(super) struct Rules {
    rules: Vec<(Rule<Pattern>, bool)>,
    /// Paths of the network, which a preset leaves alone.
    paths: HashSet<String>,
}

impl Rules {
    /// Iterates over the matching rules of one kind, with the texts matched by their wildcards. Rules are marked as
    /// used when yielded.
    fn matching<'a>(
        &'a mut self,
        what: What,
        name: &'a str,
    ) -> impl Iterator<Item = (&'a Rule<Pattern>, Vec<String>)> + 'a {
        let known = self.paths.contains(name);
        let rules = self.rules.iter_mut().filter(move |(rule, _)| rule.what == what && !(known && rule.preset));
        rules.filter_map(move |(rule, used)| {
            let captures = rule.from.captures(name)?;
            *used = true;
            Some((&*rule, captures))
        })
    }

    pub fn ignores(&mut self, name: &str) -> bool {
        self.matching(What::Ignore, name).count() > 0
    }

    pub fn may_be_missing(&mut self, path: &str) -> bool {
        self.matching(What::Partial, path).count() > 0
    }

    pub fn transposes(&mut self, path: &str) -> bool {
        self.matching(What::Transpose, path).count() > 0
    }

    /// Returns the name in the network.
    pub fn renamed(&mut self, name: &str) -> String {
        let mut name = name.to_string();
        for (rule, used) in self.rules.iter_mut().filter(|(rule, _)| rule.what == What::Rename) {
            if rule.preset && self.paths.contains(&name) {
                continue;
            }
            if let Some(captures) = rule.from.captures(&name) {
                name = rule.to[0].filled(&captures);
                *used = true;
            }
        }
        name
    }

    /// Returns the paths of the parts and the axis, if the tensor of this name is split.
    pub fn split(&mut self, name: &str) -> Option<(Vec<String>, usize)> {
        let (rule, captures) = self.matching(What::Split, name).next()?;
        Some((rule.to.iter().map(|part| part.filled(&captures)).collect(), rule.axis))
    }

    /// Returns the errors for patterns that matched nothing.
    pub fn unused<'a>(&self, names: &[&'a str], paths: &[&'a str]) -> Vec<String> {
        let unused = self.rules.iter().filter(|(rule, used)| !used && !rule.preset);
        let say = |(rule, _): &(Rule<Pattern>, bool)| {
            let from = rule.from.to_string();
            let (place, all) = if rule.what.is_of_file() {
                ("tensor of the file", names)
            } else {
                ("parameter of the network", paths)
            };
            let near = did_you_mean(&from, all.iter().copied());
            format!("{}: `{from}` matches no {place}{near}", rule.what.name())
        };
        unused.map(say).collect()
    }
}
