//! User-defined ops: their declarations, the regions and lists that apply, observers, and refusals.

use precast::{
    Backward, CustomOp, ErrorKind, Op, autocast,
    catalogue::System,
    gradcheck,
    observe::{self, OpStats, collect_op_stats},
    precision::Frame,
    prelude::*,
    run,
};

/// `x · sigmoid(slope · x)` (Ramachandran et al. 2017).
#[derive(Clone, Debug)]
struct ScaledSwish {
    slope: f64,
}

impl CustomOp for ScaledSwish {
    const NAME: &'static str = "ScaledSwish";
    const PRECISION: Precision = Precision::Full;

    fn forward(&self, x: &[Tensor], saved: &mut Vec<Tensor>) -> Result<Tensor> {
        saved.push(x[0].clone());
        x[0].mul(&(&x[0] * self.slope)?.sigmoid()?)
    }

    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        let x = &back.saved[0];
        let s = (x * self.slope)?.sigmoid()?;
        // s + slope x s (1 - s)
        let slope = s.add(&(x * self.slope)?.mul(&s)?.mul(&(&s.neg()? + 1.0)?)?)?;
        Ok(vec![Some(back.grad.mul(&slope)?)])
    }
}

/// `tanh(a) · b`, with the tanh saved.
#[derive(Clone)]
struct TanhGate;

impl CustomOp for TanhGate {
    const NAME: &'static str = "TanhGate";
    const PRECISION: Precision = Precision::Low;

    fn forward(&self, x: &[Tensor], saved: &mut Vec<Tensor>) -> Result<Tensor> {
        let gate = x[0].tanh()?;
        let y = gate.mul(&x[1])?;
        saved.extend([gate, x[1].clone()]);
        Ok(y)
    }

    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        let (gate, b) = (&back.saved[0], &back.saved[1]);
        let a = |_| back.grad.mul(b)?.mul(&(&gate.square()?.neg()? + 1.0)?);
        Ok(vec![back.needs[0].then_some(()).map(a).transpose()?, Some(back.grad.mul(gate)?)])
    }
}

/// An op that reads its input as a slice of f32, and can read nothing else.
#[derive(Clone)]
struct OnF32Slices;

impl CustomOp for OnF32Slices {
    const NAME: &'static str = "OnF32Slices";
    const PRECISION: Precision = Precision::Fixed(DType::F32);

    fn forward(&self, x: &[Tensor], _saved: &mut Vec<Tensor>) -> Result<Tensor> {
        let halved = x[0].to_vec::<f32>()?.iter().map(|x| x / 2.0).collect();
        Tensor::from_vec::<f32>(halved, x[0].shape())
    }

    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some((back.grad * 0.5)?)])
    }
}

/// Defines ops that sum their inputs, with various precisions.
macro_rules! sums {
    ($($sum:ident $precision:expr;)*) => { $(
        #[derive(Clone)]
        struct $sum;
        impl CustomOp for $sum {
            const NAME: &'static str = stringify!($sum);
            const PRECISION: Precision = $precision;
            fn forward(&self, x: &[Tensor], _saved: &mut Vec<Tensor>) -> Result<Tensor> {
                x[1..].iter().try_fold(x[0].clone(), |sum, x| sum.add(x))
            }
            fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
                Ok(back.needs.iter().map(|needs| needs.then(|| back.grad.clone())).collect())
            }
        }
    )* };
}
sums! {
    WidestSum Precision::Widest;
    PlainSum Precision::AsIs;
    LowSum Precision::Low;
    HalfSum Precision::Fixed(DType::F16);
    NamedInFile Precision::AsIs;
    ListedSum Precision::AsIs;
}

fn of(data: &[f64], dtype: DType) -> Tensor {
    Tensor::from_f64(data, &[data.len()], dtype).unwrap()
}

/// Returns the dtypes that the op's kernel saw, and that of the result.
fn ran_in(op: &impl CustomOp, inputs: &[DType]) -> (Vec<DType>, DType) {
    let inputs: Vec<Tensor> = inputs.iter().map(|dtype| of(&[0.5, -1.0], *dtype)).collect();
    let (y, events) = observe::watch(|| op.apply(&inputs.iter().collect::<Vec<_>>()).unwrap());
    let own: Vec<_> = events.into_iter().filter(|event| event.op != Op::Cast).collect();
    assert_eq!(own.len(), 1, "observers see one op, and none of those inside: {own:?}");
    (own[0].inputs.clone(), y.dtype())
}

