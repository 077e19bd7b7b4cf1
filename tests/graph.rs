//! Networks as graphs: recorded, run, written, rewritten, and as cells of a tree.

#[path = "graph/networks.rs"]
mod networks;
#[path = "graph/refusals.rs"]
mod refusals;
#[path = "graph/rewritten.rs"]
mod rewritten;
