//! Networks as graphs: recorded, run, written, rewritten, and as cells of a tree.

#[path = "common/folder.rs"]
mod folder;
#[allow(dead_code, reason = "the benches use more of it")]
#[path = "../benches/steps/nets.rs"]
mod nets;
#[path = "graph/networks.rs"]
mod networks;
#[path = "graph/optimizer.rs"]
mod optimizer;
#[path = "graph/refusals.rs"]
mod refusals;
#[path = "graph/rewritten.rs"]
mod rewritten;
#[path = "common/tensors.rs"]
mod tensors;