use DType::{Bf16, F16, F32, F64};

#[test]
fn gradients_are_those_of_central_differences_and_of_f32() -> Result<()> {
    let (a, b) = (of(&[0.3, -1.2, 2.0], F64), of(&[1.5, 0.25, -0.75], F64));
    let swish = ScaledSwish { slope: 1.5 };
    assert!(gradcheck::gradients(std::slice::from_ref(&a), |x| swish.apply(&[&x[0]]))?.relative < 1e-6);
    assert!(gradcheck::gradients(&[a.clone(), b.clone()], |x| TanhGate.apply(&[&x[0], &x[1]]))?.relative < 1e-6);
    let sums = [a.clone(), b, a.clone()];
    assert!(gradcheck::gradients(&sums, |x| PlainSum.apply(&[&x[0], &x[1], &x[2]]))?.relative < 1e-6);
    // Each of the few ops inside rounds once.
    for low in [F16, Bf16] {
        let found = gradcheck::low_gradients(std::slice::from_ref(&a), low, |x| swish.apply(&[&x[0]]))?;
        assert!(found.relative < 4.0, "{found:?}");
    }
    // The value against the formula in f64.
    let y = swish.apply(&[&a])?.to_f64();
    for (y, x) in y.iter().zip(a.to_f64()) {
        assert!((y - x / (1.0 + (-1.5 * x).exp())).abs() < 1e-12);
    }
    Ok(())
}

#[test]
fn a_wrong_backward_pass_is_found_by_gradcheck() {
    #[derive(Clone)]
    struct Doubled;
    impl CustomOp for Doubled {
        const NAME: &'static str = "DoubledWithAWrongSlope";
        fn forward(&self, x: &[Tensor], _saved: &mut Vec<Tensor>) -> Result<Tensor> {
            &x[0] * 2.0
        }
        fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
            Ok(vec![Some(back.grad.clone())])
        }
    }
    let found = gradcheck::gradients(&[of(&[0.5, 1.0], F64)], |x| Doubled.apply(&[&x[0]])).unwrap();
    assert!((found.found * 2.0 - found.expected).abs() < 1e-6, "{found:?}");
}

#[test]
fn without_a_region_nothing_is_cast_and_arithmetic_promotes() {
    for dtype in [F64, F32, F16, Bf16] {
        assert_eq!(ran_in(&ScaledSwish { slope: 1.0 }, &[dtype]), (vec![dtype], dtype));
        assert_eq!(ran_in(&TanhGate, &[dtype; 2]), (vec![dtype; 2], dtype));
    }
    assert_eq!(ran_in(&PlainSum, &[F16, F32]), (vec![F32; 2], F32));
    // An op that reads slices of f32 reports it itself.
    let error = OnF32Slices.apply(&[&of(&[1.0], F16)]).unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::DType, Some("OnF32Slices")));
    let _off = precast::precision::enter(Frame::Off);
    assert_eq!(ran_in(&LowSum, &[F32; 2]), (vec![F32; 2], F32));
}

#[test]
fn where_lists_decide_the_op_declares_its_precision() -> Result<()> {
    for pack in ["torch-2.15-cpu", "torch-2.15-cuda", "paddle-3.3", "precast-1", "tensorflow-2.21-bf16"] {
        autocast(Autocast::new(pack)?.dtype(Bf16), || {
            assert_eq!(ran_in(&ScaledSwish { slope: 1.0 }, &[Bf16]), (vec![F32], F32), "{pack}");
            assert_eq!(ran_in(&TanhGate, &[F32; 2]), (vec![Bf16; 2], Bf16), "{pack}");
            assert_eq!(ran_in(&WidestSum, &[Bf16, F32, Bf16]), (vec![F32; 3], F32), "{pack}");
            assert_eq!(ran_in(&PlainSum, &[Bf16, Bf16]), (vec![Bf16; 2], Bf16), "{pack}");
            assert_eq!(ran_in(&OnF32Slices, &[Bf16]), (vec![F32], F32), "{pack}");
            assert_eq!(ran_in(&HalfSum, &[F32, Bf16]), (vec![F16; 2], F16), "{pack}");
            // f64 is never cast.
            assert_eq!(ran_in(&TanhGate, &[F64; 2]), (vec![F64; 2], F64), "{pack}");
            autocast(Autocast::new(pack)?.enabled(false), || {
                assert_eq!(ran_in(&TanhGate, &[F32; 2]), (vec![F32; 2], F32), "{pack}");
                Ok(())
            })
        })?;
    }
    Ok(())
}

