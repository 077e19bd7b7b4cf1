//! Regions: refusals, nesting and ends, inheritance by threads, and the number of casts.

use std::sync::Barrier;

use precast::{
    autocast::{self as regions, Evidence, Support},
    cost::{Rate, Rates, Speeds},
    observe::{self, Event},
    policy::Pack,
    precision,
    prelude::*,
};

const CPU: &str = "torch-2.15-cpu";
const PADDLE: &str = "paddle-3.3";

fn region(pack: &str) -> Autocast {
    Autocast::new(pack).unwrap()
}

fn square(dtype: DType) -> Tensor {
    Tensor::ones(&[2, 2], dtype)
}

/// Returns the dtype of a matrix product here; `F32` where nothing is cast.
fn here() -> DType {
    let x = square(DType::F32);
    x.matmul(&x).unwrap().dtype()
}

fn refused(region: Autocast, kind: ErrorKind, words: &str) {
    let error = region.enter().unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    // An invalid region is refused even where it would do nothing, and leaves no trace.
    assert_eq!(region.enabled(false).enter().unwrap_err(), error);
    assert_eq!(precast::precision::current(), None);
}

#[test]
fn wrong_names_are_refused_with_the_nearest() {
    for (name, near) in [
        ("torch-cpu", "allowed: precast-1"),
        ("torch-2.15-cup", "did you mean `torch-2.15-cpu`?"),
        ("paddle-3.4", "did you mean `paddle-3.3`?"),
        ("mindspore-2.5", "did you mean `mindspore-2.4`?"),
        ("", "allowed: precast-1"),
    ] {
        let error = Autocast::new(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::List);
        assert!(error.to_string().contains(near), "{error}");
    }
    for (level, words) in [
        ("O3", "the pack paddle-3.3 has no op level `O3`"),
        ("o1", "did you mean `O1`?"),
        ("", "it has: O0, O1, O2, OD"),
        ("auto", "it has: O0, O1, O2, OD"),
    ] {
        refused(region(PADDLE).op_level(level), ErrorKind::Level, words);
    }
    refused(region(CPU).op_level("O1"), ErrorKind::Level, "the pack torch-2.15-cpu has no op level `O1`");
    for list in [Autocast::low, Autocast::full] {
        let with = |name: &str| list(region(PADDLE), [name.to_string()]);
        refused(with("elementwise_ad"), ErrorKind::List, "did you mean `elementwise_add`, as paddle calls Add?");
        refused(
            with("not_an_op"),
            ErrorKind::List,
            "no op is called `not_an_op`; a custom op is known once it is registered",
        );
        refused(with(""), ErrorKind::List, "no op is called ``; a custom op is known once it is registered");
        // A valid name next to it does not help.
        refused(with("exp").low(["exq"]), ErrorKind::List, "did you mean `exp`, as paddle calls Exp?");
    }
}

#[test]
fn a_regions_dtype_is_f16_or_bf16_and_one_of_the_pack() {
    for dtype in [DType::F32, DType::F64, DType::I64, DType::Bool] {
        for pack in [CPU, PADDLE, "precast-1"] {
            refused(region(pack).dtype(dtype), ErrorKind::DType, dtype.long_name());
            assert_eq!(region(pack).rules(dtype).unwrap_err().kind(), ErrorKind::DType);
        }
    }
    let bf16 = region("tensorflow-2.21-fp16").dtype(DType::Bf16);
    refused(bf16, ErrorKind::DType, "the pack tensorflow-2.21-fp16 is for float16, not for bfloat16");
}

#[test]
fn an_op_cannot_be_white_and_black() {
    let both = |white: &str, black: &str| region(PADDLE).low([white]).full(["tanh", black]);
    refused(both("exp", "exp"), ErrorKind::List, "Exp is on the custom low list and on the custom full list");
    // Two names of one op are the same op.
    refused(
        both("matmul", "matmul_v2"),
        ErrorKind::List,
        "MatMul is on the custom low list and on the custom full list",
    );
    // Also where nothing would be cast.
    refused(both("exp", "exp").op_level("O0"), ErrorKind::List, "Exp is on");
}

