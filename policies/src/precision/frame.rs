//! Frames: one region of precision, and the rules for ops that it may hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    DType, Op,
    catalogue::{Custom, Precision},
};

/// The precision of a region of running code. The innermost frame wins.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Frame {
    /// Every op casts its castable inputs to this dtype (the region of a wrapped cell or of `to_float`).
    Fixed(DType),
    /// Each op is treated by its entry in a list.
    Lists(Arc<OpRules>),
    /// Nothing is cast.
    Off,
}

/// What a list says of an op, or of a kind of cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Treatment {
    /// Inputs are cast to the low dtype.
    Low,
    /// Inputs are cast to f32. Where the caller names the dtype of the result (`softmax_as`), no list has a say.
    Full,
    /// Inputs are cast to the widest dtype among them.
    Widest,
    /// An error: unsafe in low precision, and the list's author would rather say so than widen in silence.
    Banned,
    /// TensorFlow's infer list: low between low ops. See [`in_region`](Treatment::in_region).
    Infer,
    /// TensorFlow's clear list: in whatever its neighbours run in. See [`in_region`](Treatment::in_region).
    Clear,
    /// Inputs are taken as they come.
    AsIs,
    /// Paddle's gray ops: f32 when an input is f32, else low.
    Gray,
}

impl Treatment {
    /// Every treatment, in the order of a pack file.
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

    /// The name, as in pack files.
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

    /// What a region of code makes of it. A region meets one op after another and has no graph to look at, so
    /// [`Infer`](Treatment::Infer) and [`Clear`](Treatment::Clear), which depend on neighbours, are
    /// [`Widest`](Treatment::Widest) there: they narrow nothing and widen no more than they must.
    pub fn in_region(self) -> Treatment {
        match self {
            Treatment::Infer | Treatment::Clear => Treatment::Widest,
            treatment => treatment,
        }
    }

    /// What it means, in one line.
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

/// Op lists, prepared for the regions of one low dtype: what [`resolve`](super::resolve) reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpRules {
    /// Whose lists these are, for messages.
    pub name: Arc<str>,
    /// The dtype that [`Treatment::Low`] means.
    pub low: DType,
    /// The dtype to which the results of listed ops return: f32 at level O1, where low ops stand among ops in f32; the low
    /// dtype at level O2, where ops in f32 stand among low ones. `None` leaves results as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<DType>,
    /// The dtypes that are cast; inputs of any other are left alone. A subset of f32, f16 and bf16.
    pub eligible: Vec<DType>,
    /// The listed ops.
    pub ops: BTreeMap<Op, Treatment>,
    /// What every other op does.
    pub unlisted: Treatment,
    /// Ops of which the first input decides; when it decides for low, it alone is cast. Norms, whose parameters stay f32.
    #[serde(default)]
    pub by_first: BTreeSet<Op>,
    /// Why the banned ops are.
    #[serde(default)]
    pub because: BTreeMap<Op, Arc<str>>,
}

impl OpRules {
    /// Rules that cast f32, f16 and bf16 and take the inputs of an op that is not listed as they come.
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

    /// What is done with an op: its entry; without one, what a custom op declares; else what is done with every other op.
    /// Where every other op is lowered, a custom op is lowered, too, as in a region of one dtype.
    pub fn treatment(&self, op: Op) -> Treatment {
        match (self.ops.get(&op), op) {
            (Some(treatment), _) => *treatment,
            (None, Op::Custom(op)) if self.unlisted != Treatment::Low => declared(op),
            (None, _) => self.unlisted,
        }
    }
}

/// What a custom op declares, as a list would say it. A fixed dtype is for [`resolve`](super::resolve()) to know.
fn declared(op: Custom) -> Treatment {
    match op.precision() {
        Precision::Low => Treatment::Low,
        Precision::Full => Treatment::Full,
        Precision::Widest => Treatment::Widest,
        _ => Treatment::AsIs,
    }
}