#[test]
fn where_lists_lower_every_other_op_they_lower_it_too() -> Result<()> {
    autocast(Autocast::new("paddle-2.3")?.op_level("O2").dtype(F16), || {
        assert_eq!(ran_in(&ScaledSwish { slope: 1.0 }, &[F32]), (vec![F16], F16));
        assert_eq!(ran_in(&WidestSum, &[F16, F32, F16]), (vec![F16; 3], F16));
        assert_eq!(ran_in(&PlainSum, &[F32, F16]), (vec![F16; 2], F16));
        assert_eq!(ran_in(&OnF32Slices, &[F16]), (vec![F32], F32));
        Ok(())
    })
}

#[test]
fn custom_ops_follow_their_cell_unless_they_work_in_one_dtype() {
    let _region = precast::precision::enter(Frame::Fixed(Bf16));
    assert_eq!(ran_in(&ScaledSwish { slope: 1.0 }, &[F32]), (vec![Bf16], Bf16));
    assert_eq!(ran_in(&PlainSum, &[F32, F16]), (vec![Bf16; 2], Bf16));
    assert_eq!(ran_in(&OnF32Slices, &[Bf16]), (vec![F32], F32));
    assert_eq!(ran_in(&HalfSum, &[F32, Bf16]), (vec![F16; 2], F16));
}

#[test]
fn lists_in_code_name_registered_custom_ops() -> Result<()> {
    let white = || Autocast::new("torch-2.15-cpu").map(|region| region.low(["ListedSum"]));
    let refused = autocast(white()?, || Ok(())).unwrap_err();
    let words = "no op is called `ListedSum`; a custom op is known once it is registered";
    assert_eq!((refused.kind(), refused.to_string().as_str()), (ErrorKind::List, words));

    let op = ListedSum::register()?;
    assert_eq!((op.name(), op.has_kernel(), ListedSum::register()?), ("ListedSum", true, op));
    assert!(System::ALL.iter().all(|system| op.names(*system).count() == 0));
    assert_eq!(Op::named("ListedSum")?, [op]);
    assert_eq!(Op::named_in(System::Torch, "ListedSum")?, [op]);
    assert!(Op::named("ListedSun").unwrap_err().to_string().ends_with("(did you mean `ListedSum`?)"));
    assert_eq!(serde_json::from_str::<Op>(&serde_json::to_string(&op).unwrap()).unwrap(), op);
    assert!(serde_json::from_str::<Op>("\"NeverMade\"").unwrap_err().to_string().contains("once it is registered"));

    autocast(white()?, || {
        assert_eq!(ran_in(&ListedSum, &[F32; 2]), (vec![Bf16; 2], Bf16));
        Ok(())
    })?;
    // A list takes precedence over the op's declaration, even for the dtype that the op is fixed to.
    let op = HalfSum::register()?;
    autocast(Autocast::new("torch-2.15-cpu")?.full([op.name()]), || {
        assert_eq!(ran_in(&HalfSum, &[Bf16; 2]), (vec![F32; 2], F32));
        Ok(())
    })
}

/// A typical user-written cell.
#[derive(Cell, Debug)]
struct SwishNet {
    first: Child<Dense>,
    second: Child<Dense>,
    op: ScaledSwish,
}

impl Forward for SwishNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.second.call(&self.op.apply(&[&self.first.call(x)?])?)
    }
}

fn net() -> Child {
    let mut rng = Rng::seed(3);
    let [first, second] = [(4, 8), (8, 2)].map(|(n, m)| Child::new(Dense::new(n, m, &mut rng)));
    Child::of(SwishNet { first, second, op: ScaledSwish { slope: 1.0 } })
}

