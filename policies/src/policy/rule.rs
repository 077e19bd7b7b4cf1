//! Rules: a selection of cells and the precision they run in.

use std::{fmt, str::FromStr};

use precast_base::{
    DType, Error, Result,
    names::{did_you_mean, did_you_mean_or_some},
    printable::printable,
};
use serde::{Deserialize, Serialize};

use super::{Kept, Operands, Origin, Pattern};

/// Rule of a policy.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a rule does nothing until a policy has it"]
#[non_exhaustive]
pub struct Rule {
    /// Cells the rule applies to.
    pub select: Select,
    /// Precision of these cells, and of the cells inside them not decided otherwise. `None` leaves it to other rules
    /// and the lists.
    pub run: Option<RunAs>,
    /// `true` when the activations of these cells are recomputed in the backward pass. `None` leaves it to other rules.
    /// Default: kept. Unlike `run`, it applies to these cells alone, since all cells inside are recomputed with them.
    pub checkpoint: Option<bool>,
    /// Quantization of the operands of the products of these cells, and of those inside them not decided otherwise. `None`
    /// leaves it to other rules. Default: not quantized.
    pub operands: Option<Operands>,
    /// Least length of the sums of a cell's output for quantized operands: input features, times the kernel of a
    /// convolution. Default: 0.
    pub min_k: usize,
    /// Least number of outputs of a cell for quantized operands: output features, channels or gates. Default: 0.
    pub min_n: usize,
    /// The form in which these cells, and those inside them not decided otherwise, keep their activations for the backward
    /// pass. `None` leaves it to other rules. Default: as computed.
    pub kept: Option<Kept>,
    /// Number of steps of a run after which the rule ends. Default: it holds in every step.
    pub until: Option<usize>,
    /// `true` when a cell of the rule that stalls a run is raised to f32, so that the run continues. Default: the run
    /// ends.
    pub raise_after_stall: bool,
    /// Author's reason, shown along with the decision.
    pub because: Option<String>,
    /// Number of cells the rule must match. Default: at least one.
    pub expect: Option<usize>,
    /// Source of the rule.
    pub origin: Origin,
}

impl Rule {
    /// Creates a rule for the cells whose path matches a pattern.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when the pattern is malformed.
    pub fn path(pattern: &str, run: RunAs) -> Result<Self> {
        Ok(Rule::new(Select::Path(pattern.parse()?), Some(run)))
    }

    /// Creates a rule that recomputes the activations of the cells whose path matches a pattern. It does not affect
    /// their precision.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when the pattern is malformed.
    pub fn recompute(pattern: &str) -> Result<Self> {
        Ok(Rule::new(Select::Path(pattern.parse()?), None).checkpoint(true))
    }

    /// Creates a rule that quantizes the operands of the products of the cells whose path matches a pattern. It does not
    /// affect their precision otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when the pattern is malformed.
    ///
    /// ```
    /// use precast_policy::policy::{Operands, Rule};
    /// let rule = Rule::operands("encoder.**", "mxfp8".parse()?)?.min_k(256);
    /// assert_eq!(rule.to_line(), r#"{ path: "encoder.**", operands: mxfp8, min_k: 256 }"#);
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn operands(pattern: &str, operands: Operands) -> Result<Self> {
        Ok(Rule { operands: Some(operands), ..Rule::new(Select::Path(pattern.parse()?), None) })
    }

    /// Creates a rule that keeps the activations of the cells whose path matches a pattern, and of those inside, in a form of
    /// 8 bits. It does not affect their precision otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when the pattern is malformed.
    pub fn kept(pattern: &str, kept: Kept) -> Result<Self> {
        Ok(Rule { kept: Some(kept), ..Rule::new(Select::Path(pattern.parse()?), None) })
    }

    /// Creates a rule that raises the cells whose path matches a pattern to f32 if they stall a run. It does not affect
    /// their precision before.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when the pattern is malformed.
    pub fn raise_after_stall(pattern: &str) -> Result<Self> {
        Ok(Rule { raise_after_stall: true, ..Rule::new(Select::Path(pattern.parse()?), None) })
    }

    /// Creates a rule for the cells of a kind.
    pub fn kind(kind: impl Into<String>, run: RunAs) -> Self {
        Rule::new(Select::Kind(kind.into()), Some(run))
    }

    /// Returns whether the rule determines the stored dtype of the tensor with this name in a stored model.
    pub(crate) fn names_tensor(&self, name: &str) -> bool {
        matches!(&self.select, Select::Path(pattern) if pattern.matches(name))
            && self.run.is_some_and(RunAs::is_of_tensors)
    }

