//! Which layer of a network runs in which precision, decided before the run and explained, without a tensor.
//!
//! These are the policies of the crate `precast`, for libraries with tensors of their own. A library shows the
//! [outline](Outline) of a network: paths and kinds of its layers. A [`Policy`] (a level such as `O2`, or a YAML file)
//! makes a [`Plan`] of it, which says for each layer what runs in it, what is cast at its border, and *why*.
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
//! cells: { black: { add: [SwiGlu] } }
//! ";
//! let plan = Policy::parse(text, "burn.yaml")?.plan(&net)?;
//! println!("{plan}");
//! assert_eq!(plan.decision("conv")?.run.dtype(), Some(DType::F16));
//! assert_eq!(plan.decision("norm")?.because.to_string(), "black list, precast-1"); // as BatchNorm2d
//! assert_eq!(plan.decision("gate")?.because.to_string(), "black list, burn.yaml:6:25");
//! assert_eq!(plan.explain("head")?.decision.effect(), "runs f32, returns f16");
//! # Ok(())
//! # }
//! ```
//!
//! The traits of [`host`] are what a library implements, so that `policy.plan(&net)` and `plan.apply(&mut net)` take its
//! own networks. [`precision::resolve`] says which inputs of an op are cast in a region of code, and
//! [`ScaleMachine`](scale::ScaleMachine) which scale the next loss has.
//!
//! Lists go by names. Those of ops are in the [catalogue]; kinds of layers are open. What precast has no code for can be on
//! a list all the same: see [`System::is_open`](catalogue::System::is_open) and [`Op::foreign`].
//!
//! The feature `tracing` sends events to subscribers of the crate [`tracing`](https://docs.rs/tracing): `policy read`,
//! `loss scale grows` and `loss scale shrinks`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod adapter;
pub mod catalogue;
#[doc(hidden)]
pub mod document;
mod dtype;
pub mod error;
#[doc(hidden)]
pub mod files;
pub mod host;
pub mod kinds;
mod logging;
mod outline;
#[doc(hidden)]
pub mod path;
pub mod plan;
pub mod policy;
pub mod precision;
#[doc(hidden)]
pub mod printable;
pub mod scale;
#[doc(hidden)]
pub mod table;
#[doc(hidden)]
pub mod weights;

pub use adapter::{Adapter, Cast, Planned};
pub use catalogue::{Op, Precision};
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use outline::{Outline, OutlinedCell};
pub use plan::Plan;
pub use policy::{Level, Policy};
pub use printable::{printable, printable_lines};
