//! Losses of classes. Others are written with their formulas.

use super::super::{
    call::{Call, Emit, one},
    message::{Attr, Val},
};
use crate::{CrossEntropy, DType, Op, Reduction, error::Result};

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::CrossEntropy => cross_entropy,
        Op::NllLoss => |c| {
            let reduction = c.attr("reduction")?;
            of_classes(c, "NegativeLogLikelihoodLoss", None, None, reduction)
        },
        _ => return None,
    })
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
    of_classes(c, "SoftmaxCrossEntropyLoss", weight, options.ignore_index, options.reduction)
}

fn of_classes(
    c: &mut Call<'_>,
    op: &'static str,
    weight: Option<Val>,
    ignored: Option<i64>,
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
    let mut attributes = vec![("reduction", Attr::Text(reduction_of))];
    attributes.extend(ignored.map(|class| ("ignore_index", Attr::Int(class))));
    let weight = weight.unwrap_or_else(Val::none);
    let y = c.node(op, &[&x, &target, &weight], &attributes)?;
    if single && reduction_of == "none" { one(c.squeeze(&y, &[0])) } else { Ok(vec![y]) }
}
