//! Resizing. Each axis is a linear map, whose matrix is known.

use super::{
    super::{
        call::{axis_of, one},
        step::Call,
        value::{Item, Value, room},
    },
    Table,
    tools::{in_floats, moved, vector},
};
use precast::{
    Interpolation, Resize, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table = &[("Resize", resize), ("Upsample", upsample)];

/// The rules of a resizing.
struct Rules {
    mode: String,
    /// The map from new places to old ones.
    coordinates: String,
    nearest: String,
    cubic: f64,
    exclude_outside: bool,
    antialias: bool,
    extrapolation: f64,
}

/// A new axis.
#[derive(Clone, Debug)]
struct Axis {
    axis: usize,
    len: usize,
    scale: f64,
    /// The region of interest, as parts of the old axis.
    region: (f64, f64),
}

/// Returns the length of an axis times a scale of f32, rounded down as a product of f32.
fn scaled(len: usize, scale: f64) -> Result<usize> {
    let new = (len as f32 * scale as f32).floor();
    match new.is_finite() && (0.0..4e9).contains(&new) && scale > 0.0 {
        true => Ok(new as usize),
        false => Err(Error::value(format!("an axis of {len} with a scale of {scale}"))),
    }
}

fn upsample(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let scales: Vec<f64> = match call.opset() {
        ..=6 => {
            let of = |name: &str| call.float(name, 1.0);
            vec![1.0, 1.0, of("height_scale")?, of("width_scale")?]
        }
        7 | 8 => call.floats("scales")?.unwrap_or_default().into_iter().map(f64::from).collect(),
        _ => call.reals(1)?,
    };
    let mode = call.text("mode")?.unwrap_or("nearest");
    let rules = Rules {
        mode: if mode == "bilinear" { "linear".into() } else { mode.into() },
        coordinates: "asymmetric".into(),
        nearest: "floor".into(),
        cubic: -0.75,
        exclude_outside: false,
        antialias: false,
        extrapolation: 0.0,
    };
    let axes = of_scales(item, &(0..item.x.rank()).collect::<Vec<_>>(), &scales)?;
    resized(item, &axes, &rules)
}

fn of_scales(item: &Item, axes: &[usize], scales: &[f64]) -> Result<Vec<Axis>> {
    if scales.len() != axes.len() {
        return Err(Error::shape(format!("{} scales for {} axes", scales.len(), axes.len())));
    }
    let axis = |(axis, scale): (&usize, &f64)| {
        Ok(Axis { axis: *axis, len: scaled(item.x.shape()[*axis], *scale)?, scale: *scale, region: (0.0, 1.0) })
    };
    axes.iter().zip(scales).map(axis).collect()
}

fn resize(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let rank = item.x.rank();
    let text = |name: &str, default: &str| Ok::<_, Error>(call.text(name)?.unwrap_or(default).to_string());
    let old = call.opset() < 11;
    let rules = Rules {
        mode: text("mode", "nearest")?,
        coordinates: if old { "asymmetric".into() } else { text("coordinate_transformation_mode", "half_pixel")? },
        nearest: if old { "floor".into() } else { text("nearest_mode", "round_prefer_floor")? },
        cubic: call.float("cubic_coeff_a", -0.75)?,
        exclude_outside: call.flag("exclude_outside", false)?,
        antialias: call.flag("antialias", false)?,
        extrapolation: call.float("extrapolation_value", 0.0)?,
    };
    let axes = match call.ints("axes")? {
        Some(axes) => axes.iter().map(|axis| axis_of(*axis, rank)).collect::<Result<Vec<usize>>>()?,
        None => (0..rank).collect(),
    };
    let is_given = |index: usize| Ok::<_, Error>(call.maybe(index)?.is_some_and(|item| !item.x.is_empty()));
    let scales = if old { 1 } else { 2 };
    let mut axes = match is_given(scales)? {
        true => of_scales(item, &axes, &call.reals(scales)?)?,
        false if !old && is_given(3)? => of_sizes(call, item, &axes, &call.numbers(3)?)?,
        false => return Err(Error::value("it has neither scales nor sizes")),
    };
    if rules.coordinates == "tf_crop_and_resize" {
        let region = call.reals(1)?;
        if region.len() != 2 * axes.len() {
            return Err(Error::shape(format!("{} numbers of its region; expected {}", region.len(), 2 * axes.len())));
        }
        let count = axes.len();
        for (index, axis) in axes.iter_mut().enumerate() {
            axis.region = (region[index], region[index + count]);
        }
    }
    resized(item, &axes, &rules)
}

fn of_sizes(call: &Call<'_>, item: &Item, axes: &[usize], sizes: &[i64]) -> Result<Vec<Axis>> {
    if sizes.len() != axes.len() {
        return Err(Error::shape(format!("{} sizes for {} axes", sizes.len(), axes.len())));
    }
    let sizes = super::super::call::lengths(sizes)?;
    let ratio = |(axis, size): (&usize, &usize)| *size as f64 / item.x.shape()[*axis] as f64;
    let ratios: Vec<f64> = axes.iter().zip(&sizes).map(ratio).collect();
    let keeps = match call.text("keep_aspect_ratio_policy")?.unwrap_or("stretch") {
        "stretch" => None,
        "not_larger" => Some(ratios.iter().copied().fold(f64::INFINITY, f64::min)),
        "not_smaller" => Some(ratios.iter().copied().fold(0.0, f64::max)),
        other => return Err(Error::value(format!("`keep_aspect_ratio_policy` is `{other}`"))),
    };
    let axis = |((axis, size), ratio): ((&usize, &usize), &f64)| {
        let from = item.x.shape()[*axis] as f64;
        match keeps {
            None => Axis { axis: *axis, len: *size, scale: *ratio, region: (0.0, 1.0) },
            Some(scale) => {
                let len = (scale * from + 0.5).floor() as usize;
                Axis { axis: *axis, len, scale, region: (0.0, 1.0) }
            }
        }
    };
    Ok(axes.iter().zip(&sizes).zip(&ratios).map(axis).collect())
}

/// Resizes each axis whose length or scale changes.
fn resized(item: &Item, axes: &[Axis], rules: &Rules) -> Result<Vec<Value>> {
    let crops = rules.coordinates == "tf_crop_and_resize";
    let from = item.x.shape();
    let changed: Vec<Axis> =
        axes.iter().filter(|axis| axis.len != from[axis.axis] || axis.scale != 1.0 || crops).cloned().collect();
    let mut to = from.to_vec();
    axes.iter().for_each(|axis| to[axis.axis] = axis.len);
    room(&to)?;
    if item.x.is_empty() || to.contains(&0) {
        return Err(Error::shape(format!("{from:?} cannot be resized to {to:?}")));
    }
    if let Some(y) = native(&item.x, &changed, &to, rules)? {
        return one(y, item.elem);
    }
    let mut y = item.x.clone();
    for axis in &changed {
        let len = y.shape()[axis.axis];
        if rules.mode == "nearest" && !crops {
            let places = (0..axis.len).map(|i| nearest(place(i, axis, len, rules)?, len, rules));
            y = y.index_select(axis.axis as isize, &vector(places.collect::<Result<Vec<i64>>>()?)?)?;
            continue;
        }
        y = in_floats(&Item { x: y, ..item.clone() }, |y| along(y, axis, len, rules))?;
    }
    one(y, item.elem)
}

/// Runs the op of this library where it has the same rules.
fn native(x: &Tensor, changed: &[Axis], to: &[usize], rules: &Rules) -> Result<Option<Tensor>> {
    let spatial = (3..=5).contains(&x.rank()) && changed.iter().all(|axis| axis.axis > 1);
    let plain = !rules.antialias && !rules.exclude_outside && x.dtype().is_float();
    let exact = |axis: &Axis| axis.len as f64 == x.shape()[axis.axis] as f64 * axis.scale;
    let short = changed.iter().any(|axis| axis.len == 1);
    let (mode, corners) = match (&rules.mode[..], &rules.coordinates[..]) {
        ("nearest", "asymmetric") if rules.nearest == "floor" => (Interpolation::Nearest, false),
        ("linear", "half_pixel") => (Interpolation::Linear, false),
        ("linear", "pytorch_half_pixel") if !short => (Interpolation::Linear, false),
        ("linear", "align_corners") => (Interpolation::Linear, true),
        ("cubic", "half_pixel") if rules.cubic == -0.75 => (Interpolation::Cubic, false),
        ("cubic", "pytorch_half_pixel") if rules.cubic == -0.75 && !short => (Interpolation::Cubic, false),
        ("cubic", "align_corners") if rules.cubic == -0.75 => (Interpolation::Cubic, true),
        _ => return Ok(None),
    };
    if !spatial || !plain || !changed.iter().all(exact) {
        return Ok(None);
    }
    if changed.is_empty() {
        return Ok(Some(x.clone()));
    }
    x.interpolate(&Resize::To(to[2..].to_vec()), mode, corners).map(Some)
}

/// Returns the old place of a new element.
fn place(i: usize, axis: &Axis, len: usize, rules: &Rules) -> Result<f64> {
    let (i, new, old, scale) = (i as f64, axis.len as f64, len as f64, axis.scale);
    Ok(match &rules.coordinates[..] {
        "half_pixel" => (i + 0.5) / scale - 0.5,
        "pytorch_half_pixel" => {
            if axis.len > 1 {
                (i + 0.5) / scale - 0.5
            } else {
                0.0
            }
        }
        "half_pixel_symmetric" => {
            let adjustment = new / (scale * old);
            let centre = old / 2.0;
            centre * (1.0 - adjustment) + (i + 0.5) / scale - 0.5
        }
        "asymmetric" => i / scale,
        "align_corners" => {
            if axis.len > 1 {
                i * (old - 1.0) / (scale * old - 1.0)
            } else {
                0.0
            }
        }
        "tf_half_pixel_for_nn" => (i + 0.5) / scale,
        "tf_crop_and_resize" => {
            let (start, end) = axis.region;
            match axis.len > 1 {
                true => start * (old - 1.0) + i * (end - start) * (old - 1.0) / (scale * old - 1.0),
                false => 0.5 * (start + end) * (old - 1.0),
            }
        }
        other => return Err(Error::unsupported(format!("the coordinates `{other}` are unknown"))),
    })
}

fn nearest(place: f64, len: usize, rules: &Rules) -> Result<i64> {
    let at = match &rules.nearest[..] {
        "round_prefer_floor" => (place - 0.5).ceil(),
        "round_prefer_ceil" => (place + 0.5).floor(),
        "floor" => place.floor(),
        "ceil" => place.ceil(),
        other => return Err(Error::unsupported(format!("the nearest mode `{other}` is unknown"))),
    };
    Ok((at as i64).clamp(0, len as i64 - 1))
}

/// Returns the weight of an element at a distance.
fn weight(distance: f64, rules: &Rules) -> f64 {
    let (d, a) = (distance.abs(), rules.cubic);
    match (&rules.mode[..], d) {
        ("linear", d) => (1.0 - d).max(0.0),
        (_, d) if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
        (_, d) if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
        _ => 0.0,
    }
}

/// Multiplies an axis by the matrix of its resizing.
fn along(x: &Tensor, axis: &Axis, len: usize, rules: &Rules) -> Result<Tensor> {
    let crops = rules.coordinates == "tf_crop_and_resize";
    room(&[axis.len, len])?;
    let mut matrix = vec![0.0; axis.len * len];
    let mut outside = vec![0.0; axis.len];
    for i in 0..axis.len {
        let at = place(i, axis, len, rules)?;
        if crops && !(0.0..=(len - 1) as f64).contains(&at) {
            outside[i] = rules.extrapolation;
            continue;
        }
        let row = &mut matrix[i * len..(i + 1) * len];
        match &rules.mode[..] {
            "nearest" => row[nearest(at, len, rules)? as usize] = 1.0,
            "linear" | "cubic" => {
                // A wider window averages what a smaller picture leaves out.
                let shrink = if rules.antialias { axis.scale.min(1.0) } else { 1.0 };
                let reach = if rules.mode == "linear" { 1.0 } else { 2.0 } / shrink;
                let (first, last) = ((at - reach).floor() as i64, (at + reach).ceil() as i64);
                let mut sum = 0.0;
                for tap in first..=last {
                    let w = weight((tap as f64 - at) * shrink, rules);
                    if rules.exclude_outside && !(0..len as i64).contains(&tap) {
                        continue;
                    }
                    row[tap.clamp(0, len as i64 - 1) as usize] += w;
                    sum += w;
                }
                if sum != 0.0 {
                    row.iter_mut().for_each(|w| *w /= sum);
                }
            }
            other => return Err(Error::unsupported(format!("the mode `{other}` is unknown"))),
        }
    }
    let matrix = Tensor::from_f64(&matrix, &[axis.len, len], x.dtype())?;
    let last = x.rank() - 1;
    let y = moved(x, axis.axis, last)?;
    let y = if last == 0 { y.unsqueeze(0)?.linear(&matrix, None)?.squeeze(0)? } else { y.linear(&matrix, None)? };
    let y = match crops && outside.iter().any(|value| *value != 0.0) {
        true => y.add(&Tensor::from_f64(&outside, &[axis.len], x.dtype())?)?,
        false => y,
    };
    moved(&y, last, axis.axis)
}
