//! Individual probes of torch's regions: entry and exit, threads, low copies of weights, gradients.

use precast::{
    Autocast, DType, Error, ErrorKind, Op, Param, Reduction, Result, Tensor, autocast, no_grad, observe, precision,
};
use serde_json::{Value, json};

use crate::common::golden::golden;
use crate::replay::{Verdict, entries, replay};
use crate::torch::custom::{all_in, product};

/// Our answer to a probe.
enum Answer {
    /// The answer here equals torch's.
    Same(fn() -> Result<Value>),
    /// These are parts of torch's answer; the others concern features that do not exist here.
    Part(fn() -> Result<Value>),
    /// The answer here differs on purpose; with the one that our rule demands.
    Differs(fn() -> Result<Value>, fn() -> Value),
}

use Answer::{Differs, Part, Same};

const PROBES: &[(&str, Answer)] = &[
    ("decorator_basic", Same(|| Ok(json!([in_region(DType::Bf16, product_here)?, product_here()?])))),
    ("decorator_recursive_same_instance", Differs(|| inside_itself(6), || left(6))),
    ("reuse_instance_nested", Differs(|| inside_itself(3), || left(3))),
    ("exception_inside_restores", Same(after_an_error)),
    ("thread_local", Same(in_a_thread)),
    ("cache_leaf_requires_grad_3x_linear", Same(|| casts(cpu(), |x, w| linear(x, &w.tensor())))),
    ("cache_leaf_requires_grad_3x_cache_disabled", Same(|| casts(cpu().cache(false), |x, w| linear(x, &w.tensor())))),
    ("cache_no_requires_grad_3x", Same(|| casts(cpu(), |x, _| linear(x, &ones())))),
    ("cache_nonleaf_3x", Same(|| casts(cpu(), |x, w| linear(x, &w.tensor().add(&ones())?)))),
    ("cache_view_of_leaf_3x", Same(|| casts(cpu(), |x, w| linear(x, &w.tensor().t()?)))),
    ("cache_under_no_grad_3x", Same(|| no_grad(|| casts(cpu(), |x, w| linear(x, &w.tensor()))))),
    ("cache_kept_in_nested_inner_exit", Same(|| casts(cpu(), |x, w| autocast(cpu(), || linear(x, &w.tensor()))))),
    ("cache_outer_disabled_inner_regions_share", Same(|| autocast(cpu().enabled(false), two_regions))),
    ("cache_cleared_between_regions", Differs(two_regions, || cast_count(3))),
    (
        "cache_inplace_weight_update_inside_region_is_stale",
        Differs(
            an_update_inside,
            || json!({"before": [[4.0, 4.0, 4.0, 4.0]], "after_update_same_region": [[40.0, 40.0, 40.0, 40.0]]}),
        ),
    ),
    ("cache_fp16_then_bf16_same_weight", Differs(both_dtypes, || json!(["f16", "bf16", "f16"]))),
    ("backward_inside_region_same_dtypes", Same(backward_inside)),
    ("defaults", Part(defaults)),
    ("no_grad_first_then_grad_has_graph", Part(no_grad_first)),
    ("grad_dtypes_mlp", Same(grad_dtypes)),
    ("saved_tensors_low_precision", Same(inputs_of_a_product)),
    ("fp32_policy_does_not_cache", Same(an_f32_op_of_a_low_weight)),
    ("custom_fwd_no_cast_in_region_bf16", Differs(|| in_a_region(DType::Bf16), || all_in("f32"))),
    ("custom_fwd_no_cast_in_region_fp16", Differs(|| in_a_region(DType::F16), || all_in("f32"))),
    ("custom_fwd_no_cast_outside_region", Part(|| product::<false>(None, DType::F32))),
    ("custom_fwd_cast_f32_in_region", Part(|| product::<true>(Some(cpu()), DType::F32))),
    ("custom_fwd_cast_f32_in_region_f16_inputs", Part(|| product::<true>(Some(cpu()), DType::F16))),
    ("custom_fwd_cast_f32_f64_inputs_not_cast", Part(|| product::<true>(Some(cpu()), DType::F64))),
    ("custom_fwd_cast_f32_outside_region", Part(|| product::<true>(None, DType::F32))),
    ("int_matmul", Differs(product_of_integers, || json!("DType"))),
    (
        "python_scalar_and_0dim",
        Differs(
            numbers_and_scalars,
            || json!({"bf16*2.0": "bf16", "bf16+f32_0dim": "f32", "bf16+f32_1elem": "f32", "f32*bf16_0dim": "f32"}),
        ),
    ),
];

fn in_a_region(low: DType) -> Result<Value> {
    product::<false>(Some(cpu().dtype(low)), DType::F32)
}

fn cpu() -> Autocast {
    Autocast::new("torch-2.15-cpu").expect("a pack of the library")
}

fn ones() -> Tensor {
    Tensor::ones(&[4, 4], DType::F32)
}

fn linear(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    x.linear(w, None)
}

/// Returns the dtype of a product of two f32 matrices in the current region.
fn product_here() -> Result<&'static str> {
    Ok(ones().matmul(&ones())?.dtype().name())
}

