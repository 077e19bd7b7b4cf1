//! A cell is a struct that owns its contents.

use precast::prelude::*;

#[derive(Cell, Debug)]
enum Either {
    One(Child<Dense>),
    Other(Child<Conv2d>),
}

#[derive(Cell)]
union Bits {
    whole: u32,
    parts: [u8; 4],
}

#[derive(Cell, Debug)]
struct Borrowed<'a> {
    name: &'a str,
}

fn main() {}
