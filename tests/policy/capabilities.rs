//! Capabilities of regions, one by one: the rows of the table of four systems in COMPARE.md, which names these tests.

use std::{collections::BTreeSet, fs, panic, path::Path};

use precast::{
    observe::{collect_op_stats, watch},
    policy::Pack,
    precision,
    prelude::*,
};

const TORCH_CPU: &str = "torch-2.15-cpu";
const TORCH_CUDA: &str = "torch-2.15-cuda";
const PADDLE: &str = "paddle-3.3";
const MINDSPORE: &str = "mindspore-2.10";

fn ones(dtype: DType) -> Tensor {
    Tensor::ones(&[2, 2], dtype)
}

/// Runs in a region of a pack with its default settings.
fn in_pack<R>(pack: &str, f: impl FnOnce() -> Result<R>) -> R {
    autocast(Autocast::new(pack).unwrap(), f).unwrap()
}

fn matmul() -> Result<DType> {
    Ok(ones(DType::F32).matmul(&ones(DType::F32))?.dtype())
}

fn product() -> DType {
    matmul().unwrap()
}

/// Iterates over the packs that have lists for regions.
fn with_regions() -> impl Iterator<Item = &'static str> {
    Pack::names().filter(|name| !Pack::named(name).unwrap().regions.is_empty())
}

#[test]
fn low_ops_run_low_in_every_pack() {
    for name in with_regions() {
        let pack = Pack::named(name).unwrap();
        for &dtype in &pack.dtypes {
            let met = autocast(Autocast::new(name).unwrap().dtype(dtype), matmul).unwrap();
            assert_eq!(met, dtype, "{name}");
        }
        assert_eq!(in_pack(name, matmul), pack.dtypes[0], "{name}");
    }
}

#[test]
fn full_ops_run_in_f32() {
    for (pack, low) in [(TORCH_CUDA, DType::F16), (PADDLE, DType::Bf16), (MINDSPORE, DType::F16)] {
        assert_eq!(in_pack(pack, || ones(low).exp()).dtype(), DType::F32, "{pack}");
    }
    // On a CPU torch runs exponentials in the dtype of their input.
    assert_eq!(in_pack(TORCH_CPU, || ones(DType::F16).exp()).dtype(), DType::F16);
}

#[test]
fn promoted_ops_take_the_widest_input() {
    let [f16, bf16, f32] = [DType::F16, DType::Bf16, DType::F32].map(ones);
    let concat = |a, b| in_pack(TORCH_CPU, || Tensor::concat(&[a, b], 0)).dtype();
    assert_eq!(concat(&bf16, &f32), DType::F32);
    assert_eq!(concat(&bf16, &bf16), DType::Bf16);
    // torch refuses the other 16-bit format, in this order.
    assert_eq!(concat(&f16, &f32), DType::F32);
    let bias = Tensor::ones(&[2], DType::F32);
    assert_eq!(in_pack(MINDSPORE, || f16.bias_add(&bias)).dtype(), DType::F32);
}

#[test]
fn unlisted_ops_do_what_the_pack_says() {
    let mixed = |pack: &str| in_pack(pack, || ones(DType::F16).add(&ones(DType::F32))).dtype();
    assert_eq!((mixed(TORCH_CPU), mixed(PADDLE)), (DType::F32, DType::F32));
    // Paddle's gray ops run in the region's dtype unless an input is f32, whatever 16-bit dtype they get.
    let paddle = Autocast::new(PADDLE).unwrap().dtype(DType::Bf16);
    assert_eq!(autocast(paddle, || ones(DType::F16).relu()).unwrap().dtype(), DType::Bf16);
    assert_eq!(in_pack(TORCH_CPU, || ones(DType::F16).relu()).dtype(), DType::F16);
}

#[test]
fn a_banned_op_is_refused_with_the_reason() {
    let (x, target) = (ones(DType::F32), ones(DType::F32));
    let loss = || x.binary_cross_entropy(&target, Reduction::Mean);
    let error = autocast(Autocast::new(TORCH_CUDA).unwrap(), loss).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::List);
    assert!(error.to_string().starts_with("BinaryCrossEntropy: banned by the lists of torch-2.15-cuda: "), "{error}");
    assert!(loss().is_ok(), "elsewhere it runs");
}

