//! Gradients of weights in f32 for products that run low: `run: { forward: low, weight_grad: float32 }`.

use precast::{
    cell::Planned,
    cost::{Rate, Speeds},
    prelude::*,
    sequential,
};

use crate::common::{speeds::rates, tensors::random};

fn policy(level: &str, run: &str) -> Policy {
    let text = format!("version: 1\nlevel: {level}\ndtype: bfloat16\nrules:\n  - path: \"**\"\n    run: {run}\n");
    Policy::parse(&text, "direction.yaml").unwrap()
}

const BOTH: &str = "{ forward: low, weight_grad: float32 }";

/// Returns the largest difference relative to the largest number.
fn apart(a: &Tensor, b: &Tensor) -> f64 {
    let largest = b.to_f64().iter().fold(0.0f64, |m, x| m.max(x.abs()));
    a.to_f64().iter().zip(b.to_f64()).fold(0.0f64, |m, (a, b)| m.max((a - b).abs())) / largest
}

/// Returns output, gradient of the input, and gradients of the parameters in order.
fn run(net: &Child, x: &Tensor) -> (Tensor, Tensor, Vec<Tensor>) {
    let x = x.requires_grad();
    let y = net.call(&x).unwrap();
    // A seed that is exact in bf16, like the gradient of the output.
    let seed = random(y.shape(), 7).cast(DType::Bf16).cast(y.dtype());
    let grads = y.backward_from(&seed).unwrap();
    let params = net.params().iter().map(|(_, param)| grads.get(param).unwrap()).collect();
    (y, grads.of(&x).unwrap(), params)
}

/// Each op with weights, wrapped as by level O1: its input is f32.
#[test]
fn f32_weight_gradients_use_unrounded_activations() {
    type Make = fn(&mut Rng) -> Child;
    let make: [(Make, &[usize]); 5] = [
        (|r| Dense::new(24, 16, r).into(), &[300, 24]),
        (|r| Conv1d::new(5, 4, 3, r).into(), &[20, 5, 40]),
        (|r| Conv2d::new(3, 4, 3, r).into(), &[8, 3, 14, 13]),
        (|r| Conv2dTranspose::new(3, 4, 3, r).into(), &[8, 3, 9, 7]),
        (|r| Conv3d::new(2, 3, 2, r).into(), &[6, 2, 6, 6, 5]),
    ];
    for (i, (make, shape)) in make.into_iter().enumerate() {
        let net = |run: Option<&str>| {
            let mut net = make(&mut Rng::seed(3));
            if let Some(run) = run {
                let _applied = policy("O1", run).apply(&mut net).unwrap();
            }
            net
        };
        let x = random(shape, 5);
        let (y, of_x, low) = run(&net(Some("low")), &x);
        let (wide_y, wide_of_x, wide) = run(&net(Some(BOTH)), &x);
        assert_eq!((y.to_f64(), of_x.to_f64()), (wide_y.to_f64(), wide_of_x.to_f64()), "layer {i}");
        // In f32 throughout, the gradient of the weight is the product of the input and the seed.
        let (.., full) = run(&net(None), &x);
        for (which, ((low, wide), full)) in low.iter().zip(&wide).zip(&full).enumerate() {
            assert_eq!((wide.dtype(), wide.shape()), (DType::F32, full.shape()));
            let (low, wide) = (apart(low, full), apart(wide, full));
            assert!(wide < 1e-5 && low > 5e-4, "layer {i}, parameter {which}: {wide:e} in f32, {low:e} low");
        }
    }
}

#[test]
fn f32_weight_gradients_are_not_rounded_in_a_low_region() {
    let make =
        || Child::of(sequential![Dense::new(6, 8, &mut Rng::seed(1)), Tanh, Dense::new(8, 4, &mut Rng::seed(2))]);
    let x = random(&[40, 6], 3);
    let (mut low, mut wide) = (make(), make());
    let _applied = policy("O2", "low").apply(&mut low).unwrap();
    let _applied = policy("O2", BOTH).apply(&mut wide).unwrap();
    let ((y, of_x, low), (wide_y, wide_of_x, wide)) = (run(&low, &x), run(&wide, &x));
    assert_eq!((y.to_f64(), of_x.to_f64()), (wide_y.to_f64(), wide_of_x.to_f64()));
    let is_bf16 = |x: &Tensor| x.cast(DType::Bf16).to_f64() == x.to_f64();
    for (low, wide) in low.iter().zip(&wide) {
        assert!(is_bf16(low) && !is_bf16(wide));
        assert!(apart(low, wide) < 0.02);
    }
}