/// Returns the dtypes in which the op of the net ran under a policy, and the reason in the plan.
fn planned(policy: &Policy) -> Result<(Vec<DType>, String)> {
    let mut net = net();
    let plan = policy.plan(&net)?;
    plan.clone().apply(&mut net)?;
    let (y, trace) = net.trace(|net| net.call(&Tensor::ones(&[3, 4], F32)));
    y?;
    let ops = plan.ops(&trace)?;
    let row = ops.rows.iter().find(|row| row.op.name() == "ScaledSwish").expect("the op ran");
    Ok((row.inputs.clone(), row.because.to_string()))
}

#[test]
fn plans_say_what_an_op_ran_in_and_why() -> Result<()> {
    ScaledSwish::register()?;
    let of = |text: &str| Policy::parse(&format!("version: 1\ndtype: bfloat16\n{text}"), "p.yaml");
    assert_eq!(planned(&of("level: O2")?)?, (vec![Bf16], "region of (root)".into()));
    assert_eq!(planned(&of("level: O2\nops: { black: { add: [Exp] } }")?)?.0, [Bf16]);
    assert_eq!(planned(&of("level: O3")?)?, (vec![Bf16], "region of (root)".into()));
    assert_eq!(planned(&of("level: O0")?)?, (vec![F32], "nothing is cast".into()));
    assert_eq!(planned(&of("level: auto")?)?, (vec![F32], "custom op, on no list: declares full".into()));
    let (dtypes, why) = planned(&of("level: auto\nops: { white: { add: [ScaledSwish] } }")?)?;
    assert_eq!(dtypes, [Bf16]);
    assert!(why.starts_with("low list of ops, p.yaml"), "{why}");
    Ok(())
}

#[test]
fn policy_files_name_registered_custom_ops() -> Result<()> {
    let text = "version: 1\nlevel: auto\ndtype: bfloat16\nops: { black: { add: [NamedInFile] } }\n";
    let refused = Policy::parse(text, "p.yaml").unwrap_err().to_string();
    let words = "no op is called `NamedInFile`; a custom op is known once it is registered";
    assert!(refused.starts_with("p.yaml:4:") && refused.contains(words), "{refused}");
    NamedInFile::register()?;
    let policy = Policy::parse(text, "p.yaml")?;
    let again = Policy::parse(&policy.to_yaml()?, "again.yaml")?;
    assert_eq!(again.to_yaml()?, policy.to_yaml()?);
    assert!(policy.to_yaml()?.contains("NamedInFile"));
    Ok(())
}

#[test]
fn custom_ops_train_at_every_level_outside_of_regions() -> Result<()> {
    for level in Level::ALL {
        let mut net = net();
        Policy::new(level, Bf16)?.plan(&net)?.apply(&mut net)?;
        let x = Tensor::ones(&[3, 4], F32);
        let loss = net.call(&x)?.cast(F32).square()?.mean_all()?;
        let grads = autocast(Autocast::new("torch-2.15-cpu")?, || loss.backward())?;
        assert_eq!(grads.len(), net.params().len(), "{level:?}");
    }
    Ok(())
}

#[test]
fn a_custom_op_is_one_entry_of_tape_and_statistics() -> Result<()> {
    let a = of(&[0.5, 1.0, 2.0], F32).requires_grad();
    let b = of(&[0.5, 1.0, 2.0], F32).requires_grad();
    let (y, stats) = collect_op_stats(|| TanhGate.apply(&[&a, &b]))?;
    assert_eq!(stats.iter().map(|(op, calls)| (op.name(), calls.f32)).collect::<Vec<_>>(), [("TanhGate", 1)]);
    assert!(stats.to_string().contains("| TanhGate |"), "{stats}");
    let json = serde_json::to_string(&stats).unwrap();
    assert_eq!(serde_json::from_str::<OpStats>(&json).unwrap(), stats);
    // The tanh, and b: three numbers of four bytes each.
    assert_eq!(y.tape_bytes(), 2 * 3 * 4);
    assert!(!precast::no_grad(|| TanhGate.apply(&[&a, &b]))?.is_tracked());
    // The backward pass knows which inputs need a gradient.
    let grads = TanhGate.apply(&[&a.detach(), &b])?.sum_all()?.backward()?;
    assert!(grads.of(&a).is_none() && grads.of(&b).is_some());
    // The same on other threads.
    let here = TanhGate.apply(&[&a, &b])?.to_f64();
    let there = std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(|| TanhGate.apply(&[&a, &b]).unwrap().to_f64()));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(there.iter().all(|y| *y == here));
    Ok(())
}

