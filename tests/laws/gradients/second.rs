//! Second derivatives of every op, compared with central differences of its gradients in f64; and gradients on the
//! tape, compared with those of the ordinary backward pass, bit for bit.

use precast::{DType, ErrorKind, Op, Result, Tensor, gradcheck, twice_differentiable};

use crate::gradients::{
    all_rows,
    row::{Row, Run},
};

/// Ops with a gradient but without a second derivative.
const NONE: [Op; 3] = [Op::GridSampler2d, Op::GridSampler3d, Op::CtcLoss];

/// Number of cases of each row, in all layouts.
const SOME: usize = 12;

/// Returns the loss of a call, a sum with fixed factors, which can be differentiated twice, with its variables.
fn loss(inputs: &[Tensor], call: &Run, dtype: DType) -> Result<(Tensor, Vec<Tensor>)> {
    let leaf = |x: &Tensor| if x.dtype().is_float() { x.cast(dtype).requires_grad() } else { x.clone() };
    let leaves: Vec<Tensor> = inputs.iter().map(leaf).collect();
    let loss = twice_differentiable(|| {
        let y = call(&leaves)?;
        let factors: Vec<f64> = (0..y.len()).map(|i| (i as f64 * 0.7).sin()).collect();
        y.mul(&Tensor::from_f64(&factors, y.shape(), y.dtype())?)?.sum_all()
    })?;
    Ok((loss, leaves.into_iter().filter(Tensor::is_tracked).collect()))
}

fn same_on_the_tape(inputs: &[Tensor], call: &Run, dtype: DType) -> Result<(), String> {
    let run = || -> Result<_> {
        let (loss, leaves) = loss(inputs, call, dtype)?;
        let on_tape = loss.gradients_on_tape(&leaves.iter().collect::<Vec<_>>())?;
        Ok((loss.backward()?, on_tape, leaves))
    };
    let (plain, on_tape, leaves) = run().map_err(|e| e.to_string())?;
    for (i, (x, found)) in leaves.iter().zip(&on_tape).enumerate() {
        let expected = plain.of(x);
        let bits = |x: &Tensor| x.to_f64().into_iter().map(f64::to_bits).collect::<Vec<_>>();
        let same = match (&found, expected) {
            (None, None) => true,
            (Some(found), Some(expected)) => {
                (found.dtype(), found.shape()) == (expected.dtype(), expected.shape()) && bits(found) == bits(&expected)
            }
            _ => false,
        };
        if !same {
            return Err(format!(
                "in {dtype}, the gradient of input {i} is {found:?} on the tape, else {:?}",
                plain.of(x)
            ));
        }
    }
    Ok(())
}

fn check(row: &Row, inputs: &[Tensor], call: &Run, slope: f64) -> Result<(), String> {
    if NONE.contains(&row.op) {
        let none = || -> Result<Vec<Option<Tensor>>> {
            let (loss, leaves) = loss(inputs, call, DType::F64)?;
            loss.gradients_on_tape(&leaves.iter().collect::<Vec<_>>())
        };
        return match none() {
            Err(e) if e.kind() == ErrorKind::Unsupported && e.op() == Some(row.op.name()) => Ok(()),
            other => Err(format!("has no second derivative, and gives {other:?}")),
        };
    }
    for dtype in [DType::F64, DType::F32, DType::Bf16] {
        same_on_the_tape(inputs, call, dtype)?;
    }
    let found = gradcheck::second(inputs, call).map_err(|e| e.to_string())?;
    if found.relative > slope { Err(format!("{found:?}")) } else { Ok(()) }
}

#[test]
fn every_op_has_a_second_derivative_or_refuses_one() {
    let failures: Vec<String> = all_rows()
        .into_iter()
        .filter(|row| row.has_gradient)
        .flat_map(|row| {
            let failure = |number| row.failure_in(number, |inputs, call, slope| check(&row, inputs, call, slope));
            (0..SOME).filter_map(failure).collect::<Vec<_>>()
        })
        .collect();
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
}
