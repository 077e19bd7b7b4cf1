//! Numbers at the borders of a dtype in every input of every op: results and gradients in 32 and 16 bits are those in
//! f64 of the same numbers, rounded, or not finite where these leave the range.

use precast::{DType, Op, Result, Tensor};

use crate::gradients::{all_rows, row::Run};

/// Borders of a dtype: its largest, its smallest normal and its smallest number.
fn borders(dtype: DType) -> [f64; 3] {
    let (largest, normal) = match dtype {
        DType::F16 => (65504.0, 2f64.powi(-14)),
        DType::Bf16 => (f64::from(half::bf16::MAX), 2f64.powi(-126)),
        _ => (f64::from(f32::MAX), 2f64.powi(-126)),
    };
    [largest, normal, normal * dtype.epsilon()]
}

/// Returns numbers near the borders. In f16 ops are computed in f32, where sums of the largest number are in range.
fn corners(dtype: DType) -> Vec<f64> {
    let [largest, normal, subnormal] = borders(dtype);
    let large = if dtype == DType::F16 { largest } else { largest / 1024.0 };
    let root = Tensor::scalar(largest.sqrt() / 8.0, DType::F64).cast(dtype).item().expect("a number");
    let numbers = [0.0, subnormal, normal, dtype.epsilon(), 1.0, root, large, f64::INFINITY];
    numbers.into_iter().flat_map(|x| [x, -x]).chain([f64::NAN]).collect()
}

/// Returns whether an op has a reason to differ at a corner.
fn differs(op: Op, corner: f64, dtype: DType) -> bool {
    match op {
        // The border of an image is 0 times a weight.
        Op::Conv1d | Op::Conv2d | Op::Conv3d | Op::ConvTranspose1d | Op::ConvTranspose2d | Op::ConvTranspose3d => {
            !corner.is_finite()
        }
        // Gates are kept in the dtype, and a ReLU has a kink where a product underflows.
        Op::GruCell | Op::FusedRnn => corner != 1.0,
        // The nearest pixel of a point half way between two.
        Op::GridSampler2d | Op::GridSampler3d => corner.abs() == borders(dtype)[2],
        _ => false,
    }
}

/// Runs an op in a dtype, and returns the result and the gradients of its inputs.
fn run_in(dtype: DType, inputs: &[Tensor], run: &Run) -> Result<Vec<Option<Vec<f64>>>> {
    let leaf = |x: &Tensor| if x.dtype().is_float() { x.cast(dtype).requires_grad() } else { x.clone() };
    let leaves: Vec<Tensor> = inputs.iter().map(leaf).collect();
    let y = run(&leaves)?;
    let mut all = vec![Some(y.to_f64())];
    if y.is_tracked() {
        let grads = y.backward_from(&Tensor::ones(y.shape(), y.dtype()))?;
        all.extend(leaves.iter().map(|x| grads.of(x).map(|grad| grad.to_f64())));
    }
    Ok(all)
}

/// Returns the first number that is not the exact one: each of some roundings is relative to the largest number of a sum,
/// and its terms may be as large as the corner.
fn wrong(found: &[f64], exact: &[f64], corner: f64, dtype: DType) -> Option<String> {
    let [most, _, least] = borders(dtype);
    let largest = exact.iter().chain([&corner, &1.0]).filter(|x| x.is_finite()).fold(0f64, |most, x| most.max(x.abs()));
    let near = |(y, x): (&f64, &f64)| match x {
        x if x.is_nan() => y.is_nan(),
        x if x.is_infinite() => y == x,
        // Infinities of both signs may meet in a sum.
        x if x.abs() > most * (1.0 - 16.0 * dtype.epsilon()) => !y.is_finite() || (y - x).abs() <= x.abs() / 8.0,
        x => (y - x).abs() <= 64.0 * dtype.epsilon() * largest.min(most) + 4.0 * least,
    };
    found.iter().zip(exact).find(|pair| !near(*pair)).map(|(y, x)| format!("{y:e}, exact {x:e}"))
}

/// Compares a call with one input at a corner, in all or one of its elements, with the same call in f64.
fn compare(inputs: &[Tensor], i: usize, corner: f64, dtype: DType, run: &Run) -> Result<(), String> {
    for count in [inputs[i].len(), 1] {
        let mut inputs = inputs.to_vec();
        let mut data = inputs[i].to_f64();
        data[..count].fill(corner);
        inputs[i] = Tensor::from_vec(data, inputs[i].shape()).expect("as many numbers as before");
        let words = match (run_in(dtype, &inputs, run), run_in(DType::F64, &inputs, run)) {
            (Ok(found), Ok(exact)) => found.iter().zip(&exact).enumerate().find_map(|(place, pair)| {
                let corner = if place == 0 { 1.0 } else { corner };
                let words = wrong(pair.0.as_ref()?, pair.1.as_ref()?, corner, dtype)?;
                Some(if place == 0 { words } else { format!("gradient of input {}: {words}", place - 1) })
            }),
            (Err(_), Err(_)) => None,
            (Err(error), _) => Some(format!("{error}, in f64 none")),
            (_, Err(error)) => Some(format!("in f64 alone {error}")),
        };
        if let Some(words) = words {
            return Err(format!("{dtype}, {count} of {} of input {i} are {corner:e}: {words}", inputs[i].len()));
        }
    }
    Ok(())
}

#[test]
fn numbers_at_borders_have_the_values_and_gradients_of_f64() {
    let mut failures = Vec::new();
    // Plain inputs of some shapes.
    for (row, number) in all_rows().iter().flat_map(|row| [6, 9, 12, 15].map(|number| (row, number))) {
        failures.extend(row.failure_in(number, |inputs, run, _| {
            for dtype in [DType::F32, DType::F16, DType::Bf16] {
                let round = |x: &Tensor| if x.dtype().is_float() { x.cast(dtype).cast(DType::F64) } else { x.clone() };
                let rounded: Vec<Tensor> = inputs.iter().map(round).collect();
                for i in (0..inputs.len()).filter(|&i| inputs[i].dtype().is_float() && !inputs[i].is_empty()) {
                    for corner in corners(dtype).into_iter().filter(|&corner| !differs(row.op, corner, dtype)) {
                        compare(&rounded, i, corner, dtype, run)?;
                    }
                }
            }
            Ok(())
        }));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
