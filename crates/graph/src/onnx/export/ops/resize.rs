//! Resizing, and sampling at the positions of a grid.

use super::super::{
    call::{Call, Emit, one},
    message::{Attr, Val},
};
use crate::Dim;
use precast::{GridPadding, Interpolation, Op, Resize, error::Result};

pub(super) fn find(op: Op) -> Option<Emit> {
    Some(match op {
        Op::Interpolate => interpolate,
        Op::GridSampler2d | Op::GridSampler3d => sample,
        Op::AffineGrid => affine,
        _ => return None,
    })
}

fn interpolate(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (size, mode): (Resize, Interpolation) = (c.attr("size")?, c.attr("mode")?);
    let corners: bool = c.attr("align_corners")?;
    let x = c.input(0)?;
    let (from, to) = (c.shape(0).to_vec(), c.out().shape.clone());
    let (name, coordinates) = match (mode, corners) {
        (Interpolation::Nearest, _) => ("nearest", "asymmetric"),
        (Interpolation::Linear, true) => ("linear", "align_corners"),
        (Interpolation::Linear, false) => ("linear", "half_pixel"),
        (_, true) => ("cubic", "align_corners"),
        (_, false) => ("cubic", "half_pixel"),
    };
    let mut attributes = vec![("mode", Attr::Text(name)), ("coordinate_transformation_mode", Attr::Text(coordinates))];
    match name {
        "nearest" => attributes.push(("nearest_mode", Attr::Text("floor"))),
        "cubic" => attributes.push(("cubic_coeff_a", Attr::Float(-0.75))),
        _ => {}
    }
    if let Resize::By(scales) = &size {
        let scales = super::product::per_axis(scales, from.len() - 2);
        let whole = |(axis, scale): (usize, &f64)| {
            let (from, to) = (from[axis + 2], to[axis + 2]);
            // A linear axis that keeps its length is copied.
            from.plus as f64 * scale == to.plus as f64 || corners || name == "linear" && from == to
        };
        if !scales.iter().enumerate().all(whole) {
            return Err(c.refuse(&format!(
                "its scales {scales:?} make no whole lengths, and runtimes round their places in float32"
            )));
        }
    }
    let none = Val::none();
    let sizes = c.writer.lengths(&to)?;
    one(c.node("Resize", &[&x, &none, &none, &sizes], &attributes))
}

fn sample(c: &mut Call<'_>) -> Result<Vec<Val>> {
    let (mode, padding): (Interpolation, GridPadding) = (c.attr("mode")?, c.attr("padding")?);
    let new_names = c.writer.opset >= 20;
    if c.rank(0) != 4 && !new_names {
        return Err(c.refuse("ONNX samples volumes from opset 20 on"));
    }
    let mode = match mode {
        Interpolation::Nearest => "nearest",
        Interpolation::Linear if new_names => "linear",
        Interpolation::Linear => "bilinear",
        _ => return Err(c.refuse("cubic sampling has another kernel in ONNX")),
    };
    let padding = if padding == GridPadding::Border { "border" } else { "zeros" };
    let corners = Attr::flag(c.attr("align_corners")?);
    let attributes = [("mode", Attr::Text(mode)), ("padding_mode", Attr::Text(padding)), ("align_corners", corners)];
    c.same("GridSample", &attributes)
}

fn affine(c: &mut Call<'_>) -> Result<Vec<Val>> {
    if !c.writer.has("AffineGrid") {
        return Ok(vec![]);
    }
    let theta = c.input(0)?;
    let corners = Attr::flag(c.attr("align_corners")?);
    let shape = &c.out().shape;
    // [n, h, w, 2], for [n, c, h, w].
    let size = [shape[0], Dim::fixed(1), shape[1], shape[2]];
    let size = c.writer.lengths(&size)?;
    one(c.node("AffineGrid", &[&theta, &size], &[("align_corners", corners)]))
}