#[test]
fn a_rule_inside_takes_it_back_and_undo_is_exact() {
    let mut net = Child::of(sequential![
        Dense::new(3, 3, &mut Rng::seed(1)),
        sequential![Dense::new(3, 3, &mut Rng::seed(2)), Dense::new(3, 3, &mut Rng::seed(3))]
    ]);
    let text = "{version: 1, level: O2, dtype: bfloat16, rules: [{path: '1.1', run: low}, \
                {path: '1', run: {forward: low, weight_grad: float32}}]}";
    let policy = Policy::parse(text, "inside.yaml").unwrap();
    let plan = policy.plan(&net).unwrap();
    let wide: Vec<(&str, bool)> = plan.decisions.iter().map(|d| (d.path.as_str(), d.wide_weight_grads)).collect();
    assert_eq!(wide, [("", false), ("0", false), ("1", false), ("1.0", true), ("1.1", false)]);
    assert!(plan.to_string().contains("runs bf16, weight gradients f32"), "{plan}");
    assert!(plan.explain("1.0").unwrap().to_string().contains("weight gradients f32"));
    let applied = policy.apply(&mut net).unwrap();
    let again = policy.apply(&mut net).unwrap();
    assert_eq!((applied.changed, again.changed), (3, 0));
    let (.., grads) = run(&net, &random(&[9, 3], 1));
    let low: Vec<bool> = grads.iter().map(|x| x.cast(DType::Bf16).to_f64() == x.to_f64()).collect();
    assert_eq!(low, [true, true, false, false, true, true]);
    again.undo(&mut net).unwrap();
    applied.undo(&mut net).unwrap();
    net.walk(&mut |entry| assert_eq!(*entry.slot.planned, Planned::default()));
    // Another way of writing it, and invalid ways.
    let refused = |run: &str| {
        let text = format!("version: 1\nlevel: O2\ndtype: bfloat16\nrules:\n  - kind: Dense\n    run: {run}\n");
        Policy::parse(&text, "p.yaml").unwrap_err().to_string()
    };
    for (run, words) in [
        ("{ forward: float32, weight_grad: low }", "unknown word for `forward` `float32`"),
        ("{ forward: low, weight_grad: f32 }", "unknown word for `weight_grad` `f32`"),
        ("{ forward: low }", "the key `weight_grad` is missing from this map; allowed: float32, low"),
        ("{ weight_grad: low }", "the key `forward` is missing from this map; allowed: low"),
        ("{ forward: low, weight_grads: float32 }", "did you mean `weight_grad`"),
        ("{ forward: lo, weight_grad: float32 }", "did you mean `low`"),
        (
            "[low]",
            "expected float32, float32-out, float32-inside, low, inherit, or { forward: low, weight_grad: float32 }",
        ),
    ] {
        let message = refused(run);
        assert!(message.contains(words) && message.contains("p.yaml:6"), "{run}: {message}");
    }
}

#[test]
fn a_rule_that_reaches_no_weights_is_told() {
    let net = Child::of(sequential![Tanh, LayerNorm::new(&[4])]);
    assert_eq!(
        policy("O2", BOTH).plan(&net).unwrap_err().to_string(),
        "direction.yaml:5:5: the rule for path ** asks for gradients of weights in float32, and decides for no dense layer \
         and no convolution"
    );
    // One such layer is enough.
    policy("O2", BOTH).plan(&Child::of(sequential![Tanh, Dense::new(4, 4, &mut Rng::seed(1))])).unwrap();
}

/// It is part of the predicted time of a plan.
#[test]
fn f32_weight_gradients_have_a_predicted_cost() {
    let net = Child::of(Dense::new(256, 256, &mut Rng::seed(1)));
    let x = random(&[128, 256], 2);
    let (y, trace) = net.trace(|net| net.call(&x));
    y.unwrap();
    let speeds = speeds();
    let predicted =
        |run: &str| policy("O2", run).plan_for(&net, &trace, &speeds).unwrap().prediction.unwrap().planned.nanos;
    let full = predicted("float32");
    let (low, wide) = (predicted("low"), predicted(BOTH));
    assert!(low < wide && wide < full, "{low} {wide} {full}");
}

/// Returns the speeds of a machine on which bf16 is twice as fast.
fn speeds() -> Speeds {
    let rate = |multiply_add| Rate { multiply_add, element: 0.1 };
    let (f32, low) = (rates(rate(0.02), 0.0), rates(rate(0.01), 0.001));
    let (call, cache, byte, parallel) = (100.0, 1e6, 0.01, 1.0);
    Speeds { host: "made up".into(), call, cache, byte, parallel, f32, f16: low, bf16: low }
}
