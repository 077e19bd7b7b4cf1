//! One test for each intentional difference from MindSpore: our result, compared with the same computed by hand with
//! explicit casts, outside every region.

use precast::{
    ConvOptions,
    cell::{Adapter, Cast},
    compat::mindspore::{CustomLists, custom_mixed_precision},
    policy::Lists,
    prelude::*,
};

use crate::mindspore::{
    calls::{self, Script},
    case::mindspore,
    differences::DIFFERENCES,
    networks::{Kit, build},
    steps,
    unfused::{self, LSTMCell},
};
use crate::replay::row_of;

const LOW: DType = DType::F16;

/// Makes a recorded network with other weights.
fn network(name: &str) -> Child {
    let net = build(name, Kit::Unfused).expect("a network of this name");
    fill(&net);
    net
}

fn fill(net: &Child) {
    let mut rng = Rng::seed(7);
    for (name, param) in net.named_params() {
        // Variances are positive.
        let low = if name.ends_with("variance") { 0.5 } else { -0.9 };
        let numbers: Vec<f64> = (0..param.tensor().len()).map(|_| rng.uniform(low, 1.1)).collect();
        param.set(&Tensor::from_f64(&numbers, &param.shape(), DType::F32).unwrap()).unwrap();
    }
}

fn input(shape: &[usize]) -> Tensor {
    let mut rng = Rng::seed(8);
    let numbers: Vec<f64> = (0..shape.iter().product()).map(|_| rng.uniform(-1.5, 1.5)).collect();
    Tensor::from_f64(&numbers, shape, DType::F32).unwrap()
}

fn param(net: &Child, name: &str) -> Tensor {
    let params = net.named_params();
    params.iter().find(|(path, _)| path == name).unwrap_or_else(|| panic!("no parameter `{name}`")).1.value()
}

/// Computes `x · wᵀ + b` entirely in one dtype.
fn dense(net: &Child, path: &str, x: &Tensor, dtype: DType) -> Tensor {
    let of = |leaf| param(net, &precast::__test::join(path, leaf)).cast(dtype);
    x.cast(dtype).matmul(&of("weight").t().unwrap()).unwrap().bias_add(&of("bias")).unwrap()
}

fn norm(net: &Child, path: &str, x: &Tensor, dtype: DType) -> Tensor {
    let of = |leaf| param(net, &precast::__test::join(path, leaf)).cast(dtype);
    let (mean, variance) = (of("moving_mean"), of("moving_variance"));
    x.cast(dtype).batch_norm(&mean, &variance, Some(&of("gamma")), Some(&of("beta")), 1e-5).unwrap()
}

/// Asserts the same dtype and bits.
fn same(a: &Tensor, b: &Tensor) {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
    let bits = |x: &Tensor| x.to_f64().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(a), bits(b), "{:?}\n{:?}", a.to_f64(), b.to_f64());
}

fn lowered(name: &str, level: Level, dtype: DType) -> Child {
    let mut net = network(name);
    let _applied = mindspore(level, dtype).unwrap().apply(&mut net).unwrap();
    net
}

/// MindSpore erases the request at O2 and O3, so that no layer can be kept in f32.
#[test]
fn to_float_is_honoured_at_every_level() {
    let net = lowered("tofloat_leaf_fp32", Level::O2, LOW);
    let x = input(&[2, 4]);
    // The root's border rounds x; fc1 then computes in f32 and returns into the low region.
    let h = dense(&net, "fc1", &x.cast(LOW), DType::F32).cast(LOW);
    let h = dense(&net, "blk.0", &h, LOW);
    let h = norm(&net, "blk.1", &h, DType::F32).cast(LOW).relu().unwrap();
    same(&net.call(&x).unwrap(), &dense(&net, "fc2", &h, LOW).cast(DType::F32));
}

