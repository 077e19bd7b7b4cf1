//! precast's precision policies for networks of [burn](https://docs.rs/burn): a plan with a reason for each module,
//! 16-bit compute with f32 masters, and a loss scale. burn is used as it is published, on any of its backends.
//!
//! - [`Amp`] wraps the network, and each module that runs in another precision than its surroundings. It changes
//!   neither paths nor records.
//! - [`Policy::plan`](precast_policy::Policy::plan) makes the plan, and [`Plan::apply`](precast_policy::Plan::apply)
//!   puts it into the network: weights are stored in f32 and read in their planned dtype, and [`Amp`] casts what enters
//!   and leaves a module.
//! - [`LossScale`] takes the training step: it scales the loss, skips a step whose gradients are not finite, and names
//!   the parameter.
//! - [`graph`] lists the ops of a forward pass before a run, and what an op list would do with them.
//!
//! ```
//! use burn::{nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig}, optim::AdamConfig, prelude::*};
//! use precast_burn::{Amp, Forward, LossScale, Policy};
//!
//! #[derive(Module, Debug)]
//! struct Net {
//!     norm: Amp<LayerNorm>, // level O2 keeps norms in f32
//!     fc: Linear,
//! }
//!
//! impl Forward<Tensor<2>> for Net {
//!     type Output = Tensor<2>;
//!     fn forward(&self, x: Tensor<2>) -> Tensor<2> {
//!         self.fc.forward(self.norm.forward(x))
//!     }
//! }
//!
//! # fn main() -> precast_burn::Result<()> {
//! let device = Device::default().autodiff();
//! let mut net = Amp::new(Net {
//!     norm: Amp::new(LayerNormConfig::new(8).init(&device)),
//!     fc: LinearConfig::new(8, 1).init(&device),
//! });
//!
//! let policy = Policy::named("o2")?; // or Policy::load("my.yaml")?
//! let plan = policy.plan(&net)?;
//! println!("{plan}"); // which module will run in which precision, and why
//! let applied = plan.apply(&mut net)?;
//!
//! let mut optimizer = AdamConfig::new().init();
//! let mut scale = LossScale::new(&policy)?;
//! for _ in 0..4 {
//!     let x = Tensor::<2>::ones([4, 8], &device);
//!     let loss = (net.forward(x) - 3.0).square().mean();
//!     let (next, outcome) = scale.step(&mut optimizer, 0.01, net, loss)?;
//!     net = next; // after a skipped step, the network as it was
//!     println!("{outcome}");
//! }
//! applied.undo(&mut net)?; // the network as it was written, with its trained f32 weights
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

/// Runs the program of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Runs the programs of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/burn.md")]
struct Guide;

mod amp;
mod apply;
mod castable;
mod dtype;
mod forward;
pub mod graph;
mod kinds;
mod outline;
mod scale;
mod walk;
mod weight;

pub use amp::Amp;
pub use apply::Applied;
pub use castable::{Castable, in_f32};
pub use dtype::float_dtype;
pub use forward::Forward;
pub use outline::outline;
pub use precast_policy::{
    self, DType, Error, ErrorKind, Level, Outline, Plan, Policy, Result,
    policy::{Rule, RunAs},
    scale::{Cause, Outcome, ScaleMachine, ScaleState},
};
pub use scale::{Checked, LossScale, ScaledGrads, take_back};
