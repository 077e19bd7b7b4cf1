//! Updates that exceed the range of a parameter's dtype.

use crate::{
    DType,
    error::{Error, Result},
    printable::printable,
};

/// The maximum number of parameters named in an error.
const NAMED: usize = 8;

/// Numbers of a parameter that an update would have made infinite, and that keep their old values.
pub(super) struct Overflow {
    pub path: String,
    pub dtype: DType,
    pub numbers: u64,
}

impl Overflow {
    /// Returns the error of an update, if there was an overflow.
    pub fn check(all: &[Overflow]) -> Result<()> {
        let Some(first) = all.first() else { return Ok(()) };
        let some = all.iter().take(NAMED).map(|Overflow { path, dtype, numbers }| {
            format!("\n- `{}`: {numbers} of its numbers, in {}", printable(path), dtype.long_name())
        });
        let some: String = some.collect();
        let more = match all.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!("\n- and {more} parameters more"),
        };
        let apart =
            "Store the parameter in float32 (`exclude` of `storage` in a run, `Decorate::exclude_path` in code)";
        let way_out = match first.dtype {
            DType::F16 => format!("{apart} or bfloat16, lower the learning rate, or clip the gradients"),
            DType::Bf16 => format!("{apart}, lower the learning rate, or clip the gradients"),
            wide => format!(
                "The precision is not the cause: {} overflows. Lower the learning rate, clip the gradients, or divide far \
                 inputs and targets by their size",
                wide.long_name()
            ),
        };
        Err(Error::value(format!(
            "finite values, or running averages of their gradients, would become infinite or NaN by the update; these elements \
             are unchanged, and all others are updated. {way_out}:{some}{more}"
        )))
    }
}
