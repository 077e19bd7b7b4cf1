//! What was asked of torch's regions one by one: ways in and out, threads, low copies of weights, gradients.

use precast::{Autocast, DType, Error, Op, Param, Result, Tensor, autocast, no_grad, observe, precision};
use serde_json::{Value, json};

use crate::tally::Tally;

/// What becomes of a probe here.
enum Answer {
    /// This is the answer here, and torch's.
    Same(fn() -> Result<Value>),
    /// The answer here is this one, on purpose.
    Differs(&'static str, fn() -> Result<Value>, fn() -> Value),
}

use Answer::{Differs, Same};

const PROBES: &[(&str, Answer)] = &[
    ("decorator_basic", Same(|| Ok(json!([in_region(DType::Bf16, product)?, product()?])))),
    ("decorator_recursive_same_instance", Differs("a region leaves nothing behind", || inside_itself(6), || left(6))),
    ("reuse_instance_nested", Differs("a region leaves nothing behind", || inside_itself(3), || left(3))),
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
    ("cache_cleared_between_regions", Differs("low copies belong to the value", two_regions, || cast_count(3))),
    (
        "cache_inplace_weight_update_inside_region_is_stale",
        Differs(
            "low copies belong to the value",
            an_update_inside,
            || json!({"before": [[4.0, 4.0, 4.0, 4.0]], "after_update_same_region": [[40.0, 40.0, 40.0, 40.0]]}),
        ),
    ),
    (
        "cache_fp16_then_bf16_same_weight",
        Differs("low copies of a parameter are kept by dtype", both_dtypes, || json!(["f16", "bf16", "f16"])),
    ),
    ("backward_inside_region_same_dtypes", Same(backward_inside)),
    (
        "python_scalar_and_0dim",
        Differs(
            "a tensor without axes is a tensor",
            numbers_and_scalars,
            || json!({"bf16*2.0": "bf16", "bf16+f32_0dim": "f32", "bf16+f32_1elem": "f32", "f32*bf16_0dim": "f32"}),
        ),
    ),
];

/// The beginnings of names of probes of Python, of devices, of what is changed in place, of dtypes that there are none of
/// here, and of how torch keeps what it keeps.
const OUTSIDE: &[&str] = &[
    "_cast_containers",
    "addmm_inplace",
    "cache_under_inference_mode",
    "complex",
    "custom_",
    "decorator_noncallable",
    "defaults",
    "deprecated",
    "device_type",
    "dtype_",
    "float8",
    "fp32_policy_does_not_cache",
    "grad_dtypes",
    "grad_of_grad",
    "in_place",
    "int_matmul",
    "no_grad_first",
    "out_variant",
    "result_type",
    "saved_tensors",
];

fn cpu() -> Autocast {
    Autocast::new("torch-2.15-cpu").expect("a pack of the library")
}

fn ones() -> Tensor {
    Tensor::ones(&[4, 4], DType::F32)
}

fn linear(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    x.linear(w, None)
}

/// The dtype of a product of two f32 matrices here and now.
fn product() -> Result<&'static str> {
    Ok(ones().matmul(&ones())?.dtype().name())
}

fn in_region<R>(low: DType, f: impl FnOnce() -> Result<R>) -> Result<R> {
    autocast(cpu().dtype(low), f)
}

/// One region entered inside itself, with a product on the way in and on the way out.
fn inside_itself(products: usize) -> Result<Value> {
    fn deeper(region: &Autocast, seen: &mut Vec<&'static str>, products: usize) -> Result<()> {
        autocast(region, || {
            seen.push(product()?);
            if seen.len() < products.div_ceil(2) {
                deeper(region, seen, products)?;
            }
            if seen.len() < products {
                seen.push(product()?);
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

/// The low dtype of a region that names none.
fn in_default() -> Result<&'static str> {
    autocast(cpu(), product)
}

fn in_a_thread() -> Result<Value> {
    in_region(DType::F16, || {
        let thread = std::thread::spawn(|| (precision::region(), product(), in_default()));
        let (region, product_there, default) = thread.join().expect("does not panic");
        Ok(json!({
            "thread_enabled": region.is_some(), "thread_dtype": default?, "thread_mm": product_there?,
            "thread_cache_enabled": region.is_none_or(|region| region.cache), "main_mm": product()?,
        }))
    })
}

fn cast_count(count: usize) -> Value {
    json!({"to_copy_count": count, "dtypes": vec!["torch.bfloat16"; count]})
}

/// The casts of the forward pass: of three uses of a new weight in a region.
fn casts(region: Autocast, f: impl Fn(&Tensor, &Param) -> Result<Tensor>) -> Result<Value> {
    let weight = Param::new(ones());
    counted(|| autocast(region, || (0..3).try_for_each(|_| f(&ones(), &weight).map(|_| ()))))
}

fn counted(f: impl FnOnce() -> Result<()>) -> Result<Value> {
    let (result, events) = observe::watch(f);
    result?;
    Ok(cast_count(events.iter().filter(|event| event.op == Op::Cast).count()))
}

/// Two regions one after the other, which use one weight.
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

#[test]
fn every_probe() {
    let Some(golden) = crate::common::golden("torch/nested.json") else { return };
    let mut tally = Tally::new("torch", "nested, probes");
    for (name, recorded) in golden["probes"].as_object().into_iter().flatten() {
        let theirs = &recorded["result"];
        match PROBES.iter().find(|(known, _)| known == name) {
            Some((_, Same(ours))) => match ours() {
                Ok(ours) if ours == *theirs => tally.agree(),
                ours => tally.fail(format!("{name}: ours {ours:?}, torch's {theirs}")),
            },
            Some((_, Differs(difference, ours, wanted))) => match ours() {
                Ok(ours) if ours == wanted() && ours != *theirs => tally.on_purpose(difference),
                ours => tally.fail(format!("{name}: ours {ours:?}, wanted {}, torch's {theirs}", wanted())),
            },
            None if OUTSIDE.iter().any(|beginning| name.starts_with(beginning)) => tally.outside(1),
            None => tally.fail(format!("{name} is not understood")),
        }
    }
    tally.close();
}
