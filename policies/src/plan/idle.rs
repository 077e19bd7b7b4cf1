//! Rules for a part of a run that can have no effect.

use precast_base::{DType, Result};

use super::Decision;
use crate::{
    Policy,
    adapter::Adapter,
    host::Outlined,
    policy::{Level, Prefer, Rule, RunAs},
};

impl Policy {
    /// Describes the rules that [end](Rule::until) during a run, [raise](Rule::raise_after_stall) a cell that stalls it, or
    /// quantize, and can have no effect on a network, each with its place. `steps` is the length of the run, if it is known.
    ///
    /// ```
    /// use precast_policy::{Outline, OutlinedCell, Policy, policy::{Rule, RunAs}};
    /// let net = Outline::new([OutlinedCell::new("", "Sequential"), OutlinedCell::new("0", "Dense").matrices()])?;
    /// let policy = Policy::named("o2")?.rule(Rule::path("0", RunAs::Full)?.until(500))?;
    /// assert!(policy.idle_rules(&net, None)?.is_empty());
    /// assert!(policy.idle_rules(&net, Some(500))?[0].contains("the run has 500 steps"));
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`plan`](Policy::plan).
    pub fn idle_rules(&self, net: &impl Outlined, steps: Option<usize>) -> Result<Vec<String>> {
        let mut idle = self.idle_quantization(net)?;
        let is_scheduled = |rule: &Rule| rule.until.is_some() || rule.raise_after_stall;
        if !self.rules.iter().any(is_scheduled) {
            return Ok(idle);
        }
        let policy = self.clone().with_prefer(Prefer::Memory);
        let (plan, last) = (policy.plan(net)?, policy.in_the_end().plan(net)?);
        for (at, rule) in policy.rules.iter().enumerate() {
            let Rule { select, origin, .. } = rule;
            let is_raised = || {
                let selected = last.decisions.iter().filter(|of| of.raise_after_stall && is_low(of));
                selected.into_iter().any(|of| select.matches(&of.path, &of.kind))
            };
            // Without a rule that others need, there is no plan.
            let decides = || {
                let mut others = policy.clone();
                drop(others.rules.remove(at));
                others.plan(net).map_or(true, |others| !plan.diff(&others).changes.is_empty())
            };
            let long = rule.until.zip(steps).filter(|(until, steps)| until >= steps);
            if let Some((until, steps)) = long {
                idle.push(format!(
                    "{origin}: the rule for the {select} does not end: `until: {{step: {until}}}`, and the run has {steps} steps"
                ));
            } else if rule.raise_after_stall && !is_raised() {
                idle.push(format!(
                    "{origin}: `after_stall` of the rule for the {select} has no effect: none of its cells runs in 16 bits, or returns them"
                ));
            } else if rule.until.is_some() && !decides() {
                idle.push(format!(
                    "{origin}: the rule for the {select} has no effect: its cells run the same without it"
                ));
            }
        }
        Ok(idle)
    }

    /// Describes the rules about low cells, operands and kept activations at O0, and those about activations of cells that are all
    /// recomputed.
    fn idle_quantization(&self, net: &impl Outlined) -> Result<Vec<String>> {
        let operands =
            |rule: &Rule| rule.operands.filter(|of| of.recipe().is_some()).map(|of| format!("operands: {of}"));
        let kept = |rule: &Rule| rule.kept.filter(|kept| kept.format().is_some()).map(|kept| format!("kept: {kept}"));
        let low = |rule: &Rule| (rule.run == Some(RunAs::Low)).then(|| "run: low".to_string());
        let asking = self
            .rules
            .iter()
            .filter_map(|rule| Some((rule, operands(rule).or_else(|| kept(rule)).or_else(|| low(rule))?)));
        let no_effect = |rule: &Rule, says: &str, why: &str| {
            format!("{}: `{says}` of the rule for the {} has no effect: {why}", rule.origin, rule.select)
        };
        if self.level == Level::O0 {
            return Ok(asking
                .map(|(rule, says)| no_effect(rule, &says, "level O0 lowers and quantizes nothing"))
                .collect());
        }
        let has_both = |rules: &[Rule]| {
            rules.iter().any(|rule| rule.checkpoint == Some(true)) && rules.iter().any(|rule| kept(rule).is_some())
        };
        if !has_both(&self.rules) {
            return Ok(Vec::new());
        }
        let plan = self.clone().with_prefer(Prefer::Memory).plan(net)?;
        let again: Vec<&str> = plan.decisions.iter().filter(|of| of.recompute.is_some()).map(|of| &*of.path).collect();
        let is_again = |path: &str| {
            again.iter().any(|outer| {
                outer.is_empty()
                    || path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        let is_idle = |rule: &Rule| {
            let select = rule.select.to_string();
            let of_rule =
                |of: &&Decision| of.kept.as_ref().is_some_and(|by| by.origin == rule.origin && by.select == select);
            let mut reached = plan.decisions.iter().filter(of_rule).peekable();
            kept(rule).is_some() && reached.peek().is_some() && reached.all(|of| is_again(&of.path))
        };
        let idle = self.rules.iter().filter(|rule| is_idle(rule));
        let why = "its cells are recomputed, and keep their inputs alone";
        Ok(idle.filter_map(|rule| Some(no_effect(rule, &kept(rule)?, why))).collect())
    }
}

/// Returns whether a cell runs low or rounds its outputs, so that raising it makes a difference.
fn is_low(decision: &Decision) -> bool {
    let outward = match &decision.adapter {
        Some(Adapter::Cast(cast) | Adapter::CastOps(cast, _)) => Some(cast.outward),
        _ => None,
    };
    decision.run.lowers() || outward.is_some_and(DType::is_low)
}

#[cfg(test)]
mod tests {
    use crate::{Outline, OutlinedCell, Policy};

    #[test]
    fn quantization_without_effect_is_named() {
        let cell = |path: &str, kind: &'static str| OutlinedCell::new(path, kind).matrices();
        let net = Outline::new([OutlinedCell::new("", "Model"), cell("a", "Dense"), cell("b", "Dense")]).unwrap();
        let idle = |level: &str, rules: &str| {
            let text = format!("version: 1\nlevel: {level}\ndtype: float16\nrules: [{rules}]\n");
            Policy::parse(&text, "p.yaml").unwrap().idle_rules(&net, None).unwrap()
        };
        let words = "p.yaml:4:9: `operands: int8` of the rule for the path ** has no effect: level O0 lowers and quantizes nothing";
        assert_eq!(idle("O0", "{ path: '**', operands: int8 }, { path: a, kept: none }"), [words]);
        assert_eq!(idle("O2", "{ path: '**', operands: int8 }, { path: '**', kept: int8-rows }").len(), 0);
        let words = "p.yaml:4:40: `kept: int8-rows` of the rule for the path a has no effect: its cells are recomputed, and keep their \
                     inputs alone";
        assert_eq!(idle("O2", "{ path: a, checkpoint: true }, { path: a, kept: int8-rows }"), [words]);
        assert_eq!(idle("O2", "{ path: a, checkpoint: true }, { path: '**', kept: int8-rows }").len(), 0);
    }

    /// Each rule that can have no effect is named by its place, and no other.
    #[test]
    fn rules_without_an_effect_are_named_by_their_places() {
        let cells = [("", "Sequential"), ("0", "Dense"), ("1", "BatchNorm2d"), ("2", "Dense")];
        let net = Outline::new(cells.map(|(path, kind)| OutlinedCell::new(path, kind))).unwrap();
        let idle = |level: &str, rules: &str, steps| {
            let head = format!("version: 1\nlevel: {level}\ndtype: float16\nrules:\n");
            let policy = Policy::parse(&(head + rules), "p.yaml").unwrap();
            policy.idle_rules(&net, steps).unwrap()
        };
        let warm_up = "- { path: '**', run: float32, until: { step: 5 } }\n";
        let raise = "- { path: '*', after_stall: raise }\n";
        for rules in [warm_up, raise, "- { path: '2', run: float32 }\n"] {
            assert!(idle("O3", rules, Some(6)).is_empty(), "{rules}");
        }
        // The run ends with the step after which the rule would.
        assert_eq!(
            idle("O3", warm_up, Some(5)),
            ["p.yaml:5:3: the rule for the path ** does not end: `until: {step: 5}`, and the run has 5 steps"]
        );
        // Another rule keeps cell 2; the lists of O2 keep a batch norm, which returns 16 bits, and raising it helps.
        let kept = "- { kind: Dense, run: float32 }\n- { path: '2', run: float32, until: { step: 5 } }\n\
                    - { path: '1', after_stall: raise }\n- { path: '0', after_stall: raise }\n";
        assert_eq!(
            idle("O2", kept, Some(6)),
            [
                "p.yaml:6:3: the rule for the path 2 has no effect: its cells run the same without it",
                "p.yaml:8:3: `after_stall` of the rule for the path 0 has no effect: none of its cells runs in 16 bits, or \
                 returns them"
            ]
        );
        assert_eq!(idle("O0", &(warm_up.to_string() + raise), None).len(), 2);
    }
}
