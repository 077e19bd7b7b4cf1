//! Storage dtypes, and their undo.

use precast::{cell::Params, io::models::Model, prelude::*, storage::KeptBecause};

use super::{bits, bits_of, low, net, param, rounded};

#[test]
fn each_number_is_rounded_once_and_undoing_is_exact() {
    for dtype in DType::LOW {
        let net = net(1);
        let before = bits(&net);
        let decorated = decorate(&net, low(dtype)).unwrap();
        assert_eq!(decorated.params.len(), before.len());
        for (stored, (path, from, numbers)) in decorated.params.iter().zip(&before) {
            assert_eq!((&stored.path, stored.before), (path, *from));
            let param = param(&net, path);
            assert_eq!(stored.after, param.dtype());
            assert_eq!(param.dtype(), if stored.kept.is_none() { dtype } else { DType::F32 });
            assert_eq!(param.master().is_some(), stored.kept.is_none());
            for (new, old) in param.value().to_f64().into_iter().zip(numbers) {
                let old = f64::from_bits(*old);
                assert_eq!(new, if stored.kept.is_none() { rounded(old, dtype) } else { old }, "{path}");
            }
        }
        decorated.undo().unwrap();
        assert_eq!(bits(&net), before);
        assert!(net.named_params().iter().all(|(_, param)| param.master().is_none()));
    }
}

#[test]
fn every_shipped_model_is_stored_low_and_comes_back() {
    for name in Model::names() {
        for dtype in DType::LOW {
            let net = Model::named(name, 1).unwrap().net;
            let before = bits(&net);
            let decorated = decorate(&net, Decorate::new(dtype)).unwrap();
            assert!(net.params().iter().any(|(_, param)| param.dtype() == dtype), "{name}");
            decorated.undo().unwrap();
            assert_eq!(bits(&net), before, "{name}");
        }
    }
}

#[test]
fn norms_keep_their_running_statistics_with_them() {
    let paths = |dtype| {
        let decorated = decorate(&net(1), low(dtype)).unwrap();
        let kept = decorated.params.iter().filter(|stored| matches!(stored.kept, Some(KeptBecause::Pack { .. })));
        kept.map(|stored| stored.path.clone()).collect::<Vec<_>>()
    };
    let batch_norm = ["1.weight", "1.bias", "1.running_mean", "1.running_var"];
    assert_eq!(paths(DType::Bf16), batch_norm);
    assert_eq!(paths(DType::F16), [batch_norm.as_slice(), &["5.weight", "5.bias"]].concat());
}

/// A cell with a floating-point and an integer buffer, an f64 parameter, and a weight of its own.
#[derive(Cell, Debug)]
struct Mixed {
    positions: Param,
    index: Param,
    double: Param,
    half: Param,
}

impl Clone for Mixed {
    fn clone(&self) -> Self {
        let Mixed { positions, index, double, half } = self;
        Mixed { positions: positions.clone(), index: index.clone(), double: double.clone(), half: half.clone() }
    }
}

impl From<()> for Mixed {
    fn from((): ()) -> Self {
        Mixed {
            positions: Param::buffer(Tensor::full(&[3], 0.1, DType::F32)),
            index: Param::buffer(Tensor::arange(3)),
            double: Param::new(Tensor::full(&[3], 0.1, DType::F64)),
            half: Param::new(Tensor::full(&[3], 0.1, DType::F16)),
        }
    }
}

impl From<Mixed> for () {
    fn from(_: Mixed) {}
}

impl Forward for Mixed {}

#[test]
fn floating_buffers_are_stored_low_and_f64_and_integers_never() {
    let net = Child::new(Mixed::from(()));
    let before = bits(&net);
    let decorated = decorate(&net, Decorate::new(DType::Bf16)).unwrap();
    let now: Vec<DType> = net.named_params().iter().map(|(_, param)| param.dtype()).collect();
    assert_eq!(now, [DType::Bf16, DType::I64, DType::F64, DType::Bf16]);
    let kept: Vec<_> = decorated.params.iter().map(|stored| stored.kept.clone()).collect();
    assert_eq!(kept, [None, Some(KeptBecause::DType(DType::I64)), Some(KeptBecause::DType(DType::F64)), None]);
    assert_eq!(
        decorated.to_string(),
        "stored in bfloat16, with f32 masters\n\
         positions  f32 -> bf16\n\
         index      i64  kept: int64 is never cast\n\
         double     f64  kept: float64 is never cast\n\
         half       f16 -> bf16\n\
         4 parameters and buffers, 2 stored in bf16, 2 kept"
    );
    // Parameters already in f16 are f16 again.
    decorated.undo().unwrap();
    assert_eq!(bits(&net), before);
}