fn in_region<R>(low: DType, f: impl FnOnce() -> Result<R>) -> Result<R> {
    autocast(cpu().dtype(low), f)
}

/// Enters one region inside itself, with a product on the way in and on the way out.
fn inside_itself(products: usize) -> Result<Value> {
    fn deeper(region: &Autocast, seen: &mut Vec<&'static str>, products: usize) -> Result<()> {
        autocast(region, || {
            seen.push(product_here()?);
            if seen.len() < products.div_ceil(2) {
                deeper(region, seen, products)?;
            }
            if seen.len() < products {
                seen.push(product_here()?);
            }
            Ok(())
        })
    }
    let mut seen = Vec::new();
    deeper(&cpu().dtype(DType::F16), &mut seen, products)?;
    Ok(json!({"seen": seen, "after_enabled": precision::region().is_some()}))
}

fn left(products: usize) -> Value {
    json!({"seen": vec!["f16"; products], "after_enabled": false})
}

fn after_an_error() -> Result<Value> {
    let failed: Result<()> = in_region(DType::F16, || Err(Error::value("on purpose")));
    assert!(failed.is_err());
    Ok(json!([precision::region().is_some(), in_default()?]))
}

/// Returns the low dtype of a region without an explicit one.
fn in_default() -> Result<&'static str> {
    autocast(cpu(), product_here)
}

fn in_a_thread() -> Result<Value> {
    in_region(DType::F16, || {
        let cached = || autocast(cpu(), || Ok(precision::region().is_some_and(|region| region.cache)));
        let thread = std::thread::spawn(move || (precision::region(), product_here(), in_default(), cached()));
        let (region, product_there, default, cached) = thread.join().expect("does not panic");
        Ok(json!({
            "thread_enabled": region.is_some(), "thread_dtype": default?, "thread_mm": product_there?,
            "thread_cache_enabled": cached?, "main_mm": product_here()?,
        }))
    })
}

fn cast_count(count: usize) -> Value {
    json!({"to_copy_count": count, "dtypes": vec![torchs(DType::Bf16); count]})
}

fn torchs(dtype: DType) -> String {
    format!("torch.{}", dtype.long_name())
}

/// Counts the casts of the forward pass for three uses of a new weight in a region.
fn casts(region: Autocast, f: impl Fn(&Tensor, &Param) -> Result<Tensor>) -> Result<Value> {
    let weight = Param::new(ones());
    counted(|| autocast(region, || (0..3).try_for_each(|_| f(&ones(), &weight).map(|_| ()))))
}

fn counted(f: impl FnOnce() -> Result<()>) -> Result<Value> {
    let (result, events) = observe::watch(f);
    result?;
    let dtypes: Vec<String> =
        events.iter().filter(|event| event.op == Op::Cast).map(|event| torchs(event.output)).collect();
    Ok(json!({"to_copy_count": dtypes.len(), "dtypes": dtypes}))
}

/// Runs two consecutive regions that use the same weight.
fn two_regions() -> Result<Value> {
    let weight = Param::new(ones());
    counted(|| (0..2).try_for_each(|_| autocast(cpu(), || linear(&ones(), &weight.tensor())).map(|_| ())))
}

fn an_update_inside() -> Result<Value> {
    let (weight, x) = (Param::new(ones()), Tensor::ones(&[1, 4], DType::F32));
    autocast(cpu(), || {
        let row = || linear(&x, &weight.tensor()).map(|y| y.to_f64());
        let before = row()?;
        weight.set(&(weight.value() * 10.0)?)?;
        Ok(json!({"before": [before], "after_update_same_region": [row()?]}))
    })
}

fn both_dtypes() -> Result<Value> {
    let weight = Param::new(ones());
    let layer = || linear(&ones(), &weight.tensor()).map(|y| y.dtype().name());
    in_region(DType::F16, || Ok(json!([layer()?, in_region(DType::Bf16, layer)?, layer()?])))
}

fn backward_inside() -> Result<Value> {
    let (weight, x) = (Param::new(ones()), ones().requires_grad());
    in_region(DType::Bf16, || {
        let grads = linear(&x, &weight.tensor())?.cast(DType::F32).sum_all()?.backward()?;
        let dtypes = [grads.get(&weight), grads.of(&x)].map(|grad| grad.map(|grad| grad.dtype().name()));
        Ok(json!(dtypes))
    })
}

fn numbers_and_scalars() -> Result<Value> {
    let (low, wide) = (Tensor::ones(&[3], DType::Bf16), Tensor::ones(&[3], DType::F32));
    let scalar = |dtype| Tensor::scalar(2.0, dtype);
    Ok(json!({
        "bf16*2.0": (&low * 2.0)?.dtype().name(),
        "bf16+f32_0dim": low.add(&scalar(DType::F32))?.dtype().name(),
        "bf16+f32_1elem": low.add(&scalar(DType::F32).unsqueeze(0)?)?.dtype().name(),
        "f32*bf16_0dim": wide.mul(&scalar(DType::Bf16))?.dtype().name(),
    }))
}

