//! The lint of a training run, on its first batch.

use super::{FitOptions, Loss, data::Split};
use crate::{
    Child,
    cell::AsCell,
    error::Result,
    lint::{Finding, Lint},
};

/// Lints a network, as it is wrapped now, on the first batch of a run.
pub fn first_batch<C: ?Sized + AsCell>(net: &mut Child<C>, data: &Split, options: &FitOptions) -> Result<Vec<Finding>> {
    let order = data.train.order(options.seed, 0);
    let batch = data.train.batch(&order, options.batch, 0);
    let loss = options.loss.clone().unwrap_or_else(|| Loss::usual(data.train.targets()));
    if !loss.counts(&batch.y) {
        return Ok(Vec::new());
    }
    let lint = Lint::new().loss_scale(options.loss_scale.clone()).update(options.method.clone(), options.lr);
    net.set_train(true);
    let found = lint.run(net, |net| loss.of(&net.call(&batch.x)?, &batch.y));
    net.set_train(false);
    // The lint made low-precision copies of the parameters. The first step makes new ones, like every other step.
    for (_, param) in net.params().iter() {
        param.set(&param.full())?;
    }
    found
}
