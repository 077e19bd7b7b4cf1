//! A wrapped optimizer is not an optimizer: its loss would be scaled twice.

use precast::prelude::*;
use precast_graph::tensorflow::enable_mixed_precision_graph_rewrite;

fn main() {
    let once = enable_mixed_precision_graph_rewrite(Sgd::new(Default::default(), 0.1), "dynamic").unwrap();
    let _twice = enable_mixed_precision_graph_rewrite(once, "dynamic");
}
