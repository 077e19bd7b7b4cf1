//! Reductions along axes, running sums, places of extremes, sorting.

use super::super::{
    call::{Call, Emit, from_start, lengths, one},
    message::{Attr, Val},
};
use precast::{DType, Op, Tensor, error::Result};

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::Sum => |c| reduce(c, "ReduceSum"),
        Op::Mean => |c| reduce(c, "ReduceMean"),
        Op::Max => |c| reduce(c, "ReduceMax"),
        Op::Min => |c| reduce(c, "ReduceMin"),
        Op::Prod => |c| reduce(c, "ReduceProd"),
        Op::LogSumExp => |c| reduce(c, "ReduceLogSumExp"),
        Op::Norm => norm,
        Op::Var => |c| variance(c, false),
        Op::Std => |c| variance(c, true),
        Op::CumSum => |c| {
            let (x, axis) = (c.input(0)?, c.axis(c.rank(0))?);
            let axis = c.writer.constant(Tensor::from_vec(vec![axis as i64], &[])?)?;
            one(c.node("CumSum", &[&x, &axis], &[]))
        },
        Op::ArgMax => |c| place(c, "ArgMax"),
        Op::ArgMin => |c| place(c, "ArgMin"),
        Op::TopK => |c| {
            let (k, largest): (usize, bool) = (c.attr("k")?, c.attr("largest")?);
            let k = c.ints(&[k as i64])?;
            sorted(c, &k, largest)
        },
        Op::Sort => |c| {
            let rank = c.rank(0);
            if rank == 0 {
                return Err(c.refuse("a number without axes is not sorted"));
            }
            let (axis, descending) = (c.axis(rank)?, c.attr("descending")?);
            let length = c.shape(0)[axis];
            let k = c.writer.lengths(&[length])?;
            sorted(c, &k, descending)
        },
        _ => return None,
    })
}

/// Returns the axes of a reduction; all, where none is named.
fn axes(c: &Call<'_>) -> Result<Vec<usize>> {
    let named: Vec<isize> = c.attr("axes")?;
    let rank = c.rank(0);
    match named.is_empty() {
        true => Ok((0..rank).collect()),
        false => named.into_iter().filter(|_| rank > 0).map(|axis| from_start(axis, rank)).collect(),
    }
}

fn reduce(c: &mut Call<'_>, op: &'static str) -> Result<Vec<Val>> {
    let (x, axes, keep) = (c.input(0)?, axes(c)?, c.attr("keep_dims")?);
    one(c.reduce(op, &x, &axes, keep))
}

fn norm(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let p: f64 = c.attr("p")?;
    match p {
        1.0 => reduce(c, "ReduceL1"),
        2.0 => reduce(c, "ReduceL2"),
        p if p == f64::INFINITY => {
            let x = c.input(0)?;
            c.x[0] = c.node("Abs", &[&x], &[])?;
            reduce(c, "ReduceMax")
        }
        _ => Ok(vec![]),
    }
}

/// The mean square of the distances from the mean, in two passes.
fn variance(c: &mut Call<'_>, root: bool) -> Result<Vec<Val>> {
    let (x, axes, keep): (Val, Vec<usize>, bool) = (c.input(0)?, axes(c)?, c.attr("keep_dims")?);
    let correction: usize = c.attr("correction")?;
    let shape: Vec<_> = axes.iter().map(|&axis| c.shape(0)[axis]).collect();
    let Ok(lengths) = lengths(&shape) else {
        return Err(c.refuse("the number of its terms depends on the batch"));
    };
    let terms = lengths.iter().product::<usize>().saturating_sub(correction);
    if axes.is_empty() {
        return Ok(vec![]);
    }
    let mean = c.reduce("ReduceMean", &x, &axes, true)?;
    let distance = c.node("Sub", &[&x, &mean], &[])?;
    let square = c.node("Mul", &[&distance, &distance], &[])?;
    let sum = c.reduce("ReduceSum", &square, &axes, keep)?;
    let terms = c.number(terms as f64)?;
    let variance = c.node("Div", &[&sum, &terms], &[])?;
    if root { one(c.node("Sqrt", &[&variance], &[])) } else { Ok(vec![variance]) }
}

fn place(c: &mut Call<'_>, op: &'static str) -> Result<Vec<Val>> {
    let (x, axis, keep) = (c.input(0)?, c.axis(c.rank(0))?, c.attr("keep_dims")?);
    if c.rank(0) == 0 {
        let x = c.unsqueeze(&x, &[0])?;
        return one(c.writer.node_of(op, DType::I64, &[&x], &[("axis", Attr::Int(0)), ("keepdims", Attr::Int(0))]));
    }
    one(c.writer.node_of(op, DType::I64, &[&x], &[("axis", Attr::Int(axis as i64)), ("keepdims", Attr::flag(keep))]))
}

fn sorted(c: &mut Call<'_>, k: &Val, largest: bool) -> Result<Vec<Val>> {
    let (x, axis) = (c.input(0)?, c.axis(c.rank(0))?);
    let attributes = [("axis", Attr::Int(axis as i64)), ("largest", Attr::flag(largest)), ("sorted", Attr::Int(1))];
    c.writer.nodes_of("TopK", &[x.dtype, DType::I64], &[&x, k], &attributes)
}
