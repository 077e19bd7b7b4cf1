//! Properties shared by all cells.

use precast::{Grads, prelude::*};

use super::{random, tensor, values};

/// Returns `sum(y * r)` for fixed random r, and its gradients.
fn loss(net: &Child, inputs: &[Tensor]) -> (f64, Grads) {
    let y = net.call_many(inputs).unwrap().remove(0);
    let r = random(y.shape(), 99);
    let value = y.to_f64().iter().zip(r.to_f64()).map(|(y, r)| y * r).sum();
    (value, y.backward_from(&r).unwrap())
}

/// The gradient of every parameter, compared with the slope of the loss along it.
#[test]
fn every_parameter_gets_its_gradient() {
    let mut rng = Rng::seed(4);
    let ids = Tensor::from_vec(vec![1i64, 0, 1], &[3]).unwrap();
    let nets: Vec<(Child, Vec<Tensor>)> = vec![
        (Dense::new(3, 2, &mut rng).into(), vec![random(&[4, 3], 1)]),
        (Conv1d::new(2, 2, 3, &mut rng).into(), vec![random(&[2, 2, 6], 2)]),
        (Conv2d::new(1, 2, 2, &mut rng).into(), vec![random(&[2, 1, 4, 3], 3)]),
        (Conv3d::new(1, 2, 2, &mut rng).into(), vec![random(&[1, 1, 3, 3, 2], 4)]),
        (Conv1dTranspose::new(2, 1, 2, &mut rng).into(), vec![random(&[2, 2, 4], 5)]),
        (Conv2dTranspose::new(1, 2, 2, &mut rng).into(), vec![random(&[1, 1, 3, 2], 6)]),
        (Conv3dTranspose::new(1, 1, 2, &mut rng).into(), vec![random(&[1, 1, 2, 2, 2], 7)]),
        (RNNCell::new(3, 2, &mut rng).into(), vec![random(&[4, 3], 8), random(&[4, 2], 9)]),
        (GRUCell::new(3, 2, &mut rng).into(), vec![random(&[4, 3], 8), random(&[4, 2], 9)]),
        (LSTMCell::new(3, 2, &mut rng).into(), vec![random(&[4, 3], 8), random(&[4, 2], 9), random(&[4, 2], 10)]),
        (RNN::new(3, 2, &mut rng).into(), vec![random(&[2, 4, 3], 8)]),
        (GRU::new(3, 2, &mut rng).into(), vec![random(&[2, 4, 3], 8)]),
        (LSTM::new(3, 2, &mut rng).into(), vec![random(&[2, 4, 3], 8)]),
        // A bias of the keys moves all scores of a query alike, so it is omitted.
        (
            MultiheadAttentionSpec::new(4, 2).bias(false).build(&mut rng).unwrap().into(),
            vec![random(&[2, 3, 4], 8), random(&[2, 5, 4], 9), random(&[2, 5, 4], 10)],
        ),
        (
            {
                let layer = TransformerEncoderLayerSpec::new(4, 2).dim_feedforward(6).dropout(0.0);
                layer.activation(TransformerActivation::Gelu).bias(false).build(&mut rng).unwrap().into()
            },
            vec![random(&[2, 3, 4], 8)],
        ),
        (
            {
                let layer = TransformerDecoderLayerSpec::new(4, 2).dim_feedforward(6).dropout(0.0).norm_first(true);
                let layer =
                    layer.activation(TransformerActivation::Gelu).bias(false).rotary(RotaryEmbedding::default());
                layer.build(&mut rng).unwrap().into()
            },
            vec![random(&[2, 3, 4], 8), random(&[2, 5, 4], 9)],
        ),
        (
            {
                let lora = LoRA::new(Dense::new(3, 4, &mut rng), 2, 3.0, &mut rng);
                lora.b.set(&random(&[4, 2], 17)).unwrap();
                lora.into()
            },
            vec![random(&[4, 3], 18)],
        ),
        (BatchNorm1d::new(3).into(), vec![random(&[4, 3], 11)]),
        (LayerNorm::new(&[3]).into(), vec![random(&[4, 3], 12)]),
        (GroupNorm::new(2, 4).into(), vec![random(&[2, 4, 3], 13)]),
        (InstanceNorm1d::new(3).into(), vec![random(&[2, 3, 4], 14)]),
        (RmsNorm::new(3).into(), vec![random(&[4, 3], 15)]),
        (Embedding::new(2, 3, &mut rng).into(), vec![ids]),
        (PReLU::new(3).into(), vec![random(&[4, 3], 16)]),
    ];
    for (mut net, inputs) in nets {
        net.set_train(true);
        let kind = net.slot().cell.kind();
        let grads = loss(&net, &inputs).1;
        for (path, param) in net.params().iter() {
            let grad = grads.get(param).unwrap_or_else(|| panic!("{kind} {path}: no gradient"));
            assert_eq!(grad.shape(), param.shape());
            // Along r the slope is <gradient, r>; the loss is nearly linear in a step of 1/64, which is exact in f32.
            let (old, direction) = (param.value(), random(&param.shape(), 77));
            let slope: f64 = grad.to_f64().iter().zip(direction.to_f64()).map(|(g, d)| g * d).sum();
            let moved = |step: f64| {
                let there: Vec<f64> = old.to_f64().iter().zip(direction.to_f64()).map(|(x, d)| x + step * d).collect();
                param.set(&tensor(&there, old.shape())).unwrap();
                loss(&net, &inputs).0
            };
            let numeric = (moved(1.0 / 64.0) - moved(-1.0 / 64.0)) * 32.0;
            param.set(&old).unwrap();
            assert!(slope.abs() > 1e-3, "{kind} {path}: the gradient vanishes");
            assert!((slope - numeric).abs() < 2e-3 * slope.abs().max(1.0), "{kind} {path}: {slope} against {numeric}");
        }
    }
}

