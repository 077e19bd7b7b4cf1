//! Export of plans to other libraries, with the decisions that these cannot express.

mod deepspeed;
mod json;
mod keras;
mod qwix;
mod torch;
mod torchao;
mod transformer_engine;

use std::{collections::BTreeMap, fmt, str::FromStr};

use json::Json;
use precast_base::{Error, Result, names::by_name, printable::printable};

use super::{Decision, Plan, Region};
use crate::policy::Rule;

/// Another library's format for the precision of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exporter {
    /// A Python file for torch: a table of modules by path, and a function that adds hooks with casts to them.
    Torch,
    /// A Python file for Keras: a `DTypePolicyMap`.
    Keras,
    /// A Python file for torchao: an `FqnToConfig` with the linear layers that are lowered, and a function for those that
    /// train with operands in 8 bits.
    Torchao,
    /// A Python file for Transformer Engine: a function that replaces linear layers with operands in 8 or 4 bits.
    TransformerEngine,
    /// A Python file for Qwix: a rule for each layer with quantized operands.
    Qwix,
    /// A fragment of a JSON configuration for DeepSpeed: its `torch_autocast`.
    DeepSpeed,
}

/// A plan exported to another library.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// The text of the file. It lists what it cannot express.
    pub text: String,
    /// Decisions of the plan that the file cannot express, one sentence each.
    pub cannot_say: Vec<String>,
}

impl Exporter {
    /// All exporters.
    pub const ALL: [Exporter; 6] = [
        Exporter::Torch,
        Exporter::Keras,
        Exporter::Torchao,
        Exporter::TransformerEngine,
        Exporter::Qwix,
        Exporter::DeepSpeed,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Exporter::Torch => "torch",
            Exporter::Keras => "keras",
            Exporter::Torchao => "torchao",
            Exporter::TransformerEngine => "transformer-engine",
            Exporter::Qwix => "qwix",
            Exporter::DeepSpeed => "deepspeed",
        }
    }

    /// Returns the recipes of operands that the library has, with its names for them.
    fn recipes(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Exporter::Torch | Exporter::Keras | Exporter::DeepSpeed => &[],
            Exporter::Torchao => &torchao::RECIPES,
            Exporter::TransformerEngine => &transformer_engine::RECIPES,
            Exporter::Qwix => &qwix::RECIPES,
        }
    }
}

impl fmt::Display for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Exporter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name(text, Exporter::ALL, Exporter::name, "unknown library").map_err(Error::value)
    }
}

impl Plan {
    /// Exports the decisions to another library. The paths of the cells must be those of its modules.
    ///
    /// ```
    /// use precast_policy::{Outline, OutlinedCell, Policy, plan::Exporter};
    /// let net = Outline::new([OutlinedCell::new("", "Sequential"), OutlinedCell::new("0", "Dense").matrices()])?;
    /// let exported = Policy::named("o2")?.plan(&net)?.export(Exporter::DeepSpeed);
    /// assert!(exported.text.contains(r#""lower_precision_safe_modules": ["#));
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn export(&self, to: Exporter) -> Exported {
        self.export_without(to, &[])
    }

    /// Exports the plan of a policy [in the end](crate::Policy::in_the_end), and lists the rules that have ended among
    /// what the library cannot express.
    pub fn export_without(&self, to: Exporter, ended: &[Rule]) -> Exported {
        let mut cannot_say = match to {
            Exporter::Torch => torch::cannot_say(),
            Exporter::Keras => keras::cannot_say(),
            Exporter::Torchao => torchao::cannot_say(self),
            Exporter::TransformerEngine => transformer_engine::cannot_say(),
            Exporter::Qwix => qwix::cannot_say(),
            Exporter::DeepSpeed => deepspeed::cannot_say(self),
        };
        cannot_say.extend(self.unsaid(to));
        let until = |rule: &Rule| {
            let run = rule.run.map_or(String::new(), |run| format!(" (run: {run})"));
            Some(format!(
                "the rule for the {}{run} until step {}: this is what holds after it",
                rule.select, rule.until?
            ))
        };
        cannot_say.extend(ended.iter().filter_map(until));
        let text = match to {
            Exporter::Torch => torch::text(self, &cannot_say),
            Exporter::Keras => keras::text(self, &cannot_say),
            Exporter::Torchao => torchao::text(self, &cannot_say),
            Exporter::TransformerEngine => transformer_engine::text(self, &cannot_say),
            Exporter::Qwix => qwix::text(self, &cannot_say),
            Exporter::DeepSpeed => deepspeed::text(self, &cannot_say),
        };
        Exported { text, cannot_say }
    }

    /// Returns the decisions that a library cannot express, and most others cannot either.
    fn unsaid(&self, to: Exporter) -> Vec<String> {
        let count = |what: &dyn Fn(&Decision) -> bool| self.decisions.iter().filter(|d| what(d)).count();
        let unquantized = count(&|d| d.quantized().is_some()) - recipes(self, to.recipes()).len();
        let by_lists = count(&|d| matches!(d.run, Region::Lists(_) | Region::Except(_)));
        let rows = [
            (by_lists, "whose ops go by lists: each op runs in the dtype of its inputs"),
            (count(&|d| d.recompute.is_some()), "that are recomputed: recompute them by the means of the library"),
            (
                count(&|d| !d.later.is_empty()),
                "whose decision changes during a run: this is the first one, and `Policy::in_the_end` has the last",
            ),
            (unquantized, "whose products have quantized operands: they run unquantized"),
            (count(&|d| d.kept().is_some()), "whose activations are kept in 8 bits: they are kept as computed"),
            (count(&|d| d.raise_after_stall), "with `after_stall: raise`: no stall raises them"),
            (
                count(&|d| d.wide_weight_grads),
                "whose gradients of weights are float32: they have the dtype of the weights",
            ),
        ];
        let rows = rows.into_iter().filter(|(count, _)| *count > 0);
        rows.map(|(count, what)| format!("{} {what}", super::words::cells(count))).collect()
    }

