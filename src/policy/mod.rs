//! What a user wants of precision, as data: a level, a low dtype, a pack of lists, and rules by path or kind.
//!
//! This floor knows kinds, paths and names, never a tensor.

mod level;
mod lists;
mod pattern;
mod rule;

pub use level::Level;
pub use lists::{List, Origin};
pub use pattern::Pattern;
pub use rule::{Rule, Run, Select};

use crate::{
    DType,
    error::{Error, Result},
};

/// What precision a network shall run in. Laid on a network it becomes a [`Plan`](crate::Plan).
///
/// Which cell runs in which dtype is decided by this numbered list; the first that speaks wins:
/// 1. `to_float` set in code on the cell;
/// 2. a rule with the exact path of the cell;
/// 3. the first rule in order whose pattern or kind matches the cell;
/// 4. the region of the nearest cell above that 1, 2, 3 or a list has decided;
/// 5. the lists of the level: white at O1, black at O2;
/// 6. the level's default.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Name, for people; the file's `name:`.
    pub name: Option<String>,
    /// Whose lists these are, as `mindspore-2.10`; `None` for lists given in code.
    pub pack: Option<String>,
    /// How much of the network is lowered.
    pub level: Level,
    /// The low dtype: f16 or bf16.
    pub dtype: DType,
    /// Rules by path or kind, in order.
    pub rules: Vec<Rule>,
    /// Cells and ops that run low at O1.
    pub white: List,
    /// Cells that stay f32 at O2.
    pub black: List,
}

impl Policy {
    /// A level and a low dtype with the given lists.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16 (also at O0, which lowers nothing).
    pub fn with_lists(level: Level, dtype: DType, white: List, black: List) -> Result<Self> {
        check_low(dtype)?;
        Ok(Policy { name: None, pack: None, level, dtype, rules: Vec::new(), white, black })
    }

    /// Adds a rule after the others.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when an earlier rule names the same exact path.
    pub fn rule(mut self, rule: Rule) -> Result<Self> {
        if let Select::Path(pattern) = &rule.select
            && pattern.is_exact()
            && let Some(earlier) = self.rules.iter().find(|r| r.select == rule.select)
        {
            return Err(Error::policy(format!(
                "{}: the path `{pattern}` has a rule already, {}",
                rule.origin, earlier.origin
            )));
        }
        self.rules.push(rule);
        Ok(self)
    }
}

/// The check that comes before every other.
pub(crate) fn check_low(dtype: DType) -> Result<()> {
    if dtype.is_low() {
        return Ok(());
    }
    Err(Error::dtype(format!("the low dtype of a policy is float16 or bfloat16, got {}", dtype.long_name())))
}
