//! Three user-defined ops: a unary one, a binary one that saves a number for the backward pass, and one that works on
//! slices of f32 and so must run in f32. Shows their precision in regions, on lists, in a policy file and in a plan.
//!
//! `cargo run --release --example own_op`

use precast::{Backward, CustomOp, autocast, gradcheck, observe::collect_op_stats, prelude::*};

/// `x · sigmoid(slope · x)`: declares no precision, so it runs in that of its input.
#[derive(Clone, Debug)]
struct Swish {
    slope: f64,
}

impl CustomOp for Swish {
    const NAME: &'static str = "MySwish";

    fn forward(&self, x: &[Tensor], saved: &mut Vec<Tensor>) -> Result<Tensor> {
        saved.push(x[0].clone());
        x[0].mul(&(&x[0] * self.slope)?.sigmoid()?)
    }

    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        let x = &back.saved[0];
        let s = (x * self.slope)?.sigmoid()?;
        let slope = formula!(s + self.slope * x * s * (1 - s))?;
        Ok(vec![Some(back.grad.mul(&slope)?)])
    }
}

/// `tanh(a) · b`: runs in the low dtype when lists decide. The tanh is computed once, and saved.
#[derive(Clone)]
struct TanhGate;

impl CustomOp for TanhGate {
    const NAME: &'static str = "MyTanhGate";
    const PRECISION: Precision = Precision::Low;

    fn forward(&self, x: &[Tensor], saved: &mut Vec<Tensor>) -> Result<Tensor> {
        let gate = x[0].tanh()?;
        let y = gate.mul(&x[1])?;
        saved.extend([gate, x[1].clone()]);
        Ok(y)
    }

    fn backward(&self, back: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        let (gate, b) = (&back.saved[0], &back.saved[1]);
        let a = formula!(back.grad * b * (1 - gate.square()))?;
        Ok(vec![Some(a), Some(back.grad.mul(gate)?)])
    }
}

/// Divides each row by its largest number, in a loop over slices of f32: f32 in every region.
#[derive(Clone)]
struct RowScale;

impl CustomOp for RowScale {
    const NAME: &'static str = "MyRowScale";
    const PRECISION: Precision = Precision::Fixed(DType::F32);

    fn forward(&self, x: &[Tensor], _saved: &mut Vec<Tensor>) -> Result<Tensor> {
        let mut y = x[0].to_vec::<f32>()?;
        for row in y.chunks_mut(x[0].shape().last().copied().unwrap_or(1).max(1)) {
            let largest = row.iter().fold(f32::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
            row.iter_mut().for_each(|x| *x /= largest);
        }
        Tensor::from_vec(y, x[0].shape())
    }
}

/// A network that uses two of them. Its cells do not mention precision.
#[derive(Cell, Debug)]
struct Net {
    first: Child<Dense>,
    second: Child<Dense>,
    swish: Swish,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = RowScale.apply(&[x])?.detach();
        self.second.call(&self.swish.apply(&[&self.first.call(&x)?])?)
    }
}

fn main() -> Result<()> {
    let swish = Swish { slope: 1.5 };
    let numbers = Tensor::from_vec(vec![0.3, -1.2, 2.0], &[3])?;
    let found = gradcheck::gradients(&[numbers], |x| swish.apply(&[&x[0]]))?;
    println!("gradients of {} against central differences: off by {:.0e}", Swish::NAME, found.relative);
    assert!(found.relative < 1e-6);

    // In a region: as the input, low, and f32.
    let (x, low) = (Tensor::ones(&[2, 3], DType::F32), Tensor::ones(&[2, 3], DType::Bf16));
    let region = Autocast::new("torch-2.15-cpu")?.dtype(DType::Bf16);
    let ((), stats) = collect_op_stats(|| {
        autocast(&region, || {
            assert_eq!(swish.apply(&[&x])?.dtype(), DType::F32);
            assert_eq!(TanhGate.apply(&[&x, &x])?.dtype(), DType::Bf16);
            assert_eq!(RowScale.apply(&[&low])?.dtype(), DType::F32);
            Ok(())
        })
    })?;
    println!("{stats}\n");

    // On a list, by its own name.
    autocast(region.low([Swish::NAME]), || {
        assert_eq!(swish.apply(&[&x])?.dtype(), DType::Bf16);
        Ok(())
    })?;

    // In a policy file. The names must be registered before the file is read.
    Swish::register()?;
    let policy = "version: 1\nlevel: auto\ndtype: bfloat16\nops: { full: { add: [MySwish] } }\n";
    let policy = Policy::parse(policy, "policy.yaml")?;
    let mut rng = Rng::seed(1);
    let [first, second] = [(3, 8), (8, 2)].map(|(n, m)| Child::new(Dense::new(n, m, &mut rng)));
    let mut net = Child::of(Net { first, second, swish });
    let plan = policy.plan(&net)?;
    plan.apply(&mut net)?;
    let (y, trace) = net.trace(|net| net.call(&x));
    y?.cast(DType::F32).square()?.mean_all()?.backward()?;
    println!("{}", plan.ops(&trace)?);
    Ok(())
}
