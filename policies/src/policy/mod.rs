//! Precision policies as data: for cells, a level, a low dtype, a pack of lists, and rules by path or kind; for graphs, a
//! low dtype and lists.
//!
//! This module knows kinds, paths and names, but no tensors.

mod either;
mod embedded;
mod file;
mod graph;
mod graph_policy;
mod keep;
mod kept;
mod level;
mod lists;
mod loss_scale;
mod operands;
mod pack;
mod pack_file;
mod pattern;
mod prefer;
mod rule;
mod scaler;
mod shipped;
mod v1;

pub use either::PolicyFile;
pub use graph::{GraphLevel, GraphList};
pub use graph_policy::GraphPolicy;
pub use keep::Keep;
pub use kept::Kept;
pub use level::Level;
pub use lists::{Entry, Lists, Origin};
pub use loss_scale::{DynamicScale, Forgive, LossScaleSpec};
pub use operands::Operands;
pub use pack::Pack;
pub use pattern::Pattern;
#[doc(no_inline)]
pub use precast_lowbit::{Format, Granularity, Product, Recipe, Rounding, Scaling};
pub use prefer::Prefer;
pub use rule::{Rule, RunAs, Select};
pub use scaler::Scaler;

use std::collections::BTreeSet;

use precast_base::{DType, Error, Result};

use self::lists::Reader;
use crate::{
    catalogue::System,
    precision::{OpRules, Treatment},
};

/// Requested precision of a network. Resolved against one network, it gives a [`Plan`](crate::Plan). Graphs of ops have
/// policies of their own, [`GraphPolicy`].
///
/// The dtype of a cell is decided by the following list. The first matching entry wins:
/// 1. `to_float` set in code on the cell;
/// 2. a rule with the exact path of the cell;
/// 3. the first rule in order whose pattern or kind matches the cell;
/// 4. the region of the nearest ancestor decided by 1, 2, 3 or a list;
/// 5. the level's list of cells: low at O1, full at O2;
/// 6. the level's default.
///
/// O0 lowers nothing: only entry 1 applies, and rules are reported as overridden. With [`Prefer::Speed`], a cell that 5
/// or 6 would lower stays f32 if that takes less time.
///
/// Listed ops are treated individually. At O1 and level auto, this applies to cells decided by 6: at O1, low ops run
/// low and return f32; at auto, each op follows its entry. At O2, full ops run in f32 and return the low dtype in
/// every cell made low by 2, 3 or 6. In a cell with `to_float`, every op runs in that dtype.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// Human-readable name, `name:` in the file.
    pub name: Option<String>,
    /// Name of the pack with the lists, such as `mindspore-2.10`. `None` for lists given in code.
    pub pack: Option<String>,
    /// Optimisation level: the part of the network that is lowered.
    pub level: Level,
    /// Low dtype: f16 or bf16.
    pub dtype: DType,
    /// Preference between memory and speed for cells that are faster in f32.
    pub prefer: Prefer,
    /// Rules by path or kind, in order.
    pub rules: Vec<Rule>,
    /// Lists of the level. Entries that the level does not read are refused: O0 and O3 read none, O1 those that run
    /// low, O2 those that stay f32, auto the treatments of ops.
    pub lists: Lists,
    /// Specification of the loss scale for training; in precast, `policy.loss_scale()` creates the loss scale itself.
    pub loss_scale: LossScaleSpec,
    /// Response to f16 training without a loss scale.
    pub scaler: Scaler,
}

impl Policy {
    /// Creates a policy from a level and a low dtype, with the lists of [`Pack::DEFAULT`] and the
    /// [usual](LossScaleSpec::usual) loss scale. The level is a [`Level`] or its name.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16 (also at O0, which lowers
    /// nothing), and then [`ErrorKind::Level`](crate::ErrorKind::Level) when no level has that name.
    ///
    /// ```
    /// use precast_policy::{DType, Level, Policy};
    /// let policy = Policy::new(Level::O2, DType::F16)?;
    /// assert!(policy.lists.cells().contains_key("LayerNorm"));
    /// assert_eq!(Policy::new("O2", DType::F16)?, policy);
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn new<L>(level: L, dtype: DType) -> Result<Self>
    where
        L: TryInto<Level>,
        Error: From<L::Error>,
    {
        check_low(dtype)?;
        Policy::from_pack(level, dtype, Pack::named(Pack::DEFAULT)?)
    }

    /// Creates a policy from a level, a low dtype and lists.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16 (also at O0, which lowers
    /// nothing); [`ErrorKind::List`](crate::ErrorKind::List) for an entry that the level does not read.
    pub fn with_lists(level: Level, dtype: DType, lists: Lists) -> Result<Self> {
        check_low(dtype)?;
        Reader::Level(level).check_lists(&lists)?;
        let loss_scale = LossScaleSpec::usual(level, dtype);
        let (name, pack, prefer, rules, scaler) = (None, None, Prefer::Memory, Vec::new(), Scaler::Advised);
        Ok(Policy { name, pack, level, dtype, prefer, rules, lists, loss_scale, scaler })
    }

