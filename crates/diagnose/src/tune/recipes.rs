//! The search for a recipe of each cell: the cells that bear the first, and among them those that bear the next.

use std::collections::BTreeMap;

use precast::{
    Child, Policy,
    cell::AsCell,
    error::{Error, Result},
    policy::{Operands, Rule},
};
use precast_base::path::named;

use super::{Tune, Tuned, TunedCell, metric::Call, rules::Base};

/// Searches with each recipe in turn. A cell that does not bear one keeps that before.
pub(super) fn search<C: ?Sized + AsCell>(
    tune: &Tune<'_>,
    net: &mut Child<C>,
    batches: usize,
    call: Call<'_, C>,
) -> Result<Tuned> {
    let (&first, narrower) =
        tune.recipes.split_first().ok_or_else(|| Error::value("a search needs a recipe, got none"))?;
    if let Some(nothing) = tune.recipes.iter().find(|recipe| recipe.recipe().is_none()) {
        return Err(Error::value(format!("the recipes of a search quantize operands, got `{nothing}`")));
    }
    if let Some(decision) = tune.policy.plan(net)?.decisions.iter().find(|decision| decision.quantized().is_some()) {
        return Err(Error::plan(format!(
            "the policy has a recipe for {} already, and others are searched: leave `operands` out of it, or search without recipes",
            named(&decision.path)
        )));
    }
    let mut policy = tune.policy.clone();
    policy.rules.push(Rule::operands("**", first)?);
    let stage = |policy: &Policy, before: Operands, recipe: Operands, net: &mut Child<C>| {
        Tune { policy, recipe: Some((recipe, before)), recipes: Vec::new(), ..tune.clone() }.search(net, batches, call)
    };
    let mut found = stage(&policy, Operands::NONE, first, net)?;
    let mut before = first;
    for &recipe in narrower {
        let base = Base::new(&found.policy, net)?;
        let bears = |cell: &TunedCell| cell.low && cell.operands == Some(before);
        let bearing: Vec<&str> = found.cells.iter().filter(|cell| bears(cell)).map(|cell| &*cell.path).collect();
        let tried = |i: &usize| bearing.contains(&&*base.plan.decisions[*i].path) && (*i > 0 || bearing.len() == 1);
        let mut ours: BTreeMap<usize, _> =
            (0..base.plan.decisions.len()).filter(tried).map(|i| (i, (recipe, None))).collect();
        // Its blocks may not divide a layer.
        let plan = base.with_operands(&ours)?.plan(net)?;
        ours.retain(|i, _| plan.decisions[*i].quantized() == Some(recipe));
        if ours.is_empty() {
            continue;
        }
        let policy = base.with_operands(&ours)?;
        let next = stage(&policy, before, recipe, net)?;
        for cell in next.cells {
            if let Some(known) = found.cells.iter_mut().find(|known| cell.low && known.path == cell.path) {
                *known = cell;
            }
        }
        found.runs.extend(next.runs);
        (found.policy, found.error, found.complete) = (next.policy, next.error, found.complete && next.complete);
        before = recipe;
    }
    Ok(found)
}
