//! Mixed-precision policies for neural networks, without tensors: the precision of each layer, decided before the run
//! and explained.
//!
//! These are the policies of the crate `precast`, for libraries with tensors of their own. A library provides the
//! [outline](Outline) of a network: paths and kinds of its layers. From it, a [`Policy`] (a level such as `O2`, or a
//! YAML file) makes a [`Plan`], which gives for each layer the precision inside it, the casts at its border, and *why*.
//!
//! ```
//! use precast_policy::{DType, Outline, OutlinedCell, Policy, catalogue::System};
//!
//! # fn main() -> precast_policy::Result<()> {
//! // A network of burn's modules; one of them precast has never heard of.
//! let net = Outline::new([
//!     OutlinedCell::new("", "Classifier"),
//!     OutlinedCell::new("conv", "Conv2d").matrices(),
//!     OutlinedCell::new("norm", "BatchNorm"),
//!     OutlinedCell::new("gate", "SwiGlu").matrices(),
//!     OutlinedCell::new("head", "Linear").matrices(),
//! ])?
//! .system(System::Burn);
//!
//! let text = "
//! version: 1
//! level: O2
//! dtype: float16
//! rules: [{ path: head, run: float32, because: the logits of 5000 classes }]
//! cells: { full: { add: [SwiGlu] } }
//! ";
//! let plan = Policy::parse(text, "burn.yaml")?.plan(&net)?;
//! println!("{plan}");
//! assert_eq!(plan.decision("conv")?.run.dtype(), Some(DType::F16));
//! assert_eq!(plan.decision("norm")?.because.to_string(), "full list, precast-1"); // as BatchNorm2d
//! assert_eq!(plan.decision("gate")?.because.to_string(), "full list, burn.yaml:6:24");
//! assert_eq!(plan.explain("head")?.decision.effect(), "runs f32");
//! # Ok(())
//! # }
//! ```
//!
//! A library implements the traits of [`host`], so that `policy.plan(&net)` and `plan.apply(&mut net)` accept its own
//! networks. [`precision::resolve`] determines which inputs of an op are cast in a region of code, and
//! [`ScaleMachine`](scale::ScaleMachine) the scale of the next loss.
//!
//! Lists refer to names. Those of ops are in the [catalogue]; kinds of layers are open. Ops and layers that precast
//! does not implement can be listed, too: see [`System::is_open`](catalogue::System::is_open) and [`Op::foreign`].
//!
//! Subscribers of the crate [`tracing`](https://docs.rs/tracing) receive events: `policy read`, `loss scale grows`,
//! `loss scale shrinks`, `step skipped` and `training has stalled`.
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod adapter;
pub mod catalogue;
pub mod host;
pub mod infer;
pub mod kinds;
mod outcome;
mod outline;
pub mod plan;
pub mod policy;
pub mod precision;
pub mod scale;
pub mod weights;

pub use adapter::{Adapter, Cast, Planned};
pub use catalogue::{Op, Precision};
pub use outline::{Outline, OutlinedCell};
pub use plan::Plan;
pub use policy::{GraphPolicy, Level, Policy};
#[doc(inline)]
pub use precast_base::{
    DType, Error, ErrorKind, Result, error,
    printable::{printable, printable_lines, quoted},
};