#[test]
fn promotion_can_be_switched_off_where_the_level_allows_it() {
    let x = square(DType::F32);
    let relu = |region: Autocast| autocast(region, || Ok(x.relu()?.dtype()));
    let o2 = || region(PADDLE).op_level("O2").dtype(DType::Bf16);
    assert_eq!(relu(o2()).unwrap(), DType::F32);
    assert_eq!(relu(o2().use_promote(false)).unwrap(), DType::Bf16);
    for other in [region(PADDLE).op_level("O1"), region(PADDLE).op_level("OD"), region(CPU)] {
        refused(other.use_promote(false), ErrorKind::Level, "`use_promote` is a switch of Paddle's level O2");
    }
}

#[test]
fn a_custom_list_moves_an_op_for_this_region_alone() {
    let x = square(DType::F32);
    let dtypes = || Ok((x.add(&x)?.dtype(), x.matmul(&x)?.dtype()));
    let custom = region(PADDLE).dtype(DType::Bf16).low(["elementwise_add"]).full(["matmul_v2"]);
    let (outside, inside) = autocast(&custom, || Ok((dtypes()?, autocast(region(PADDLE), dtypes)?))).unwrap();
    assert_eq!(outside, (DType::Bf16, DType::F32));
    assert_eq!(inside, (DType::F32, DType::Bf16), "an inner region takes the dtype, not the lists");
}

#[test]
fn every_way_out_restores_what_was_there() {
    let outer = region(CPU).dtype(DType::F16).enter().unwrap();
    let returned = autocast(region(CPU).dtype(DType::Bf16), || Ok(here())).unwrap();
    assert_eq!((returned, here()), (DType::Bf16, DType::F16));

    let failed = autocast(region(CPU).dtype(DType::Bf16), || square(DType::F32).reshape(&[3])).unwrap_err();
    assert_eq!((failed.kind(), here()), (ErrorKind::Shape, DType::F16));

    let caught = std::panic::catch_unwind(|| {
        autocast(region(CPU).dtype(DType::Bf16), || -> Result<()> {
            assert_eq!(here(), DType::Bf16);
            panic!("left by panic")
        })
    });
    assert!(caught.is_err());
    assert_eq!(here(), DType::F16);

    let refused = region(CPU).dtype(DType::I64).enter();
    assert!(refused.is_err());
    assert_eq!(here(), DType::F16);
    drop(outer);
    assert_eq!((here(), precision::region()), (DType::F32, None));
}

/// torch keeps the state to restore in the region's object, so entering it twice leaves it switched on for good.
#[test]
fn one_region_can_be_entered_inside_itself() {
    fn descend(region: &Autocast, left: usize) -> Result<Vec<DType>> {
        autocast(region, || {
            let mut met = vec![here()];
            if left > 0 {
                met.extend(descend(region, left - 1)?);
            }
            met.push(here());
            Ok(met)
        })
    }
    let same = region(CPU).dtype(DType::F16);
    assert_eq!(descend(&same, 3).unwrap(), [DType::F16; 8]);
    assert_eq!((here(), precision::region()), (DType::F32, None));
    // And again after it was left, also through a copy.
    assert_eq!(descend(&same.clone(), 0).unwrap(), [DType::F16; 2]);
    assert_eq!(here(), DType::F32);
}

#[test]
fn a_thousand_regions_deep() {
    let kinds = [
        region(CPU).dtype(DType::F16),
        region(CPU).enabled(false),
        region(PADDLE).dtype(DType::Bf16),
        region(PADDLE).op_level("O0"),
    ];
    let expected = [DType::F16, DType::F32, DType::Bf16, DType::F32];
    let mut guards = Vec::new();
    for depth in 0..1000 {
        guards.push(kinds[depth % 4].enter().unwrap());
        assert_eq!(here(), expected[depth % 4], "entering {depth}");
    }
    for depth in (1..1000).rev() {
        guards.pop();
        assert_eq!(here(), expected[(depth - 1) % 4], "leaving {depth}");
    }
    guards.pop();
    assert_eq!((here(), precast::precision::current()), (DType::F32, None));
}