#[test]
fn initial_weights_lie_within_their_bounds() {
    let mut rng = Rng::seed(2);
    let bounded = |net: Child, path: &str, bound: f64| {
        let largest = values(&net, path).iter().fold(0.0, |m: f64, w| m.max(w.abs()));
        assert!(largest <= bound && largest > 0.9 * bound, "{path}: {largest} against {bound}");
    };
    bounded(Dense::new(25, 40, &mut rng).into(), "weight", 0.2);
    bounded(Dense::new(25, 40, &mut rng).into(), "bias", 0.2);
    // fan-in 8 / 2 * 5 * 5 = 100
    let spec = Conv2dSpec::new(8, 8, 5).groups(2);
    bounded(spec.clone().build(&mut rng).unwrap().into(), "weight", 0.1);
    // fan-in of a transpose as in torch: out_channels / groups * kernel = 4 * 4
    bounded(Conv1dTranspose::new(16, 4, 4, &mut rng).into(), "weight", 0.25);
    bounded(LSTMCell::new(3, 16, &mut rng).into(), "weight_ih", 0.25);
    bounded(LSTMCell::new(3, 16, &mut rng).into(), "bias_hh", 0.25);
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let mut rng = Rng::seed(0);
    let rng = &mut rng;
    let messages = [
        (
            Conv2dSpec::new(3, 4, 3).groups(2).build(rng).unwrap_err(),
            "2 groups do not divide 3 input and 4 output channels",
        ),
        (Conv2dSpec::new(2, 4, 3).groups(0).build(rng).unwrap_err(), "`groups` is 0; allowed: at least 1"),
        (Conv1dSpec::new(2, 4, 0).build(rng).unwrap_err(), "`kernel_size` is 0; allowed: at least 1"),
        (
            Conv2dTransposeSpec::new(2, 4, 1).stride([1, 0]).build(rng).unwrap_err(),
            "`stride` is 0; allowed: at least 1",
        ),
        (GroupNormSpec::new(3, 4).build().unwrap_err(), "3 groups do not divide 4 channels"),
        (LayerNormSpec::new([]).build().unwrap_err(), "normalized_shape has no axis; at least 1 is needed"),
        (LayerNormSpec::new([2]).eps(-1.0).build().unwrap_err(), "`eps` is -1; allowed: a finite number of at least 0"),
        (
            RmsNormSpec::new(2).eps(f64::NAN).build().unwrap_err(),
            "`eps` is NaN; allowed: a finite number of at least 0",
        ),
        (BatchNorm1dSpec::new(2).momentum(1.5).build().unwrap_err(), "`momentum` is 1.5; allowed: 0 to 1"),
        (
            DenseSpec::new(usize::MAX, 2).build(rng).unwrap_err(),
            "a tensor of shape [2, 18446744073709551615] does not fit into memory",
        ),
    ];
    for (error, message) in messages {
        assert_eq!(error.to_string(), message);
    }
    // Options that `new` cannot refuse are refused at run time.
    let cells: [(Child, &[usize]); 4] = [
        (Conv1d::new(1, 1, 0, rng).into(), &[1, 1, 3]),
        (GroupNorm::new(3, 4).into(), &[2, 4, 3]),
        (GroupNorm::new(0, 4).into(), &[2, 4, 3]),
        (LayerNorm::new(&[]).into(), &[2, 4]),
    ];
    for (net, shape) in cells {
        let error = net.call(&random(shape, 0)).unwrap_err();
        assert_eq!(error.cell(), Some(""), "{error}");
    }
}

#[test]
fn rows_of_cells_name_their_places_and_share_clones() {
    let mut rng = Rng::seed(0);
    let shared = Child::new(Dense::new(2, 2, &mut rng));
    let mut seq = sequential![shared.clone(), Tanh, shared];
    seq.push(Dense::new(2, 1, &mut rng));
    assert_eq!((seq.len(), seq.is_empty(), seq.iter().count()), (4, false, 4));
    let net = Child::of(sequential![seq]);
    let paths: Vec<String> = net.named_params().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["0.0.weight", "0.0.bias", "0.2.weight", "0.2.bias", "0.3.weight", "0.3.bias"]);
    assert_eq!(net.params().len(), 4);
    let error = net.call(&Tensor::ones(&[1, 3], DType::F32)).unwrap_err();
    assert_eq!(error.cell(), Some("0.0"));

    let list = Child::of(CellList::new(vec![ReLU.into()]));
    assert!(list.call(&Tensor::ones(&[1], DType::F32)).unwrap_err().to_string().contains("no forward of its own"));
    assert!(list.call_many(&[]).unwrap_err().to_string().contains("no forward of its own"));
    assert_eq!(Child::of(Sequential::default()).call(&Tensor::ones(&[1], DType::F32)).unwrap().to_f64(), [1.0]);
}