#[test]
fn what_was_done_is_printed_parameter_by_parameter() {
    let mut rng = Rng::seed(1);
    let net = Child::of(sequential![Dense::new(2, 2, &mut rng), BatchNorm1d::new(2), Dense::new(2, 2, &mut rng)]);
    decorate(&net, low(DType::F16)).unwrap();
    let how = low(DType::Bf16).masters(false).exclude_path("2").unwrap().exclude_kind("ReLU").save_dtype(DType::F32);
    // There is no such cell; the earlier decoration stays in force.
    assert!(decorate(&net, how).is_err());
    let how = low(DType::Bf16).masters(false).exclude_path("2").unwrap().save_dtype(DType::F32);
    assert_eq!(
        decorate(&net, how).unwrap().to_string(),
        "stored in bfloat16, without masters, saved in float32\n\
         0.weight        f16 -> bf16\n\
         0.bias          f16 -> bf16\n\
         1.weight        f32  kept: BatchNorm1d, paddle-3.3\n\
         1.bias          f32  kept: BatchNorm1d, paddle-3.3\n\
         1.running_mean  f32  kept: BatchNorm1d, paddle-3.3\n\
         1.running_var   f32  kept: BatchNorm1d, paddle-3.3\n\
         2.weight        f16 -> f32  kept: excluded, path 2\n\
         2.bias          f16 -> f32  kept: excluded, path 2\n\
         8 parameters and buffers, 2 stored in bf16, 6 kept"
    );
}

#[test]
fn a_parameter_stays_the_same_one() {
    let net = net(2);
    let handles = net.named_params();
    let decorated = decorate(&net, low(DType::F16)).unwrap();
    for ((_, before), (path, now)) in handles.iter().zip(net.named_params()) {
        assert!(before.is_same(&now), "{path}");
    }
    // A gradient reaches a handle taken earlier.
    let early = &handles.iter().find(|(path, _)| path == "7.weight").unwrap().1;
    let x = Tensor::ones(&[1, 8], DType::F16);
    let grads =
        x.matmul(&param(&net, "7.weight").tensor().t().unwrap()).unwrap().sum(&[], false).unwrap().backward().unwrap();
    assert_eq!(grads.get(early).unwrap().dtype(), DType::F16);
    assert_eq!(grads.get(early).unwrap().to_f64(), [1.0; 24]);
    decorated.undo().unwrap();
}

#[test]
fn tied_weights_are_stored_once_and_kept_where_any_place_is() {
    let tied = || {
        let dense = Child::new(Dense::new(3, 3, &mut Rng::seed(1)));
        let inner = Sequential::new(vec![dense.clone().erase(), Tanh.into()]);
        Child::new(Sequential::new(vec![dense.erase(), inner.into()]))
    };
    let net = tied();
    let decorated = decorate(&net, low(DType::Bf16)).unwrap();
    assert_eq!(decorated.params.iter().map(|stored| stored.path.as_str()).collect::<Vec<_>>(), ["0.weight", "0.bias"]);
    assert_eq!(param(&net, "1.0.weight").dtype(), DType::Bf16);
    let net = tied();
    let decorated = decorate(&net, low(DType::Bf16).exclude_path("1").unwrap()).unwrap();
    assert!(decorated.params.iter().all(|stored| matches!(stored.kept, Some(KeptBecause::Excluded(_)))));
    assert_eq!(param(&net, "0.weight").dtype(), DType::F32);
}