#[test]
fn a_guard_dropped_out_of_order_leaves_the_regions_inside_it() {
    let outer = region(CPU).dtype(DType::F16).enter().unwrap();
    let middle = region(CPU).dtype(DType::Bf16).enter().unwrap();
    let inner = region(CPU).enabled(false).enter().unwrap();
    drop(middle);
    assert_eq!(here(), DType::F32, "the inner one is still entered");
    // The late guard must not end regions entered since.
    let newer = [DType::F16, DType::Bf16].map(|dtype| region(CPU).dtype(dtype).enter().unwrap());
    drop(inner);
    assert_eq!(here(), DType::Bf16);
    drop(newer);
    assert_eq!(here(), DType::F16);
    drop(outer);
    assert_eq!((here(), precast::precision::current()), (DType::F32, None));
}

#[test]
fn threads_have_regions_of_their_own() {
    let both = Barrier::new(2);
    let (both, dtypes) = (&both, [DType::F16, DType::Bf16]);
    let _here = region(CPU).dtype(DType::F16).enter().unwrap();
    std::thread::scope(|threads| {
        for dtype in dtypes {
            threads.spawn(move || {
                assert_eq!((here(), precision::region()), (DType::F32, None), "nothing is inherited");
                for _ in 0..100 {
                    let entered = region(CPU).dtype(dtype).enter().unwrap();
                    both.wait();
                    assert_eq!(here(), dtype);
                    drop(entered);
                    both.wait();
                    assert_eq!(here(), DType::F32);
                }
            });
        }
    });
    assert_eq!(here(), DType::F16);
}

#[test]
fn a_region_can_be_carried_into_a_thread() {
    let outer = region(CPU).dtype(DType::F16).cache(false).enter().unwrap();
    let carried = precision::carry();
    let state = precision::region();
    // A region entered later, or left, does not affect what was carried.
    let later = region(CPU).enabled(false).enter().unwrap();
    let inside = || {
        let carried = carried.clone();
        std::thread::spawn(move || {
            let met = carried.run(|| (here(), precision::region()));
            assert_eq!((here(), precision::region()), (DType::F32, None), "left again");
            met
        })
        .join()
        .unwrap()
    };
    assert_eq!(inside(), (DType::F16, state));
    drop(later);
    drop(outer);
    assert_eq!(inside(), (DType::F16, state));
    // Carrying nothing casts nothing, even if the other thread is in a region.
    let nothing = precision::carry();
    std::thread::spawn(move || {
        let _there = region(CPU).enter().unwrap();
        assert_eq!(nothing.run(here), DType::F32);
        assert_eq!(here(), DType::Bf16);
    })
    .join()
    .unwrap();
}

#[test]
fn a_region_that_is_off_hides_those_around_it() {
    let x = [square(DType::F32), square(DType::Bf16)];
    autocast(region(CPU).dtype(DType::Bf16), || {
        for off in
            [region(CPU).enabled(false), region(CPU).dtype(DType::F16).enabled(false), region(PADDLE).op_level("O0")]
        {
            autocast(off, || {
                assert_eq!((here(), precision::region().unwrap().enabled), (DType::F32, false));
                assert_eq!(x[1].matmul(&x[1])?.dtype(), DType::Bf16, "low inputs are not widened");
                assert_eq!(x[0].matmul(&x[1]).unwrap_err().kind(), ErrorKind::DType, "and not narrowed");
                // A region inside is on again, in the dtype of the enclosing one.
                let dtype = precision::region().unwrap().dtype;
                assert_eq!(autocast(region(CPU), || Ok(here()))?, dtype);
                Ok(())
            })?;
        }
        assert_eq!(here(), DType::Bf16);
        Ok(())
    })
    .unwrap();
}

