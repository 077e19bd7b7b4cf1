//! Networks as graphs: recorded, run, written, rewritten, and as cells of a tree.

mod networks;
mod odd_graphs;
mod optimizer;
mod refusals;
mod rewritten;
