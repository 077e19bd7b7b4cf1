//! Any op by its name in the catalogue, for programs that learn only at run time what to call.

use crate::{
    Op, Tensor,
    catalogue::op_table,
    error::{Error, Result},
};

/// How an op is called.
enum Call {
    One(fn(&Tensor) -> Result<Tensor>),
    Two(fn(&Tensor, &Tensor) -> Result<Tensor>),
    Three(fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>),
    /// Two tensors, and a third that may be left out: a bias.
    TwoOrThree(fn(&Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor>),
    ThreeOrFour(fn(&Tensor, &Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor>),
    /// Any number of tensors.
    Any(fn(&[&Tensor]) -> Result<Tensor>),
    /// Needs more than tensors: its method, with what that takes.
    Method(&'static str),
    /// Needs the value of a user's type, which holds its options.
    Custom,
}

/// The call that a row's `method(arguments)` stands for.
macro_rules! call {
    ($f:ident ($x:ident)) => { Call::One(Tensor::$f) };
    ($f:ident ($a:ident, $b:ident)) => { Call::Two(Tensor::$f) };
    ($f:ident ($a:ident, $b:ident, $c:ident)) => { Call::Three(Tensor::$f) };
    ($f:ident ($a:ident, $b:ident, $c:ident?)) => { Call::TwoOrThree(Tensor::$f) };
    ($f:ident ($a:ident, $b:ident, $c:ident, $d:ident?)) => { Call::ThreeOrFour(Tensor::$f) };
    ($f:ident ($tensors:ident ..)) => { Call::Any(Tensor::$f) };
    ($f:ident ($($x:ident)?; $($argument:ident),*)) => {{
        let _exists = Tensor::$f;
        Call::Method(concat!(stringify!($f), "(", stringify!($($argument),*), ")"))
    }};
}

macro_rules! calls {
    (
        kernels {
            $($(#[$doc:meta])* $op:ident $mixing:ident $family:ident $method:ident $arguments:tt [$($names:literal),*];)*
        }
        decided_only { $($(#[$without_doc:meta])* $without:ident [$($without_names:literal),*];)* }
    ) => {
        /// The call of an op; `None` when it has no kernel.
        fn call(op: Op) -> Option<Call> {
            match op {
                $(Op::$op => Some(call!($method $arguments)),)*
                $(Op::$without => None,)*
                Op::Custom(_) => Some(Call::Custom),
            }
        }
    };
}
op_table!(calls);

/// Runs an op whose arguments are tensors only, as its method of [`Tensor`] does: the first input is the tensor on which
/// that is called.
///
/// # Errors
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for an op without a kernel;
/// [`ErrorKind::Value`](crate::ErrorKind::Value) for an op that needs more than tensors, with the method to call, and for a
/// wrong number of tensors; then those of the op.
///
/// ```
/// use precast::{Op, prelude::*};
/// let x = Tensor::from_vec(vec![-1f32, 2.], &[2])?;
/// let [op] = Op::named("aten::relu")?[..] else { unreachable!("one op") };
/// assert_eq!(precast::run(op, &[&x])?.to_f64(), [0., 2.]);
/// assert_eq!(precast::run(Op::Add, &[&x, &x])?.to_f64(), [-2., 4.]);
/// let error = precast::run(Op::Softmax, &[&x]).unwrap_err().to_string();
/// assert_eq!(error, "Softmax: needs more than tensors; call Tensor::softmax(axis)");
/// # Ok::<(), precast::Error>(())
/// ```
pub fn run(op: Op, inputs: &[&Tensor]) -> Result<Tensor> {
    let Some(call) = call(op) else { return Err(no_kernel(op)) };
    let takes = match (call, inputs) {
        (Call::One(f), [x]) => return f(x),
        (Call::Two(f), [a, b]) => return f(a, b),
        (Call::Three(f), [a, b, c]) => return f(a, b, c),
        (Call::TwoOrThree(f), [a, b, rest @ ..]) if rest.len() < 2 => return f(a, b, rest.first().copied()),
        (Call::ThreeOrFour(f), [a, b, c, rest @ ..]) if rest.len() < 2 => return f(a, b, c, rest.first().copied()),
        (Call::Any(f), tensors) => return f(tensors),
        (Call::Method(method), _) => {
            let words = format!("needs more than tensors; call Tensor::{method}");
            return Err(Error::value(words).in_op(op.name()));
        }
        (Call::Custom, _) => {
            let words = "a custom op needs the value that holds its options; call its `apply`";
            return Err(Error::value(words).in_op(op.name()));
        }
        (Call::One(_), _) => "1 tensor",
        (Call::Two(_), _) => "2 tensors",
        (Call::Three(_), _) => "3 tensors",
        (Call::TwoOrThree(_), _) => "2 or 3 tensors",
        (Call::ThreeOrFour(_), _) => "3 or 4 tensors",
    };
    Err(Error::value(format!("takes {takes}, got {}", inputs.len())).in_op(op.name()))
}

fn no_kernel(op: Op) -> Error {
    let words =
        "no kernel; precast decides its precision and does not run it (`precast ops NAME` says what the packs say)";
    Error::unsupported(words).in_op(op.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, ErrorKind};

    #[test]
    fn every_op_runs_or_says_why_not() {
        let x = Tensor::ones(&[1], DType::F32);
        for op in Op::ALL {
            assert_eq!(call(*op).is_some(), op.has_kernel(), "{op}");
            let kind = if op.has_kernel() { ErrorKind::Value } else { ErrorKind::Unsupported };
            if let Some(Call::Any(_)) = call(*op) {
                continue;
            }
            // No other op takes five tensors, and none takes none.
            for inputs in [&[][..], &[&x; 5]] {
                let error = run(*op, inputs).unwrap_err();
                assert_eq!((error.kind(), error.op()), (kind, Some(op.name())), "{error}");
            }
        }
    }

    #[test]
    fn tensors_go_to_the_op_in_the_order_of_its_method() {
        let vector = |x: &[f32]| Tensor::from_vec(x.to_vec(), &[x.len()]).unwrap();
        let (a, b, c) = (vector(&[1.0, 2.0]), vector(&[4.0, 8.0]), vector(&[0.5, 0.25]));
        let table = |x: &Tensor| x.reshape(&[1, 2]).unwrap();
        let mask = Tensor::from_vec(vec![true, false], &[2]).unwrap();
        let of = |op, inputs: &[&Tensor]| run(op, inputs).unwrap().to_f64();
        assert_eq!(of(Op::Neg, &[&a]), [-1.0, -2.0]);
        assert_eq!(of(Op::Div, &[&a, &b]), [0.25, 0.25]);
        assert_eq!(of(Op::Pow, &[&b, &a]), [4.0, 64.0]);
        assert_eq!(of(Op::Where, &[&mask, &a, &b]), [1.0, 8.0]);
        assert_eq!(of(Op::Addmv, &[&c.slice(0, 0..1).unwrap(), &table(&a), &b]), [20.5]);
        assert_eq!(of(Op::MultiDot, &[&table(&a), &b.reshape(&[2, 1]).unwrap()]), [20.0]);
        assert_eq!(of(Op::Linear, &[&a, &table(&b)]), [20.0]);
        assert_eq!(of(Op::Linear, &[&a, &table(&b), &c.slice(0, 0..1).unwrap()]), [20.5]);
        let index = Tensor::from_vec(vec![1i64], &[1]).unwrap();
        assert_eq!(of(Op::Embedding, &[&index, &b.reshape(&[2, 1]).unwrap()]), [8.0]);
    }

    #[test]
    fn an_op_without_kernel_says_so() {
        let without = Op::ALL.iter().find(|op| !op.has_kernel()).expect("lists name more ops than this library runs");
        let message = run(*without, &[]).unwrap_err().to_string();
        let words = format!("{without}: no kernel; precast decides its precision and does not run it");
        assert!(message.starts_with(&words), "{message}");
        let message = run(Op::Add, &[]).unwrap_err().to_string();
        assert_eq!(message, "Add: takes 2 tensors, got 0");
    }
}
