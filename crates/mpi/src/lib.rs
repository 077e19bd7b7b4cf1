//! The ranks of a data-parallel program: processes that a launcher such as `mpirun` has started, on one machine or many.
//!
//! [`Ranks::of_launcher`] finds the MPI library of the launcher and loads it at run time: Open MPI 4 and 5, MPICH and
//! the libraries with its ABI, or the ABI of MPI 5. Building needs neither MPI nor a C compiler. Without a launcher there
//! is one rank, and nothing is loaded.
//!
//! - An [`Exchange`] sums numbers over ranks in the order of a [`Tree`] over shards. The number of shards is part of the
//!   computation, the number of ranks is not: with the [`Wire`] `float32` sums have the same bits for every number of
//!   ranks. It can be polled between computations.
//! - [`Ranks::vote`] gathers words, [`Ranks::agree`] makes the error of one rank that of all, [`Ranks::broadcast`] and
//!   [`Ranks::gather`] send bytes.
//! - Ranks that make different calls, or do not answer, are an error with their numbers and the step.
//! - [`Threads`] runs ranks as threads of one process, for tests.
//!
//! ```
//! use precast_mpi::{Cores, Ranks, Tree, Node, Wire};
//!
//! let ranks = Ranks::of_launcher()?;
//! ranks.abort_on_panic();
//! let shards = 8;
//! let mut exchange = ranks.exchange(shards, Wire::Float32)?;
//! let mut tree = Tree::default();
//! for shard in precast_mpi::Shards::new(shards, ranks.size())?.run(ranks.rank()) {
//!     let gradient = vec![shard as f32; 3];
//!     tree.push_with(Node::shard(shard), gradient, |left, right| {
//!         left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
//!     });
//! }
//! let sums = tree.into_values();
//! let mut total = [0.0; 3];
//! exchange.sum(&sums.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut total)?;
//! assert_eq!(total, [28.0; 3]);
//! ranks.finish()?;
//! # Ok::<(), precast_mpi::Error>(())
//! ```
//!
//! | variable | meaning |
//! | --- | --- |
//! | `PRECAST_MPI` | The path of the MPI library. Default: that of the launcher. |
//! | `PRECAST_PATIENCE` | Seconds for which a rank waits for others. Default: 60. |
//!
//! `unsafe` is in the module that calls MPI, and nowhere else.
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

mod call;
mod cores;
mod engine;
mod error;
mod exchange;
mod launcher;
mod mpi;
mod panics;
mod ranks;
mod threads;
mod transfers;
mod tree;
mod votes;
mod wire;

pub use cores::Cores;
pub use engine::{Alone, Engine, Pending};
pub use error::{Error, ErrorKind, Result};
pub use exchange::Exchange;
pub use launcher::{launched, launched_apart, launched_as, local_ranks};
pub use mpi::Mpi;
pub use ranks::Ranks;
pub use threads::{Fault, Threads};
pub use tree::{Node, Shards, Tree};
pub use votes::Votes;
pub use wire::{Wire, from_bf16, to_bf16};