/// In MindSpore the neighbour of an f16 layer in an f32 network raises a TypeError.
#[test]
fn a_to_float_cell_returns_the_dtype_of_its_surroundings() {
    let net = lowered("tofloat_leaf_fp16", Level::O0, LOW);
    let x = input(&[2, 4]);
    let h = dense(&net, "fc1", &x, LOW).cast(DType::F32);
    let h = norm(&net, "blk.1", &dense(&net, "blk.0", &h, DType::F32), DType::F32).relu().unwrap();
    same(&net.call(&x).unwrap(), &dense(&net, "fc2", &h, DType::F32));

    // At level auto no op raises; there the unlisted ReLU continues in f16.
    let net = lowered("tofloat_bn_fp16", Level::Auto, DType::Bf16);
    let (_, trace) = net.trace(|net| net.call(&x).unwrap());
    let ran = |path: &str, op: Op| trace.ops.iter().find(|ran| ran.path == path && ran.op == op).unwrap().output;
    assert_eq!((ran("blk.1", Op::BatchNorm), ran("blk.2", Op::Relu)), (LOW, DType::F32));
}

/// MindSpore compares the lists only with the cells inside a network, so that a layer alone behaves unlike the same
/// layer in a container.
#[test]
fn a_listed_root_is_treated_by_the_list() {
    let x = input(&[2, 4]);
    let white = lowered("root_dense", Level::O1, LOW);
    same(&white.call(&x).unwrap(), &dense(&white, "", &x, LOW).cast(DType::F32));
    let black = lowered("root_batchnorm", Level::O2, LOW);
    same(&black.call(&x).unwrap(), &network("root_batchnorm").call(&x).unwrap());
    let mut net = network("mlp_bn1d");
    let _applied = custom_mixed_precision(&mut net, CustomLists::Black(Lists::new().full("Mlp")), LOW).unwrap();
    same(&net.call(&x).unwrap(), &network("mlp_bn1d").call(&x).unwrap());
}

/// MindSpore leaves wrappers of the first level behind, lets O1 over O2 run batch norms in f16, and after O1 twice may
/// raise a NameError.
#[test]
fn a_second_level_replaces_the_first() {
    for name in ["mlp_bn1d", "nested_sequential"] {
        let x = if name == "mlp_bn1d" { input(&[2, 4]) } else { input(&[1, 1, 4, 4]) };
        for (first, second) in Level::ALL.into_iter().flat_map(|a| Level::ALL.map(|b| (a, b))) {
            let mut net = lowered(name, first, LOW);
            let applied = mindspore(second, LOW).unwrap().apply(&mut net).unwrap();
            let alone = lowered(name, second, LOW);
            assert!(first != second || applied.changed == 0, "{name} {first} {second}");
            assert_eq!(applied.plan, mindspore(second, LOW).unwrap().plan(&alone).unwrap());
            let ran = |net: &Child| net.trace(|net| net.call(&x).unwrap());
            let ((y, trace), (y_alone, trace_alone)) = (ran(&net), ran(&alone));
            same(&y, &y_alone);
            assert_eq!(trace, trace_alone);
        }
    }
}

/// In MindSpore the second name of a shared batch norm is not wrapped and returns f32.
#[test]
fn a_black_cell_is_wrapped_at_each_of_its_places() {
    let net = lowered("shared_cells_same_parent", Level::O2, LOW);
    let island = Adapter::Cast(Cast { inward: DType::F32, outward: LOW });
    for path in ["bn", "bn_b"] {
        net.at(path, |slot| assert_eq!(slot.adapter, Some(&island), "{path}")).unwrap();
    }
    let x = input(&[2, 4]);
    let h = norm(&net, "bn", &dense(&net, "d", &x, LOW), DType::F32).cast(LOW).tanh().unwrap();
    let h = norm(&net, "bn_b", &dense(&net, "e", &h, LOW), DType::F32).cast(LOW).tanh().unwrap();
    same(&net.call(&x).unwrap(), &dense(&net, "d", &h, LOW).cast(DType::F32));
}

/// MindSpore rebuilds a SequentialCell from its distinct cells when it wraps one of them: a repeated cell is lost.
#[test]
fn a_repeated_cell_is_run_each_time() {
    let net = lowered("sequential_repeated_cell", Level::O2, LOW);
    let x = input(&[2, 4]);
    let h = norm(&net, "seq.1", &dense(&net, "seq.0", &x, LOW), DType::F32).cast(LOW).tanh().unwrap();
    let y = dense(&net, "seq.3", &h, LOW).tanh().unwrap();
    same(&net.call(&x).unwrap(), &y.cast(DType::F32));
}