#[test]
fn f64_integers_and_booleans_are_never_cast() {
    let wide = square(DType::F64);
    let whole = Tensor::arange(4).reshape(&[2, 2]).unwrap();
    for pack in Pack::names().filter(|name| !Pack::named(name).unwrap().regions.is_empty()) {
        let ((), events) = observe::watch(|| {
            autocast(region(pack), || {
                assert_eq!(wide.matmul(&wide)?.dtype(), DType::F64, "{pack}");
                assert_eq!(wide.exp()?.dtype(), DType::F64, "{pack}");
                assert_eq!(wide.softmax(-1)?.dtype(), DType::F64, "{pack}");
                assert_eq!(whole.add(&whole)?.dtype(), DType::I64, "{pack}");
                assert_eq!(whole.eq(&whole)?.logical_not()?.dtype(), DType::Bool, "{pack}");
                Ok(())
            })
            .unwrap();
        });
        assert!(events.iter().all(|event| event.op != Op::Cast), "{pack}: {events:?}");
    }
    // With an f32 input it stays unchanged, and the product refuses the two as it does outside.
    let mixed = autocast(region(CPU), || wide.matmul(&square(DType::F32)));
    assert_eq!(mixed.unwrap_err().kind(), ErrorKind::DType);
}

/// Counts the casts to a dtype in the forward pass.
fn casts(events: &[Event], to: DType) -> usize {
    events.iter().filter(|event| !event.backward && event.op == Op::Cast && event.output == to).count()
}

/// Applies three layers that share one weight, each to its own input.
fn three_uses(weight: &Param, inputs: &[Tensor; 3]) -> Result<Tensor> {
    let mut sum = Tensor::scalar(0.0, DType::F32);
    for x in inputs {
        sum = sum.add(&x.linear(&weight.tensor(), None)?.cast(DType::F32).sum_all()?)?;
    }
    Ok(sum)
}

fn inputs(values: [f64; 3]) -> [Tensor; 3] {
    values.map(|value| Tensor::full(&[1, 2], value, DType::F32))
}

#[test]
fn a_weight_is_cast_once_with_the_cache_and_each_time_without() {
    let weight = Param::new(Tensor::full(&[2, 2], 0.1, DType::F32));
    let x = inputs([1.0, 2.0, 3.0]);
    let run = |cache: bool| {
        let low = region(CPU).dtype(DType::Bf16).cache(cache);
        let (loss, events) = observe::watch(|| autocast(low, || three_uses(&weight, &x)).unwrap());
        let gradient = loss.backward().unwrap().get(&weight).unwrap().to_f64();
        (loss.item().unwrap(), gradient, casts(&events, DType::Bf16))
    };
    // Without the cache first: the copies stay with the weight until it changes.
    let (loss, gradient, anew) = run(false);
    assert_eq!(anew, 3 + 3, "an input and the weight for each");
    let (kept_loss, kept_gradient, kept) = run(true);
    assert_eq!(kept, 3 + 1, "each input, and the weight once");
    assert_eq!((loss, gradient), (kept_loss, kept_gradient));
    assert_eq!(run(true).2, 3, "the next region finds the copy");
    weight.set(&weight.value()).unwrap();
    assert_eq!(run(true).2, 3 + 1, "a new value has no copies");
}

/// torch's cache shares one cast between all uses, so their gradients are summed in bf16, where 256 + 1 is 256.
#[test]
fn gradients_of_several_uses_are_summed_in_f32() {
    for cache in [true, false] {
        let weight = Param::new(square(DType::F32));
        let x = inputs([256.0, 1.0, 0.0]);
        let loss = autocast(region(CPU).dtype(DType::Bf16).cache(cache), || three_uses(&weight, &x)).unwrap();
        let gradient = loss.backward().unwrap().get(&weight).unwrap().clone();
        assert_eq!((gradient.dtype(), gradient.to_f64()), (DType::F32, vec![257.0; 4]), "cache: {cache}");
    }
}

