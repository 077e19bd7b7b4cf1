//! One random call of each op that has a kernel, by family. An op without a family is an error.

mod elementwise;
mod losses;
mod norms;
mod places;
mod products;
mod recurrent;
mod reductions;
mod windows;

use precast::{Op, Reduction, Result, Tensor};

use crate::draw::{Case, Draw};

/// Ops that are drawn and measured alike, with the same bounds.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub terms: Terms,
    pub special: Specials,
    /// Draws a random call; `None` for an op of another family.
    draw: fn(Op, &mut Draw) -> Result<Option<Case>>,
}

/// Reference magnitude of an error other than the result itself: where terms cancel, the sum of their absolute values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// The result itself. A gradient summed over a broadcast axis is measured against the sum of the absolute terms.
    Elementwise,
    /// The op is a sum of products, recomputed from the absolute values of its inputs.
    Products,
    /// As elementwise, but a gradient is measured against the incoming one: slopes that are nearly 0 are differences.
    Activation,
    /// The change of the result when each input and each intermediate number changes by a relative amount, up or down
    /// at random, as rounding would do.
    Condition,
}

impl Terms {
    /// Returns the name sent to torch's side.
    pub fn name(self) -> &'static str {
        match self {
            Terms::Elementwise => "elementwise",
            Terms::Products => "products",
            Terms::Activation => "activation",
            Terms::Condition => "condition",
        }
    }
}

/// Special numbers allowed among the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// Zeros, infinities, NaN, subnormal and the largest numbers.
    All,
    /// As `All`, without numbers so large that a product of three of them overflows in f32.
    Summed,
    /// As `Summed`, but finite.
    Finite,
    /// None of these, and no number much larger or smaller than others.
    None,
}

const FAMILIES: &[Family] = &[
    Family { name: "elementwise", terms: Terms::Elementwise, special: Specials::All, draw: elementwise::draw },
    Family { name: "activations", terms: Terms::Activation, special: Specials::All, draw: elementwise::activations },
    Family { name: "sums of two", terms: Terms::Condition, special: Specials::Summed, draw: elementwise::sums },
    Family { name: "products", terms: Terms::Products, special: Specials::Summed, draw: products::draw },
    Family { name: "places", terms: Terms::Products, special: Specials::Summed, draw: places::draw },
    // The effect of an infinite weight on padding depends on whether the padding is multiplied.
    Family { name: "convolutions", terms: Terms::Products, special: Specials::Finite, draw: windows::convolutions },
    Family { name: "pools", terms: Terms::Products, special: Specials::Summed, draw: windows::pools },
    // The order in which three factors are multiplied decides where one overflows, vanishes, or meets a zero.
    Family { name: "three factors", terms: Terms::Products, special: Specials::None, draw: products::three },
    Family { name: "sampling", terms: Terms::Condition, special: Specials::None, draw: windows::sampled },
    Family { name: "sums", terms: Terms::Products, special: Specials::Summed, draw: reductions::sums },
    Family { name: "reductions", terms: Terms::Condition, special: Specials::None, draw: reductions::draw },
    Family { name: "norms", terms: Terms::Condition, special: Specials::None, draw: norms::draw },
    Family { name: "losses", terms: Terms::Condition, special: Specials::None, draw: losses::draw },
    Family { name: "recurrent", terms: Terms::Condition, special: Specials::None, draw: recurrent::draw },
];

/// Draws a call of an op, and returns it with its family.
///
/// # Errors
/// When the op is in no family, or the library rejects the call.
pub fn case(op: Op, draw: &mut Draw) -> std::result::Result<(Case, &'static Family), String> {
    for family in FAMILIES {
        draw.specials = family.special;
        if let Some(case) = (family.draw)(op, draw).map_err(|e| e.to_string())? {
            return Ok((case, family));
        }
    }
    Err(format!("{op} has a kernel and is in no table of tools/peers/src/ops"))
}

/// Makes a call of an op that takes only tensors.
fn plain(op: Op, inputs: Vec<Tensor>) -> Result<Option<Case>> {
    Ok(Some(Case::new(inputs, move |x| precast::run(op, &x.iter().collect::<Vec<_>>()))))
}

/// Draws a loss reduction, with torch's name for it.
fn reduction(draw: &mut Draw) -> (Reduction, &'static str) {
    draw.one_of(&[(Reduction::Mean, "mean"), (Reduction::Sum, "sum"), (Reduction::None, "none")])
}

/// Draws a shape that broadcasts to another, possibly without its first axes.
fn stretching(draw: &mut Draw, shape: &[usize]) -> Vec<usize> {
    let from = draw.size(0..=shape.len());
    let from = if draw.flag() { 0 } else { from };
    shape[from..].iter().map(|&len| if draw.size(0..=3) == 0 { 1 } else { len }).collect()
}
