//! Losses of classes. Others are written with their formulas.

use super::super::{
    call::{Call, Emit, lengths, one},
    message::{Attr, Val},
};
use precast::{CrossEntropy, DType, Op, Reduction, error::Result};

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::CrossEntropy => cross_entropy,
        Op::NllLoss => |c| {
            let reduction = c.attr("reduction")?;
            of_classes(c, "NegativeLogLikelihoodLoss", None, CrossEntropy::IGNORED, reduction)
        },
        Op::MultiMarginLoss => margins,
        Op::CtcLoss => |c| Err(c.refuse("its alignments are a loop over the places")),
        Op::MultilabelMarginLoss => |c| Err(c.refuse("its terms depend on the numbers of the target")),
        _ => return None,
    })
}

/// The margins of all classes but the right one.
fn margins(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (x, target) = (c.input(0)?, c.input(1)?);
    let (margin, p, reduction): (f64, u32, Reduction) = (c.attr("margin")?, c.attr("p")?, c.attr("reduction")?);
    let classes = lengths(&c.shape(0)[1..])?[0];
    let target = c.unsqueeze(&target, &[1])?;
    let right = c.node("GatherElements", &[&x, &target], &[("axis", Attr::Int(1))])?;
    let (margin, zero, exponent, count) =
        (c.number(margin)?, c.number(0.0)?, c.number(f64::from(p))?, c.number(classes as f64)?);
    let way = c.node("Sub", &[&x, &right], &[])?;
    let over = c.node("Add", &[&way, &margin], &[])?;
    let over = c.node("Relu", &[&over], &[])?;
    let terms = c.node("Pow", &[&over, &exponent], &[])?;
    let numbers = c.ints(&(0..classes as i64).collect::<Vec<_>>())?;
    let is_right = c.is("Equal", &[&numbers, &target])?;
    let terms = c.node("Where", &[&is_right, &zero, &terms], &[])?;
    let sums = c.reduce("ReduceSum", &terms, &[1], false)?;
    let losses = c.node("Div", &[&sums, &count], &[])?;
    match reduction {
        Reduction::Mean => one(c.reduce("ReduceMean", &losses, &[0], false)),
        Reduction::Sum => one(c.reduce("ReduceSum", &losses, &[0], false)),
        _ => Ok(vec![losses]),
    }
}

fn cross_entropy(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let options = CrossEntropy::of_attributes(c.attributes())?;
    if c.input(1)?.dtype != DType::I64 {
        return Ok(vec![]);
    }
    if options.label_smoothing != 0.0 {
        return Err(c.refuse("ONNX has no loss of classes with smoothed labels"));
    }
    let weight = options.weight.as_ref().map(|weight| c.writer.constant(weight.cast(c.dtype))).transpose()?;
    of_classes(c, "SoftmaxCrossEntropyLoss", weight, options.ignored(), options.reduction)
}

fn of_classes(
    c: &mut Call<'_>,
    op: &'static str,
    weight: Option<Val>,
    ignored: i64,
    reduction: Reduction,
) -> Result<Vec<Val>> {
    let (mut x, mut target) = (c.input(0)?, c.input(1)?);
    let single = c.rank(0) == 1;
    if single {
        (x, target) = (c.unsqueeze(&x, &[0])?, c.unsqueeze(&target, &[0])?);
    }
    let reduction_of = match reduction {
        Reduction::Mean => "mean",
        Reduction::Sum => "sum",
        _ => "none",
    };
    let attributes = [("reduction", Attr::Text(reduction_of)), ("ignore_index", Attr::Int(ignored))];
    let weight = weight.unwrap_or_else(Val::none);
    let y = c.node(op, &[&x, &target, &weight], &attributes)?;
    if single && reduction_of == "none" { one(c.squeeze(&y, &[0])) } else { Ok(vec![y]) }
}