    fn new(select: Select, run: Option<RunAs>) -> Self {
        Rule {
            select,
            run,
            checkpoint: None,
            operands: None,
            min_k: 0,
            min_n: 0,
            kept: None,
            until: None,
            raise_after_stall: false,
            because: None,
            expect: None,
            origin: Origin::Code,
        }
    }

    /// Sets the least length of sums for quantized operands.
    pub fn min_k(mut self, least: usize) -> Self {
        self.min_k = least;
        self
    }

    /// Sets the least number of outputs for quantized operands.
    pub fn min_n(mut self, least: usize) -> Self {
        self.min_n = least;
        self
    }

    /// Sets whether the activations of the cells are recomputed.
    pub fn checkpoint(mut self, recompute: bool) -> Self {
        self.checkpoint = Some(recompute);
        self
    }

    /// Sets the number of steps after which the rule ends: `Rule::path("**", RunAs::Full)?.until(500)` is a warm-up in
    /// f32.
    pub fn until(mut self, step: usize) -> Self {
        self.until = Some(step);
        self
    }

    /// Returns whether both rules determine the precision of their cells, their recomputation, the operands of their
    /// products, what they keep, or whether they are raised.
    pub(crate) fn is_about_the_same_as(&self, other: &Rule) -> bool {
        self.run.is_some() && other.run.is_some()
            || self.checkpoint.is_some() && other.checkpoint.is_some()
            || self.operands.is_some() && other.operands.is_some()
            || self.kept.is_some() && other.kept.is_some()
            || self.raise_after_stall && other.raise_after_stall
    }

    /// Returns whether the rule holds in all steps in which another one does.
    pub(crate) fn outlasts(&self, other: &Rule) -> bool {
        self.until.is_none_or(|until| other.until.is_some_and(|other| other <= until))
    }

    /// Sets the reason.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.because = Some(reason.into());
        self
    }

    /// Sets the number of cells the rule must match.
    pub fn expect(mut self, cells: usize) -> Self {
        self.expect = Some(cells);
        self
    }
}

/// Selection of the cells a rule applies to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Select {
    /// Cells whose path matches.
    Path(Pattern),
    /// Cells of exactly this kind, or with this base.
    Kind(String),
}

impl Select {
    /// Returns whether a cell is selected.
    pub fn matches(&self, path: &str, kind: &str) -> bool {
        match self {
            Select::Path(pattern) => pattern.matches(path),
            Select::Kind(wanted) => wanted == kind,
        }
    }

    /// Returns a `(did you mean ...?)` hint for a selection that matches nothing, with the nearest of the paths or
    /// kinds, or some of them.
    pub fn nearest<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a str>,
        kinds: impl IntoIterator<Item = &'a str>,
    ) -> String {
        match self {
            Select::Path(pattern) => did_you_mean_or_some(&pattern.to_string(), paths),
            Select::Kind(kind) => did_you_mean_or_some(kind, kinds),
        }
    }

    /// Returns the selection in words, for the nodes of a graph, which have ops in place of kinds.
    pub fn of_nodes(&self) -> String {
        match self {
            Select::Path(_) => self.to_string(),
            Select::Kind(op) => format!("op {}", printable(op)),
        }
    }

    /// Returns whether the selection is a path without wildcards.
    pub fn is_exact_path(&self) -> bool {
        matches!(self, Select::Path(pattern) if pattern.is_exact())
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Select::Path(pattern) => write!(f, "path {}", printable(&pattern.to_string())),
            Select::Kind(kind) => write!(f, "kind {}", printable(kind)),
        }
    }
}

/// Precision of the cells of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RunAs {
    /// Full precision: f32, with outputs in f32. With a pack of MindSpore, outputs are cast to the dtype of the
    /// surrounding region, as there.
    #[serde(rename = "float32")]
    Full,
    /// f32 with outputs in f32, with any pack.
    #[serde(rename = "float32-out")]
    FullOut,
    /// f32 with outputs cast to the dtype of the surrounding region. They can overflow there, and lose digits.
    #[serde(rename = "float32-inside")]
    FullInside,
    /// Low dtype of the policy.
    #[serde(rename = "low")]
    Low,
    /// Precision of the surrounding region, regardless of the lists.
    #[serde(rename = "inherit")]
    Inherit,
    /// Low dtype of the policy, except for the weight and bias gradients of dense layers and convolutions. These are
    /// computed in f32, from the activations before rounding if those arrive in f32. In files:
    /// `{ forward: low, weight_grad: float32 }`.
    #[serde(rename = "low, weight_grad float32")]
    LowForward,
}

impl RunAs {
    /// Returns whether the precision determines how a tensor is stored.
    fn is_of_tensors(self) -> bool {
        matches!(self, RunAs::Full | RunAs::Low)
    }

