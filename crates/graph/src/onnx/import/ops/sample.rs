//! Sampling at the positions of a grid.

use super::{
    super::{
        call::{lengths, one},
        step::Call,
        value::{Value, room},
    },
    Table,
};
use precast::{GridPadding, Interpolation, error::Result};

pub(super) const OPS: Table = &[("GridSample", grid_sample), ("AffineGrid", affine_grid)];

fn grid_sample(call: &Call<'_>) -> Result<Vec<Value>> {
    let (item, grid) = (call.item(0)?, call.x(1)?);
    let mode = match call.text("mode")?.unwrap_or("linear") {
        "linear" | "bilinear" => Interpolation::Linear,
        "nearest" => Interpolation::Nearest,
        other => {
            return Err(call.refuse(&format!("the mode `{other}` has no counterpart here; allowed: linear, nearest")));
        }
    };
    let padding = match call.text("padding_mode")?.unwrap_or("zeros") {
        "zeros" => GridPadding::Zeros,
        "border" => GridPadding::Border,
        other => {
            return Err(call.refuse(&format!("the padding `{other}` has no counterpart here; allowed: zeros, border")));
        }
    };
    let corners = call.flag("align_corners", false)?;
    one(item.x.grid_sample(&grid.cast(item.x.dtype()), mode, padding, corners)?, item.elem)
}

fn affine_grid(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let size = lengths(&call.numbers(1)?)?;
    room(&size)?;
    one(item.x.affine_grid(&size, call.flag("align_corners", false)?)?, item.elem)
}
