//! Freezing parts of a network.

use std::collections::HashSet;

use precast_base::names::did_you_mean_or_some;

use super::{AsCell, Child, Part, Pattern, join};
use crate::{
    Param,
    error::{Error, Result},
};

impl<C: ?Sized + AsCell> Child<C> {
    /// Freezes the parameters and buffers whose path matches a [pattern](Pattern), and those of the cells whose path
    /// matches. Returns how many.
    ///
    /// A frozen parameter has no gradient: [`params`](Child::params) omits it, an optimizer leaves it alone, and the
    /// tape keeps nothing for cells before the first one with a trained parameter. A batch norm whose running statistics
    /// are frozen uses them in training as well. Dropout stays on: it has nothing to freeze.
    ///
    /// Freeze before the optimizer is made: it then has no state for what is frozen.
    ///
    /// ```
    /// use precast::{prelude::*, sequential};
    /// let rng = &mut Rng::seed(1);
    /// let net = Child::new(sequential![Dense::new(64, 64, rng), Tanh, Dense::new(64, 2, rng)]);
    /// let x = Tensor::ones(&[32, 64], DType::F32);
    /// let kept = || Ok::<usize, Error>(net.call(&x)?.sum_all()?.tape_bytes());
    /// assert_eq!(kept()?, 2 * 32 * 64 * 4); // the inputs of both layers
    /// net.freeze("0")?;
    /// assert_eq!(kept()?, 32 * 64 * 4);     // the input of the last
    /// let optimizer = Adam::new(net.params(), 1e-3);
    /// assert_eq!(optimizer.params().len(), 2);
    ///
    /// let error = net.freeze("O.**").unwrap_err().to_string();
    /// assert!(error.starts_with("`O.**` matches no cell and no parameter"), "{error}");
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) for a malformed pattern;
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when it matches nothing, with the nearest path.
    #[doc(alias = "requires_grad_")]
    pub fn freeze(&self, pattern: &str) -> Result<usize> {
        let matched = self.matched(pattern)?;
        matched.iter().for_each(Param::freeze);
        Ok(matched.len())
    }

    /// Undoes [`freeze`](Child::freeze) for the parameters and buffers that match. Returns how many. An optimizer made
    /// while they were frozen does not train them.
    ///
    /// # Errors
    /// As [`freeze`](Child::freeze).
    pub fn unfreeze(&self, pattern: &str) -> Result<usize> {
        let matched = self.matched(pattern)?;
        matched.iter().for_each(Param::unfreeze);
        Ok(matched.len())
    }

    /// Returns the parameters and buffers that match, or are inside a cell that does, each once.
    fn matched(&self, written: &str) -> Result<Vec<Param>> {
        let pattern: Pattern = written.parse()?;
        let (mut found, mut seen, mut paths, mut hit) = (Vec::new(), HashSet::new(), Vec::new(), false);
        // The depth of the outermost matching cell around the current one.
        let mut inside: Option<usize> = None;
        self.walk(&mut |entry| {
            inside = inside.filter(|depth| entry.depth > *depth);
            if inside.is_none() && pattern.matches(entry.path) {
                (inside, hit) = (Some(entry.depth), true);
            }
            paths.push(entry.path.to_string());
            entry.slot.cell.visit(&mut |name, node| {
                let Part::Param(param) = node else { return };
                let path = join(entry.path, name);
                if inside.is_some() || pattern.matches(&path) {
                    hit = true;
                    if seen.insert(param.id()) {
                        found.push(param.clone());
                    }
                }
                paths.push(path);
            });
        });
        if hit {
            return Ok(found);
        }
        let near = did_you_mean_or_some(written, paths.iter().map(String::as_str));
        Err(Error::path(format!("`{written}` matches no cell and no parameter{near}")))
    }
}