/// Returns the error of the backward pass of a binary op that returns these gradients.
macro_rules! wrong {
    ($wrong:ident |$back:ident| $grads:expr) => {{
        #[derive(Clone)]
        struct $wrong;
        impl CustomOp for $wrong {
            const NAME: &'static str = stringify!($wrong);
            fn forward(&self, x: &[Tensor], _saved: &mut Vec<Tensor>) -> Result<Tensor> {
                x[0].add(&x[1])
            }
            fn backward(&self, $back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
                Ok($grads)
            }
        }
        let [a, b] = [[1.0, 2.0], [3.0, 4.0]].map(|x| of(&x, F32).requires_grad());
        $wrong.apply(&[&a, &b]).unwrap().sum_all().unwrap().backward().unwrap_err()
    }};
}

#[test]
fn a_backward_pass_of_wrong_gradients_is_refused_by_name() {
    let error = wrong!(TooFew | back | vec![Some(back.grad.clone())]);
    let words = "TooFew: backward: 1 gradients for 2 inputs; return one for each, `None` where there is none";
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Gradient, words));
    let error = wrong!(WrongShape | back | vec![None, Some(back.grad.sum_all()?)]);
    assert_eq!(error.to_string(), "WrongShape: backward: the gradient of input 1 is f32 [], the input f32 [2]");
    let error = wrong!(WrongDtype | back | vec![Some(back.grad.cast(F16)), None]);
    assert_eq!(error.to_string(), "WrongDtype: backward: the gradient of input 0 is f16 [2], the input f32 [2]");
    // A failing inner op is named, and the op around it.
    let error = wrong!(FailsInside | back | vec![Some(back.grad.matmul(back.grad)?), None]);
    let message = error.to_string();
    assert!(message.starts_with("MatMul: backward: in FailsInside: "), "{message}");
}

#[test]
fn forward_without_backward_and_results_without_gradient() -> Result<()> {
    #[derive(Clone)]
    struct ForwardOnly;
    impl CustomOp for ForwardOnly {
        const NAME: &'static str = "ForwardOnly";
        fn forward(&self, x: &[Tensor], _saved: &mut Vec<Tensor>) -> Result<Tensor> {
            x[0].square()
        }
    }
    let x = of(&[1.0, 2.0], F32).requires_grad();
    let y = ForwardOnly.apply(&[&x])?;
    assert_eq!(y.to_f64(), [1.0, 4.0]);
    let error = y.sum_all()?.backward().unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::Gradient, Some("ForwardOnly")));

    #[derive(Clone)]
    struct IsLarge;
    impl CustomOp for IsLarge {
        const NAME: &'static str = "IsLarge";
        fn forward(&self, x: &[Tensor], _saved: &mut Vec<Tensor>) -> Result<Tensor> {
            x[0].gt(&Tensor::scalar(1.5, x[0].dtype()))
        }
    }
    let y = IsLarge.apply(&[&x])?;
    assert_eq!((y.dtype(), y.is_tracked()), (DType::Bool, false));
    Ok(())
}

