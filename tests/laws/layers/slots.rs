//! Properties of every slot, whatever its cell.

use precast::{
    cell::{Adapter, Cast},
    prelude::*,
};

fn net() -> Child {
    Child::of(sequential![Dense::new(2, 2, &mut Rng::seed(1)), Dense::new(2, 2, &mut Rng::seed(2))])
}

#[test]
fn to_float_is_checked_wherever_it_is_set() {
    for wrong in [DType::F64, DType::I64, DType::Bool] {
        let expected = format!("to_float takes float32, float16 or bfloat16, got {}", wrong.long_name());
        let mut net = net();
        let mut met = vec![net.set_to_float(Some(wrong)).unwrap_err()];
        net.walk_mut(&mut |_, slot| met.push(slot.set_to_float(Some(wrong)).unwrap_err()));
        assert!(met.iter().all(|error| error.kind() == ErrorKind::DType && error.to_string() == expected), "{met:?}");
        assert_eq!(met.len(), 4);
        net.walk(&mut |entry| assert_eq!(entry.slot.to_float, None));
        assert_eq!(net.to_float(wrong).unwrap_err().to_string(), expected);
        let json = format!(r#"{{"to_float": "{}", "cell": {{"kind": "Identity"}}}}"#, wrong.long_name());
        let error = serde_json::from_str::<Child>(&json).unwrap_err().to_string();
        assert!(error.starts_with("to_float takes float32, float16 or bfloat16"), "{error}");
    }
}

#[test]
fn an_adapter_casts_to_what_a_policy_casts() {
    let mut net = net();
    for (inward, outward) in [(DType::F64, DType::F32), (DType::F16, DType::I64)] {
        net.walk_mut(&mut |_, slot| {
            let error = slot.set_adapter(Some(Adapter::Cast(Cast { inward, outward }))).unwrap_err();
            assert!(error.to_string().starts_with("an adapter takes float32, float16 or bfloat16, got"), "{error}");
            assert_eq!(slot.adapter(), None);
        });
    }
}

#[test]
fn a_call_goes_through_the_adapter_and_a_cell_alone_has_none() {
    let mut net = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
    let x = Tensor::ones(&[1, 2], DType::F32);
    let of = |run: &dyn Fn() -> Result<Tensor>| {
        let (result, events) = precast::observe::watch(run);
        result.unwrap();
        events.iter().map(|event| event.output).collect::<Vec<_>>()
    };
    let plain = of(&|| net.call(&x));
    auto_mixed_precision(&mut net, Level::O3, DType::Bf16).unwrap();
    // The cell itself does not offer `forward`; it remains available through the trait.
    let (called, past) = (of(&|| net.call(&x)), of(&|| Forward::forward(&**net.cell(), &x)));
    assert!(called.contains(&DType::Bf16) && past == plain, "{called:?} {past:?}");
}
