//! Checking that a network ran by the contents of its slots.

use std::sync::Arc;

use precast_policy::plan::{Claim, check_claims};

use super::Region;
use crate::{
    cell::{AsCell, Child, Trace},
    error::Result,
    precision::OpRules,
};

/// Compares a recorded call with the contents of a network's slots, regardless of their origin, as
/// [`Plan::check`](super::Plan::check) compares it with a plan.
///
/// # Errors
/// Those of [`Plan::check`](super::Plan::check).
pub fn check_run<C: ?Sized + AsCell>(net: &Child<C>, trace: &Trace) -> Result<()> {
    let (mut cells, mut above) = (Vec::new(), Vec::<(Region, Option<Arc<OpRules>>)>::new());
    net.walk(&mut |entry| {
        above.truncate(entry.depth);
        let around = above.last().cloned().unwrap_or((Region::AsIs, None));
        let here = match (entry.slot.adapter, entry.slot.to_float) {
            (Some(adapter), _) => (adapter.region(), adapter.rules().cloned()),
            (None, Some(dtype)) => (Region::Fixed(dtype), None),
            (None, None) => around,
        };
        cells.push((entry.path.to_string(), entry.slot.cell.kind(), here.clone()));
        above.push(here);
    });
    let claims =
        cells.iter().map(|(path, kind, (region, rules))| Claim { path, kind, region: *region, rules: rules.clone() });
    check_claims(claims, trace)
}
