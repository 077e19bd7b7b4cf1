//! The three products of a linear layer, compared with torchao's emulation of a Float8Linear.

use precast_lowbit::{Matrix, Product, Recipe, Stream};

use crate::data::Arrays;

fn multiply(product: Product, left: Matrix<'_>, right: Matrix<'_>) -> Vec<f32> {
    let random = Stream::new(0, "fc", 0);
    let [left, right] = [(product.left, left), (product.right, right)].map(|(of, x)| of.quantize(x, random).unwrap());
    left.matmul_t(&right).unwrap()
}

/// Products agree to the order of sums: 2e-7 of the largest number.
fn assert_near(met: &[f32], expected: &[f32], name: &str) {
    assert_eq!(met.len(), expected.len());
    let largest = expected.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    let error = met.iter().zip(expected).fold(0f32, |most, (x, y)| most.max((x - y).abs()));
    assert!(error <= 2e-7 * largest, "{name}: {} of the largest", error / largest);
}

#[test]
fn a_linear_layer_is_that_of_torchao() {
    let data = Arrays::read("training-torchao.txt");
    let [x, w, b, g] = ["x", "w", "b", "grad_output"].map(|name| data.floats(&format!("layer.{name}")));
    let (x, w, g) =
        (Matrix::new(&x, 32, 32).unwrap(), Matrix::new(&w, 16, 32).unwrap(), Matrix::new(&g, 32, 16).unwrap());
    for (recipe, name) in [
        (Recipe::TENSORWISE, "tensorwise"),
        (Recipe::ROWWISE, "rowwise"),
        (Recipe::ROWWISE_HP_GRAD, "rowwise_with_gw_hp"),
    ] {
        let recorded = |what: &str| data.floats(&format!("layer.{name}.f32.{what}"));
        let mut y = multiply(recipe.output, x, w);
        y.chunks_mut(16).for_each(|row| row.iter_mut().zip(&b).for_each(|(y, b)| *y += b));
        assert_near(&y, &recorded("y"), name);
        assert_near(&multiply(recipe.grad_input, g, w.t()), &recorded("grad_x"), name);
        match recipe.grad_weight {
            Some(product) => assert_near(&multiply(product, g.t(), x.t()), &recorded("grad_w"), name),
            None => assert_eq!(name, "rowwise_with_gw_hp"),
        }
    }
}

/// The transform is orthogonal, so that of both operands cancels in their product, but for the rounding of their codes: half
/// a unit of 127 of the largest transformed number, which is at most the norm of its row.
#[test]
fn transformed_operands_have_the_same_product() {
    let operand = Recipe::INT8.output.left.transformed();
    let (g, x): (Vec<f32>, Vec<f32>) = (0..512).map(|i| ((i as f32 * 0.7).sin(), (i as f32 * 1.3).cos())).unzip();
    let [of_g, of_x] = [&g, &x].map(|x| Matrix::new(x, 16, 32).unwrap());
    let met = multiply(Product { left: operand, right: operand }, of_g, of_x);
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>();
    for (at, met) in met.into_iter().enumerate() {
        let [g, x] = [(&g, at / 16), (&x, at % 16)].map(|(of, row)| &of[row * 32..][..32]);
        let norms = (dot(g, g) * dot(x, x)).sqrt();
        assert!((f64::from(met) - dot(g, x)).abs() <= 0.02 * norms, "{at}: {met}");
    }
}