#[test]
fn exclusions_take_what_is_inside_and_single_parameters() {
    let nested = || Child::of(sequential![net(1), net(2)]);
    let kept = |how: Decorate| {
        let decorated = decorate(&nested(), how).unwrap();
        let kept = decorated.params.into_iter().filter(|stored| matches!(stored.kept, Some(KeptBecause::Excluded(_))));
        kept.map(|stored| stored.path).collect::<Vec<_>>()
    };
    let bf16 = || low(DType::Bf16);
    let convolutions = ["0.0", "0.3", "1.0", "1.3"].map(|cell| [format!("{cell}.weight"), format!("{cell}.bias")]);
    assert_eq!(kept(bf16().exclude_kind("Conv2d")), convolutions.as_flattened());
    let second = kept(bf16().exclude_path("1").unwrap());
    assert_eq!(second.len(), net(2).named_params().len());
    assert!(second.iter().all(|path| path.starts_with("1.")));
    assert_eq!(kept(bf16().exclude_path("1.**").unwrap()), second);
    assert_eq!(kept(bf16().exclude_path("*.7.bias").unwrap()), ["0.7.bias", "1.7.bias"]);
    let everything = kept(bf16().exclude_path("**").unwrap());
    assert_eq!(everything.len(), nested().named_params().len());
    let two = kept(bf16().exclude_kind("Dense").exclude_path("0.6").unwrap());
    assert_eq!(two, ["0.6.weight", "0.7.weight", "0.7.bias", "1.7.weight", "1.7.bias"]);
}

#[test]
fn decorating_again_is_as_if_only_the_last_had_been() {
    let ways = || {
        [
            low(DType::Bf16),
            low(DType::F16),
            low(DType::F16).exclude_kind("Dense"),
            low(DType::Bf16).exclude_path("0").unwrap().save_dtype(DType::F32),
        ]
    };
    for first in ways() {
        for last in ways() {
            let (twice, once) = (net(5), net(5));
            let made = bits(&twice);
            let early = decorate(&twice, first.clone()).unwrap();
            let late = decorate(&twice, last.clone()).unwrap();
            let alone = decorate(&once, last.clone()).unwrap();
            assert_eq!(bits(&twice), bits(&once), "{early}\n{late}");
            assert!(late.params.iter().zip(&alone.params).all(|(a, b)| (a.after, &a.kept) == (b.after, &b.kept)));
            let masters = |net: &Child| -> Vec<_> {
                net.named_params().iter().map(|(_, param)| param.master().map(|master| bits_of(&master))).collect()
            };
            assert_eq!(masters(&twice), masters(&once));
            // The earlier one takes back everything, and nothing is left for the later one.
            early.undo().unwrap();
            assert_eq!(bits(&twice), made);
            late.undo().unwrap();
            assert_eq!(bits(&twice), made);
        }
    }
}

#[test]
fn without_masters_undoing_widens_what_rounding_left() {
    for dtype in DType::LOW {
        let net = net(3);
        let before = param(&net, "0.weight").value().to_f64();
        let decorated = decorate(&net, low(dtype).masters(false)).unwrap();
        assert!(net.named_params().iter().all(|(_, param)| param.master().is_none()));
        assert!(decorated.to_string().starts_with(&format!("stored in {}, without masters\n", dtype.long_name())));
        decorated.undo().unwrap();
        assert_eq!(param(&net, "0.weight").dtype(), DType::F32);
        let expected: Vec<f64> = before.into_iter().map(|x| rounded(x, dtype)).collect();
        assert_eq!(param(&net, "0.weight").value().to_f64(), expected);
    }
}

#[test]
fn a_value_set_by_hand_keeps_value_and_master_together() {
    let weight = Param::new(Tensor::full(&[2], 0.1, DType::F32));
    let net = Child::of(sequential![Dense::new(1, 2, &mut Rng::seed(1))]);
    decorate(&net, low(DType::Bf16)).unwrap();
    let bias = param(&net, "0.bias");
    bias.set(&weight.value()).unwrap();
    assert_eq!(bits_of(&bias.master().unwrap()), bits_of(&weight.value()));
    assert_eq!(bias.value().to_f64(), [rounded(0.1, DType::Bf16); 2]);
    bias.set(&Tensor::full(&[2], 0.3, DType::Bf16)).unwrap();
    assert_eq!(bias.master().unwrap().to_f64(), bias.value().to_f64());
    assert_eq!(bias.value().to_f64(), [rounded(0.3, DType::Bf16); 2]);
    let message = bias.set(&Tensor::ones(&[2], DType::F16)).unwrap_err().to_string();
    assert_eq!(message, "a bf16 parameter cannot take an f16 value; cast it first");
    // Without a master, the f32 bits have nowhere to go.
    decorate(&net, low(DType::Bf16).masters(false)).unwrap();
    let message = bias.set(&weight.value()).unwrap_err().to_string();
    assert_eq!(message, "a bf16 parameter cannot take an f32 value; cast it first");
}