/// Runs a recurrent cell with real f16 weights outside every region.
fn by_hand_in_f16<C: Cell>(net: &Child, path: &str, make: fn([Param; 4]) -> C, inputs: &[Tensor]) -> Vec<Tensor> {
    let weights = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"];
    let cell = make(weights.map(|leaf| Param::buffer(param(net, &precast::__test::join(path, leaf)).cast(LOW))));
    let inputs: Vec<Tensor> = inputs.iter().map(|x| x.cast(LOW)).collect();
    cell.forward_many(&inputs).unwrap()
}

fn lstm([weight_ih, weight_hh, bias_ih, bias_hh]: [Param; 4]) -> LSTMCell {
    LSTMCell { weight_ih, weight_hh, bias_ih, bias_hh }
}

/// MindSpore parses the source of every class at O1, and fails with a NameError at `nn.LSTMCell`.
#[test]
fn rewriting_needs_no_source_code() {
    let mut net = Child::of(Pair { lstm: Child::new(LSTMCell::new(4, 4)) });
    fill(&net);
    let _applied = mindspore(Level::O1, LOW).unwrap().apply(&mut net).unwrap();
    let inputs = [input(&[2, 4]), input(&[2, 4]), input(&[2, 4])];
    let ours = net.call_many(&inputs).unwrap();
    let hand = by_hand_in_f16(&net, "lstm", lstm, &inputs);
    ours.iter().zip(&hand).for_each(|(ours, hand)| same(ours, &hand.cast(DType::F32)));
}

#[derive(Cell, Debug)]
struct Pair {
    lstm: Child<LSTMCell>,
}

impl Forward for Pair {
    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.lstm.call_many(inputs)
    }
}

/// MindSpore's wrapper casts a single tensor and raises a TypeError at the tuple of an LSTMCell.
#[test]
fn a_black_cell_may_return_several_tensors() {
    let mut net = Child::of(Pair { lstm: Child::new(LSTMCell::new(4, 4)) });
    fill(&net);
    let rounded = [1.0, 0.7, -0.6].map(|by| (input(&[2, 4]) * by).unwrap().cast(LOW).cast(DType::F32));
    let f32_result = net.call_many(&rounded).unwrap();
    let _applied = custom_mixed_precision(&mut net, CustomLists::Black(Lists::new().full("LSTMCell")), LOW).unwrap();
    let ours = net.call_many(&rounded).unwrap();
    assert_eq!(ours.len(), 2);
    ours.iter().zip(&f32_result).for_each(|(ours, full)| same(ours, &full.cast(LOW).cast(DType::F32)));
}

/// MindSpore casts the ops of a listed cell one by one and cannot see `+` and `*`, which stay f32 between them.
#[test]
fn a_white_cell_is_one_low_region() {
    let net = lowered("rnn_gru_cells", Level::O1, LOW);
    let (x, h) = (input(&[2, 3]), input(&[2, 4]));
    let rnn = |[weight_ih, weight_hh, bias_ih, bias_hh]: [Param; 4]| unfused::RNNCell {
        weight_ih,
        weight_hh,
        bias_ih,
        bias_hh,
    };
    let gru = |[weight_ih, weight_hh, bias_ih, bias_hh]: [Param; 4]| unfused::GRUCell {
        weight_ih,
        weight_hh,
        bias_ih,
        bias_hh,
    };
    let a = by_hand_in_f16(&net, "rnn", rnn, &[x.clone(), h.clone()]);
    let b = by_hand_in_f16(&net, "gru", gru, &[a[0].clone(), h.clone()]);
    let ours = net.call_many(&[x, h]).unwrap();
    same(&ours[0], &dense(&net, "fc", &b[0], LOW).cast(DType::F32));
    same(&ours[1], &b[0].cast(DType::F32));
}

