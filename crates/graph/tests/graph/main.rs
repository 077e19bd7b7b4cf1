//! Networks as graphs: recorded, run, written, rewritten, and as cells of a tree.

#[path = "../../../../tests/common/mod.rs"]
mod common;
mod gradients;
#[allow(dead_code, reason = "the benches use more of it")]
#[path = "../../../../benches/steps/nets.rs"]
mod nets;
mod networks;
mod odd_graphs;
mod optimizer;
mod refusals;
mod rewritten;
