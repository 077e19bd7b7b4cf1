//! Ops called by their name in the catalogue, for graphs and for programs that choose an op at run time.

use std::ops::Range;

use precast_base::names::did_you_mean;
use precast_kernels::recurrent::Gating;
use precast_policy::op_table;

use super::{
    ConvOptions, ConvTransposeOptions, CrossEntropy, GridPadding, Interpolation, PoolOptions, Reduction, Resize,
    recurrent::recurrent_of,
};
use crate::{
    Op, Tensor,
    catalogue::{Attributes, as_serde_has_them},
    error::{Error, Result},
    tensor::recording::{Again, Repeatable},
};

as_serde_has_them! {
    ConvOptions: "stride, padding, dilation and groups";
    ConvTransposeOptions: "stride, padding, output_padding, dilation and groups";
    Gating: "tanh, relu, gru or lstm";
    GridPadding: "zeros or border";
    Interpolation: "nearest, linear or cubic";
    PoolOptions: "kernel, stride, padding, ceil and count_include_pad";
    Reduction: "mean, sum or none";
    Resize: "to or by, with a list of numbers";
}

/// Argument of the method that runs an op.
struct Argument {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tensor,
    /// An optional tensor.
    Optional,
    /// All remaining tensors.
    Rest,
    Attribute,
}

/// Function that unpacks an op's attributes and tensors, and runs it.
type Run = fn(&Attributes, &mut Tensors<'_>) -> Result<Vec<Tensor>>;

/// Way to call an op.
enum Call {
    /// Method of a row, with its arguments.
    Method { name: &'static str, arguments: &'static [Argument], run: Run },
    /// Method called by hand, with its parameters.
    ByHand(&'static str),
    /// Needs the value of a user-defined type, which holds its options.
    Custom,
}

/// Tensors that a call has not taken yet.
struct Tensors<'a>(std::slice::Iter<'a, &'a Tensor>);

impl<'a> Tensors<'a> {
    fn next(&mut self) -> Result<&'a Tensor> {
        self.0.next().copied().ok_or_else(|| Error::value("a tensor is missing"))
    }

    /// Takes an optional tensor: absent if an attribute says so, or if none is left.
    fn optional(&mut self, with: &str, attributes: &Attributes) -> Result<Option<&'a Tensor>> {
        if attributes.has(with) && !attributes.get::<bool>(with)? {
            return Ok(None);
        }
        Ok(self.0.next().copied())
    }

    fn rest(&mut self) -> Vec<&'a Tensor> {
        self.0.by_ref().copied().collect()
    }
}

/// Return types of methods.
trait Outputs {
    fn list(self) -> Vec<Tensor>;
}

