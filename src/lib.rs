//! Mixed precision for Rust networks, decided before the run.
//!
//! You hand precast a tree of [cells](Cell) and a [`Policy`] (a level such as `O2`, or a YAML file). It reports which
//! cell will run in which precision and *why*, wraps those cells in cast-in / cast-out adapters, and trains them with a
//! [loss scale](LossScale).
//!
//! ```
//! use precast::prelude::*;
//!
//! #[derive(Cell, Debug)]
//! #[cell(new)]
//! struct Net {
//!     conv: Child<Conv2d>,
//!     norm: Child<BatchNorm2d>,
//!     head: Child<Dense>,
//! }
//!
//! impl Forward for Net {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> { // precision is not mentioned here
//!         let x = self.norm.call(&self.conv.call(x)?)?.relu()?.max_pool2d(2, 2)?;
//!         self.head.call(&x.flatten(1)?)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let rng = &mut Rng::seed(1);
//! let mut net = Child::new(Net::new(Conv2d::new(1, 8, 3, rng), BatchNorm2d::new(8), Dense::new(72, 10, rng)));
//!
//! let policy = Policy::named("o2")?; // or Policy::load("my.yaml")?
//! let plan = policy.plan(&net)?;
//! println!("{plan}"); // the tree, each cell with its reason
//! assert_eq!(plan.decision("norm")?.because.to_string(), "full list, precast-1");
//! let applied = plan.apply(&mut net)?; // in one call: auto_mixed_precision(&mut net, Level::O2, DType::F16)?
//!
//! net.set_train(true);
//! let mut optimizer = Sgd::new(net.params(), 0.05).momentum(0.9);
//! let mut scale = policy.loss_scale()?;
//! let (images, digits) = (Tensor::randn(&[32, 1, 8, 8], rng)?, Tensor::from([3i64; 32])); // or from `precast-train`
//! for _ in 0..3 {
//!     let loss = net.call(&images)?.cross_entropy(&digits)?;
//!     match scale.step(&mut optimizer, loss)? { // scale, backward pass, unscale, check for non-finite gradients, update
//!         Outcome::Skipped { cause } => eprintln!("skipped: {cause}"),
//!         Outcome::Stalled { .. } => break,
//!         _ => {} // the parameters were updated
//!     }
//! }
//!
//! applied.undo(&mut net)?; // exact: the network as it was written, with its f32 weights
//! # Ok(())
//! # }
//! ```
//!
//! The [`guide`] has a page for each task.
//!
//! Suggested reading order: [`Tensor`] and [`Op`]; [`precision`] (the effect of a region on an op); [`cell`] (trees)
//! and [`layers`]; [`policy`] (the requested precision), [`plan`] (the resulting decisions and their reasons); [`scale`]
//! and [`optim`].
//!
//! [`policy`], the plans of [`plan`] and all that they name are those of the package `precast-policy`, which knows no tensor.
//! A library with tensors of its own depends on that alone, and implements the traits of `precast_policy::host`.
//!
//! Other packages build on this one: `precast-train` has examples and their readers, the training loop, steps over several
//! ranks, run files and reports; `precast-diagnose` finds the place where a step breaks, and the cells that can be lowered;
//! `precast-graph` has graphs of networks and ONNX models; `precast-cli` has the command `precast`, also for a program's own
//! networks. No package has features.
//!
//! # Events
//!
//! Subscribers of the crate [`tracing`](https://docs.rs/tracing) receive these events, all with the target `precast`. In a
//! program without a subscriber, some warnings go to standard error.
//!
//! | level | event | when |
//! | --- | --- | --- |
//! | error | `training has stalled` | a step returned [`Outcome::Stalled`] |
//! | warn | `step skipped` | a gradient was not finite: the cause, and the first parameter |
//! | warn | `step taken with a number that was not finite` | in `fit` of `precast-train`: the first result that was not finite |
//! | warn | `gradients in float16 without a loss scale` | once per optimizer: the first cell |
//! | warn | `trained in evaluation` | once per optimizer: the first batch norm or dropout that ran in evaluation mode |
//! | warn | `loss of another kind of number` | once: the input of a loss is the result of an op that the loss computes itself, such as a softmax before a cross entropy |
//! | warn | `rounding loses updates` | once, when more than half of a parameter's [counted](optim::LostUpdates) updates are lost: its path, the share |
//! | warn | `built without optimization` | once, at the first update of a program whose dependencies are not optimized |
//! | info | `plan applied`, `plan undone` | a network was wrapped by a policy: level, dtype, number of cells |
//! | info | `parameters decorated` | parameters are stored in 16 bits: the number of these, and of the others |
//! | info | `weights read`, `weights written` | a weight file: its name and size |
//! | info | `epoch finished` | an epoch of `fit` of `precast-train`: loss, and accuracy or mean squared error |
//! | debug | `loss scale grows`, `loss scale shrinks` | the scale before and after |
//! | debug | `policy read`, `model read` | a file was read |
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