/// MindSpore ignores a SequentialCell on the white list.
#[test]
fn a_listed_container_is_one_low_region() {
    let mut net = network("root_sequential");
    let mut outer = Child::of(Sequential::new(vec![network("root_sequential")]));
    let list = || CustomLists::White(Lists::new().low("SequentialCell"));
    let _applied = custom_mixed_precision(&mut outer, list(), LOW).unwrap();
    let _applied = custom_mixed_precision(&mut net, list(), LOW).unwrap();
    let x = input(&[2, 4]);
    let h = norm(&net, "1", &dense(&net, "0", &x, LOW), LOW).relu().unwrap();
    let hand = dense(&net, "3", &h, LOW).cast(DType::F32);
    same(&outer.call(&x).unwrap(), &hand);
    same(&net.call(&x).unwrap(), &hand);
}

/// MindSpore sees a listed op only where it can rewrite the source: not in a method inherited from `nn.Dense`.
#[test]
fn a_listed_op_is_lowered_wherever_it_runs() {
    let net = lowered("subclasses", Level::O1, LOW);
    let x = input(&[2, 4]);
    let weight = param(&net, "d.weight").cast(LOW).t().unwrap();
    let h = x.cast(LOW).matmul(&weight).unwrap().cast(DType::F32).bias_add(&param(&net, "d.bias")).unwrap();
    let h = norm(&net, "bn", &h, DType::F32);
    same(&net.call(&x).unwrap(), &h.cast(LOW).relu().unwrap().cast(DType::F32));
}

/// MindSpore's black list applies to subclasses, its white list does not. Here kinds match exactly.
#[test]
fn kinds_match_exactly() {
    let net = lowered("subclasses", Level::O2, LOW);
    let x = input(&[2, 4]);
    let h = norm(&net, "bn", &dense(&net, "d", &x, LOW), LOW).relu().unwrap();
    same(&net.call(&x).unwrap(), &h.cast(DType::F32));
    // A user's own kind can be listed explicitly.
    let mut net = network("subclasses");
    let _applied = custom_mixed_precision(&mut net, CustomLists::Black(Lists::new().full("MyBN")), LOW).unwrap();
    let h = norm(&net, "bn", &dense(&net, "d", &x, LOW), DType::F32).cast(LOW).relu().unwrap();
    same(&net.call(&x).unwrap(), &h.cast(DType::F32));
}

/// MindSpore's graph mode rounds the inputs of a low network (0.1 becomes 0.0999755859375 in the identity), its
/// PyNative mode only where an op reads them. Here the inputs of a region have its dtype.
#[test]
fn inputs_are_cast_at_the_border_of_a_region() {
    let net = lowered("identity", Level::O2, LOW);
    let y = net.call(&Tensor::from_f64(&[0.1], &[1], DType::F32).unwrap()).unwrap();
    assert_eq!((y.dtype(), y.to_f64()), (DType::F32, vec![0.0999755859375]));
    // An f32 island that reads the input directly gets it rounded, like everything else that comes out of the region.
    let mut outer = Child::of(Sequential::new(vec![network("root_layernorm")]));
    let _applied = mindspore(Level::O2, LOW).unwrap().apply(&mut outer).unwrap();
    let x = input(&[2, 4]);
    let hand = network("root_layernorm").call(&x.cast(LOW).cast(DType::F32)).unwrap();
    same(&outer.call(&x).unwrap(), &hand.cast(LOW).cast(DType::F32));
}

/// MindSpore's norm layers cast gamma and beta to the dtype of their input: recorded for the second layer norm of a
/// transformer block at O2, whose kernel is f32 and whose parameters were rounded to f16.
#[test]
fn a_norm_reads_its_parameters_as_they_are() {
    let net = lowered("groupnorm", Level::Auto, LOW);
    let x = input(&[1, 2, 3, 3]);
    let ours = net.call(&x).unwrap();
    let conv = x.cast(LOW).conv2d(&param(&net, "conv.weight").cast(LOW), None, &ConvOptions::default()).unwrap();
    // The textbook's formula in f64, over two groups of two channels.
    let (h, gamma, beta) = (conv.to_f64(), param(&net, "gn.gamma").to_f64(), param(&net, "gn.beta").to_f64());
    for (group, h) in h.chunks(18).enumerate() {
        let mean = h.iter().sum::<f64>() / 18.0;
        let variance = h.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 18.0;
        for (i, x) in h.iter().enumerate() {
            let c = 2 * group + i / 9;
            let exact = ((x - mean) / (variance + 1e-5).sqrt() * gamma[c] + beta[c]).max(0.0);
            assert!((ours.to_f64()[18 * group + i] - exact).abs() < 1e-6);
        }
    }
    let rounded = gamma.iter().chain(&beta).filter(|w| Tensor::scalar(**w, LOW).item().unwrap() != **w);
    assert_eq!((ours.dtype(), rounded.count()), (DType::F32, 8));
}

