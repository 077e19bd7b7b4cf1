//! The one rule that turns (frame, op, input dtypes) into casts.

use super::{Frame, Treatment};
use crate::{
    DType, Op,
    error::{Error, Result},
    op::Mixing,
};

/// The casts of one op call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Casts {
    /// The dtype to which every castable input is cast; `None` leaves them.
    pub inputs: Option<DType>,
    /// The dtype to which a castable output is cast; `None` leaves it.
    pub output: Option<DType>,
}

/// Decides the casts of one call. Pure.
///
/// Only f32, f16 and bf16 are ever cast by a frame. What no frame decides is ordinary arithmetic: ops of the arithmetic
/// family promote to the widest input, matrix products refuse mixed inputs.
///
/// # Errors
/// [`ErrorKind::DType`](crate::ErrorKind::DType) when inputs of different floating dtypes meet in an op that refuses it.
pub fn resolve(frame: Option<&Frame>, op: Op, inputs: &[DType]) -> Result<Casts> {
    if op == Op::Cast {
        return Ok(Casts::default());
    }
    let to = |dtype| Casts { inputs: Some(dtype), output: None };
    let casts = match frame {
        None | Some(Frame::Off) => Casts::default(),
        Some(Frame::Fixed(dtype)) => to(*dtype),
        Some(Frame::Lists(rules)) => match rules.ops.get(&op) {
            None => Casts::default(),
            Some(Treatment::Low) => {
                let touched = inputs.iter().any(|d| d.is_castable());
                Casts { inputs: Some(rules.low), output: (rules.back && touched).then_some(DType::F32) }
            }
            Some(Treatment::Full) => to(DType::F32),
            Some(Treatment::Widest) => match widest(inputs.iter().filter(|d| d.is_castable())) {
                Some(dtype) => to(dtype),
                None => Casts::default(),
            },
        },
    };
    let after = |d: &DType| match casts.inputs {
        Some(to) if d.is_castable() => to,
        _ => *d,
    };
    let floats: Vec<DType> = inputs.iter().map(after).filter(|d| d.is_float()).collect();
    let mixed = floats.windows(2).any(|pair| pair[0] != pair[1]);
    match op.mixing() {
        Mixing::Promotes if mixed => Ok(Casts { inputs: widest(&floats), ..casts }),
        Mixing::Refuses if mixed => {
            let met: Vec<&str> = floats.iter().map(|d| d.name()).collect();
            Err(Error::dtype(format!(
                "inputs of different dtypes meet ({}); cast them to one dtype, or run under a policy",
                met.join(", ")
            ))
            .in_op(op.name()))
        }
        _ => Ok(casts),
    }
}

fn widest<'a>(dtypes: impl IntoIterator<Item = &'a DType>) -> Option<DType> {
    dtypes.into_iter().copied().reduce(DType::promote)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::precision::OpRules;

    #[test]
    fn a_fixed_frame_casts_every_op_but_cast() {
        let frame = Frame::Fixed(DType::F16);
        let casts = resolve(Some(&frame), Op::Exp, &[DType::F32]).unwrap();
        assert_eq!(casts, Casts { inputs: Some(DType::F16), output: None });
        assert_eq!(resolve(Some(&frame), Op::Cast, &[DType::F32]).unwrap(), Casts::default());
    }

    #[test]
    fn lists_lower_what_they_name_and_o1_returns_f32() {
        let ops = [(Op::MatMul, Treatment::Low), (Op::Exp, Treatment::Full), (Op::Concat, Treatment::Widest)];
        let rules = OpRules { low: DType::Bf16, back: true, ops: ops.into() };
        let frame = Frame::Lists(Arc::new(rules));
        let of = |op, inputs: &[DType]| resolve(Some(&frame), op, inputs).unwrap();
        use DType::*;
        assert_eq!(of(Op::MatMul, &[F32, F32]), Casts { inputs: Some(Bf16), output: Some(F32) });
        assert_eq!(of(Op::MatMul, &[F64, F64]).output, None);
        assert_eq!(of(Op::Exp, &[Bf16]).inputs, Some(F32));
        assert_eq!(of(Op::Concat, &[F16, Bf16]).inputs, Some(F32));
        assert_eq!(of(Op::Tanh, &[F16]), Casts::default());
    }

    #[test]
    fn without_a_frame_arithmetic_promotes_and_products_refuse() {
        use DType::*;
        assert_eq!(resolve(None, Op::Add, &[F16, F32]).unwrap().inputs, Some(F32));
        assert_eq!(resolve(None, Op::Add, &[F16, F16]).unwrap(), Casts::default());
        let message = resolve(None, Op::MatMul, &[F16, F32]).unwrap_err().to_string();
        assert_eq!(
            message,
            "MatMul: inputs of different dtypes meet (f16, f32); cast them to one dtype, or run under a policy"
        );
    }
}
