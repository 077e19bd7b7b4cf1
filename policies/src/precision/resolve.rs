//! The single function that maps (frame, op, input dtypes) to casts.

use precast_base::{DType, Error, Result};

use super::{Frame, OpRules, Treatment};
use crate::{
    Op,
    catalogue::{Mixing, Precision},
};

/// Casts of one op call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Casts {
    /// Target dtype of each input in order. `None` leaves the input as it is.
    pub inputs: Vec<Option<DType>>,
    /// Target dtype of a castable output. `None` leaves the output as it is.
    pub output: Option<DType>,
}

impl Casts {
    /// Returns the dtypes of the inputs after the casts.
    pub fn after(&self, inputs: &[DType]) -> Vec<DType> {
        self.inputs.iter().zip(inputs).map(|(to, from)| to.unwrap_or(*from)).collect()
    }
}

/// Decides the casts of one op call. Pure.
///
/// A frame casts only f32, f16 and bf16. Ops not decided by a frame follow ordinary arithmetic: ops of the arithmetic
/// family promote to the widest input, matrix products refuse mixed inputs.
///
/// # Errors
/// [`ErrorKind::DType`](crate::ErrorKind::DType) for mixed floating dtypes in an op that refuses them;
/// [`ErrorKind::List`](crate::ErrorKind::List) when the op is banned.
pub fn resolve(frame: Option<&Frame>, op: Op, inputs: &[DType]) -> Result<Casts> {
    let mut casts = Casts { inputs: vec![None; inputs.len()], output: None };
    if op == Op::Cast {
        return Ok(casts);
    }
    match frame {
        None | Some(Frame::Off) => {}
        Some(Frame::Fixed(dtype)) => match fixed(op) {
            Some(dtype) => cast_all(&mut casts, inputs, dtype, DType::is_castable),
            None => cast_all(&mut casts, inputs, *dtype, DType::is_castable),
        },
        Some(Frame::Lists(rules)) => by_rules(&mut casts, rules, op, inputs)?,
    }
    let floats = || casts.inputs.iter().zip(inputs).map(|(to, from)| to.unwrap_or(*from)).filter(|d| d.is_float());
    let Some(first) = floats().next() else { return Ok(casts) };
    if floats().all(|dtype| dtype == first) {
        return Ok(casts);
    }
    match op.mixing() {
        Mixing::Keeps => {}
        Mixing::Promotes => {
            let widest = floats().fold(first, DType::promote);
            cast_all(&mut casts, inputs, widest, DType::is_castable);
        }
        Mixing::Refuses => {
            let met: Vec<&str> = floats().map(DType::name).collect();
            let remedy = match floats().any(|dtype| dtype == DType::F64) {
                true => {
                    "cast them to one dtype, as no policy ever casts f64; numbers of `from_vec` without a suffix are f64: \
                     write `1f32`"
                }
                false => "cast them to one dtype, or run under a policy",
            };
            return Err(Error::dtype(format!("inputs of different dtypes meet ({}); {remedy}", met.join(", ")))
                .in_op(op.name()));
        }
    }
    Ok(casts)
}

/// Returns the fixed dtype declared by a custom op, if any.
fn fixed(op: Op) -> Option<DType> {
    match op {
        Op::Custom(op) => match op.precision() {
            Precision::Fixed(dtype) => Some(dtype),
            _ => None,
        },
        _ => None,
    }
}

fn by_rules(casts: &mut Casts, rules: &OpRules, op: Op, inputs: &[DType]) -> Result<()> {
    let eligible = |dtype: DType| rules.eligible.contains(&dtype);
    if let Some(dtype) = fixed(op).filter(|_| !rules.ops.contains_key(&op)) {
        cast_all(casts, inputs, dtype, eligible);
        return Ok(());
    }
    let by_first = rules.by_first.contains(&op);
    let to = match rules.treatment(op).in_region() {
        Treatment::AsIs => return Ok(()),
        Treatment::Low => rules.low,
        Treatment::Full => DType::F32,
        Treatment::Widest | Treatment::Infer | Treatment::Clear => {
            match inputs.iter().copied().filter(|d| eligible(*d)).reduce(DType::promote) {
                Some(dtype) => dtype,
                None => return Ok(()),
            }
        }
        Treatment::Gray => {
            let deciding = if by_first { &inputs[..inputs.len().min(1)] } else { inputs };
            if deciding.contains(&DType::F32) { DType::F32 } else { rules.low }
        }
        Treatment::Banned => {
            let because = rules.because.get(&op).map_or(String::new(), |because| format!(": {because}"));
            return Err(Error::list(format!("banned by the lists of {}{because}", rules.name)).in_op(op.name()));
        }
    };
    let cast = if by_first && to == rules.low { inputs.len().min(1) } else { inputs.len() };
    cast_all(casts, &inputs[..cast], to, eligible);
    if rules.ops.contains_key(&op) && inputs.iter().any(|d| eligible(*d)) {
        casts.output = rules.back;
    }
    Ok(())
}

