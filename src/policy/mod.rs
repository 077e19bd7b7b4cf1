//! What a user wants of precision, as data: a level, a low dtype, a pack of lists, and rules by path or kind.
//!
//! This floor knows kinds, paths and names, never a tensor.

mod diagnostic;
mod file;
mod level;
mod lists;
mod loss_scale;
mod op_lists;
mod pack;
mod pattern;
mod prefer;
mod rule;
mod shipped;
mod v1;

pub use level::Level;
pub use lists::{List, Origin};
pub use loss_scale::{DynamicScale, LossScaleSpec};
pub use op_lists::{OpEntry, OpLists};
pub use pack::Pack;
pub use pattern::Pattern;
pub use prefer::Prefer;
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
/// 5. the lists of cells of the level: white at O1, black at O2;
/// 6. the level's default.
///
/// O0 lowers nothing: there only 1 speaks, and rules are told as beaten. With [`Prefer::Speed`], a cell that 5 or 6 would
/// lower stays f32 where that takes less time.
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
    /// Whether cells are lowered that are faster in f32.
    pub prefer: Prefer,
    /// Rules by path or kind, in order.
    pub rules: Vec<Rule>,
    /// Cells and ops that run low at O1.
    pub white: List,
    /// Cells that stay f32 at O2. White is read at O1 and black at O2 only, so a kind may stand on both.
    pub black: List,
    /// What ops do at level auto.
    pub auto: OpLists,
    /// The loss scale to train with.
    pub loss_scale: LossScaleSpec,
}

impl Policy {
    /// A level and a low dtype with the lists of [`Pack::DEFAULT`] and the [usual](LossScaleSpec::usual) loss scale. The
    /// level is a [`Level`] or its name.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16 (also at O0, which lowers nothing),
    /// and then [`ErrorKind::Level`](crate::ErrorKind::Level) when no level has that name.
    ///
    /// ```
    /// use precast::{DType, Level, Policy};
    /// let policy = Policy::new(Level::O2, DType::F16)?;
    /// assert!(policy.black.cells().contains_key("LayerNorm"));
    /// assert_eq!(Policy::new("O2", DType::F16)?, policy);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn new<L>(level: L, dtype: DType) -> Result<Self>
    where
        L: TryInto<Level>,
        Error: From<L::Error>,
    {
        check_low(dtype)?;
        Policy::from_pack(level, dtype, Pack::named(Pack::DEFAULT)?)
    }

    /// A level and a low dtype with the given lists; at level auto, with the op lists empty (see [`Policy::auto`]).
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16 (also at O0, which lowers nothing).
    pub fn with_lists(level: Level, dtype: DType, white: List, black: List) -> Result<Self> {
        check_low(dtype)?;
        let loss_scale = LossScaleSpec::usual(level, dtype);
        let auto = OpLists::new("code", "auto");
        let (pack, prefer, rules) = (None, Prefer::Memory, Vec::new());
        Ok(Policy { name: None, pack, level, dtype, prefer, rules, white, black, auto, loss_scale })
    }

    /// A level and a low dtype with the lists of a pack.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16 and the pack is made for it;
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) for O1 or O2 when the pack lists no cells.
    ///
    /// ```
    /// use precast::{DType, Level, Policy, policy::Pack};
    /// let policy = Policy::from_pack(Level::Auto, DType::Bf16, Pack::named("torch-2.15-cpu")?)?;
    /// assert_eq!(policy.pack.as_deref(), Some("torch-2.15-cpu"));
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn from_pack<L>(level: L, dtype: DType, pack: Pack) -> Result<Self>
    where
        L: TryInto<Level>,
        Error: From<L::Error>,
    {
        check_low(dtype)?;
        let level = level.try_into()?;
        pack.check_serves(level, dtype)?;
        let auto = pack.auto().clone();
        let Pack { name, white, black, .. } = pack;
        let loss_scale = LossScaleSpec::usual(level, dtype);
        let (pack, prefer, rules) = (Some(name.to_string()), Prefer::Memory, Vec::new());
        Ok(Policy { name: None, pack, level, dtype, prefer, rules, white, black, auto, loss_scale })
    }

    /// Adds a rule after the others.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when an earlier rule has the same path or kind: this one would
    /// never decide.
    pub fn rule(mut self, rule: Rule) -> Result<Self> {
        if let Some(earlier) = self.rules.iter().find(|earlier| earlier.select == rule.select) {
            let (select, origin) = (&rule.select, &earlier.origin);
            return Err(Error::policy(format!("the {select} has a rule already ({origin}), and the first wins")));
        }
        self.rules.push(rule);
        Ok(self)
    }
}

/// The white list of [`Pack::DEFAULT`]: the cells and ops that run low at O1.
pub fn white_list() -> List {
    default_pack().white
}

/// The black list of [`Pack::DEFAULT`]: the cells that stay f32 at O2.
pub fn black_list() -> List {
    default_pack().black
}

fn default_pack() -> Pack {
    Pack::named(Pack::DEFAULT).expect("a test reads every embedded pack")
}

/// The check that comes before every other.
pub(crate) fn check_low(dtype: DType) -> Result<()> {
    if dtype.is_low() {
        return Ok(());
    }
    Err(Error::dtype(format!("the low dtype is float16 or bfloat16, got {}", dtype.long_name())))
}
