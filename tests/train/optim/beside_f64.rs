//! Optimizers with a state in f32 beside the same in f64, over many steps.

use precast::{DType, Grads, Param, Tensor};

use super::{ALL, eight_bit::GRADIENTS, noise};

/// Every optimizer, on weights whose gradients differ by 1e6, with a state in f32 and in f64.
#[test]
fn two_thousand_steps_in_f32_are_those_in_f64() {
    const STEPS: usize = 2000;
    let mut wrong = Vec::new();
    // The `eps` of Adafactor is that of the dtype of the weight, as in torch.
    for &(name, make) in ALL.iter().filter(|(name, _)| !name.contains("8 bits") && *name != "adafactor") {
        for kind in ["ends after ten steps", "alternates", "vanishes slowly", "comes every fifth step"] {
            let &(.., grad) = GRADIENTS.iter().find(|(of, ..)| *of == kind).unwrap();
            let [wide, exact] = [DType::F32, DType::F64].map(|dtype| {
                let param = Param::new(noise(&[8, 8], 1).cast(dtype));
                let mut optimizer = make([("w".to_string(), param.clone())].into_iter().collect());
                for step in 0..STEPS {
                    let numbers: Vec<f64> = (0..64).map(|i| grad(step) * 10f64.powi(-(i % 7))).collect();
                    let mut grads = Grads::default();
                    grads.set(&param, Tensor::from_f64(&numbers, &[8, 8], DType::F32).unwrap().cast(dtype));
                    optimizer.update(&grads).unwrap();
                }
                param.value().to_f64()
            });
            let start = noise(&[8, 8], 1).to_f64();
            let bound = match name {
                // Its iteration takes the small singular values of such a matrix for large ones.
                "muon" => 0.05,
                // Its steps are proportional to the weights, and so are their errors.
                "lamb" => 0.02,
                _ => 1e-3,
            };
            for (i, ((wide, exact), start)) in wide.iter().zip(&exact).zip(&start).enumerate() {
                // Each step rounds the weight, below 1 here, to half of its last place.
                let rounded = STEPS as f64 * f64::from(f32::EPSILON) / 2.0;
                if (wide - exact).abs() > bound * (exact - start).abs() + rounded {
                    wrong.push(format!("{name}, {kind}, {i}: {wide}, right {exact}, from {start}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