/// Returns the dtype of a region without an explicit one, and whether it keeps low copies.
fn defaults() -> Result<Value> {
    let of = |pack: &str| {
        autocast(Autocast::new(pack)?, || {
            let state = precision::region().expect("a region");
            Ok(json!([torchs(state.dtype), state.cache]))
        })
    };
    Ok(json!({"cpu": of("torch-2.15-cpu")?, "cuda": of("torch-2.15-cuda")?}))
}

/// Checks that a low copy made without gradients does not affect later ones.
fn no_grad_first() -> Result<Value> {
    let weight = Param::new(ones());
    autocast(cpu(), || {
        let layer = || linear(&ones(), &weight.tensor());
        assert!(!no_grad(layer)?.is_tracked());
        let y = layer()?;
        let grads = y.cast(DType::F32).sum_all()?.backward()?;
        Ok(json!({"requires_grad": y.is_tracked() && grads.get(&weight).is_some()}))
    })
}

/// Returns the dtypes of a product, an activation and a loss, and of the gradients that arrive at each.
fn grad_dtypes() -> Result<Value> {
    let (weight, x) = (Param::new(ones()), ones().requires_grad());
    let (y, z, loss) = in_region(DType::Bf16, || {
        let y = linear(&x, &weight.tensor())?;
        // Leaves in the middle, so that their gradients are visible.
        let z = y.detach().requires_grad();
        Ok((y, z.clone(), z.relu()?.mse_loss(&ones(), Reduction::Mean)?))
    })?;
    let grads = loss.backward()?;
    let of_z = grads.of(&z).expect("the loss depends on it");
    let below = y.backward_from(&of_z)?;
    let name = |x: Option<Tensor>| x.map(|x| x.dtype().name());
    Ok(json!({
        "y": y.dtype().name(), "z": z.dtype().name(), "loss": loss.dtype().name(), "z_grad": of_z.dtype().name(),
        "grad_y": of_z.dtype().name(), "w_grad": name(below.get(&weight)), "x_grad": name(below.of(&x)),
    }))
}

/// Returns the inputs of a product, which it keeps for its backward pass.
fn inputs_of_a_product() -> Result<Value> {
    let weight = Param::new(ones());
    let (result, events) = observe::watch(|| in_region(DType::Bf16, || linear(&ones(), &weight.tensor())));
    result?;
    let product = events.iter().find(|event| event.op == Op::Linear).expect("a product was run");
    Ok(json!(product.inputs.iter().map(|dtype| dtype.name()).collect::<Vec<_>>()))
}

fn an_f32_op_of_a_low_weight() -> Result<Value> {
    let weight = Param::new(ones().cast(DType::Bf16));
    counted(|| autocast(cpu(), || (0..3).try_for_each(|_| weight.tensor().prod(&[], false).map(|_| ()))))
}

fn product_of_integers() -> Result<Value> {
    let x = Tensor::ones(&[2, 2], DType::I64);
    Ok(x.matmul(&x).map_or_else(|error| json!(format!("{:?}", error.kind())), |y| json!(y.dtype().name())))
}

/// Enters a region of a dtype that is not low: `dtype_int8_disables` and the like.
fn refused(name: &str) -> Option<Result<(), Error>> {
    let named = name.strip_prefix("dtype_")?.strip_suffix("_disables")?;
    let region = || autocast(cpu().dtype(named.parse()?), || Ok(()));
    Some(region())
}

#[test]
fn every_probe() {
    replay("torch", "probes", golden("torch/nested.json"), |golden, tally| {
        for (name, recorded) in entries(&golden["probes"]) {
            let theirs = &recorded["result"];
            let known = PROBES.iter().find(|(known, _)| known == name).map(|(_, answer)| answer);
            match (known, refused(name)) {
                (Some(Same(ours)), _) => match ours() {
                    Ok(ours) if ours == *theirs => tally.agree(name),
                    ours => tally.fail(name, format!("ours {ours:?}, torch's {theirs}")),
                },
                (Some(Part(ours)), _) => match ours() {
                    Ok(ours) => {
                        for (part, theirs) in entries(theirs) {
                            match ours.get(part) {
                                Some(ours) if ours == theirs => tally.agree(format!("{name} {part}")),
                                Some(ours) => tally.fail(name, format!("{part}: ours {ours}, torch's {theirs}")),
                                None => tally.absent(format!("{name} {part}")),
                            }
                        }
                    }
                    Err(error) => tally.fail(name, error),
                },
                (Some(Differs(ours, wanted)), _) => match ours() {
                    Ok(ours) if ours == wanted() => tally.count(name, Ok(Verdict::of(ours == *theirs))),
                    ours => tally.fail(name, format!("ours {ours:?}, wanted {}, torch's {theirs}", wanted())),
                },
                (None, Some(Err(error))) if error.kind() == ErrorKind::DType => tally.differs(name),
                (None, Some(ours)) => tally.fail(name, format!("ours {ours:?}, torch's {theirs}")),
                (None, None) => tally.absent(name),
            }
        }
    });
}