/// A nested region inherits the setting of the enclosing one, unless it sets its own.
#[test]
fn the_cache_is_as_around_unless_it_is_set() {
    let weight = Param::new(square(DType::F32));
    let x = inputs([1.0; 3]);
    let count = |around: Option<bool>, inside: Option<bool>| {
        weight.set(&weight.value()).unwrap();
        let with = |cache: Option<bool>| match cache {
            Some(cache) => region(CPU).cache(cache),
            None => region(CPU),
        };
        let run = || autocast(with(around), || autocast(with(inside), || three_uses(&weight, &x))).unwrap();
        casts(&observe::watch(run).1, DType::Bf16) - 3
    };
    assert_eq!(count(None, None), 1);
    assert_eq!(count(Some(false), None), 3);
    assert_eq!(count(Some(false), Some(true)), 1);
    assert_eq!(count(Some(true), Some(false)), 3);
}

/// torch keeps reading the copy made before the update.
#[test]
fn an_update_inside_a_region_is_seen() {
    for cache in [true, false] {
        let weight = Param::new(square(DType::F32));
        let x = square(DType::F32);
        let sums = autocast(region(CPU).cache(cache), || {
            let before = x.matmul(&weight.tensor())?;
            weight.set(&Tensor::full(&[2, 2], 10.0, DType::F32))?;
            let after = x.matmul(&weight.tensor())?;
            Ok([before, after].map(|product| product.cast(DType::F64).to_f64()[0]))
        });
        assert_eq!(sums.unwrap(), [2.0, 20.0], "cache: {cache}");
        // An optimizer's update is a new value as well.
        let step = autocast(region(CPU).cache(cache), || {
            let loss = || x.matmul(&weight.tensor())?.cast(DType::F32).sum_all();
            let before = loss()?;
            Sgd::new([weight.clone()].into_iter().collect(), 1.0).update(&before.backward()?)?;
            Ok([before.item()?, loss()?.item()?])
        });
        // Each of four sums is 20; the gradient of each weight is 2.
        assert_eq!(step.unwrap(), [80.0, 64.0], "cache: {cache}");
    }
}

/// torch finds the f16 copy in its cache and fails.
#[test]
fn one_weight_in_regions_of_both_dtypes() {
    let weight = Param::new(Tensor::full(&[2, 2], 0.1, DType::F32));
    let x = square(DType::F32);
    let product = || x.matmul(&weight.tensor());
    let ([f16, bf16, again], events) = observe::watch(|| {
        autocast(region(CPU).dtype(DType::F16), || {
            let f16 = product()?;
            let bf16 = autocast(region(CPU).dtype(DType::Bf16), product)?;
            Ok([f16, bf16, product()?])
        })
        .unwrap()
    });
    // Twice the number nearest to 0.1 with 11 and with 8 bits.
    assert_eq!((f16.dtype(), f16.to_f64()[0]), (DType::F16, 0.199951171875));
    assert_eq!((bf16.dtype(), bf16.to_f64()[0]), (DType::Bf16, 0.2001953125));
    assert_eq!(again.to_f64(), f16.to_f64());
    assert_eq!((casts(&events, DType::F16), casts(&events, DType::Bf16)), (1 + 2, 1 + 1), "one copy for each dtype");
}

