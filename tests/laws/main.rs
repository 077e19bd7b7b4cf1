//! Ops, their gradients, formulas and layers: values by closed forms and f64 references, limits, refusals, and messages.

#[path = "../common/mod.rs"]
mod common;
mod formulas;
mod gradients;
mod layer_ops;
mod layers;
mod messages;
mod ops;
mod second_derivatives;
mod tensors;
