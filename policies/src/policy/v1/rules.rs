//! Rules in version 1 of policy files.

use std::fmt;

use precast_base::{
    Error, Result,
    document::{At, Place, Source, placeless},
    names::by_name,
    printable::quoted,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor},
};

use super::super::{Kept, Operands, Origin, Rule, RunAs, Select, operands::Written};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleV1 {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<At<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<At<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    op: Option<At<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<At<RunV1>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoint: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operands: Option<At<Written>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_k: Option<At<usize>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_n: Option<At<usize>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept: Option<At<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<At<UntilV1>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after_stall: Option<At<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    because: Option<At<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expect: Option<At<usize>>,
}

impl RuleV1 {
    /// Returns its keys in order, each with its value on one line.
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        let text = |at: &Option<At<String>>| at.as_ref().map(|text| quoted(&text.value));
        let entries = [
            ("path", text(&self.path)),
            ("kind", text(&self.kind)),
            ("op", text(&self.op)),
            ("run", self.run.as_ref().map(|run| run.value.line())),
            ("checkpoint", self.checkpoint.map(|recompute| recompute.to_string())),
            ("operands", self.operands.as_ref().map(|operands| operands.value.to_string())),
            ("min_k", self.min_k.as_ref().map(|least| least.value.to_string())),
            ("min_n", self.min_n.as_ref().map(|least| least.value.to_string())),
            ("kept", self.kept.as_ref().map(|kept| kept.value.clone())),
            ("until", self.until.as_ref().map(|until| format!("{{ step: {} }}", until.value.step.value))),
            ("after_stall", self.after_stall.as_ref().map(|word| word.value.clone())),
            ("because", text(&self.because)),
            ("expect", self.expect.as_ref().map(|expect| expect.value.to_string())),
        ];
        entries.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }

    /// Returns the position of its path, kind or op, if it has one.
    pub fn place(&self) -> Option<Place> {
        self.path.as_ref().or(self.kind.as_ref()).or(self.op.as_ref()).map(|select| select.place)
    }
}

/// End of a rule.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UntilV1 {
    step: At<usize>,
}