#[test]
fn names_are_of_one_op_only() -> Result<()> {
    macro_rules! named {
        ($name:literal, $precision:expr) => {{
            #[derive(Clone)]
            struct Named;
            impl CustomOp for Named {
                const NAME: &'static str = $name;
                const PRECISION: Precision = $precision;
                fn forward(&self, x: &[Tensor], _saved: &mut Vec<Tensor>) -> Result<Tensor> {
                    Ok(x[0].clone())
                }
            }
            // `apply` refuses it as `register` does.
            let error = Named.apply(&[&of(&[1.0], F32)]).map(|_| ());
            assert_eq!(Named::register().map(|_| ()), error);
            error.map_err(|e| (e.kind(), e.to_string()))
        }};
    }
    let refused = |kind, words: &str| Err((kind, words.to_string()));
    let words = "a custom op cannot be called `Relu`: that is an op of this library, Relu";
    assert_eq!(named!("Relu", Precision::AsIs), refused(ErrorKind::List, words));
    let words = "a custom op cannot be called `swish`: that is Silu, as paddle calls it";
    assert_eq!(named!("swish", Precision::AsIs), refused(ErrorKind::List, words));
    let words = "`my op` cannot be the name of a custom op; allowed: letters, digits and `_`, no digit first";
    assert_eq!(named!("my op", Precision::AsIs), refused(ErrorKind::List, words));
    for name in [named!("", Precision::AsIs), named!("torch.mine", Precision::AsIs), named!("2d", Precision::AsIs)] {
        assert_eq!(name.unwrap_err().0, ErrorKind::List);
    }
    assert_eq!(named!("TakenTwice", Precision::Low), Ok(()));
    let words = "another custom op is called `TakenTwice` already; choose another name";
    assert_eq!(named!("TakenTwice", Precision::Low), refused(ErrorKind::List, words));
    let words = "the custom op `OnIntegers` is to run in i64; allowed: f32, f16, bf16";
    assert_eq!(named!("OnIntegers", Precision::Fixed(DType::I64)), refused(ErrorKind::DType, words));
    Ok(())
}

#[test]
fn errors_of_the_forward_pass_and_of_run_name_it() -> Result<()> {
    let error = PlainSum.apply(&[&of(&[1.0, 2.0], F32), &of(&[1.0, 2.0, 3.0], F32)]).unwrap_err().to_string();
    assert!(error.starts_with("Add: in PlainSum: the shapes"), "{error}");
    let error = run(PlainSum::register()?, &[&of(&[1.0], F32)]).unwrap_err().to_string();
    assert_eq!(error, "PlainSum: a custom op needs the value that holds its options; call its `apply`");
    // A panic inside leaves the thread unchanged.
    #[derive(Clone)]
    struct Panics;
    impl CustomOp for Panics {
        const NAME: &'static str = "Panics";
        fn forward(&self, _x: &[Tensor], _saved: &mut Vec<Tensor>) -> Result<Tensor> {
            panic!("on purpose")
        }
    }
    let x = of(&[1.0], F32).requires_grad();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Panics.apply(&[&x]))).unwrap_err();
    assert!(precast::precision::current().is_none() && x.square()?.is_tracked());
    assert_eq!(ran_in(&PlainSum, &[F32]).0, [F32]);
    Ok(())
}

/// A product whose backward pass is written with products, which regions lower.
#[derive(Clone)]
struct OwnProduct;

impl CustomOp for OwnProduct {
    const NAME: &'static str = "OwnProduct";

    fn forward(&self, x: &[Tensor], saved: &mut Vec<Tensor>) -> Result<Tensor> {
        saved.extend([x[0].clone(), x[1].clone()]);
        x[0].matmul(&x[1])
    }

    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        let (a, b) = (&back.saved[0], &back.saved[1]);
        Ok(vec![Some(back.grad.matmul(&b.t()?)?), Some(a.t()?.matmul(back.grad)?)])
    }
}

/// A region entered between the forward and the backward pass does not affect the latter.
#[test]
fn custom_backward_in_a_region_keeps_the_forward_dtypes() {
    let a = Tensor::from_vec(vec![1.0f32 / 3.0, 2.0 / 3.0, 0.1, 0.7], &[2, 2]).unwrap().requires_grad();
    let b = Tensor::from_vec(vec![0.3f32, 1.0 / 7.0, 5.0 / 7.0, 0.9], &[2, 2]).unwrap().requires_grad();
    let loss = || OwnProduct.apply(&[&a, &b]).unwrap().sum_all().unwrap();
    let wanted = loss().backward().unwrap();
    let outside = loss();
    let region = Autocast::new("torch-2.15-cuda").unwrap();
    let (found, events) = observe::watch(|| autocast(region, || outside.backward()).unwrap());
    for x in [&a, &b] {
        assert_eq!(found.of(x).unwrap().to_vec::<f32>().unwrap(), wanted.of(x).unwrap().to_vec::<f32>().unwrap());
    }
    assert!(events.iter().all(|event| event.op != Op::Cast), "{events:?}");
}
