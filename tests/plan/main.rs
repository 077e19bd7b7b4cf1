//! Plans and regions: their effect on runs, cost, graphs, recomputation, custom ops, derived cells and parts.

#[path = "../common/mod.rs"]
mod common;
mod contradictions;
mod cost;
mod custom_ops;
mod deep_trees;
mod derived_cells;
mod kept;
mod listeners;
#[allow(dead_code, reason = "the benches use more of it")]
#[path = "../../benches/steps/nets.rs"]
mod nets;
mod operands;
mod parts;
mod properties;
mod recompute;
mod regions;
mod summary;
mod weight_grads;
