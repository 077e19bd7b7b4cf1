//! Convolutions and their transposes.

use super::{
    super::{
        call::{lengths, one},
        step::Call,
        value::{Value, room},
    },
    Table,
};
use crate::onnx::tensor::Elem;
use precast::{
    ConvOptions, ConvTransposeOptions, DType, Padding, Tensor,
    error::{Error, Result},
};

pub(super) const OPS: Table =
    &[("Conv", convolution), ("ConvTranspose", transposed), ("ConvInteger", convolution_integer)];

/// The largest length, stride or padding that an op takes.
const MOST: usize = i32::MAX as usize;

/// The windows of an op over spatial axes.
pub(super) struct Windows {
    pub kernel: Vec<usize>,
    pub stride: Vec<usize>,
    pub dilation: Vec<usize>,
    /// Padding before and after each axis.
    pub pads: Vec<(usize, usize)>,
    /// `true` when the padding follows from the stride.
    pub automatic: bool,
}

/// Reads a setting for each axis.
pub(super) fn per_axis(call: &Call<'_>, name: &str, axes: usize, default: usize) -> Result<Vec<usize>> {
    match call.lengths(name)? {
        None => Ok(vec![default; axes]),
        Some(given) if given.len() == axes && given.iter().all(|length| *length <= MOST) => Ok(given),
        Some(given) => Err(Error::value(format!("`{name}` is {given:?}; expected {axes} numbers of at most {MOST}"))),
    }
}

/// Reads explicit padding.
pub(super) fn explicit(call: &Call<'_>, axes: usize) -> Result<Vec<(usize, usize)>> {
    let Some(given) = call.ints("pads")? else { return Ok(vec![(0, 0); axes]) };
    if given.len() != 2 * axes {
        return Err(Error::value(format!("`pads` has {} numbers; expected {}", given.len(), 2 * axes)));
    }
    if given.iter().any(|pad| *pad < 0) {
        return Err(call.refuse(&format!("`pads` is {given:?}; negative padding has no counterpart here")));
    }
    let pads = lengths(&given)?;
    Ok((0..axes).map(|axis| (pads[axis].min(MOST), pads[axis + axes].min(MOST))).collect())
}

impl Windows {
    pub fn read(call: &Call<'_>, spatial: &[usize], kernel: Vec<usize>) -> Result<Windows> {
        let axes = spatial.len();
        if kernel.len() != axes || kernel.iter().any(|len| *len == 0 || *len > MOST) {
            return Err(Error::value(format!("a kernel of {kernel:?} for {axes} spatial axes")));
        }
        let stride = per_axis(call, "strides", axes, 1)?;
        let dilation = per_axis(call, "dilations", axes, 1)?;
        if stride.contains(&0) || dilation.contains(&0) {
            return Err(Error::value("a stride or a dilation of 0; allowed: 1 or more"));
        }
        let mode = call.text("auto_pad")?.unwrap_or("NOTSET");
        let pads = match mode {
            "NOTSET" | "" => explicit(call, axes)?,
            "VALID" => vec![(0, 0); axes],
            "SAME_UPPER" | "SAME_LOWER" => (0..axes)
                .map(|axis| {
                    let reach = dilation[axis].saturating_mul(kernel[axis] - 1).saturating_add(1);
                    let last = (spatial[axis].div_ceil(stride[axis]).max(1) - 1).saturating_mul(stride[axis]);
                    let total = last.saturating_add(reach).saturating_sub(spatial[axis]);
                    if mode == "SAME_UPPER" { (total / 2, total.div_ceil(2)) } else { (total.div_ceil(2), total / 2) }
                })
                .collect(),
            other => {
                return Err(Error::value(format!(
                    "`auto_pad` is `{other}`; allowed: NOTSET, VALID, SAME_UPPER, SAME_LOWER"
                )));
            }
        };
        let padded = |(len, pair): (&usize, &(usize, usize))| len.saturating_add(pair.0).saturating_add(pair.1);
        room(&spatial.iter().zip(&pads).map(padded).collect::<Vec<usize>>())?;
        let automatic = mode.starts_with("SAME");
        Ok(Windows { kernel, stride, dilation, pads, automatic })
    }
}

/// Returns the spatial axes of a tensor: one to three.
pub(super) fn spatial<'a>(call: &Call<'_>, x: &'a Tensor) -> Result<&'a [usize]> {
    match x.shape() {
        [_, _, spatial @ ..] if (1..=3).contains(&spatial.len()) => Ok(spatial),
        shape => Err(call.refuse(&format!("its input has the shape {shape:?}; allowed: one to three spatial axes"))),
    }
}

