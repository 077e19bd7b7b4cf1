//! A cell outside of a slot, or inside a type unknown to the tree, would be missing from every plan.

use precast::prelude::*;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

#[derive(Cell, Debug)]
struct Net {
    fc: Dense,
    many: Vec<Dense>,
    perhaps: Option<Dense>,
    shared: Arc<Dense>,
    any: Box<dyn Cell>,
    both: (Dense, Dense),
    beside_data: (usize, Child<Dense>),
    unordered: HashMap<String, Child<Dense>>,
    locked: Mutex<Option<Param>>,
    built: std::result::Result<Child<Dense>, String>,
    five: (u8, u8, u8, u8, Child<Dense>),
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }
}

fn main() {}
