//! The ops that a program adds: their names, and the precision that each declares.
//!
//! An op is registered once in a process and stays. So [`Op`](super::Op) is a small value for these ops, too.

use std::{
    any::TypeId,
    cmp::Ordering,
    collections::BTreeMap,
    fmt,
    hash::{Hash, Hasher},
    sync::RwLock,
};

use serde::{Deserialize, Serialize};

use super::{Op, System};
use crate::{
    DType,
    error::{Error, Result},
    printable::printable,
};

/// The precision that a `CustomOp` declares: what is done with its inputs where a region casts and no list
/// names the op.
///
/// As for every op, only inputs of f32, f16 and bf16 are cast, and nothing is cast where no region is entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Precision {
    /// Where lists decide, inputs are cast to the low dtype of the region.
    Low,
    /// Where lists decide, inputs are cast to f32.
    Full,
    /// Where lists decide, inputs are cast to the widest dtype among them.
    Widest,
    /// Inputs are cast to this dtype (f32, f16 or bf16): where lists decide, and also in the region of a cell that runs in
    /// another dtype. For an op that works in one dtype only.
    Fixed(DType),
    /// Inputs are taken as they come.
    #[default]
    AsIs,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Precision::Low => f.write_str("low"),
            Precision::Full => f.write_str("full"),
            Precision::Widest => f.write_str("widest"),
            Precision::Fixed(dtype) => f.write_str(dtype.name()),
            Precision::AsIs => f.write_str("as is"),
        }
    }
}

/// A registered `CustomOp`. Two are equal when they have the same name: no name is registered twice.
#[derive(Clone, Copy)]
pub struct Custom(&'static Registered);

struct Registered {
    name: &'static str,
    precision: Precision,
    /// The type whose name it is.
    of: TypeId,
}

static REGISTERED: RwLock<BTreeMap<&'static str, Custom>> = RwLock::new(BTreeMap::new());

impl Custom {
    /// The name, as in lists and files.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// What it declares.
    pub fn precision(self) -> Precision {
        self.0.precision
    }

    /// The custom op of a name.
    #[doc(hidden)]
    pub fn named(name: &str) -> Option<Custom> {
        REGISTERED.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(name).copied()
    }

    /// The names of all.
    pub(super) fn names() -> Vec<&'static str> {
        REGISTERED.read().unwrap_or_else(|poisoned| poisoned.into_inner()).keys().copied().collect()
    }

    /// Registers the op of a type; a type that is registered already gives the same again.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) for a name that another op has, in this library or in a
    /// system that is not open, or that cannot stand in a list; [`ErrorKind::DType`](crate::ErrorKind::DType) for a fixed precision that is
    /// not f32, f16 or bf16.
    #[doc(hidden)]
    pub fn register<T: 'static>(name: &'static str, precision: Precision) -> Result<Custom> {
        let of = TypeId::of::<T>();
        if let Some(op) = Custom::named(name).filter(|op| op.0.of == of) {
            return Ok(op);
        }
        check_name(name)?;
        if let Precision::Fixed(dtype) = precision
            && !dtype.is_castable()
        {
            let words = format!("the custom op `{name}` is to run in {dtype}; allowed: f32, f16, bf16");
            return Err(Error::dtype(words));
        }
        // Another thread may have come first.
        let mut registered = REGISTERED.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let op =
            *registered.entry(name).or_insert_with(|| Custom(Box::leak(Box::new(Registered { name, precision, of }))));
        match op.0.of == of {
            true => Ok(op),
            false => Err(Error::list(format!("another custom op is called `{name}` already; choose another name"))),
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        let name = printable(name);
        let words =
            format!("`{name}` cannot be the name of a custom op; allowed: letters, digits and `_`, no digit first");
        return Err(Error::list(words));
    }
    let own = Op::ALL.iter().find(|op| op.name() == name).map(|op| format!("an op of this library, {op}"));
    let theirs = || {
        let known = |system: &System| Op::ALL.iter().find(|op| op.names(*system).any(|known| known == name));
        System::listed().find_map(|system| Some(format!("{}, as {system} calls it", known(&system)?)))
    };
    match own.or_else(theirs) {
        None => Ok(()),
        Some(whose) => Err(Error::list(format!("a custom op cannot be called `{name}`: that is {whose}"))),
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Custom {}

impl PartialOrd for Custom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Custom {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl Hash for Custom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}