fn cast_all(casts: &mut Casts, inputs: &[DType], to: DType, which: impl Fn(DType) -> bool) {
    for (cast, from) in casts.inputs.iter_mut().zip(inputs) {
        if which(*from) {
            *cast = Some(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use DType::*;

    fn frame(rules: OpRules) -> Frame {
        Frame::Lists(Arc::new(rules))
    }

    fn rules(ops: &[(Op, Treatment)]) -> OpRules {
        OpRules { ops: ops.iter().copied().collect(), ..OpRules::new("test", Bf16) }
    }

    fn after(frame: &Frame, op: Op, inputs: &[DType]) -> Vec<DType> {
        resolve(Some(frame), op, inputs).unwrap().after(inputs)
    }

    #[test]
    fn a_fixed_frame_casts_every_op_but_cast() {
        let frame = Frame::Fixed(F16);
        assert_eq!(after(&frame, Op::Exp, &[F32]), [F16]);
        assert_eq!(after(&frame, Op::Cast, &[F32]), [F32]);
        assert_eq!(after(&frame, Op::Exp, &[F64]), [F64]);
        assert_eq!(after(&frame, Op::Where, &[Bool, F32, Bf16]), [Bool, F16, F16]);
    }

    #[test]
    fn lists_lower_what_they_name_and_o1_returns_f32() {
        let listed = [(Op::MatMul, Treatment::Low), (Op::Exp, Treatment::Full), (Op::Concat, Treatment::Widest)];
        let frame = frame(OpRules { back: Some(F32), ..rules(&listed) });
        let of = |op, inputs: &[DType]| resolve(Some(&frame), op, inputs).unwrap();
        assert_eq!(of(Op::MatMul, &[F32, F32]), Casts { inputs: vec![Some(Bf16); 2], output: Some(F32) });
        assert_eq!(of(Op::MatMul, &[F64, F64]), Casts { inputs: vec![None; 2], output: None });
        assert_eq!(after(&frame, Op::Exp, &[Bf16]), [F32]);
        assert_eq!(after(&frame, Op::Concat, &[F16, Bf16]), [F32, F32]);
        assert_eq!(after(&frame, Op::Tanh, &[F16]), [F16]);
    }

    #[test]
    fn at_o2_listed_ops_run_in_f32_and_return_low_among_low_ops() {
        let o2 = OpRules { back: Some(Bf16), unlisted: Treatment::Low, ..rules(&[(Op::Exp, Treatment::Full)]) };
        let frame = frame(o2);
        let of = |op, inputs: &[DType]| resolve(Some(&frame), op, inputs).unwrap();
        assert_eq!(of(Op::Exp, &[Bf16]), Casts { inputs: vec![Some(F32)], output: Some(Bf16) });
        assert_eq!(of(Op::Exp, &[F64]), Casts { inputs: vec![None], output: None });
        assert_eq!(of(Op::Tanh, &[F32]), Casts { inputs: vec![Some(Bf16)], output: None });
        assert_eq!(of(Op::ArgMax, &[I64]), Casts { inputs: vec![None], output: None });
    }

    #[test]
    fn gray_ops_run_low_unless_an_input_is_f32() {
        let gray = OpRules { unlisted: Treatment::Gray, by_first: [Op::BatchNorm].into(), ..rules(&[]) };
        let frame = frame(gray);
        assert_eq!(after(&frame, Op::Add, &[Bf16, F32]), [F32, F32]);
        assert_eq!(after(&frame, Op::Add, &[F16, Bf16]), [Bf16, Bf16]);
        assert_eq!(after(&frame, Op::Relu, &[F64]), [F64]);
        // The first input of a norm decides, and is cast to low alone.
        assert_eq!(after(&frame, Op::BatchNorm, &[F16, F32]), [Bf16, F32]);
        assert_eq!(after(&frame, Op::BatchNorm, &[F32, Bf16]), [F32, F32]);
    }

    #[test]
    fn a_banned_op_says_why() {
        let mut banned = rules(&[(Op::BinaryCrossEntropy, Treatment::Banned)]);
        banned.because.insert(Op::BinaryCrossEntropy, "log of a rounded probability".into());
        let message = resolve(Some(&frame(banned)), Op::BinaryCrossEntropy, &[F32, F32]).unwrap_err().to_string();
        assert_eq!(message, "BinaryCrossEntropy: banned by the lists of test: log of a rounded probability");
    }

    #[test]
    fn only_eligible_dtypes_are_cast() {
        let frame = frame(OpRules {
            eligible: vec![F32],
            ..rules(&[(Op::MatMul, Treatment::Low), (Op::Exp, Treatment::Full)])
        });
        assert_eq!(after(&frame, Op::MatMul, &[F32, F32]), [Bf16, Bf16]);
        assert_eq!(after(&frame, Op::Exp, &[F16]), [F16]);
    }

    #[test]
    fn without_a_frame_arithmetic_promotes_and_products_refuse() {
        let free = |op, inputs: &[DType]| resolve(None, op, inputs).unwrap().after(inputs);
        assert_eq!(free(Op::Add, &[F16, F32]), [F32, F32]);
        assert_eq!(free(Op::Add, &[F16, F16]), [F16, F16]);
        let message = resolve(None, Op::MatMul, &[F16, F32]).unwrap_err().to_string();
        assert_eq!(
            message,
            "MatMul: inputs of different dtypes meet (f16, f32); cast them to one dtype, or run under a policy"
        );
    }
}
