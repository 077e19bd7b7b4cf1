//! Graphs: a call of a network as data, and precision that spreads from node to node; ONNX models in mixed precision.
//!
//! [`Graph::trace`] records a call; the [`Graph`] can be run again, drawn, and converted to and from JSON. [`rewrite`]
//! turns a network into a [`GraphCell`], whose graph has casts where 16 bit begins or ends. The [guide](https://docs.rs/precast/latest/precast/guide)
//! explains how to use them.
//!
//! Precision is decided as in TensorFlow's `auto_mixed_precision` rewrite. Ops on the allow list of a [`GraphPolicy`] run
//! low, ops on the deny list stay f32, ops on the infer list follow their inputs, and ops on the clear list, where
//! rounding does no harm, follow their neighbours:
//!
//! ```
//! use precast::prelude::*;
//! use precast_graph::{Graph, GraphPolicy};
//! let (x, w) = (Tensor::ones(&[2, 2], DType::F32), Tensor::ones(&[2, 2], DType::F32));
//! let graph = Graph::trace_fn(&Default::default(), &[x, w], |x| {
//!     let hidden = x[0].matmul(&x[1])?.relu()?;
//!     Ok(vec![hidden.matmul(&x[1])?.exp()?])
//! })?;
//! let low = graph.rewrite(&GraphPolicy::named("graph")?)?;
//! assert_eq!(low.explain("relu_1")?, "relu_1 is low: between matmul_1 and matmul_2, which are on the allow list");
//! assert_eq!(low.explain("exp_1")?, "exp_1 is f32: on the deny list");
//! assert_eq!(low.graph.casts(), 3); // of the two inputs, and of the second product
//! # Ok::<(), precast::Error>(())
//! ```
//!
//! [`onnx`] reads, plans, converts, imports and exports ONNX models; [`tensorflow`] has the rewrite for code that is ported.
//!
//! The package computes nothing itself: every op is one of precast. Its invariants:
//!
//! - A graph computes what the recorded call computed, bit for bit, forward and backward.
//! - Decisions come before changes, each with its reason. Bytes of an ONNX model that no decision concerns stay as they are.
//! - Numbers in a file are bounded before memory is allocated for them, and no file causes a panic.
//! - A finite number of a model never becomes infinite without a word.
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod casts;
mod cell;
#[doc(hidden)]
pub mod conformance;
mod decision;
mod device;
mod draw;
mod edges;
mod fewer_casts;
#[allow(clippy::module_inception, reason = "the floor and its main noun have one name")]
mod graph;
mod json;
mod loops;
mod mark;
pub mod onnx;
mod paint;
mod painting;
mod rewrite;
mod run;
mod tensor_lists;
pub mod tensorflow;
mod trace;
mod type_graph;
mod vertices;

pub(crate) use casts::{NewCast, casts};
pub(crate) use cell::check_not_wrapped;
pub use cell::{GraphCell, rewrite};
pub use decision::NodeDecision;
pub(crate) use device::{Device, LowSupport, OpSupport};
pub(crate) use draw::{Drawn, Form, dot, svg};
pub(crate) use graph::dim_of;
pub use graph::{Dim, Graph, Kind, Node, Output, Port};
pub(crate) use paint::paint_listed;
pub(crate) use painting::Painting;
pub use rewrite::Rewritten;
pub(crate) use rewrite::{rule, rule_lists};
pub(crate) use type_graph::{TypeAttr, TypeGraph, TypeNode};

#[doc(inline)]
pub use precast::policy::{GraphLevel, GraphList, GraphPolicy};