fn check_kernel(call: &Call<'_>, weight: &Tensor) -> Result<Vec<usize>> {
    let of_weight = weight.shape().get(2..).unwrap_or_default().to_vec();
    match call.lengths("kernel_shape")? {
        Some(kernel) if kernel != of_weight => {
            Err(Error::shape(format!("`kernel_shape` is {kernel:?}, and its weight has {of_weight:?}")))
        }
        _ => Ok(of_weight),
    }
}

fn convolution(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    one(convolved(call, &item.x, call.x(1)?, call.maybe_x(2)?)?, item.elem)
}

fn convolved(call: &Call<'_>, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let spatial = spatial(call, x)?;
    let Windows { stride, dilation, pads, .. } = Windows::read(call, spatial, check_kernel(call, weight)?)?;
    let groups = lengths(&[call.int("group", 1)?])?[0];
    let padding = if pads.iter().all(|pair| *pair == (0, 0)) { Padding::Valid } else { Padding::Explicit(pads) };
    let options = ConvOptions::default().stride(stride).padding(padding).dilation(dilation).groups(groups);
    match spatial.len() {
        1 => x.conv1d(weight, bias, &options),
        2 => x.conv2d(weight, bias, &options),
        _ => x.conv3d(weight, bias, &options),
    }
}

fn convolution_integer(call: &Call<'_>) -> Result<Vec<Value>> {
    let centred = |index: usize, zero: usize| {
        let x = call.x(index)?.cast(DType::F64);
        match call.maybe_x(zero)? {
            None => Ok(x),
            Some(zero) if zero.len() == 1 => x.sub(&zero.cast(DType::F64).reshape(&[1isize; 0])?),
            Some(zero) => {
                let shape = [&[zero.len()][..], &vec![1; x.rank() - 1]].concat();
                x.sub(&zero.cast(DType::F64).reshape(&shape)?)
            }
        }
    };
    one(convolved(call, &centred(0, 2)?, &centred(1, 3)?, None)?.cast(DType::I64), Elem::INT32)
}

fn transposed(call: &Call<'_>) -> Result<Vec<Value>> {
    let item = call.item(0)?;
    let (x, weight) = (&item.x, call.x(1)?);
    let spatial = spatial(call, x)?;
    let axes = spatial.len();
    let Windows { kernel, stride, dilation, mut pads, automatic } =
        Windows::read(call, spatial, check_kernel(call, weight)?)?;
    let mut extra = per_axis(call, "output_padding", axes, 0)?;
    let wanted = match (call.lengths("output_shape")?, automatic) {
        (Some(shape), _) => Some(shape[shape.len().saturating_sub(axes)..].to_vec()),
        (None, true) => Some(spatial.iter().zip(&stride).map(|(len, stride)| len.saturating_mul(*stride)).collect()),
        (None, false) => None,
    };
    if let Some(wanted) = wanted {
        if wanted.len() != axes {
            return Err(Error::value(format!("`output_shape` has {} lengths; expected {axes}", wanted.len())));
        }
        let upper = call.text("auto_pad")? == Some("SAME_UPPER");
        for axis in 0..axes {
            let reach = dilation[axis].saturating_mul(kernel[axis] - 1).saturating_add(1);
            let full = spatial[axis].saturating_sub(1).saturating_mul(stride[axis]).saturating_add(reach);
            let full = full.saturating_add(extra[axis]);
            match full.checked_sub(wanted[axis]) {
                Some(total) if upper => pads[axis] = (total / 2, total.div_ceil(2)),
                Some(total) => pads[axis] = (total.div_ceil(2), total / 2),
                // A longer output has zeros at its end.
                None => {
                    pads[axis] = (0, 0);
                    extra[axis] = extra[axis].saturating_add(wanted[axis] - full);
                }
            }
        }
    }
    let groups = lengths(&[call.int("group", 1)?])?[0];
    let options = ConvTransposeOptions::default()
        .stride(stride)
        .padding(Padding::Explicit(pads))
        .output_padding(extra)
        .dilation(dilation)
        .groups(groups);
    let bias = call.maybe_x(2)?;
    let y = match axes {
        1 => x.conv_transpose1d(weight, bias, &options),
        2 => x.conv_transpose2d(weight, bias, &options),
        _ => x.conv_transpose3d(weight, bias, &options),
    };
    one(y?, item.elem)
}