    /// Returns the head of a Python file.
    fn python_head(&self, library: &str, use_it: &str, cannot_say: &[String]) -> String {
        let mut head =
            format!("# {}, for {library}, by precast.\n#\n# {use_it}\n", printable(&self.policy.to_string()));
        if !cannot_say.is_empty() {
            head += "#\n# What this file cannot say:\n";
            cannot_say.iter().for_each(|line| head += &format!("# - {}\n", printable(line)));
        }
        head
    }
}

impl Decision {
    fn runs_low(&self) -> bool {
        self.run.dtype().is_some_and(crate::DType::is_low)
    }
}

/// Returns the name that a library has for the recipe of a layer, by the path of the layer.
fn recipes<'a>(plan: &'a Plan, names: &[(&str, &'static str)]) -> BTreeMap<&'a str, Json> {
    let name = |decision: &Decision| {
        let recipe = decision.quantized()?.recipe()?;
        Some(names.iter().find(|(ours, _)| *ours == recipe.name)?.1)
    };
    // Those of convolutions, recurrent layers and attention are inside of them.
    let dense = plan.decisions.iter().filter(|decision| decision.kind == "Dense");
    dense.filter_map(|decision| Some((decision.path.as_str(), name(decision)?.into()))).collect()
}

/// Returns a value as JSON text in a Python string literal: no character of it ends the string.
fn json_in_python(value: &Json) -> String {
    let json = value.pretty();
    // Two adjacent quotes occur in JSON only as an empty string, and a third never follows.
    let plain: String = json
        .chars()
        .map(|c| match c {
            c if c.is_ascii() => c.to_string(),
            c => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        })
        .collect();
    format!("json.loads(r\"\"\"\n{plain}\n\"\"\")")
}

#[cfg(test)]
mod tests {
    use precast_base::DType;

    use super::*;
    use crate::{
        Level, Outline, OutlinedCell, Policy,
        policy::{Rule, RunAs},
    };

    /// A network of three dense layers, a norm and two user-defined cells.
    fn plan(policy: &Policy) -> Plan {
        let kinds = ["Mine", "Dense", "Dense", "Dense", "LayerNorm", "Mine"];
        let path = |i| if i == 0 { String::new() } else { format!("c{i}") };
        let cells = kinds.iter().enumerate().map(|(i, kind)| OutlinedCell::new(path(i), *kind));
        policy.plan(&Outline::new(cells).unwrap()).unwrap()
    }

    /// Inexpressible decisions are counted from the plan, and reported only if there are any.
    #[test]
    fn what_a_file_cannot_say_is_counted() {
        let lines = |policy: &Policy, to: Exporter| plan(policy).export(to).cannot_say;
        let o2 = Policy::new(Level::O2, DType::F16).unwrap();
        let of_low = |path: &str| o2.clone().rule(Rule::path(path, RunAs::Full).unwrap()).unwrap();
        let usual = |to: Exporter| lines(&Policy::new(Level::O0, DType::F16).unwrap(), to);
        // Lines that are always present, and those that these policies add.
        let added = |policy: &Policy, to: Exporter| {
            let usual = usual(to);
            lines(policy, to).into_iter().filter(|line| !usual.contains(line)).collect::<Vec<String>>()
        };
        assert_eq!(added(&o2, Exporter::DeepSpeed), ["cells that run low and are of no class in torch.nn: 2"]);
        assert_eq!(
            added(&of_low("c1"), Exporter::DeepSpeed),
            [
                "2 of 3 cells of the class torch.nn.Linear run low: the class is left out",
                "cells that run low and are of no class in torch.nn: 2"
            ]
        );
        assert_eq!(added(&o2, Exporter::Torchao), ["cells that run low and are not linear layers: 2"]);
        assert_eq!(added(&of_low("c1"), Exporter::Torchao), ["cells that run low and are not linear layers: 2"]);
        assert_eq!(added(&of_low("c5"), Exporter::Torchao), ["cells that run low and are not linear layers: 1"]);
        for to in [Exporter::Torch, Exporter::Keras, Exporter::TransformerEngine, Exporter::Qwix] {
            assert_eq!(added(&o2, to), Vec::<String>::new());
        }
        for to in Exporter::ALL {
            // Two lines about the library, and none about cells, since none runs low.
            assert!(usual(to).len() == 2 && usual(to).iter().all(|line| !line.contains("run low and")), "{to:?}");
        }
    }

    /// Names may contain any character; in the file each is ASCII and none ends the string.
    #[test]
    fn names_are_ascii_in_python() {
        let text = json_in_python(&Json::list(["caf\u{e9}", "\u{1d11e}", "\"\"\"", "\u{202e}"]));
        assert!(text.is_ascii(), "{text}");
        // The UTF-16 of the clef by the Unicode standard.
        assert!(text.contains(r#""caf\u00e9""#) && text.contains(r#""\ud834\udd1e""#), "{text}");
        let json = text.strip_prefix("json.loads(r\"\"\"").and_then(|text| text.strip_suffix("\"\"\")")).unwrap();
        assert!(!json.contains("\"\"\""), "{json}");
        let read: Vec<String> = serde_json::from_str(json).unwrap();
        assert_eq!(read, ["caf\u{e9}", "\u{1d11e}", "\"\"\"", "\u{202e}"]);
    }
}
