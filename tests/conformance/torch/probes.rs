//! Individual probes of torch's regions: entry and exit, threads, low copies of weights, gradients.

use precast::{
    Autocast, DType, Error, ErrorKind, Op, Param, Reduction, Result, Tensor, autocast, no_grad, observe, precision,
};
use serde_json::{Value, json};

use crate::common::golden::golden;
use crate::replay::{entries, replay};
use crate::torch::{
    custom::{all_in, in_a_region, product},
    forms::IN_PLACE,
    rounding::EIGHT_BIT,
};

/// Our answer to a probe.
enum Answer {
    /// The answer here equals torch's.
    Same(fn() -> Result<Value>),
    /// These are parts of torch's answer; the others concern features that do not exist here, with the reason.
    Part(fn() -> Result<Value>, &'static str),
    /// The answer here differs on purpose; with the expected one, and a check that torch's shows the difference.
    Differs(&'static str, fn() -> Result<Value>, fn() -> Value, fn(&Value) -> bool),
}

use Answer::{Differs, Part, Same};

const PROBES: &[(&str, Answer)] = &[
    ("decorator_basic", Same(|| Ok(json!([in_region(DType::Bf16, product_here)?, product_here()?])))),
    ("decorator_recursive_same_instance", left_behind(|| inside_itself(6), || left(6))),
    ("reuse_instance_nested", left_behind(|| inside_itself(3), || left(3))),
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
    (
        "cache_cleared_between_regions",
        Differs("an update inside a region is seen", two_regions, || cast_count(3), |theirs| *theirs == cast_count(4)),
    ),
    (
        "cache_inplace_weight_update_inside_region_is_stale",
        Differs(
            "an update inside a region is seen",
            an_update_inside,
            || json!({"before": [[4.0, 4.0, 4.0, 4.0]], "after_update_same_region": [[40.0, 40.0, 40.0, 40.0]]}),
            |theirs| theirs["before"] == theirs["after_update_same_region"],
        ),
    ),
    (
        "cache_fp16_then_bf16_same_weight",
        Differs(
            "one weight in regions of both dtypes",
            both_dtypes,
            || json!(["f16", "bf16", "f16"]),
            |theirs| theirs[1].as_str().is_some_and(|second| second.starts_with("RuntimeError: ")),
        ),
    ),
    ("backward_inside_region_same_dtypes", Same(backward_inside)),
    ("defaults", Part(defaults, "there are packs for a CPU and for CUDA")),
    ("no_grad_first_then_grad_has_graph", Part(no_grad_first, "the name of a node of the tape")),
    ("grad_dtypes_mlp", Same(grad_dtypes)),
    ("saved_tensors_low_precision", Same(inputs_of_a_product)),
    ("fp32_policy_does_not_cache", Same(an_f32_op_of_a_low_weight)),
    (
        "custom_fwd_no_cast_in_region_bf16",
        in_no_region(
            || product::<false>(Some(cpu().dtype(DType::Bf16)), DType::F32),
            |theirs| *theirs == in_a_region("bf16"),
        ),
    ),
    (
        "custom_fwd_no_cast_in_region_fp16",
        in_no_region(
            || product::<false>(Some(cpu().dtype(DType::F16)), DType::F32),
            |theirs| *theirs == in_a_region("f16"),
        ),
    ),
    ("custom_fwd_no_cast_outside_region", Part(|| product::<false>(None, DType::F32), NO_REGION)),
    ("custom_fwd_cast_f32_in_region", Part(|| product::<true>(Some(cpu()), DType::F32), NO_REGION)),
    ("custom_fwd_cast_f32_in_region_f16_inputs", Part(|| product::<true>(Some(cpu()), DType::F16), NO_REGION)),
    ("custom_fwd_cast_f32_f64_inputs_not_cast", Part(|| product::<true>(Some(cpu()), DType::F64), NO_REGION)),
    ("custom_fwd_cast_f32_outside_region", Part(|| product::<true>(None, DType::F32), NO_REGION)),
    (
        "int_matmul",
        Differs(
            "products are of floating numbers",
            product_of_integers,
            || json!("DType"),
            |theirs| theirs == "torch.int64",
        ),
    ),
    (
        "python_scalar_and_0dim",
        Differs(
            "a tensor without axes is a tensor",
            numbers_and_scalars,
            || json!({"bf16*2.0": "bf16", "bf16+f32_0dim": "f32", "bf16+f32_1elem": "f32", "f32*bf16_0dim": "f32"}),
            |theirs| theirs["bf16+f32_0dim"] == "bf16",
        ),
    ),
];

const NO_REGION: &str = "where no region is on there is no dtype of one";

const fn in_no_region(ours: fn() -> Result<Value>, theirs: fn(&Value) -> bool) -> Answer {
    Differs("the inside of a custom op is in no region", ours, || all_in("f32"), theirs)
}

const fn left_behind(ours: fn() -> Result<Value>, wanted: fn() -> Value) -> Answer {
    Differs("a region leaves nothing behind", ours, wanted, |theirs| theirs["after_enabled"] == true)
}

/// Probes of features that do not exist here, with the reason.
const NOT_COVERED: &[(&str, &[&str])] = &[
    ("what Rust's types rule out", &["decorator_noncallable", "device_type_not_str", "custom_fwd_device_type_not_str"]),
    (
        "a region names a pack, whatever devices the machine has",
        &["device_type_unknown", "device_type_meta", "device_type_cuda_without_cuda"],
    ),
    ("how arguments are written in Python", &["device_type_positional_second_arg_is_dtype", "_cast_containers"]),
    ("there are no old names", &["deprecated_cpu_amp_autocast"]),
    ("there is no mode but with and without gradients", &["cache_under_inference_mode_3x"]),
    ("the backward pass has no gradients of its own", &["grad_of_grad_retain"]),
    (IN_PLACE, &["in_place_add_dtype_kept", "out_variant_not_autocast", "addmm_inplace_lowp_mismatch"]),
    ("promotion is a function of two dtypes, which knows no region", &["result_type_ignores_autocast"]),
    ("there are no complex numbers", &["complex_input_matmul"]),
    (EIGHT_BIT, &["float8_input_mm", "float8_input_cat"]),
];

/// Reasons for not covering probes found only in another folder, by the prefix of their names. They are printed.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("there are no complex numbers, elsewhere", &["complex_"]),
    ("there is no 8-bit float, elsewhere", &["float8_"]),
    ("no tensor is changed in place, nor handed in to be written to, elsewhere", &["in_place_", "out_variant_"]),
    ("promotion is a function of two dtypes, which knows no region, elsewhere", &["result_type_"]),
    ("there are no old names, elsewhere", &["deprecated_"]),
    ("a region names a pack, whatever devices the machine has, elsewhere", &["device_type_"]),
    ("asked here with other arguments", &["custom_bwd", "custom_fwd", "decorator_"]),
];

/// Returns the reason for not covering a probe.
fn not_covered(name: &str) -> Option<&'static str> {
    let known = NOT_COVERED.iter().find(|(_, names)| names.contains(&name)).map(|(why, _)| *why);
    let elsewhere = || {
        std::env::var_os("PRECAST_GOLDENS")?;
        let mut reasons = ELSEWHERE.iter();
        reasons.find(|(_, beginnings)| beginnings.iter().any(|b| name.starts_with(b))).map(|(why, _)| *why)
    };
    known.or_else(elsewhere)
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
            match (known, refused(name), not_covered(name)) {
                (Some(Same(ours)), ..) => match ours() {
                    Ok(ours) if ours == *theirs => tally.agree(name),
                    ours => tally.fail(name, format!("ours {ours:?}, torch's {theirs}")),
                },
                (Some(Part(ours, why)), ..) => match ours() {
                    Ok(ours) => {
                        for (part, theirs) in entries(theirs) {
                            match ours.get(part) {
                                Some(ours) if ours == theirs => tally.agree(format!("{name} {part}")),
                                Some(ours) => tally.fail(name, format!("{part}: ours {ours}, torch's {theirs}")),
                                None => tally.not_covered(format!("{name} {part}"), why),
                            }
                        }
                    }
                    Err(error) => tally.fail(name, error),
                },
                (Some(Differs(difference, ours, wanted, shows)), ..) => match ours() {
                    Ok(ours) if ours == wanted() && shows(theirs) => tally.on_purpose(name, difference),
                    ours => tally.fail(name, format!("ours {ours:?}, wanted {}, torch's {theirs}", wanted())),
                },
                (None, Some(Err(error)), _) if error.kind() == ErrorKind::DType && theirs[0] == false => {
                    tally.on_purpose(name, "a region's dtype is f16 or bf16 and one of the pack");
                }
                (None, Some(ours), _) => tally.fail(name, format!("ours {ours:?}, torch's {theirs}")),
                (None, None, Some(why)) => {
                    if ELSEWHERE.iter().any(|(elsewhere, _)| *elsewhere == why) {
                        println!("  {name}: {why}");
                    }
                    tally.not_covered(name, why);
                }
                (None, None, None) => tally.fail(name, "not understood"),
            }
        }
    });
}
