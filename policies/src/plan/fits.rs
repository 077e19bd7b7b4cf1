//! Checking that a plan is of a network.

use precast_base::{Error, Result, path::named};

use super::Plan;
use crate::outline::Outline;

impl Plan {
    /// Checks that a network has the cells of this plan, of the same kinds and in the same order. A library calls it before
    /// it [applies](crate::host::Wrap::wrap) a plan.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) with the first cell that differs.
    ///
    /// ```
    /// use precast_policy::{Outline, OutlinedCell, Policy};
    /// let of = |kind| Outline::new([OutlinedCell::new("", "Net"), OutlinedCell::new("fc", kind)]);
    /// let plan = Policy::named("o2")?.plan_outline(of("Dense")?)?;
    /// plan.check_fits(&of("Dense")?)?;
    /// assert!(plan.check_fits(&of("Conv2d")?).is_err());
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn check_fits(&self, outline: &Outline) -> Result<()> {
        let planned = self.decisions.iter().map(|decision| (decision.path.as_str(), &*decision.kind));
        let here = outline.cells().iter().map(|cell| (cell.path.as_str(), &*cell.kind));
        let (mut planned, mut here) = (planned.fuse(), here.fuse());
        loop {
            let what = match (planned.next(), here.next()) {
                (None, None) => return Ok(()),
                (planned, here) if planned == here => continue,
                (Some(planned), Some(here)) => {
                    format!(
                        "the plan has {} ({}) where the network has {} ({})",
                        named(planned.0),
                        planned.1,
                        named(here.0),
                        here.1
                    )
                }
                (Some(planned), None) => {
                    format!("the plan has {} ({}) and the network has no such cell", named(planned.0), planned.1)
                }
                (None, Some(here)) => {
                    format!("the plan has no further cell where the network has {} ({})", named(here.0), here.1)
                }
            };
            return Err(Error::path(format!(
                "the plan was made for another network, or for this one before it changed: {what}"
            )));
        }
    }
}