#[test]
fn an_explicit_dtype_wins_in_every_region() {
    type Explicit = fn(&Tensor, DType) -> Result<Tensor>;
    let ops: [(&str, Explicit, Explicit); 8] = [
        ("softmax", |x, d| x.softmax_as(-1, d), |x, d| x.cast(d).softmax(-1)),
        ("log_softmax", |x, d| x.log_softmax_as(-1, d), |x, d| x.cast(d).log_softmax(-1)),
        ("sum", |x, d| x.sum_as(&[0], true, d), |x, d| x.cast(d).sum(&[0], true)),
        ("mean", |x, d| x.mean_as(&[], false, d), |x, d| x.cast(d).mean(&[], false)),
        ("prod", |x, d| x.prod_as(&[1], false, d), |x, d| x.cast(d).prod(&[1], false)),
        ("cumsum", |x, d| x.cumsum_as(0, d), |x, d| x.cast(d).cumsum(0)),
        ("cumprod", |x, d| x.cumprod_as(1, d), |x, d| x.cast(d).cumprod(1)),
        ("norm", |x, d| x.norm_as(2.0, &[1], false, d), |x, d| x.cast(d).norm(2.0, &[1], false)),
    ];
    let x = Tensor::from_vec(vec![0.1f32, -2.5, 3.75, 0.3], &[2, 2]).unwrap();
    for (name, explicit, by_hand) in ops {
        for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
            let outside = by_hand(&x, dtype).unwrap();
            for pack in with_regions() {
                let inside = in_pack(pack, || explicit(&x, dtype));
                assert_eq!(inside.dtype(), dtype, "{name} in {pack}");
                assert_eq!(inside.to_f64(), outside.to_f64(), "{name} in {pack}");
            }
        }
    }
    // Sums of 16-bit numbers are accumulated in f32 here, too: in f16 the sum of 4096 ones would stop at 2048.
    assert_eq!(Tensor::ones(&[4096], DType::F32).sum_as(&[], false, DType::F16).unwrap().item().unwrap(), 4096.0);
    // The gradient arrives in the dtype of the input: d(sum of x²-norms)/dx = x / norm.
    let leaf = Tensor::from_vec(vec![3f32, 4.0], &[2]).unwrap().requires_grad();
    let grads = leaf.norm_as(2.0, &[], false, DType::F16).unwrap().backward().unwrap();
    let grad = grads.of(&leaf).unwrap();
    assert_eq!(grad.dtype(), DType::F32);
    assert!(grad.to_f64().iter().zip([0.6, 0.8]).all(|(met, right)| (met - right).abs() < 1e-3), "{:?}", grad.to_f64());
    assert!(leaf.softmax_as(0, DType::I64).unwrap_err().to_string().contains("floating"));
}

#[test]
fn f64_and_integers_are_never_cast() {
    let [f64, i64] = [DType::F64, DType::I64].map(ones);
    for pack in with_regions() {
        assert_eq!(in_pack(pack, || f64.matmul(&f64)).dtype(), DType::F64, "{pack}");
        assert_eq!(in_pack(pack, || f64.exp()).dtype(), DType::F64, "{pack}");
        assert_eq!(in_pack(pack, || i64.add(&i64)).dtype(), DType::I64, "{pack}");
    }
}

#[test]
fn the_innermost_region_decides() {
    let f16 = Autocast::new(PADDLE).unwrap();
    let bf16 = Autocast::new(TORCH_CPU).unwrap().dtype(DType::Bf16);
    let _outer = f16.enter().unwrap();
    {
        let _inner = bf16.enter().unwrap();
        assert_eq!(product(), DType::Bf16);
        // Custom lists and packs are not inherited: here relu is unlisted.
        assert_eq!(ones(DType::F16).relu().unwrap().dtype(), DType::F16);
    }
    assert_eq!(product(), DType::F16);
}

#[test]
fn a_disabled_region_hides_those_around_it() {
    let off = || Autocast::new(TORCH_CPU).unwrap().enabled(false);
    in_pack(TORCH_CPU, || {
        autocast(off(), || {
            assert_eq!(matmul()?, DType::F32);
            assert!(ones(DType::F32).matmul(&ones(DType::Bf16)).is_err(), "nothing is cast");
            assert_eq!(autocast(Autocast::new(TORCH_CPU)?, matmul)?, DType::Bf16, "switched on again");
            Ok(())
        })?;
        assert_eq!(matmul()?, DType::Bf16);
        Ok(())
    });
    assert_eq!(autocast(Autocast::new(PADDLE).unwrap().op_level("O0"), matmul).unwrap(), DType::F32);
}

#[test]
fn an_inner_region_takes_the_dtype_of_the_outer() {
    let f16 = Autocast::new(TORCH_CPU).unwrap().dtype(DType::F16);
    assert_eq!(in_pack(TORCH_CPU, matmul), DType::Bf16, "alone it takes the pack's");
    let inside = || autocast(Autocast::new(TORCH_CPU)?, matmul);
    assert_eq!(autocast(&f16, inside).unwrap(), DType::F16);
    // Also through a disabled one.
    assert_eq!(autocast(f16.enabled(false), inside).unwrap(), DType::F16);
}