impl Outputs for Tensor {
    fn list(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl Outputs for (Tensor, Tensor) {
    fn list(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }
}

impl Outputs for Vec<Tensor> {
    fn list(self) -> Vec<Tensor> {
        self
    }
}

/// Expands a row's `method(arguments)` to its call. Arguments are consumed from the left: the value passed to the
/// method goes into the first braces, its name and kind into the second.
macro_rules! call {
    ($f:ident ($x:ident; $($argument:ident),*)) => {{
        let _exists = Tensor::$f;
        Call::ByHand(concat!(stringify!($f), "(", stringify!($($argument),*), ")"))
    }};
    ($f:ident ($($arguments:tt)*)) => { call!(@ $f attributes tensors {} {} $($arguments)*) };
    (@ $f:ident $a:ident $t:ident {$($given:tt)*} {$($known:tt)*}) => {
        Call::Method {
            name: stringify!($f),
            arguments: &[$($known)*],
            run: |$a, $t| {
                let _ = $a;
                Ok(Tensor::$f($($given)*)?.list())
            },
        }
    };
    (@ $f:ident $a:ident $t:ident {$($given:tt)*} {$($known:tt)*} $n:ident ? $(, $($rest:tt)*)?) => {
        call!(@ $f $a $t {$($given)* $t.optional(concat!("with_", stringify!($n)), $a)?,}
            {$($known)* Argument { name: stringify!($n), kind: Kind::Optional },} $($($rest)*)?)
    };
    (@ $f:ident $a:ident $t:ident {$($given:tt)*} {$($known:tt)*} $n:ident .. $(, $($rest:tt)*)?) => {
        call!(@ $f $a $t {$($given)* &$t.rest(),}
            {$($known)* Argument { name: stringify!($n), kind: Kind::Rest },} $($($rest)*)?)
    };
    (@ $f:ident $a:ident $t:ident {$($given:tt)*} {$($known:tt)*} $n:ident : [$of:ty] $(, $($rest:tt)*)?) => {
        call!(@ $f $a $t {$($given)* &$a.get::<Vec<$of>>(stringify!($n))?,}
            {$($known)* Argument { name: stringify!($n), kind: Kind::Attribute },} $($($rest)*)?)
    };
    (@ $f:ident $a:ident $t:ident {$($given:tt)*} {$($known:tt)*} $n:ident : &str $(, $($rest:tt)*)?) => {
        call!(@ $f $a $t {$($given)* &$a.get::<String>(stringify!($n))?,}
            {$($known)* Argument { name: stringify!($n), kind: Kind::Attribute },} $($($rest)*)?)
    };
    (@ $f:ident $a:ident $t:ident {$($given:tt)*} {$($known:tt)*} $n:ident : &$of:ident $(, $($rest:tt)*)?) => {
        call!(@ $f $a $t {$($given)* &$a.get::<$of>(stringify!($n))?,}
            {$($known)* Argument { name: stringify!($n), kind: Kind::Attribute },} $($($rest)*)?)
    };
    (@ $f:ident $a:ident $t:ident {$($given:tt)*} {$($known:tt)*} $n:ident : $of:ty $(, $($rest:tt)*)?) => {
        call!(@ $f $a $t {$($given)* $a.get::<$of>(stringify!($n))?,}
            {$($known)* Argument { name: stringify!($n), kind: Kind::Attribute },} $($($rest)*)?)
    };
    (@ $f:ident $a:ident $t:ident {$($given:tt)*} {$($known:tt)*} $n:ident $(, $($rest:tt)*)?) => {
        call!(@ $f $a $t {$($given)* $t.next()?,}
            {$($known)* Argument { name: stringify!($n), kind: Kind::Tensor },} $($($rest)*)?)
    };
}

macro_rules! calls {
    (
        kernels {
            $($(#[$doc:meta])* $op:ident $mixing:ident $family:ident $method:ident $arguments:tt [$($names:literal),*];)*
        }
        decided_only { $($(#[$without_doc:meta])* $without:ident [$($without_names:literal),*];)* }
    ) => {
        /// Returns the call of an op; `None` when it has no kernel.
        fn call(op: Op) -> Option<Call> {
            match op {
                $(Op::$op => Some(call!($method $arguments)),)*
                $(Op::$without => None,)*
                Op::Custom(_) => Some(Call::Custom),
                _ => None,
            }
        }
    };
}
op_table!(calls);

/// Runs an op whose arguments are all tensors, like its method of [`Tensor`]. The first input is the receiver of the
/// method.
///
/// # Errors
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for an op without a kernel;
/// [`ErrorKind::Value`](crate::ErrorKind::Value) for a wrong number of tensors and for an op that needs more than
/// tensors, naming the method to call; also the errors of the op.
///
/// ```
/// # use precast_tensor as precast;
/// use precast::{Op, Tensor};
/// let x = Tensor::from_vec(vec![-1f32, 2.], &[2])?;
/// let [op] = Op::named("aten::relu")?[..] else { unreachable!("one op") };
/// assert_eq!(precast::run(op, &[&x])?.to_f64(), [0., 2.]);
/// assert_eq!(precast::run(Op::Add, &[&x, &x])?.to_f64(), [-2., 4.]);
/// let error = precast::run(Op::Softmax, &[&x]).unwrap_err().to_string();
/// assert_eq!(error, "Softmax: needs more than tensors; call Tensor::softmax(axis), or run_with");
/// # Ok::<(), precast::Error>(())
/// ```
pub fn run(op: Op, inputs: &[&Tensor]) -> Result<Tensor> {
    let needs_more = |method: &str| {
        let words = format!("needs more than tensors; call Tensor::{method}, or run_with");
        Err(Error::value(words).in_op(op.name()))
    };
    match call(op) {
        Some(Call::ByHand(method)) => return needs_more(method),
        // The loss has options, and a method without them.
        Some(Call::Method { name, arguments, .. }) if arguments.iter().any(|a| a.kind == Kind::Attribute) => {
            // The receiver of the method has no name there.
            let on_tensor = arguments.first().is_some_and(|first| first.kind == Kind::Tensor);
            let names: Vec<&str> = arguments.iter().skip(usize::from(on_tensor)).map(|a| a.name).collect();
            return needs_more(&format!("{name}({})", names.join(", ")));
        }
        _ => {}
    }
    let mut outputs = run_with(op, &Attributes::default(), inputs)?;
    Ok(outputs.swap_remove(0))
}

/// Runs an op with attributes, and returns all its outputs. The attributes are the non-tensor arguments of its method
/// of [`Tensor`], by name.
///
/// # Errors
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for an op without a kernel;
/// [`ErrorKind::Value`](crate::ErrorKind::Value) for a wrong number of tensors, and for an attribute that is missing,
/// unknown or of another type; also the errors of the op.
pub fn run_with(op: Op, attributes: &Attributes, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    check_attributes(op, attributes)?;
    run_known(op, attributes, inputs)
}

/// Runs as [`run_with`] does, for attribute names known to be valid.
fn run_known(op: Op, attributes: &Attributes, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let wrong = |words: String| Error::value(words).in_op(op.name());
    let Some(call) = call(op) else { return Err(no_kernel(op)) };
    if let Some(result) = by_hand(op, attributes, inputs) {
        return result;
    }
    match call {
        Call::Method { arguments, run, .. } => {
            check_count(arguments, inputs.len()).map_err(wrong)?;
            run(attributes, &mut Tensors(inputs.iter())).map_err(|e| e.in_op(op.name()))
        }
        Call::ByHand(_) => unreachable!("it was called"),
        Call::Custom => Err(wrong("a custom op needs the value that holds its options; call its `apply`".into())),
    }
}

/// Runs as [`run_with`] does, with inputs in the order in which they are recorded.
///
/// # Errors
/// As [`run_with`], but for attributes that are not read.
pub fn run_recorded(op: Op, attributes: &Attributes, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    match (op, inputs) {
        (Op::Addmm | Op::Baddbmm | Op::Addbmm | Op::Addmv, &[a, b, added]) => run_known(op, attributes, &[added, a, b]),
        (Op::Embedding, &[table, ids]) => run_known(op, attributes, &[ids, table]),
        _ => run_known(op, attributes, inputs),
    }
}

/// Runs a recorded call again: as [`run_recorded`], or by the closure of an op that only code can run.
pub fn run_again(op: Op, attributes: &Attributes, again: Option<&Again>, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    match again {
        Some(again) => Ok(vec![(again.0)(inputs)?]),
        None => run_recorded(op, attributes, inputs),
    }
}

impl Repeatable {
    /// Runs the op on these inputs, in the region in force.
    ///
    /// # Errors
    /// Those of the op; [`ErrorKind::Value`](crate::ErrorKind::Value) for one that cannot be repeated.
    pub fn run(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        run_again(self.op, &self.attributes, self.again.as_ref(), inputs)
    }
}

/// Returns the name of the method that runs an op, without the suffix of its variant with options: `max_pool2d`.
pub fn method_of(op: Op) -> &'static str {
    let name = match call(op) {
        Some(Call::Method { name, .. } | Call::ByHand(name)) => name,
        Some(Call::Custom) | None => op.name(),
    };
    let name = name.split('(').next().unwrap_or(name);
    name.strip_suffix("_with").unwrap_or(name)
}

/// Runs an op that has several forms, or takes more than tensors and attributes; `None` for all others.
fn by_hand(op: Op, attributes: &Attributes, inputs: &[&Tensor]) -> Option<Result<Vec<Tensor>>> {
    let form = |name: &str| attributes.get::<String>("form").is_ok_and(|form| form == name);
    let one = |f: &dyn Fn(&Tensor) -> Result<Tensor>| match inputs {
        [x] => Ok(vec![f(x)?]),
        _ => Err(Error::value(format!("takes 1 tensor, got {}", inputs.len())).in_op(op.name())),
    };
    let result = match op {
        Op::Cast => one(&|x| Ok(x.cast(attributes.get("dtype")?))),
        Op::Gelu if form("gelu_tanh") => one(&Tensor::gelu_tanh),
        Op::Pow if attributes.has("exponent") => one(&|x| x.powf(attributes.get("exponent")?)),
        Op::Slice | Op::Split if attributes.has("keep_axis") => one(&|x| {
            let range: Range<usize> = attributes.get("range")?;
            x.sliced_by(op, attributes.get("axis")?, range, attributes.get("keep_axis")?)
        }),
        Op::BatchNorm if attributes.has("training") => (|| {
            let mut tensors = Tensors(inputs.iter());
            let x = tensors.next()?;
            let gamma = tensors.optional("with_gamma", attributes)?;
            let beta = tensors.optional("with_beta", attributes)?;
            let (y, mean, var) = x.batch_norm_train(gamma, beta, attributes.get("eps")?)?;
            Ok(vec![y, mean, var])
        })(),
        Op::CrossEntropy if !attributes.is_empty() => CrossEntropy::of_attributes(attributes).and_then(|options| {
            let [x, target] = inputs else {
                return Err(Error::value(format!("takes 2 tensors, got {}", inputs.len())));
            };
            Ok(vec![x.cross_entropy_with(target, &options)?])
        }),
        Op::RnnCell | Op::GruCell | Op::LstmCell | Op::FusedRnn => {
            recurrent_of(op, attributes, inputs).map(|output| vec![output])
        }
        _ => return None,
    };
    Some(result.map_err(|e| e.in_op(op.name())))
}

/// Returns the attributes of the forms that are called by hand.
fn more_attributes(op: Op) -> &'static [&'static str] {
    match op {
        Op::Cast => &["dtype"],
        Op::Gelu => &["form"],
        Op::Pow => &["exponent"],
        Op::Slice | Op::Split => &["axis", "range", "keep_axis"],
        Op::BatchNorm => &["training"],
        Op::CrossEntropy => &["reduction", "label_smoothing", "ignore_index", "weight", "weight_dtype"],
        Op::RnnCell | Op::GruCell | Op::LstmCell | Op::FusedRnn => &["gating", "reverse"],
        _ => &[],
    }
}

/// Refuses attributes that are not read.
///
/// # Errors
/// [`ErrorKind::Value`](crate::ErrorKind::Value), suggesting the nearest name that is read.
pub fn check_attributes(op: Op, attributes: &Attributes) -> Result<()> {
    let arguments = if let Some(Call::Method { arguments, .. }) = call(op) { arguments } else { &[] };
    let named =
        |kind: Kind| arguments.iter().filter(move |argument| argument.kind == kind).map(|argument| argument.name);
    let of_tensors = |name: &str| name.strip_prefix("with_").is_some_and(|x| named(Kind::Optional).any(|n| n == x));
    let known: Vec<&str> = named(Kind::Attribute).chain(more_attributes(op).iter().copied()).collect();
    match attributes.iter().find(|(name, _)| !known.contains(name) && !of_tensors(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let near = did_you_mean(name, known.iter().copied());
            Err(Error::value(format!("has no attribute `{name}`{near}")).in_op(op.name()))
        }
    }
}

fn check_count(arguments: &[Argument], got: usize) -> Result<(), String> {
    let count = |kind: Kind| arguments.iter().filter(|argument| argument.kind == kind).count();
    let (least, optional) = (count(Kind::Tensor), count(Kind::Optional));
    if got < least || got > least + optional && count(Kind::Rest) == 0 {
        let takes = match (least, optional) {
            (1, 0) => "1 tensor".to_string(),
            (least, 0) => format!("{least} tensors"),
            (least, 1) => format!("{least} or {} tensors", least + 1),
            (least, more) => format!("{least} to {} tensors", least + more),
        };
        return Err(format!("takes {takes}, got {got}"));
    }
    Ok(())
}

fn no_kernel(op: Op) -> Error {
    let words = "no kernel; precast decides its precision and does not run it (`precast show ops NAME` says what the packs say)";
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
            if let Some(Call::Method { arguments, .. }) = call(*op)
                && arguments.iter().any(|argument| argument.kind == Kind::Rest)
            {
                continue;
            }
            // No other op takes five tensors, and each takes at least one.
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
    fn attributes_that_are_wrong_are_named() {
        let x = Tensor::ones(&[2, 2], DType::F32);
        let with = |attributes: &[(&str, f64)]| {
            let mut found = Attributes::default();
            attributes.iter().for_each(|(name, value)| found.set(name, value));
            found
        };
        let says = |op, attributes: &Attributes, inputs: &[&Tensor]| {
            let error = run_with(op, attributes, inputs).unwrap_err();
            assert_eq!((error.kind(), error.op()), (ErrorKind::Value, Some(op.name())));
            error.to_string()
        };
        for (op, attributes, words) in [
            (Op::Softmax, with(&[]), "Softmax: the attribute `axis` is missing"),
            (Op::Softmax, with(&[("axes", 0.0)]), "Softmax: has no attribute `axes` (did you mean `axis`?)"),
            (Op::Softmax, with(&[("axis", 0.5)]), "Softmax: the attribute `axis` is 0.5; allowed: a whole number"),
            (Op::Relu, with(&[("slope", 0.5)]), "Relu: has no attribute `slope`"),
            (Op::Slice, with(&[("keep_axis", 1.0)]), "Slice: the attribute `range` is missing"),
        ] {
            assert_eq!(says(op, &attributes, &[&x]), words);
        }
        assert_eq!(says(Op::LeakyRelu, &with(&[("slope", 0.1)]), &[]), "LeakyRelu: takes 1 tensor, got 0");
        assert_eq!(says(Op::BatchNorm, &with(&[("eps", 0.1)]), &[&x]), "BatchNorm: takes 3 to 5 tensors, got 1");
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