#[test]
fn the_backward_pass_runs_in_the_dtypes_of_the_forward_pass() {
    let weight = Param::new(Tensor::full(&[2, 2], 0.1, DType::F32));
    let x = Tensor::full(&[2, 2], 0.3, DType::F32).requires_grad();
    let forward = || x.matmul(&weight.tensor())?.softmax(-1)?.square()?.sum_all();
    let backward_in = |around: Option<Autocast>| {
        let loss = autocast(region("torch-2.15-cuda").dtype(DType::F16), forward).unwrap();
        let _around = around.map(|region| region.enter().unwrap());
        let (grads, events) = observe::watch(|| loss.backward().unwrap());
        assert_eq!(grads.get(&weight).unwrap().dtype(), DType::F32);
        assert_eq!(grads.of(&x).unwrap().dtype(), DType::F32);
        (grads.get(&weight).unwrap().to_f64(), grads.of(&x).unwrap().to_f64(), events)
    };
    let alone = backward_in(None);
    assert!(alone.2.iter().all(|event| event.backward));
    assert!(alone.2.iter().any(|event| event.output == DType::F16), "the product's is f16: {:?}", alone.2);
    for around in [
        region(CPU).dtype(DType::Bf16),
        region("torch-2.15-cuda").dtype(DType::F16),
        region("precast-1").dtype(DType::F16).cache(false),
        region(PADDLE).op_level("O2").use_promote(false),
        region(CPU).enabled(false),
    ] {
        assert_eq!(backward_in(Some(around.clone())), alone, "{around:?}");
    }
}

/// Returns the dtypes in which layers ran, in order.
fn layers(events: &[Event]) -> Vec<DType> {
    events.iter().filter(|event| event.op == Op::Linear).map(|event| event.output).collect()
}

#[test]
fn what_cells_were_told_holds_inside_a_region() {
    let mut rng = Rng::seed(0);
    let mut layer = || Dense::new(2, 2, &mut rng);
    let net = Child::of(sequential![
        layer(),
        Child::of(layer()).to_float(DType::F32).unwrap(),
        Child::of(layer()).to_float(DType::F16).unwrap(),
        layer()
    ]);
    let x = square(DType::F32);
    let run = |net: &Child| observe::watch(|| autocast(region(CPU).dtype(DType::Bf16), || net.call(&x)).unwrap());
    let (y, events) = run(&net);
    assert_eq!(layers(&events), [DType::Bf16, DType::F32, DType::F16, DType::Bf16]);
    assert_eq!(y.dtype(), DType::Bf16);

    // A network wrapped by a policy keeps it, and returns the dtype of the policy.
    let mut net = Child::of(sequential![layer(), Child::of(layer()).to_float(DType::F32).unwrap(), layer()]);
    let applied = auto_mixed_precision(&mut net, Level::O2, DType::F16).unwrap();
    let (y, events) = run(&net);
    assert_eq!(layers(&events), [DType::F16, DType::F32, DType::F16]);
    assert_eq!(y.dtype(), DType::F32);
    applied.undo(&mut net).unwrap();
    assert_eq!(layers(&run(&net).1), [DType::Bf16, DType::F32, DType::Bf16]);
}