    const NAMES: [(&'static str, RunAs); 5] = [
        ("float32", RunAs::Full),
        ("float32-out", RunAs::FullOut),
        ("float32-inside", RunAs::FullInside),
        ("low", RunAs::Low),
        ("inherit", RunAs::Inherit),
    ];
}

impl fmt::Display for RunAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RunAs::NAMES.into_iter().find(|(_, run)| run == self) {
            Some((name, _)) => f.pad(name),
            None => f.pad("low, weight_grad float32"),
        }
    }
}

impl FromStr for RunAs {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let names = RunAs::NAMES.map(|(name, _)| name);
        RunAs::NAMES.into_iter().find(|(name, _)| *name == text).map(|(_, run)| run).ok_or_else(|| {
            // The name nearest to `float16` would be `float32`.
            let near = match text.parse::<DType>() {
                Ok(dtype) if dtype.is_low() => " (did you mean `low`, the policy's own dtype?)".to_string(),
                _ => did_you_mean(text, names),
            };
            Error::policy(format!("unknown `run: {text}`{near}; allowed: {}", names.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Policy,
        policy::{Format, Recipe, Rounding, Scaling},
    };

    /// Names that YAML could read as something else, and characters that print badly, separated by `§`.
    const NAMES: &str = "head§e\u{301}§a\u{200b}b§\u{200d}§it's§say \"hi\"§a: b§a:b§:§&x§*§**§-x§- x§!tag§yes§No§true§\
        null§~§12§0x1f§1e3§-0§a\nb§a\r\nb§\n§a\tb§\u{85}§\u{2028}x§\u{feff}x§\u{202e}abc§\u{7f}§\
        \u{1b}31m§\0§🙂§日本§#c§a #c§ a§a §%§@§`§a\\b§\\u0301§,§|§>§<<§\u{ffff}§op kind x";

    fn read(rules: &str) -> Vec<Rule> {
        let text = format!("version: 1\nlevel: O2\ndtype: float16\nrules: {rules}\n");
        let policy = Policy::parse(&text, "p").unwrap_or_else(|error| panic!("{rules:?}: {error}"));
        policy.rules.into_iter().map(|rule| Rule { origin: Origin::Code, ..rule }).collect()
    }

    #[test]
    fn a_rule_that_is_written_is_read_again() {
        let runs = [RunAs::Full, RunAs::FullOut, RunAs::FullInside, RunAs::Low, RunAs::Inherit, RunAs::LowForward];
        let custom = Operands::custom(Format::E4M3, Format::E5M2, Scaling::Rows, Rounding::Stochastic).unwrap();
        let recipes = Recipe::ALL
            .map(|recipe| recipe.name.parse::<Operands>().unwrap())
            .into_iter()
            .chain([Operands::NONE, custom]);
        let mut quantized = recipes.cycle();
        for (name, run) in NAMES.split('§').zip(runs.into_iter().cycle()) {
            let path = Rule::path(&format!("a.{name}"), run).unwrap().because(name);
            let kind = Rule::kind(name, run).expect(3).until(7);
            let recomputed = Rule::recompute(name).unwrap();
            let raised = Rule::raise_after_stall(name).unwrap().because("two\nlines");
            let quantized = Rule::operands(name, quantized.next().unwrap()).unwrap().min_k(32).min_n(16);
            let rules = [path, kind, recomputed, raised, quantized];
            let lines: Vec<String> = rules.iter().map(Rule::to_line).collect();
            assert_eq!(read(&format!("[{}]", lines.join(", "))), rules);
            assert!(lines.iter().all(|line| *line == printable(line)), "{lines:?}");
            let block = |rule: &Rule| {
                let entries = rule.entries().into_iter().map(|(key, value)| format!("{key}: {value}\n"));
                format!("\n  - {}", entries.collect::<Vec<_>>().join("    "))
            };
            assert_eq!(read(&rules.iter().map(block).collect::<String>()), rules);
            // The writer of whole files agrees.
            let policy = rules.iter().cloned().try_fold(Policy::named("o2").unwrap(), Policy::rule).unwrap();
            let again = Policy::parse(&policy.to_yaml().unwrap(), "again").unwrap().rules;
            assert!(again.iter().zip(&rules).all(|(again, rule)| again.to_line() == rule.to_line()), "{again:?}");
        }
    }

    #[test]
    fn a_rule_for_nodes_is_about_an_op() {
        let of_nodes = |select: Select| select.of_nodes();
        assert_eq!(of_nodes(Select::Kind("kind MatMul".into())), "op kind MatMul");
        assert_eq!(of_nodes(Select::Path("my kind of.path".parse().unwrap())), "path my kind of.path");
    }
}
