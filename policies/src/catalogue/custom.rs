//! Registry of user-defined ops: their names and declared precisions.
//!
//! An op is registered once per process and never removed, so that [`Op`](super::Op) remains a small value.

use std::{
    any::TypeId,
    cmp::Ordering,
    collections::BTreeMap,
    fmt,
    hash::{Hash, Hasher},
    sync::RwLock,
};

use precast_base::{DType, Error, Result, printable::printable};
use serde::{Deserialize, Serialize};

use super::{Op, System};

/// Precision declared by a `CustomOp`: the cast of its inputs in a casting region if no list names the op.
///
/// As for every op, only inputs of f32, f16 and bf16 are cast, and nothing is cast outside a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Precision {
    /// Low dtype of the region, in regions governed by lists.
    Low,
    /// f32, in regions governed by lists.
    Full,
    /// Widest dtype among the inputs, in regions governed by lists.
    Widest,
    /// This dtype (f32, f16 or bf16), in regions governed by lists and in the region of a cell that runs in another
    /// dtype. For an op that supports only one dtype.
    Fixed(DType),
    /// Dtypes of the inputs, without casts.
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

/// Registered `CustomOp`. Two are equal if their names are, since no name is registered twice.
#[derive(Clone, Copy)]
pub struct Custom(&'static Registered);

struct Registered {
    name: &'static str,
    precision: Precision,
    /// Type registered under this name.
    of: TypeId,
}

static REGISTERED: RwLock<BTreeMap<&'static str, Custom>> = RwLock::new(BTreeMap::new());

impl Custom {
    /// Returns the name used in lists and files.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns the declared precision.
    pub fn precision(self) -> Precision {
        self.0.precision
    }

    /// Returns the custom op with a name, if it is registered.
    pub(super) fn named(name: &str) -> Option<Custom> {
        REGISTERED.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(name).copied()
    }

    /// Returns the names of all registered ops.
    pub(super) fn names() -> Vec<&'static str> {
        REGISTERED.read().unwrap_or_else(|poisoned| poisoned.into_inner()).keys().copied().collect()
    }

    /// Registers the op of a type. Registering a type again returns the same op.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) for a name that is invalid in a list, or taken by another op of this
    /// library or of a system that is not open; [`ErrorKind::DType`](crate::ErrorKind::DType) for a fixed precision
    /// other than f32, f16 or bf16.
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
        // Another thread may have registered it first.
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