#[test]
fn ops_banned_or_without_kernel_fail_and_leave_the_region() {
    let _region = region("torch-2.15-cuda").enter().unwrap();
    let frame = precast::precision::current().unwrap();
    let error = precision::resolve(Some(&frame), Op::BinaryCrossEntropy, &[DType::F32; 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::List);
    assert!(error.to_string().contains("use binary_cross_entropy_with_logits"), "{error}");
    assert_eq!(here(), DType::F16);
}

#[test]
fn a_wrapped_function_always_runs_in_its_region() {
    let product = |a: &Tensor, b: &Tensor| a.matmul(b);
    let wrapped = region(CPU).dtype(DType::Bf16).wrap(product).unwrap();
    let x = square(DType::F32);
    let dtype = || wrapped.call((&x, &x)).unwrap().dtype();
    assert_eq!(dtype(), DType::Bf16);
    // Whatever encloses the call, and on any thread.
    let around = region("torch-2.15-cuda").dtype(DType::F16);
    autocast(&around, || {
        assert_eq!((here(), dtype(), here()), (DType::F16, DType::Bf16, DType::F16));
        Ok(())
    })
    .unwrap();
    autocast(around.enabled(false), || {
        assert_eq!((here(), dtype()), (DType::F32, DType::Bf16));
        Ok(())
    })
    .unwrap();
    let elsewhere = std::thread::scope(|threads| threads.spawn(dtype).join().unwrap());
    assert_eq!(elsewhere, DType::Bf16);
    assert_eq!(here(), DType::F32);

    // An error of the function leaves no region, and an invalid region is found when the function is wrapped.
    let wide = Tensor::ones(&[3, 3], DType::F32);
    assert_eq!(wrapped.call((&x, &wide)).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(precast::precision::current(), None);
    assert_eq!(region(CPU).full(["nothing"]).wrap(product).unwrap_err().kind(), ErrorKind::List);
    // One argument, and six.
    let one = region(CPU).wrap(|x: &Tensor| x.matmul(x)).unwrap();
    assert_eq!(one.call((&x,)).unwrap().dtype(), DType::Bf16);
    let six = |a: &Tensor, b: &Tensor, axis: isize, _: u8, _: u8, _: u8| a.matmul(b)?.softmax(axis);
    let six = region("mindspore-2.10").wrap(six).unwrap();
    assert_eq!(six.call((&x, &x, -1, 0, 0, 0)).unwrap().dtype(), DType::F32);
}

/// Like torch's `is_autocast_enabled` and `get_autocast_dtype` in the same nesting.
#[test]
fn a_region_can_be_asked_for() {
    let state = || (regions::is_enabled(), regions::dtype());
    assert_eq!(state(), (false, None));
    let bf16 = region(CPU).dtype(DType::Bf16);
    let outer = bf16.enter().unwrap();
    assert_eq!(state(), (true, Some(DType::Bf16)));
    {
        let _off = region(CPU).enabled(false).enter().unwrap();
        assert_eq!(state(), (false, Some(DType::Bf16)));
        let _inner = region("torch-2.15-cuda").dtype(DType::F16).enter().unwrap();
        assert_eq!(state(), (true, Some(DType::F16)));
    }
    let net = Child::new(Dense::new(2, 2, &mut Rng::seed(1))).to_float(DType::F32).unwrap();
    net.with(square(DType::F32), |_, _| {
        assert_eq!(state(), (true, Some(DType::Bf16)), "a cell's own precision is inside the region");
        Ok(square(DType::F32))
    })
    .unwrap();
    std::thread::scope(|threads| threads.spawn(|| assert_eq!(state(), (false, None))).join().unwrap());
    drop(outer);
    assert_eq!(state(), (false, None));
}

#[test]
fn a_dtype_is_fast_by_measured_speeds_where_there_are_any() {
    let rates = |multiply_add| Rates { product: Rate { multiply_add, element: 0.0 }, ..Rates::default() };
    let (host, call, cache, byte, parallel) = ("a machine".into(), 0.0, 1e6, 0.0, 1.0);
    let speeds = Speeds { host, call, cache, byte, parallel, f32: rates(1.0), f16: rates(1.02), bf16: rates(3.0) };
    let of = |dtype| {
        let Support { supported, fast, evidence, .. } = Support::with(dtype, Some(&speeds));
        (supported, fast, evidence)
    };
    assert_eq!(of(DType::F16), (true, true, Evidence::Measured), "as fast, but for the noise of a measurement");
    assert_eq!(of(DType::Bf16), (true, false, Evidence::Measured));
    for dtype in [DType::F32, DType::F64, DType::I64, DType::Bool] {
        assert_eq!(of(dtype), (false, false, Evidence::Measured), "{dtype} is not a low dtype");
    }
    // Without speeds the processor decides, by the name of the kernels' vectors in the bench.
    let [f16, bf16] = DType::LOW.map(|dtype| Support::with(dtype, None));
    assert_eq!((f16.supported, f16.evidence), (true, Evidence::Processor));
    assert_eq!(f16, bf16);
    if std::env::var("PRECAST_VECTORS").as_deref() == Ok("1") {
        assert!(!f16.fast);
    }
}

#[test]
fn a_pack_without_regions_is_refused() {
    let error = Autocast::new("mindspore-2.3").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Level);
    assert_eq!(error.to_string(), "the pack mindspore-2.3 has no lists for regions of code, as MindSpore 2.3 has none");
}