/// Word, or one word for each direction.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum RunV1 {
    Word(String),
    ByDirection { forward: String, weight_grad: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ByDirectionV1 {
    forward: String,
    weight_grad: String,
}

impl<'de> Deserialize<'de> for RunV1 {
    /// Deserializes by hand, so that messages name the keys of the map.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = RunV1;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "float32, float32-out, float32-inside, low, inherit, or { forward: low, weight_grad: float32 }",
                )
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<RunV1, E> {
                Ok(RunV1::Word(word.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RunV1, A::Error> {
                let read = ByDirectionV1::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(RunV1::ByDirection { forward: read.forward, weight_grad: read.weight_grad })
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl RunV1 {
    fn run(&self) -> Result<RunAs> {
        match self {
            RunV1::Word(word) => word.parse(),
            RunV1::ByDirection { forward, weight_grad } => {
                by_name(forward, ["low"], |name| name, "unknown word for `forward`").map_err(Error::policy)?;
                let grads = ["float32", "low"];
                match by_name(weight_grad, grads, |name| name, "unknown word for `weight_grad`")
                    .map_err(Error::policy)?
                {
                    "low" => Ok(RunAs::Low),
                    _ => Ok(RunAs::LowForward),
                }
            }
        }
    }

    /// Returns the value on one line.
    fn line(&self) -> String {
        match self {
            RunV1::Word(word) => word.clone(),
            RunV1::ByDirection { forward, weight_grad } => {
                format!("{{ forward: {forward}, weight_grad: {weight_grad} }}")
            }
        }
    }

    fn written(run: RunAs) -> Self {
        match run {
            RunAs::LowForward => RunV1::ByDirection { forward: "low".into(), weight_grad: "float32".into() },
            word => RunV1::Word(word.to_string()),
        }
    }
}

/// Converts a written rule: one for cells, or one for the nodes of a graph.
pub(super) fn read(written: At<RuleV1>, of_nodes: bool, source: &Source<'_>) -> Result<Rule> {
    let RuleV1 { path, kind, op, run, checkpoint, operands, min_k, min_n, kept, until, after_stall, because, expect } =
        written.value;
    let fail = |place: Place, words: &str| Err(source.error(place, Error::policy(words)));
    let kind = match (of_nodes, kind, op) {
        (false, _, Some(op)) => {
            return fail(
                op.place,
                "a rule with `op` is for the nodes of a graph; a rule for cells has `path` or `kind`",
            );
        }
        (true, Some(kind), _) => {
            return fail(kind.place, "a rule with `kind` is for cells; a rule for nodes has `path` or `op`");
        }
        (_, kind, op) => kind.or(op),
    };
    // The names of nodes have slashes where paths have dots.
    let dotted = |path: At<String>| At { value: path.value.trim_start_matches('/').replace('/', "."), ..path };
    let path = if of_nodes { path.map(dotted) } else { path };
    let select = match (path, kind) {
        (Some(path), None) => Select::Path(path.value.parse().map_err(|error| source.error(path.place, error))?),
        (None, Some(kind)) if kind.value.is_empty() => return fail(kind.place, NO_KIND),
        (None, Some(kind)) => Select::Kind(kind.value),
        (Some(_), Some(kind)) => {
            let words = match of_nodes {
                true => "a rule has `path` or `op`, not both; write two rules",
                false => "a rule has `path` or `kind`, not both; write two rules",
            };
            return fail(kind.place, words);
        }
        (None, None) if of_nodes => return fail(written.place, "a rule needs `path` or `op`"),
        (None, None) => return fail(written.place, "a rule needs `path` or `kind`"),
    };
    if run.is_none() && checkpoint.is_none() && operands.is_none() && kept.is_none() && after_stall.is_none() {
        return fail(
            written.place,
            "a rule needs `run` (allowed: float32, float32-out, float32-inside, low, inherit), `checkpoint`, `operands`, `kept` or `after_stall`",
        );
    }
    let parse = |run: At<RunV1>| run.value.run().map_err(|error| source.error(run.place, error));
    let run = run.map(parse).transpose()?;
    let least = [("min_k", &min_k), ("min_n", &min_n)];
    if let Some((key, place)) = least.into_iter().find_map(|(key, at)| Some((key, at.as_ref()?.place)))
        && operands.is_none()
    {
        return fail(place, &format!("`{key}` is the least size for `operands`, which the rule lacks"));
    }
    let [min_k, min_n] = [min_k, min_n].map(|least| least.map_or(0, |least| least.value));
    let parse =
        |operands: At<Written>| Operands::try_from(operands.value).map_err(|error| source.error(operands.place, error));
    let operands = operands.map(parse).transpose()?;
    let parse = |kept: At<String>| kept.value.parse::<Kept>().map_err(|error| source.error(kept.place, error));
    let kept = kept.map(parse).transpose()?;
    if let Some(UntilV1 { step }) = until.as_ref().map(|until| &until.value).filter(|until| until.step.value == 0) {
        return fail(
            step.place,
            "`until: {step: 0}` ends before the first step; allowed: a whole number of at least 1",
        );
    }
    if let Some(word) = &after_stall {
        by_name(&word.value, [RAISE], |name| name, "unknown word for `after_stall`")
            .map_err(|words| source.error(word.place, Error::policy(words)))?;
    }
    if let Some(expect) = expect.as_ref().filter(|expect| expect.value == 0) {
        return fail(
            expect.place,
            "`expect: 0`, but a rule must match something; allowed: a whole number of at least 1",
        );
    }
    if let Some(because) = because.as_ref().filter(|because| because.value.is_empty()) {
        return fail(because.place, "`because` is empty; expected a reason, or a rule without the key");
    }
    let (because, expect) = (because.map(|because| because.value), expect.map(|expect| expect.value));
    let (until, raise_after_stall) = (until.map(|until| until.value.step.value), after_stall.is_some());
    let origin = Origin::at(source, written.place);
    Ok(Rule {
        select,
        run,
        checkpoint,
        operands,
        min_k,
        min_n,
        kept,
        until,
        raise_after_stall,
        because,
        expect,
        origin,
    })
}

/// The word of `after_stall`.
const RAISE: &str = "raise";

pub(super) const NO_KIND: &str = "an empty kind; the kind of a cell is the name of its type, as Dense";

/// Converts a rule into its written form.
pub(super) fn written(rule: &Rule, of_nodes: bool) -> RuleV1 {
    let (path, kind) = match &rule.select {
        Select::Path(pattern) => (Some(placeless(pattern.to_string())), None),
        Select::Kind(kind) => (None, Some(placeless(kind.clone()))),
    };
    let (kind, op) = if of_nodes { (None, kind) } else { (kind, None) };
    RuleV1 {
        path,
        kind,
        op,
        run: rule.run.map(|run| placeless(RunV1::written(run))),
        checkpoint: rule.checkpoint,
        operands: rule.operands.map(|operands| placeless(operands.into())),
        min_k: (rule.min_k > 0).then(|| placeless(rule.min_k)),
        min_n: (rule.min_n > 0).then(|| placeless(rule.min_n)),
        kept: rule.kept.map(|kept| placeless(kept.to_string())),
        until: rule.until.map(|step| placeless(UntilV1 { step: placeless(step) })),
        after_stall: rule.raise_after_stall.then(|| placeless(RAISE.into())),
        because: rule.because.clone().filter(|because| !because.is_empty()).map(placeless),
        expect: rule.expect.map(placeless),
    }
}

impl Rule {
    /// Returns the keys with which a policy file states the rule, each with its value on one line.
    ///
    /// ```
    /// use precast_policy::policy::{Rule, RunAs};
    /// let rule = Rule::path("head.*", RunAs::Full)?.because("logits");
    /// assert_eq!(rule.entries()[0], ("path", "\"head.*\"".to_string()));
    /// assert_eq!(rule.to_line(), r#"{ path: "head.*", run: float32, because: "logits" }"#);
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        written(self, false).entries()
    }

    /// Returns the rule as an item of the key `rules` of a policy file, on one line.
    pub fn to_line(&self) -> String {
        let entries: Vec<String> = self.entries().iter().map(|(key, value)| format!("{key}: {value}")).collect();
        format!("{{ {} }}", entries.join(", "))
    }
}
