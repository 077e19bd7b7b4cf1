//! Boxes of detectors.

use super::{
    super::{call::one, step::Call, value::Value},
    Table,
};
use crate::onnx::tensor::Elem;
use precast::{
    Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[("NonMaxSuppression", suppress)];

/// Returns the corners of a box: the smaller ones first.
fn corners(numbers: &[f64], by_centre: bool) -> [f64; 4] {
    let &[a, b, c, d] = numbers else { return [0.0; 4] };
    match by_centre {
        true => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
        false => [a.min(c), b.min(d), a.max(c), b.max(d)],
    }
}

/// Returns the quotient of the areas that two boxes share and cover.
fn overlap(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let area = |x: &[f64; 4]| (x[2] - x[0]) * (x[3] - x[1]);
    let side = |axis: usize| (a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis])).max(0.0);
    let shared = side(0) * side(1);
    if shared == 0.0 { 0.0 } else { shared / (area(a) + area(b) - shared) }
}

/// Chooses the boxes with the highest scores that do not overlap. The result has no gradient, and its length depends on
/// the numbers, so that no graph can be recorded.
fn suppress(call: &Call<'_>) -> Result<Vec<Value>> {
    let (boxes, scores) = (call.reals(0)?, call.reals(1)?);
    let (&[batch, count, 4], &[of_scores, classes, same]) = (call.x(0)?.shape(), call.x(1)?.shape()) else {
        return Err(Error::shape("needs boxes [n, count, 4] and scores [n, classes, count]"));
    };
    if (of_scores, same) != (batch, count) {
        return Err(Error::shape(format!("{batch} x {count} boxes and {of_scores} x {same} scores")));
    }
    let most = call.maybe(2)?.map_or(Ok(0), |_| call.number(2))?;
    let real = |index: usize| call.maybe(index)?.map(|_| call.real(index)).transpose();
    let (limit, least) = (real(3)?.unwrap_or(0.0), real(4)?);
    let by_centre = call.flag("center_point_box", false)?;
    let mut chosen: Vec<i64> = Vec::new();
    for image in 0..batch {
        for class in 0..classes {
            let start = (image * classes + class) * count;
            let score = |index: usize| scores[start + index];
            let mut order: Vec<usize> = (0..count).filter(|i| least.is_none_or(|least| score(*i) > least)).collect();
            order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
            let mut kept: Vec<[f64; 4]> = Vec::new();
            for index in order {
                if kept.len() as i64 >= most {
                    break;
                }
                let at = (image * count + index) * 4;
                let corners = corners(&boxes[at..at + 4], by_centre);
                if kept.iter().all(|other| overlap(other, &corners) <= limit) {
                    kept.push(corners);
                    chosen.extend([image as i64, class as i64, index as i64]);
                }
            }
        }
    }
    one(Tensor::from_vec(chosen.clone(), &[chosen.len() / 3, 3])?, Elem::INT64)
}
