//! One random call of an op, made here and in torch.

use precast::{DType, Op, Tensor, no_grad};
use serde_json::{Value, json};

use crate::{
    bounds,
    draw::{Case, Draw, Values},
    ops::{self, Family, Terms},
    peer::{Peer, about},
    units::{Measured, Scale, measure},
};

/// Errors of a call relative to f64, along with torch's own in the same dtype, if torch has a kernel for it.
pub struct Held {
    pub family: &'static Family,
    /// Errors of forward and backward.
    pub ours: [Measured; 2],
    pub torch: Option<[Measured; 2]>,
    pub backward: bool,
    pub formula: bool,
    /// Display text of the call: shapes and options.
    pub call: String,
}

/// Returns the seed of one case, which depends only on its name.
fn seed(root: u64, op: Op, dtype: DType, number: usize) -> u64 {
    let name = format!("{op} {dtype} {number}");
    // FNV-1a: short, and the same on every machine.
    name.bytes().fold(root ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Returns the kind of numbers of a case: mostly plain ones.
fn values(number: usize) -> Values {
    match number % 4 {
        2 => Values::Special,
        3 => Values::Wide,
        _ => Values::Plain,
    }
}

/// Draws a case and compares it with torch.
pub fn hold(peer: &mut Peer, root: u64, op: Op, dtype: DType, number: usize) -> Result<Held, String> {
    let seed = seed(root, op, dtype, number);
    let mut draw = Draw::new(seed, dtype, values(number));
    let (case, family) = ops::case(op, &mut draw)?;
    let Case { inputs, fixed, options, call } = case;
    let shapes: Vec<String> = inputs.iter().map(|x| format!("{:?}", x.shape())).collect();
    let shown = format!("{op} {dtype} case {number}: {} {}", shapes.join(", "), Value::Object(options.clone()));
    let fail = |why: String| format!("{shown}: {why}");

    let wants: Vec<bool> =
        inputs.iter().enumerate().map(|(i, x)| x.dtype().is_float() && !fixed.contains(&i)).collect();
    let leaves: Vec<Tensor> =
        inputs.iter().zip(&wants).map(|(x, &wants)| if wants { x.requires_grad() } else { x.clone() }).collect();
    let outputs = call(&leaves).map_err(|e| fail(format!("ours: {e}")))?;
    let untaped = no_grad(|| call(&inputs)).map_err(|e| fail(format!("ours without a tape: {e}")))?;
    for (taped, untaped) in outputs.iter().zip(&untaped) {
        let same = taped.to_f64().iter().zip(untaped.to_f64()).all(|(a, b)| a.to_bits() == b.to_bits());
        if !same || taped.dtype() != untaped.dtype() {
            return Err(fail("ours gives other numbers without a tape".into()));
        }
    }
    let floats: Vec<usize> = (0..outputs.len()).filter(|&i| outputs[i].dtype().is_float()).collect();
    let through = if floats.is_empty() { 0 } else { draw.one_of(&floats) };
    let wanted: Vec<usize> = (0..wants.len()).filter(|&i| wants[i]).collect();
    let back = if !floats.is_empty() && !wanted.is_empty() {
        draw.dtype = outputs[through].dtype();
        let seed = draw.plain(outputs[through].shape(), -1.0..1.0).map_err(|e| e.to_string())?;
        let grads = outputs[through].backward_from(&seed).map_err(|e| fail(format!("ours, backward: {e}")))?;
        let mut ours = Vec::new();
        for &i in &wanted {
            let Some(grad) = grads.of(&leaves[i]) else {
                return Err(fail(format!("ours: no gradient of input {i}")));
            };
            if grad.dtype() != inputs[i].dtype() || grad.shape() != inputs[i].shape() {
                return Err(fail(format!("ours: the gradient of input {i} is {} {:?}", grad.dtype(), grad.shape())));
            }
            ours.push(grad);
        }
        Some((seed, ours))
    } else {
        None
    };

    let abouts: Vec<Value> = inputs.iter().zip(&wants).map(|(x, &wants)| about(x, wants)).collect();
    let mut arrays: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
    arrays.extend(back.iter().map(|(seed, _)| seed.to_f64()));
    let question = json!({
        "ask": "op", "op": op.name(), "dtype": dtype.to_string(), "options": options, "inputs": abouts,
        "seeded": back.is_some(), "through": through, "terms": family.terms.name(),
    });
    let (answer, arrays) = peer.ask(question, &arrays).map_err(fail)?;
    if answer.get("unknown").is_some() {
        return Err(format!("{op} is in no table of tools/peers/torch/ops.py"));
    }
    let shapes: Vec<Vec<usize>> = outputs.iter().map(|y| y.shape().to_vec()).collect();
    if json!(shapes) != answer["shapes"] {
        return Err(fail(format!("shapes: ours {shapes:?}, torch's {}", answer["shapes"])));
    }

    // The exact numbers, the magnitudes of their terms, and torch's own numbers in the dtype.
    let gradients = back.as_ref().map_or(&[][..], |(_, grads)| grads);
    let all: Vec<&Tensor> = outputs.iter().chain(gradients).collect();
    let count = all.len();
    let special = draw.values == Values::Special;
    let nan = inputs.iter().any(|x| x.to_f64().iter().any(|x| x.is_nan()));
    let of = |numbers: &dyn Fn(usize) -> Vec<f64>| {
        let mut both = [Measured::default(); 2];
        for (i, tensor) in all.iter().enumerate() {
            let (exact, sizes) = (&arrays[i], &arrays[count + i]);
            let forward = i < outputs.len();
            if !forward && !bounds::compares_gradient(op, special, nan) {
                continue;
            }
            let direction = usize::from(!forward);
            let scale = Scale {
                dtype: tensor.dtype(),
                signs_of_zeros: forward
                    && matches!(family.terms, Terms::Elementwise | Terms::Activation)
                    && bounds::compares_signs(op),
                rounded_before: bounds::rounded_before(family.name, op, direction),
            };
            both[direction] = both[direction].join(measure(scale, &numbers(i), exact, sizes));
        }
        both
    };
    let ours = of(&|i| all[i].to_f64());
    let torch = answer["own"].as_bool().unwrap_or(false).then(|| of(&|i| arrays[2 * count + i].clone()));
    let formula = answer["formula"].as_bool().unwrap_or(false);
    Ok(Held { family, ours, torch, backward: back.is_some(), formula, call: shown })
}