#[test]
fn custom_lists_change_the_region_alone() {
    let region = || Autocast::new(PADDLE).unwrap().dtype(DType::F16);
    let add = || ones(DType::F32).add(&ones(DType::F32)).map(|x| x.dtype());
    assert_eq!(autocast(region(), add).unwrap(), DType::F32);
    assert_eq!(autocast(region().low(["elementwise_add"]), add).unwrap(), DType::F16);
    // In Paddle this does nothing, since the op is called matmul_v2; here either name means the product.
    assert_eq!(autocast(region().full(["matmul"]), matmul).unwrap(), DType::F32);
    assert_eq!(autocast(region().full(["matmul_v2"]), matmul).unwrap(), DType::F32);
    assert_eq!(autocast(region(), matmul).unwrap(), DType::F16);
}

#[test]
fn a_name_nobody_knows_is_an_error_that_suggests_one() {
    let error = Autocast::new(PADDLE).unwrap().low(["elementwise_ad"]).enter().unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::List, "no op is called `elementwise_ad` (did you mean `elementwise_add`, as paddle calls Add?)")
    );
    assert!(Autocast::new("torch-2.15").unwrap_err().to_string().contains("did you mean `torch-2.15-c"));
    // Also for a disabled region, so that the error does not appear only once it is enabled.
    assert!(Autocast::new(PADDLE).unwrap().enabled(false).full(["nothing"]).enter().is_err());
}

#[test]
fn an_op_on_both_custom_lists_is_an_error() {
    // Under either name: both are the product.
    let error = Autocast::new(PADDLE).unwrap().low(["matmul"]).full(["matmul_v2"]).enter().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::List);
    assert!(error.to_string().contains("MatMul is on the custom low list and on the custom full list"), "{error}");
}

#[test]
fn a_low_dtype_is_f16_or_bf16() {
    for dtype in [DType::F32, DType::F64, DType::I64, DType::Bool] {
        for enabled in [true, false] {
            let error = Autocast::new(TORCH_CPU).unwrap().dtype(dtype).enabled(enabled).enter().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DType, "{error}");
        }
    }
    let error = Autocast::new("tensorflow-2.21-bf16").unwrap().dtype(DType::F16).enter().unwrap_err();
    assert_eq!(error.to_string(), "the pack tensorflow-2.21-bf16 is for bfloat16, not for float16");
}

#[test]
fn levels_are_those_of_the_pack() {
    let exp = |level: &str| {
        let region = Autocast::new(PADDLE).unwrap().op_level(level);
        autocast(region, || ones(DType::F16).exp()).unwrap().dtype()
    };
    let relu = |level: &str| {
        let region = Autocast::new(PADDLE).unwrap().op_level(level);
        autocast(region, || ones(DType::F16).relu()).unwrap().dtype()
    };
    assert_eq!((exp("O1"), relu("O1")), (DType::F32, DType::F16));
    assert_eq!((exp("O2"), relu("O2")), (DType::F16, DType::F16));
    assert_eq!((exp("OD"), relu("OD")), (DType::F32, DType::F32));
    let error = Autocast::new(PADDLE).unwrap().op_level("O3").enter().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Level);
    assert!(error.to_string().contains("it has: O0, O1, O2, OD"), "{error}");
    for pack in with_regions().filter(|pack| !pack.starts_with("paddle")) {
        drop(Autocast::new(pack).unwrap().op_level("auto").enter().unwrap());
        assert_eq!(Autocast::new(pack).unwrap().op_level("O2").enter().unwrap_err().kind(), ErrorKind::Level, "{pack}");
    }
}

#[test]
fn promotion_can_be_switched_off_at_o2() {
    let relu = |promote| {
        let region = Autocast::new(PADDLE).unwrap().op_level("O2").use_promote(promote);
        autocast(region, || ones(DType::F32).relu()).unwrap().dtype()
    };
    assert_eq!((relu(true), relu(false)), (DType::F32, DType::F16));
    let error = Autocast::new(TORCH_CPU).unwrap().use_promote(false).enter().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Level);
}

