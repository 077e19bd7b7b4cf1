//! Graphs: a call of a network as data, and precision that spreads from node to node.
//!
//! [`Graph::trace`] records a call; the [`Graph`] can be run again, drawn, and converted to and from JSON. [`rewrite`]
//! turns a network into a [`GraphCell`], whose graph has casts where 16 bit begins or ends. The [guide](crate::guide)
//! explains how to use them.
//!
//! Precision is decided as in TensorFlow's `auto_mixed_precision` rewrite. Ops on the allow list run low, ops on the
//! deny list stay f32, ops on the infer list follow their inputs, and ops on the clear list, where rounding does no
//! harm, follow their neighbours. [`paint`] decides this for an abstract [`TypeGraph`], [`casts`] lists the casts to
//! insert; both accept a graph of any system by its op names:
//!
//! ```
//! use precast::{DType, graph::{Device, GraphLists, TypeGraph, casts, paint}, policy::Pack};
//! let mut graph = TypeGraph::default();
//! let x = graph.add("x", "Placeholder", DType::F32, &[])?;
//! let a = graph.add("a", "MatMul", DType::F32, &[x, x])?;
//! let relu = graph.add("relu", "Relu", DType::F32, &[a])?;
//! let b = graph.add("b", "MatMul", DType::F32, &[relu, relu])?;
//! graph.add("loss", "Sum", DType::F32, &[b])?;
//!
//! let lists = GraphLists::of_pack(&Pack::named("tensorflow-2.21-fp16")?, DType::F16)?;
//! let painting = paint(&graph, &lists, &Device::any())?;
//! assert_eq!(painting.explain("relu")?, "relu is low: between a and b, which are on the allow list");
//! assert_eq!(painting.explain("loss")?, "loss is f32: on the deny list");
//! let casts: Vec<String> = casts(&graph, &painting).into_iter().map(|cast| cast.name).collect();
//! assert_eq!(casts, ["x-0-CastToFp16-0", "b-0-CastToFp32-0"]);
//! # Ok::<(), precast::Error>(())
//! ```

mod casts;
mod cell;
mod decision;
mod device;
mod dot;
mod draw;
mod edges;
mod fewer_casts;
#[allow(clippy::module_inception, reason = "the floor and its main noun have one name")]
mod graph;
mod json;
mod layout;
mod loops;
mod paint;
mod reason;
mod rewrite;
mod run;
mod tensor_lists;
mod trace;
mod type_graph;
mod vertices;

pub use casts::{NewCast, casts};
pub(crate) use cell::check_not_wrapped;
pub use cell::{GraphCell, rewrite};
pub use decision::{GraphDiff, NodeChange, NodeDecision};
pub use device::{Device, LowSupport, OpSupport};
pub use graph::{Dim, Graph, Kind, Node, Output};
pub use paint::{Painted, Painting, paint};
pub use reason::Because;
pub use rewrite::Rewritten;
pub use type_graph::{Port, TypeAttr, TypeGraph, TypeNode};

pub use crate::policy::{GraphLevel, GraphList, GraphLists};
