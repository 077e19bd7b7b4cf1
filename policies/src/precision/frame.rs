//! Frames: the precision of a region, and the op rules of a region governed by lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use precast_base::DType;
use serde::{Deserialize, Serialize};

use crate::{
    Op,
    catalogue::{Custom, Precision},
};

/// Precision of a region of running code. The innermost frame wins.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Frame {
    /// Single dtype to which every op casts its castable inputs: the region of a wrapped cell or of `to_float`.
    Fixed(DType),
    /// Op lists, with the treatment of each op.
    Lists(Arc<OpRules>),
    /// No casts.
    Off,
}

/// Treatment of an op or cell kind by a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Treatment {
    /// Inputs are cast to the low dtype.
    Low,
    /// Inputs are cast to f32. A result dtype requested by the caller (`softmax_as`) overrides every list.
    Full,
    /// Inputs are cast to the widest dtype among them.
    Widest,
    /// An error: the op is unsafe in low precision, and the list reports that rather than silently widening.
    Banned,
    /// TensorFlow's infer list: low between low ops. In a region: see [`in_region`](Treatment::in_region).
    Infer,
    /// TensorFlow's clear list: the dtype of the neighbours. In a region: see [`in_region`](Treatment::in_region).
    Clear,
    /// Inputs keep their dtypes.
    AsIs,
    /// Paddle's gray ops: f32 when an input is f32, else low.
    Gray,
}

impl Treatment {
    /// All treatments, in the order of a pack file.
    pub const ALL: [Treatment; 8] = [
        Treatment::Low,
        Treatment::Full,
        Treatment::Widest,
        Treatment::Banned,
        Treatment::Infer,
        Treatment::Clear,
        Treatment::AsIs,
        Treatment::Gray,
    ];

    /// Returns the name used in pack files.
    pub fn name(self) -> &'static str {
        match self {
            Treatment::Low => "low",
            Treatment::Full => "full",
            Treatment::Widest => "widest",
            Treatment::Banned => "banned",
            Treatment::Infer => "infer",
            Treatment::Clear => "clear",
            Treatment::AsIs => "as_is",
            Treatment::Gray => "gray",
        }
    }

    /// Returns the treatment in a region of code. A region sees one op at a time, without a graph, so
    /// [`Infer`](Treatment::Infer) and [`Clear`](Treatment::Clear), which depend on neighbours, become
    /// [`Widest`](Treatment::Widest): they never narrow, and widen no more than necessary.
    pub fn in_region(self) -> Treatment {
        match self {
            Treatment::Infer | Treatment::Clear => Treatment::Widest,
            treatment => treatment,
        }
    }

    /// Returns a one-line description.
    pub fn meaning(self) -> &'static str {
        match self {
            Treatment::Low => "runs in the low dtype",
            Treatment::Full => "runs in f32",
            Treatment::Widest => "runs in the widest dtype among its inputs",
            Treatment::Banned => "is refused",
            Treatment::Infer => "low between low ops; alone, the widest dtype among its inputs",
            Treatment::Clear => "as its neighbours; alone, the widest dtype among its inputs",
            Treatment::AsIs => "takes its inputs as they come",
            Treatment::Gray => "runs in f32 when an input is f32, else low",
        }
    }
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Op lists prepared for the regions of one low dtype, as read by [`resolve`](super::resolve).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpRules {
    /// Name of the lists, for messages.
    pub name: Arc<str>,
    /// Dtype of [`Treatment::Low`].
    pub low: DType,
    /// Dtype to which the results of listed ops are cast back: f32 at level O1, where low ops are surrounded by f32
    /// ops; the low dtype at level O2, where f32 ops are surrounded by low ones. `None` leaves results as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<DType>,
    /// Dtypes that are cast, a subset of f32, f16 and bf16. Inputs of other dtypes are left unchanged.
    pub eligible: Vec<DType>,
    /// Listed ops with their treatments.
    pub ops: BTreeMap<Op, Treatment>,
    /// Treatment of all other ops.
    pub unlisted: Treatment,
    /// Ops decided by their first input: when it decides for low, only that input is cast. For norms, whose parameters
    /// stay f32.
    #[serde(default)]
    pub by_first: BTreeSet<Op>,
    /// Reasons for the banned ops.
    #[serde(default)]
    pub because: BTreeMap<Op, Arc<str>>,
}

impl OpRules {
    /// Creates rules that cast f32, f16 and bf16, without listed ops. The inputs of unlisted ops keep their dtypes.
    pub fn new(name: impl Into<Arc<str>>, low: DType) -> Self {
        OpRules {
            name: name.into(),
            low,
            back: None,
            eligible: vec![DType::F32, DType::F16, DType::Bf16],
            ops: BTreeMap::new(),
            unlisted: Treatment::AsIs,
            by_first: BTreeSet::new(),
            because: BTreeMap::new(),
        }
    }

    /// Returns the treatment of an op: its entry, else the declaration of a custom op, else the treatment of unlisted
    /// ops. Where unlisted ops are lowered, custom ops are lowered too, as in a region of one dtype.
    pub fn treatment(&self, op: Op) -> Treatment {
        match (self.ops.get(&op), op) {
            (Some(treatment), _) => *treatment,
            (None, Op::Custom(op)) if self.unlisted != Treatment::Low => declared(op),
            (None, _) => self.unlisted,
        }
    }
}

/// Returns the declaration of a custom op as a treatment. A fixed dtype is handled by [`resolve`](super::resolve()).
fn declared(op: Custom) -> Treatment {
    match op.precision() {
        Precision::Low => Treatment::Low,
        Precision::Full => Treatment::Full,
        Precision::Widest => Treatment::Widest,
        _ => Treatment::AsIs,
    }
}