#[test]
fn of_a_norm_the_first_input_decides() {
    let (scale, eps) = (Tensor::ones(&[2], DType::F32), 1e-5);
    let norm = |x: &Tensor| {
        let region = Autocast::new(PADDLE).unwrap().op_level("O2");
        watch(|| autocast(region, || x.layer_norm(&[2], Some(&scale), None, eps)).unwrap().dtype())
    };
    let (low, events) = norm(&ones(DType::F16));
    assert_eq!((low, &events[0].inputs[..]), (DType::F16, &[DType::F16, DType::F32][..]), "its scale stays f32");
    assert_eq!(norm(&ones(DType::F32)).0, DType::F32);
}

/// Counts the casts to bf16 for three uses of one parameter.
fn weight_casts(cache: bool) -> usize {
    let weight = Param::new(ones(DType::F32));
    let x = ones(DType::Bf16);
    let region = Autocast::new(TORCH_CPU).unwrap().cache(cache);
    let uses = || {
        autocast(&region, || {
            for _ in 0..3 {
                x.matmul(&weight.tensor())?;
            }
            Ok(())
        })
    };
    collect_op_stats(uses).unwrap().1.calls(Op::Cast).bf16
}

#[test]
fn a_parameter_is_cast_once_until_it_changes() {
    assert_eq!((weight_casts(true), weight_casts(false)), (1, 3));
    let weight = Param::new(ones(DType::F32));
    in_pack(TORCH_CPU, || {
        let x = ones(DType::F32);
        assert_eq!(x.matmul(&weight.tensor())?.to_f64(), [2.0; 4]);
        weight.set(&Tensor::full(&[2, 2], 10.0, DType::F32))?;
        assert_eq!(x.matmul(&weight.tensor())?.to_f64(), [20.0; 4], "torch goes on with the old copy");
        // Another dtype has a separate copy; torch would multiply f16 by bf16.
        let inner = Autocast::new(TORCH_CPU)?.dtype(DType::F16);
        assert_eq!(autocast(inner, || x.matmul(&weight.tensor()))?.dtype(), DType::F16);
        Ok(())
    });
}

#[test]
fn a_thread_inherits_no_region_but_one_can_be_carried() {
    let _region = Autocast::new(TORCH_CPU).unwrap().enter().unwrap();
    let carried = precision::carry();
    std::thread::scope(|threads| {
        assert_eq!(threads.spawn(product).join().unwrap(), DType::F32);
        assert_eq!(threads.spawn(|| carried.run(product)).join().unwrap(), DType::Bf16);
        // Nothing stays on the thread that ran it.
        let after = threads.spawn(|| (carried.run(product), product())).join().unwrap();
        assert_eq!(after, (DType::Bf16, DType::F32));
    });
}

#[test]
fn backward_runs_in_the_dtypes_of_the_forward_pass() {
    let third = Tensor::full(&[2, 2], 1.0 / 3.0, DType::F32);
    let (x, w) = (third.requires_grad(), ones(DType::F32).requires_grad());
    let loss = in_pack(TORCH_CPU, || x.matmul(&w)?.sum_all());
    let outside = loss.backward().unwrap();
    let inside = in_pack(TORCH_CUDA, || loss.backward());
    for grads in [&outside, &inside] {
        assert_eq!(grads.of(&w).unwrap().dtype(), DType::F32);
        // Twice a third in bfloat16; it differs in float16 and float32.
        assert_eq!(grads.of(&w).unwrap().to_f64(), [2.0 * 0.333984375; 4]);
    }
    let (_, events) = watch(|| in_pack(TORCH_CUDA, || loss.backward()));
    let casts = events.iter().filter(|event| event.output == DType::F16).count();
    assert_eq!(casts, 0, "the region around the backward pass lowers nothing");
}

#[test]
fn a_region_is_a_value_that_can_be_entered_again_inside_itself() {
    fn recurse(region: &Autocast, depth: usize) -> Result<DType> {
        match depth {
            0 => matmul(),
            _ => autocast(region, || recurse(region, depth - 1)),
        }
    }
    let region = Autocast::new(TORCH_CPU).unwrap();
    assert_eq!(recurse(&region, 1_000).unwrap(), DType::Bf16);
    assert_eq!(product(), DType::F32, "torch's decorator would be left switched on");
    let guard = region.enter().unwrap();
    let again = region.enter().unwrap();
    assert_eq!(product(), DType::Bf16);
    drop(guard);
    drop(again);
    assert_eq!(product(), DType::F32, "guards dropped in the wrong order");
}

