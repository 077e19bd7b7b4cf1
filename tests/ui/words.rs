//! Words accepted in `#[cell(..)]`.

use precast::prelude::*;

#[derive(Cell, Debug)]
#[cell(save)]
struct Unknown;

#[derive(Cell, Debug)]
#[cell(saved, saved)]
struct Twice;

#[derive(Cell, Debug)]
#[cell(kind = "A")]
#[cell(kind = "B")]
struct TwiceApart;

#[derive(Cell, Debug)]
#[cell(saved = true)]
struct WithValue;

#[derive(Cell, Debug)]
#[cell(kind = "")]
struct Nameless;

#[derive(Cell, Debug)]
#[cell(kind = 3)]
struct Number;

#[derive(Cell, Debug)]
#[cell(kinds(Pool<1>))]
struct Pool<const N: usize>;

#[derive(Cell, Debug)]
#[cell(kinds())]
struct None<const N: usize>;

#[derive(Cell, Debug)]
#[cell(kind = "Both", kinds(Both1))]
struct Both<const N: usize>;

#[derive(Cell, Debug)]
#[cell]
struct Bare;

#[derive(Cell, Debug)]
#[cell(new)]
struct Tuple(Child<Dense>);

#[derive(Cell, Debug)]
struct Field {
    #[cell(skip)]
    head: Child<Dense>,
    #[cell(data, data)]
    classes: usize,
}

fn main() {}