/// A MindSpore graph passes an f16 result on in f32 where it can.
#[test]
fn every_op_rounds_its_result() {
    let net = lowered("tofloat_root_fp16", Level::O1, LOW);
    let x = input(&[2, 4]);
    let h = dense(&net, "blk.0", &dense(&net, "fc1", &x, LOW), LOW);
    let h = norm(&net, "blk.1", &h, LOW).relu().unwrap();
    same(&net.call(&x).unwrap(), &dense(&net, "fc2", &h, LOW));
}

/// MindSpore's f16 kernels of sigmoid, softmax, layer and group norm round after every step. Its numbers below were
/// recorded (dense_act_3d at O3); ours are the f16 numbers nearest to the exact values, within half a unit.
#[test]
fn an_op_rounds_once() {
    let x = [0.14978027, -0.045410156, -0.56152344, -0.66064453];
    let recorded = [0.537109375, 0.488525391, 0.363037109, 0.340332031];
    let ours = Tensor::from_f64(&x, &[4], LOW).unwrap();
    let (ours, x) = (ours.sigmoid().unwrap().to_f64(), ours.to_f64());
    let unit = |y: f64| 2f64.powi(y.log2().floor() as i32 - 10);
    for i in 0..4 {
        let exact = 1.0 / (1.0 + (-x[i]).exp());
        assert!((ours[i] - exact).abs() <= unit(exact) / 2.0, "{}", x[i]);
        assert!((recorded[i] - exact).abs() > (ours[i] - exact).abs());
    }
    let script = Script { inside: vec![Some(LOW)], splits: vec![], stepwise: true, digits: None };
    let x = Tensor::from_f64(&x, &[4], LOW).unwrap();
    let stepwise = calls::repeated(&script, || steps::sigmoid(&x)).unwrap().to_f64();
    stepwise.iter().zip(recorded).for_each(|(stepwise, recorded)| assert!((stepwise - recorded).abs() < 1e-9));
}

/// MindSpore's f32 exponential is accurate to about 7e-7, and recorded f32 sums have another order. If a low op reads
/// such a result, it may round to the neighbouring number. Recorded: conv3d at O0.
#[test]
fn f32_results_have_their_own_last_digits() {
    let recorded = 0.583341718;
    let x = Tensor::from_f64(&[0.33650397], &[1], DType::F32).unwrap();
    let exact = 1.0 / (1.0 + (-x.item().unwrap()).exp());
    let ours = x.sigmoid().unwrap().item().unwrap();
    assert!((ours - exact).abs() <= 2f64.powi(-24), "{ours} {exact}");
    assert!((recorded - exact) > 5e-7);
    // The numbers above and below are f16 neighbours as soon as a rounding point is between them.
    let rounding_point = 0.58349609375 - 2f64.powi(-12);
    let low = |x: f64| Tensor::scalar(x, DType::F32).cast(LOW).item().unwrap();
    assert_ne!(low(rounding_point + 3e-7), low(rounding_point - 3e-7));
}

/// In MindSpore's graph mode a parameter passed to `ops.matmul` or to the function behind nn.RNNCell stays f32, and the
/// product of two dtypes raises a TypeError. Its PyNative mode works as here.
#[test]
fn helper_functions_belong_to_the_region_they_are_called_in() {
    for dtype in [DType::F16, DType::Bf16] {
        let net = lowered("ops_functional", Level::O2, dtype);
        let (x, w) = (input(&[2, 4]), param(&net, "w").cast(dtype));
        let hand = x.cast(dtype).matmul_ext(&w).unwrap().matmul_ext(&w).unwrap();
        same(&net.call_many(&[x]).unwrap()[3], &hand.cast(DType::F32));
    }
}