#[test]
fn an_error_or_panic_leaves_no_region_behind() {
    let region = Autocast::new(TORCH_CPU).unwrap();
    assert!(autocast(&region, || ones(DType::F32).matmul(&Tensor::ones(&[3], DType::F32))).is_err());
    assert_eq!(product(), DType::F32);
    let caught = panic::catch_unwind(|| autocast(&region, || -> Result<()> { panic!("inside a region") }));
    assert!(caught.is_err());
    assert_eq!(product(), DType::F32);
    // A region that cannot be entered changes nothing, either.
    assert!(Autocast::new(PADDLE).unwrap().low(["nothing"]).enter().is_err());
    assert_eq!(product(), DType::F32);
}

#[test]
fn nothing_is_changed_in_place() {
    // There is no `out=`, and no op writes into its inputs: a region can only choose the dtype of a new result.
    let (a, b) = (ones(DType::F32), ones(DType::F32));
    let sum = in_pack(TORCH_CPU, || a.matmul(&b)?.add(&a));
    assert_eq!((a.dtype(), sum.dtype()), (DType::F32, DType::F32));
    assert_eq!(a.to_f64(), [1.0; 4]);
}

#[test]
fn ops_are_counted_by_dtype() {
    let x = ones(DType::F32).requires_grad();
    let run = || {
        let y = in_pack(TORCH_CUDA, || x.matmul(&x)?.softmax(-1)?.sum_all());
        y.backward()
    };
    let (_, stats) = collect_op_stats(run).unwrap();
    let counted: Vec<(Op, usize, usize)> = stats.iter().map(|(op, calls)| (op, calls.f16, calls.f32)).collect();
    // x is not a parameter, so each of its two uses is cast; the backward pass is not counted.
    assert_eq!(counted, [(Op::Cast, 2, 1), (Op::MatMul, 1, 0), (Op::Softmax, 0, 1), (Op::Sum, 0, 1)]);
    // A failing op is not counted, and afterwards counting has stopped.
    assert!(collect_op_stats(|| x.matmul(&Tensor::ones(&[3], DType::F32))).is_err());
    let caught = panic::catch_unwind(|| collect_op_stats(|| -> Result<()> { panic!("while counting") }));
    assert!(caught.is_err());
    let ((), events) = watch(|| ());
    assert!(events.is_empty());
}

#[test]
fn a_composed_op_is_decided_once() {
    // torch's CPU list lacks einsum, which is decomposed there, and the product inside is lowered; inputs of different
    // dtypes then fail. Here it is one op.
    let (a, b) = (ones(DType::F32), ones(DType::Bf16));
    let (out, stats) =
        collect_op_stats(|| autocast(Autocast::new(TORCH_CPU)?, || Tensor::einsum("ij,jk->ik", &[&a, &b]))).unwrap();
    assert_eq!(out.dtype(), DType::Bf16);
    assert_eq!((stats.calls(Op::Einsum).bf16, stats.calls(Op::MatMul).total()), (1, 0));
}

#[test]
fn a_cell_keeps_the_precision_asked_for_it() {
    let mut rng = Rng::seed(1);
    let dense = Child::new(Dense::new(2, 2, &mut rng)).to_float(DType::F32).unwrap();
    let (_, events) = watch(|| in_pack(TORCH_CPU, || dense.call(&ones(DType::F32))));
    let linear = events.iter().find(|event| event.op == Op::Linear).unwrap();
    assert_eq!(linear.output, DType::F32);
}

/// Returns the rows of the tables in a text, without their heads, with cells as written.
fn table_rows(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_row = |line: &str| line.starts_with('|') && !line.starts_with("| ---");
    let is_head = |at: usize| lines.get(at + 1).is_some_and(|next| next.starts_with("| ---"));
    let rows = (0..lines.len()).filter(|&at| is_row(lines[at]) && !is_head(at));
    rows.map(|at| lines[at].trim_matches('|').split('|').map(str::trim).collect()).collect()
}

fn comparison() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/COMPARE.md")).unwrap()
}

const THIS: &str = "the_table_of_regions_and_this_file_agree";

#[test]
fn the_table_of_regions_and_this_file_agree() {
    let text = comparison();
    let section = text.split("\n## ").find(|section| section.starts_with("Regions of four systems")).unwrap();
    let here = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policy/capabilities.rs")).unwrap();
    let tests: BTreeSet<&str> = here
        .split("#[test]\nfn ")
        .skip(1)
        .filter_map(|test| test.split_once('('))
        .map(|(name, _)| name)
        .filter(|name| *name != THIS)
        .collect();
    let mut named = BTreeSet::new();
    for row in table_rows(section) {
        assert_eq!(row.len(), 7, "feature, four systems, precast, test: {row:?}");
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        named.insert(row[6].trim_matches('`'));
    }
    assert_eq!(named, tests, "each test of this file shows a row, and each row has its test");
}
