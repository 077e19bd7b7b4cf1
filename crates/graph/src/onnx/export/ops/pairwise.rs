//! Functions of two tensors or more whose shapes broadcast: arithmetic, comparisons, choices.

use super::super::{
    call::{Call, Emit, one},
    message::{Attr, Val},
};
use precast::{DType, Op, error::Result};

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::Add => |c| pair(c, "Add"),
        Op::Sub => |c| pair(c, "Sub"),
        Op::Mul => |c| pair(c, "Mul"),
        Op::Div => |c| pair(c, "Div"),
        Op::Maximum => |c| pair(c, "Max"),
        Op::Minimum => |c| pair(c, "Min"),
        Op::Pow => |c| {
            let x = c.input(0)?;
            let exponent = if c.attributes().has("exponent") {
                let exponent = c.attr("exponent")?;
                c.number(exponent)?
            } else {
                c.input(1)?
            };
            one(c.node("Pow", &[&x, &exponent], &[]))
        },
        Op::Fmod => |c| c.same("Mod", &[("fmod", Attr::Int(1))]),
        Op::Remainder => remainder,
        Op::Atan2 => atan2,
        Op::Hypot => hypot,
        Op::Lerp => lerp,
        Op::Equal => |c| compare(c, "Equal"),
        Op::NotEqual => |c| {
            let same = compare(c, "Equal")?;
            one(c.is("Not", &[&same[0]]))
        },
        Op::Less => |c| compare(c, "Less"),
        Op::LessEqual => |c| compare(c, "LessOrEqual"),
        Op::Greater => |c| compare(c, "Greater"),
        Op::GreaterEqual => |c| compare(c, "GreaterOrEqual"),
        Op::LogicalAnd => |c| logic(c, "And"),
        Op::LogicalOr => |c| logic(c, "Or"),
        Op::Where => |c| {
            let [mask, a, b] = [0, 1, 2].map(|place| c.input(place));
            let (a, b) = numbers(c, a?, b?)?;
            let dtype = a.dtype;
            one(c.writer.node_of("Where", dtype, &[&mask?, &a, &b], &[]))
        },
        Op::MaskedFill => |c| {
            let (x, mask) = (c.input(0)?, c.input(1)?);
            let value = c.attr("value")?;
            let value = c.number(value)?;
            one(c.node("Where", &[&mask, &value, &x], &[]))
        },
        _ => return None,
    })
}

/// Returns two inputs in the dtype of the output.
fn numbers(c: &mut Call<'_>, a: Val, b: Val) -> Result<(Val, Val)> {
    let to = c.out_dtype();
    Ok((c.writer.cast(&a, to)?, c.writer.cast(&b, to)?))
}

fn pair(c: &mut Call<'_>, op: &'static str) -> Result<Vec<Val>> {
    let (a, b) = (c.input(0)?, c.input(1)?);
    let (a, b) = numbers(c, a, b)?;
    let dtype = a.dtype;
    if dtype == DType::Bool || op == "Div" && !dtype.is_float() {
        return Err(c.refuse(&format!("ONNX's `{op}` of {} is another function", dtype.long_name())));
    }
    one(c.writer.node_of(op, dtype, &[&a, &b], &[]))
}

/// Compares two tensors in their wider dtype.
fn compare(c: &mut Call<'_>, op: &'static str) -> Result<Vec<Val>> {
    let (a, b) = (c.input(0)?, c.input(1)?);
    let rank = |dtype: DType| match dtype {
        DType::Bool => 0,
        DType::I64 => 1,
        _ => 2,
    };
    let to = if rank(a.dtype) >= rank(b.dtype) { a.dtype } else { b.dtype };
    let to = if to == DType::Bool && op != "Equal" { DType::I64 } else { to };
    let (a, b) = (c.writer.cast(&a, to)?, c.writer.cast(&b, to)?);
    one(c.is(op, &[&a, &b]))
}

fn logic(c: &mut Call<'_>, op: &'static str) -> Result<Vec<Val>> {
    let (a, b) = (c.input(0)?, c.input(1)?);
    let (a, b) = (c.writer.cast(&a, DType::Bool)?, c.writer.cast(&b, DType::Bool)?);
    one(c.is(op, &[&a, &b]))
}

/// The rest with the sign of the dividend, or that plus the divisor where the signs differ.
fn remainder(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (a, b, zero) = (c.input(0)?, c.input(1)?, c.number(0.0)?);
    let rest = c.node("Mod", &[&a, &b], &[("fmod", Attr::Int(1))])?;
    let moved = c.node("Add", &[&rest, &b], &[])?;
    let (below, of_divisor) = (c.is("Less", &[&rest, &zero])?, c.is("Less", &[&b, &zero])?);
    let differ = c.is("Xor", &[&below, &of_divisor])?;
    let whole = c.is("Equal", &[&rest, &zero])?;
    let some = c.is("Not", &[&whole])?;
    let moves = c.is("And", &[&differ, &some])?;
    one(c.node("Where", &[&moves, &moved, &rest], &[]))
}

/// The angle of a point, half a turn further where its second coordinate is negative.
fn atan2(c: &mut Call<'_>) -> Result<Vec<Val>> {
    use std::f64::consts::PI;
    let (y, x, zero, half, back) = (c.input(0)?, c.input(1)?, c.number(0.0)?, c.number(PI)?, c.number(-PI)?);
    let slope = c.node("Div", &[&y, &x], &[])?;
    let angle = c.node("Atan", &[&slope], &[])?;
    // 0 divided by 0 is not a number, and has the angle 0.
    let (no_y, no_x) = (c.is("Equal", &[&y, &zero])?, c.is("Equal", &[&x, &zero])?);
    let nothing = c.is("And", &[&no_y, &no_x])?;
    let angle = c.node("Where", &[&nothing, &zero, &angle], &[])?;
    let below = c.is("Less", &[&y, &zero])?;
    let turn = c.node("Where", &[&below, &back, &half], &[])?;
    let turned = c.node("Add", &[&angle, &turn], &[])?;
    let left = c.is("Less", &[&x, &zero])?;
    one(c.node("Where", &[&left, &turned, &angle], &[]))
}

/// Relative to the larger side, so that no square overflows.
fn hypot(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (a, b, zero, unit) = (c.input(0)?, c.input(1)?, c.number(0.0)?, c.number(1.0)?);
    let (a, b) = (c.node("Abs", &[&a], &[])?, c.node("Abs", &[&b], &[])?);
    let (longer, shorter) = (c.node("Max", &[&a, &b], &[])?, c.node("Min", &[&a, &b], &[])?);
    let nothing = c.is("Equal", &[&longer, &zero])?;
    let divisor = c.node("Where", &[&nothing, &unit, &longer], &[])?;
    let part = c.node("Div", &[&shorter, &divisor], &[])?;
    let square = c.node("Mul", &[&part, &part], &[])?;
    let sum = c.node("Add", &[&square, &unit], &[])?;
    let root = c.node("Sqrt", &[&sum], &[])?;
    one(c.node("Mul", &[&longer, &root], &[]))
}

/// From the nearer end, so that both ends are exact.
fn lerp(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (a, b) = (c.input(0)?, c.input(1)?);
    let weight: f64 = c.attr("weight")?;
    let near = weight.abs() < 0.5;
    let factor = c.number(if near { weight } else { 1.0 - weight })?;
    let way = c.node("Sub", &[&b, &a], &[])?;
    let part = c.node("Mul", &[&way, &factor], &[])?;
    one(if near { c.node("Add", &[&a, &part], &[]) } else { c.node("Sub", &[&b, &part], &[]) })
}