#[test]
fn an_error_changes_nothing() {
    let bf16 = || low(DType::Bf16);
    let cases: Vec<(Decorate, ErrorKind, &str)> = vec![
        (low(DType::F32), ErrorKind::DType, "parameters are stored in float16 or bfloat16, got float32"),
        (low(DType::F64), ErrorKind::DType, "parameters are stored in float16 or bfloat16, got float64"),
        (low(DType::I64), ErrorKind::DType, "parameters are stored in float16 or bfloat16, got int64"),
        (low(DType::Bool), ErrorKind::DType, "parameters are stored in float16 or bfloat16, got bool"),
        (
            bf16().save_dtype(DType::I64),
            ErrorKind::DType,
            "parameters are saved in float64, float32, float16 or bfloat16, got int64",
        ),
        (
            bf16().exclude_kind("Dence"),
            ErrorKind::Path,
            "the exclusion of kind Dence matches no cell (did you mean `Dense`?)",
        ),
        // A kind of the library that this network lacks.
        (
            bf16().exclude_kind("LSTMCell"),
            ErrorKind::Path,
            "the exclusion of kind LSTMCell matches no cell (there are `Sequential`, `Conv2d`, `BatchNorm2d`, `ReLU`, `Flatten`, \
             `LayerNorm`, and 2 more)",
        ),
        (
            bf16().exclude_path("1.running_men").unwrap(),
            ErrorKind::Path,
            "the exclusion of path 1.running_men matches no cell and no parameter (did you mean `1.running_mean`?)",
        ),
        // The first of the two is fine.
        (
            bf16().exclude_path("0").unwrap().exclude_path("8").unwrap(),
            ErrorKind::Path,
            "the exclusion of path 8 matches no cell and no parameter (there are `0`, `0.weight`, `0.bias`, `1`, `1.weight`, \
             `1.bias`, and 15 more)",
        ),
        (
            low(DType::F16),
            ErrorKind::Value,
            "`7.bias` holds numbers as large as 70000, which float16 cannot; exclude it or store it in another dtype",
        ),
    ];
    for (how, kind, words) in cases {
        let net = net(4);
        param(&net, "7.bias").set(&Tensor::full(&[3], -70000.0, DType::F32)).unwrap();
        let earlier = decorate(&net, bf16().exclude_path("0.weight").unwrap()).unwrap();
        let before = bits(&net);
        let error = decorate(&net, how).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, words));
        assert_eq!(bits(&net), before);
        assert!(param(&net, "7.bias").master().is_some());
        earlier.undo().unwrap();
    }
    assert_eq!(bf16().exclude_path("a..b").unwrap_err().kind(), ErrorKind::Policy);
    let message = bf16().pack("padle-3.3").unwrap_err().to_string();
    assert!(message.starts_with("no pack is called `padle-3.3`"), "{message}");
}

#[test]
fn what_was_not_finite_already_is_no_error() {
    let net = net(4);
    param(&net, "7.bias").set(&Tensor::from_f64(&[f64::INFINITY, f64::NAN, -1.0], &[3], DType::F32).unwrap()).unwrap();
    let before = bits(&net);
    let decorated = decorate(&net, low(DType::F16)).unwrap();
    let now = param(&net, "7.bias").value().to_f64();
    assert!(now[0] == f64::INFINITY && now[1].is_nan() && now[2] == -1.0);
    decorated.undo().unwrap();
    assert_eq!(bits(&net), before);
}

/// 65519.996 is the largest f32 that rounds to a finite f16, 65520 the smallest that does not (IEEE 754, ties to even).
#[test]
fn the_range_is_that_of_the_rounded_number() {
    for (number, fits) in [(65519.996, true), (65520.0, false), (-65519.996, true), (-65520.0, false)] {
        let net = net(4);
        param(&net, "7.bias").set(&Tensor::full(&[3], number, DType::F32)).unwrap();
        assert_eq!(decorate(&net, low(DType::F16)).is_ok(), fits, "{number}");
    }
}

#[test]
fn optimizers_see_each_parameter_once() {
    let net = net(1);
    decorate(&net, low(DType::Bf16)).unwrap();
    let params: Params = net.params();
    assert_eq!(params.len(), 11);
    assert!(params.iter().all(|(_, param)| param.is_trained()));
}