// The derive macro refers to this crate as `::precast`, here as in other crates.
extern crate self as precast;

pub mod autocast;
pub mod cell;
mod checkpoint;
pub mod compat;
pub mod cost;
#[cfg(any(test, all(doc, not(doctest))))]
pub mod guide;
pub mod io;
pub mod layers;
pub mod observe;
pub mod optim;
pub mod options;
pub mod plan;
pub mod prelude;
pub mod recording;
pub mod scale;
pub mod storage;

pub use autocast::{Autocast, autocast};
pub use catalogue::{Op, Precision};
#[doc(hidden)]
pub use cell::derived as __derive;
pub use cell::{Cell, Child, Forward};
pub use checkpoint::Checkpoint;
pub use optim::{Adafactor, Adagrad, Adam, AdamW, Lamb, Lion, Muon, Optimizer, RmsProp, Sgd};
pub use plan::Plan;
pub(crate) use precast_base::printable;
pub use precast_base::{DType, Element};
#[doc(inline)]
pub use precast_base::{Error, ErrorKind, Result, error};
/// Computes a formula of tensors and numbers, with one `?` at its end.
///
/// Operators `+`, `-`, `*`, `/` and calls of methods join tensors, [parameters](Param) and numbers of any type; a number
/// takes the dtype of the tensor beside it, and two numbers are computed in f64. Variables are not moved. An argument handed
/// over by reference may be a formula again; other arguments, blocks and closures are plain Rust. The result is a
/// [`Result`] of a [`Tensor`], or of an `f64` where no tensor occurs.
///
/// # Errors
/// That of the first op that fails, with its line, its column and the part of the formula.
///
/// ```
/// use precast::prelude::*;
///
/// let x = Tensor::from([-1f32, 0., 1., 2.]);
/// let gelu = formula!(0.5 * x * (1.0 + (0.7978845608 * (x + 0.044715 * x * x * x)).tanh()))?;
/// assert!((gelu.to_f64()[3] - 1.9546).abs() < 1e-4);
///
/// let (rate, mean) = (3usize, x.mean_all()?);
/// let error = formula!((x - mean).square().mean_all() / (rate + 1))?;
/// assert_eq!(error.item()?, 0.3125);
///
/// let wrong = Tensor::from([1f32, 2., 3.]);
/// let message = formula!(2.0 * (x + wrong).exp()).unwrap_err().to_string();
/// assert!(message.contains("`x + wrong`: the shapes [4] and [3]"), "{message}");
/// # Ok::<(), precast::Error>(())
/// ```
pub use precast_derive::formula;
pub use precast_kernels::amx::{allow_amx, uses_amx};
pub use precast_kernels::simd::vector_lanes;
pub use precast_kernels::threads::set_threads;
pub use precast_policy::{Level, Policy, policy};
pub use precast_tensor::{
    Backward, Grads, LeafId, Moment, Param, Tensor, TensorElement, WeakTensor, enable_grad, no_grad,
};
pub use precast_tensor::{
    ConvOptions, ConvTransposeOptions, CrossEntropy, CustomOp, GridPadding, Interpolation, Padding, PoolOptions,
    RecurrentWeights, Reduction, Resize, run, run_with, twice_differentiable,
};
#[doc(inline)]
pub use precast_tensor::{catalogue, gradcheck, precision};
pub use scale::{LossScale, Outcome};