/// Rounds to nearest even at 8 significant bits, straight from the definition.
fn to_bf16(x: f64) -> f64 {
    if x == 0.0 {
        return x;
    }
    let unit = 2f64.powi(x.abs().log2().floor() as i32 - 7);
    (x / unit).round_ties_even() * unit
}

/// MindSpore's auto list has `Conv2DTranspose`, the op of a 2-d layer, but not `Conv2DBackpropInput`, which computes
/// the same in a 1-d layer, so only one of the layers is lowered there.
#[test]
fn one_op_under_two_names_is_treated_alike() {
    assert_eq!(Op::named("Conv2DTranspose").unwrap(), Op::named("Conv2DBackpropInput").unwrap());
    let net = lowered("convtranspose", Level::Auto, LOW);
    let x = input(&[1, 2, 5]);
    let (y, trace) = net.trace(|net| net.call(&x).unwrap());
    let products: Vec<_> = trace.ops.iter().filter(|op| op.op == Op::ConvTranspose2d).collect();
    assert_eq!(products.iter().map(|op| (op.path.as_str(), op.output)).collect::<Vec<_>>(), [("t1", LOW), ("t2", LOW)]);
    let transpose = |x: Tensor, name: &str| {
        let options = precast::ConvTransposeOptions::default();
        x.cast(LOW).conv_transpose2d(&param(&net, name).cast(LOW), None, &options).unwrap()
    };
    let h = transpose(x.unsqueeze(2).unwrap(), "t1.weight").squeeze(2).unwrap().unsqueeze(1).unwrap();
    let h = transpose(h, "t2.weight").cast(DType::F32).bias_add(&param(&net, "t2.bias")).unwrap();
    same(&y, &h.relu().unwrap());
}

/// Computes `x · wᵀ + b` on plain numbers, rounding both the product and the sum.
fn plain_dense(net: &Child, path: &str, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let weight = param(net, &format!("{path}.weight"));
    let (w, b) = (weight.to_f64(), param(net, &format!("{path}.bias")).to_f64());
    let k = weight.shape()[1];
    let product = |row: &Vec<f64>, o: usize| (0..k).map(|i| row[i] * to_bf16(w[o * k + i])).sum::<f64>();
    let out = |row: &Vec<f64>| (0..b.len()).map(|o| to_bf16(to_bf16(product(row, o)) + to_bf16(b[o]))).collect();
    rows.iter().map(out).collect()
}

/// MindSpore has no bf16 kernels for the CPU. A whole network is compared with plain loops over f64 numbers.
#[test]
fn bf16_runs_on_the_cpu() {
    let net = lowered("mlp_bn1d", Level::O2, DType::Bf16);
    let x = input(&[2, 4]);
    let rows: Vec<Vec<f64>> = x.to_f64().chunks(4).map(|row| row.iter().map(|&x| to_bf16(x)).collect()).collect();
    let of = |leaf: &str| param(&net, &format!("bn.{leaf}")).to_f64();
    let (mean, variance, gamma, beta) = (of("moving_mean"), of("moving_variance"), of("gamma"), of("beta"));
    let normalized = |(c, x): (usize, &f64)| {
        let y = (x - mean[c]) / (variance[c] + 1e-5).sqrt() * gamma[c] + beta[c];
        to_bf16(y).max(0.0)
    };
    let hidden = plain_dense(&net, "fc1", &rows);
    let hidden: Vec<Vec<f64>> = hidden.iter().map(|row| row.iter().enumerate().map(normalized).collect()).collect();
    let y = net.call(&x).unwrap();
    assert_eq!(y.dtype(), DType::F32);
    assert_eq!(y.to_f64(), plain_dense(&net, "fc2", &hidden).concat());
}

#[test]
fn every_difference_stands_in_compare_md() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/COMPARE.md")).unwrap();
    let source = include_str!("on_purpose.rs");
    for difference in DIFFERENCES {
        let row = row_of(&text, difference.name);
        let row = row.unwrap_or_else(|| panic!("COMPARE.md does not tell `{}`", difference.name));
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().expect("a last column");
        let test = tests.split('`').nth(1).expect("the row names its test last");
        assert!(source.contains(&format!("fn {test}()")), "`{test}` is no test");
    }
}
