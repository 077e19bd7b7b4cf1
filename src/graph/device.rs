//! What a device can run in low precision: a table, op by type attribute.

use std::collections::HashMap;

/// Whether a type attribute of an op can be low.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowSupport {
    /// The op is defined for the low dtype.
    pub defined: bool,
    /// The device has a kernel for it.
    pub kernel: bool,
}

/// What a device says of an op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpSupport {
    /// Its type attributes by name.
    pub attrs: HashMap<String, LowSupport>,
    /// Whether [`GraphLevel::ForceAll`](super::GraphLevel::ForceAll) may lower it: it has no state and changes no tensor in
    /// place.
    pub may_be_forced: bool,
}

impl OpSupport {
    /// An attribute that is a list of types, as `T[2]`, is supported as a whole.
    pub(super) fn attr(&self, name: &str) -> LowSupport {
        let name = name.split('[').next().unwrap_or(name);
        self.attrs.get(name).copied().unwrap_or_default()
    }
}

/// A device, for one low dtype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    ops: HashMap<String, OpSupport>,
    /// What it says of an op that is not in the table.
    other: Option<OpSupport>,
}

impl Device {
    /// A device that has exactly these ops.
    pub fn of(ops: impl IntoIterator<Item = (String, OpSupport)>) -> Self {
        Device { ops: ops.into_iter().collect(), other: None }
    }

    /// A device that runs every op with one type attribute, `T`, in low precision. The kernels of this library are such.
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
