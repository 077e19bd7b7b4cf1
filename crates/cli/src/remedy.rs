//! Cures of a run that failed or learnt nothing, as far as its options show them.

use precast::{DType, Level};
use precast_train::{Evaluation, FitOptions, data::Targets};
use precast_train::{Run, scores_of};

/// Largest magnitude of targets whose errors, squared, are far from the limit of f16, and with which a usual learning rate
/// does not diverge.
const LARGE_TARGET: f32 = 100.0;

/// Returns the cure of a run that took no steps, as far as its options show it.
pub(super) fn remedy(run: &Run) -> String {
    let (file, mut words) = (run.file(), String::new());
    let FitOptions { lr, method, .. } = &file.options;
    if *lr >= 10.0 * method.usual_lr() {
        words += &format!("; the learning rate is {lr}, and {} is usual: try a lower --lr", method.usual_lr());
    }
    if let Targets::Numbers { values, .. } = run.data().train.targets()
        && !file.standardize_targets
    {
        let largest = values.iter().fold(0f32, |largest, target| largest.max(target.abs()));
        if largest > LARGE_TARGET {
            let key = "`standardize_targets: true` in the run file brings them near 1";
            words += &format!("; targets are as large as {largest}: {key}");
            if run.policy().level != Level::O0 && run.policy().dtype == DType::F16 {
                words += ", or a policy in bfloat16 has their range";
            }
        }
    }
    words
}

/// Returns a note on a run that ended with predictions no better than the mean of the targets, if its options show a cure.
pub(super) fn no_better_than_the_mean(run: &Run) -> Option<String> {
    let Some(Evaluation::Numbers(scores)) = scores_of(run.folder()).ok().flatten().map(|scores| scores.test) else {
        return None;
    };
    let (r_squared, cure) = (scores.total.r_squared, remedy(run));
    let is_learnt = r_squared > 0.0 || r_squared.is_nan();
    (!is_learnt && !cure.is_empty()).then(|| {
        format!("the best weights predict the test targets no better than their mean does, R² is {r_squared:.2}{cure}")
    })
}
