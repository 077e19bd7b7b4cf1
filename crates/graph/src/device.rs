//! Low-precision support of a device: a table of ops and their type attributes.

use std::collections::HashMap;

/// Low-precision support for a type attribute of an op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowSupport {
    /// The op is defined for the low dtype.
    pub defined: bool,
    /// The device has a kernel for it.
    pub kernel: bool,
}

/// The support of a device for an op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpSupport {
    /// Its type attributes by name.
    pub attrs: HashMap<String, LowSupport>,
    /// `true` when [`GraphLevel::ForceAll`](super::GraphLevel::ForceAll) may lower it: it has no state and changes no
    /// tensor in place.
    pub may_be_forced: bool,
}

impl OpSupport {
    /// Returns the support for an attribute. A list of types, such as `T[2]`, is supported as a whole.
    pub(super) fn attr(&self, name: &str) -> LowSupport {
        let name = name.split('[').next().unwrap_or(name);
        self.attrs.get(name).copied().unwrap_or_default()
    }
}

/// A device, for one low dtype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    ops: HashMap<String, OpSupport>,
    /// The support for ops that are not in the table.
    other: Option<OpSupport>,
}

impl Device {
    /// Creates a device that supports exactly these ops.
    pub fn of(ops: impl IntoIterator<Item = (String, OpSupport)>) -> Self {
        Device { ops: ops.into_iter().collect(), other: None }
    }

    /// Creates a device that runs every op with one type attribute, `T`, in low precision, like the kernels of this
    /// library.
    pub fn any() -> Self {
        let low = LowSupport { defined: true, kernel: true };
        let other = OpSupport { attrs: [("T".to_string(), low)].into(), may_be_forced: true };
        Device { ops: HashMap::new(), other: Some(other) }
    }

    pub(super) fn op(&self, name: &str) -> Option<&OpSupport> {
        self.ops.get(name).or(self.other.as_ref())
    }

    pub(super) fn is_any(&self) -> bool {
        self.other.is_some()
    }
}