    /// Creates a policy from a level and a low dtype, with the lists of a pack.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16 and supported by the pack;
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) when the pack has no lists for the level.
    ///
    /// ```
    /// use precast_policy::{DType, Level, Policy, policy::Pack};
    /// let policy = Policy::from_pack(Level::Auto, DType::Bf16, Pack::named("torch-2.15-cpu")?)?;
    /// assert_eq!(policy.pack.as_deref(), Some("torch-2.15-cpu"));
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    pub fn from_pack<L>(level: L, dtype: DType, pack: Pack) -> Result<Self>
    where
        L: TryInto<Level>,
        Error: From<L::Error>,
    {
        check_low(dtype)?;
        let level = level.try_into()?;
        pack.check_dtype(dtype)?;
        let policy = Policy::with_lists(level, dtype, pack.lists(level)?)?;
        Ok(Policy { pack: Some(pack.name.to_string()), ..policy })
    }

    /// Checks the invariants that public fields cannot enforce.
    pub(crate) fn check(&self) -> Result<()> {
        check_low(self.dtype)?;
        Reader::Level(self.level).check_lists(&self.lists)?;
        for rule in &self.rules {
            self.check_end(rule).map_err(|error| rule.origin.error(error))?;
        }
        // Nothing is low at O0.
        if self.level == Level::O0 { Ok(()) } else { self.scaler.check(&self.loss_scale, self.dtype) }
    }

    /// Checks that a rule may end during a run.
    fn check_end(&self, rule: &Rule) -> Result<()> {
        if rule.until.is_none() || self.prefer.is_memory() {
            return Ok(());
        }
        let words = "ends during a run, and `prefer: speed` decides once; leave one of them out";
        Err(Error::policy(format!("the rule for the {} {words}", rule.select)))
    }

    /// Returns the op rules of the regions created by the level, if it treats any op by a list.
    pub(crate) fn op_rules(&self) -> Option<OpRules> {
        let rules = self.lists.rules(self.dtype);
        match self.level {
            _ if self.lists.ops().is_empty() => None,
            Level::O0 | Level::O3 => None,
            Level::O1 => Some(OpRules { back: Some(DType::F32), ..rules }),
            Level::O2 => Some(OpRules { back: Some(self.dtype), unlisted: Treatment::Low, ..rules }),
            Level::Auto => Some(rules),
        }
    }

    /// Returns the policy after a number of steps of a run: without the rules that have [ended](Rule::until).
    ///
    /// ```
    /// use precast_policy::{Policy, policy::{Rule, RunAs}};
    /// let policy = Policy::named("o2")?.rule(Rule::path("**", RunAs::Full)?.until(500))?;
    /// assert_eq!(policy.after_steps(499), policy);
    /// assert!(policy.after_steps(500).rules.is_empty());
    /// # Ok::<(), precast_policy::Error>(())
    /// ```
    #[must_use]
    pub fn after_steps(&self, steps: usize) -> Policy {
        let mut after = self.clone();
        after.rules.retain(|rule| rule.until.is_none_or(|until| until > steps));
        after
    }

    /// Returns the policy after all its rules with an [end](Rule::until) have ended.
    #[must_use]
    pub fn in_the_end(&self) -> Policy {
        self.after_steps(usize::MAX)
    }

    /// Returns the numbers of steps after which rules end, in order.
    pub fn ends(&self) -> BTreeSet<usize> {
        self.rules.iter().filter_map(|rule| rule.until).collect()
    }

    /// Returns the precision of a rule that keeps a cell in f32 with its outputs: [`RunAs::Full`], or with a pack of
    /// MindSpore, where its outputs would be cast, [`RunAs::FullOut`].
    pub fn keeps(&self) -> RunAs {
        let pack = self.pack.as_deref().and_then(|pack| Pack::shared(pack).ok());
        match pack.is_some_and(|pack| pack.system == Some(System::MindSpore)) {
            true => RunAs::FullOut,
            false => RunAs::Full,
        }
    }

    /// Appends a rule.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when an earlier rule has the same path or kind, determines the
    /// same of its cells, and does not [end](Rule::until) before this one, which would never apply.
    pub fn rule(mut self, rule: Rule) -> Result<Self> {
        let same = |earlier: &&Rule| {
            earlier.select == rule.select && earlier.is_about_the_same_as(&rule) && earlier.outlasts(&rule)
        };
        if let Some(earlier) = self.rules.iter().find(same) {
            let (select, origin) = (&rule.select, &earlier.origin);
            return Err(Error::policy(format!("the {select} has a rule already ({origin}), and the first wins")));
        }
        self.rules.push(rule);
        Ok(self)
    }
}

precast_base::setters! {
    Policy: with_prefer prefer: Prefer, with_loss_scale loss_scale: LossScaleSpec, with_scaler scaler: Scaler;
    optional with_name name: String
}

/// JSON schema of policy files, for completion and validation in editors.
pub static SCHEMA: &str = include_str!("../../schema.json");

/// Returns the low list of [`Pack::DEFAULT`]: the cells and ops that run low at O1.
pub fn low_list() -> Lists {
    default_lists(Level::O1)
}

/// Returns the full list of [`Pack::DEFAULT`]: the cells and ops that stay f32 at O2.
pub fn full_list() -> Lists {
    default_lists(Level::O2)
}

fn default_lists(level: Level) -> Lists {
    Pack::named(Pack::DEFAULT).and_then(|pack| pack.lists(level)).expect("a test reads every embedded pack")
}

/// Checks that a dtype is low. Runs before every other check.
pub fn check_low(dtype: DType) -> Result<()> {
    if dtype.is_low() {
        return Ok(());
    }
    Err(Error::dtype(format!("the low dtype is float16 or bfloat16, got {}", dtype.long_name())))
}
