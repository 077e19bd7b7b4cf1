//! The layer ops at their edges: empty tensors work, and no input panics.

use crate::layer_ops::random::{Random, bits};
use precast::{
    ConvOptions, ConvTransposeOptions, DType, ErrorKind, GridPadding, Interpolation, Padding, PoolOptions, Resize,
    Result, Tensor,
};

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32)
}

/// Asserts that it is refused, with an error of this kind that contains these words.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, words: &[&str]) {
    let error = match result {
        Err(error) => error,
        Ok(value) => panic!("expected an error, got {value:?}"),
    };
    let message = error.to_string();
    assert_eq!(error.kind(), kind, "{message}");
    words.iter().for_each(|word| assert!(message.contains(word), "`{word}` is missing: {message}"));
}

#[test]
fn errors_name_the_op_and_both_shapes() {
    use ErrorKind::{DType as Dtype, Shape, Value};
    let x = zeros(&[2, 3]);
    refused(x.matmul(&x), Shape, &["MatMul", "[2, 3] and [2, 3]", "3 columns meet 2 rows"]);
    refused(x.batch_matmul(&zeros(&[4, 3, 1])), Shape, &["[2, 3]", "[4, 3, 1]", "differ"]);
    refused(zeros(&[2, 1, 3]).matmul_ext(&zeros(&[5, 3, 1])), Shape, &["[2, 1, 3]", "[5, 3, 1]", "broadcast"]);
    refused(x.matmul_ext(&zeros(&[])), Shape, &["[2, 3]", "[]"]);
    refused(x.linear(&zeros(&[4, 2]), None), Shape, &["Linear", "[2, 3]", "[4, 2]", "3 features meet 2"]);
    refused(x.linear(&zeros(&[4, 3]), Some(&zeros(&[3]))), Shape, &["[3]", "[4]"]);
    refused(x.bias_add(&zeros(&[2])), Shape, &["BiasAdd", "[2, 3]", "[2]"]);
    refused(x.reshape(&[4, -1]), Shape, &["Reshape", "[2, 3]", "[4, -1]"]);
    refused(x.reshape(&[-1, -1]), Shape, &["one axis may be -1"]);
    refused(x.transpose(0, 2), Shape, &["Transpose", "axis 2", "-2 to 1"]);
    refused(x.permute(&[0, 0]), Shape, &["[0, 0]"]);
    refused(x.slice(1, 2..4), Shape, &["2..4", "[2, 3]", "0..3"]);
    refused(x.split(&[1, 1], 1), Shape, &["Split", "[1, 1]", "[2, 3]"]);
    refused(Tensor::concat(&[&x, &zeros(&[3, 3])], 1), Shape, &["[2, 3]", "[3, 3]", "axis 1"]);
    refused(Tensor::concat(&[], 0), Shape, &["Concat"]);
    refused(Tensor::stack(&[&x, &zeros(&[3, 2])], 0), Shape, &["[2, 3]", "[3, 2]"]);
    let ids = Tensor::from_vec(vec![1i64, 7, -1], &[3]).unwrap();
    refused(ids.embedding(&x), Value, &["Embedding", "index 7", "0..2"]);
    refused(ids.slice(0, 2..3).unwrap().embedding(&x), Value, &["index -1", "0..2"]);
    refused(x.embedding(&x), Dtype, &["i64", "f32"]);
    refused(x.gather(0, &ids), Shape, &["[3]", "[2, 3]"]);
    // Integers are not floating-point tensors, and are not converted silently.
    refused(x.matmul(&Tensor::zeros(&[3, 1], DType::I64)), Dtype, &["f32, i64"]);
    refused(x.matmul(&Tensor::zeros(&[3, 1], DType::F16)), Dtype, &["f32, f16"]);
    refused(Tensor::zeros(&[1, 1, 4], DType::I64).max_pool1d(2, 2), Dtype, &["i64"]);
    refused(x.layer_norm(&[3], Some(&Tensor::ones(&[3], DType::Bool)), None, 1e-5), Dtype, &["bool"]);
    refused(x.layer_norm(&[2], None, None, 1e-5), Shape, &["LayerNorm", "[2, 3]", "[2]"]);
    refused(x.layer_norm(&[3], None, None, f64::NAN), Value, &["eps NaN"]);
    refused(x.group_norm(2, None, None, 1e-5), Shape, &["3 channels", "2 groups"]);
    refused(x.batch_norm_train(Some(&zeros(&[2])), None, 1e-5), Shape, &["BatchNorm", "[3]", "[2]"]);
    refused(zeros(&[0, 3]).batch_norm_train(None, None, 1e-5), Shape, &["no elements"]);
}

#[test]
fn errors_of_windows() {
    use ErrorKind::{Shape, Value};
    let (x, w) = (zeros(&[1, 2, 4, 4]), zeros(&[3, 2, 5, 5]));
    let options = ConvOptions::default();
    refused(x.conv2d(&w, None, &options), Shape, &["Conv2d", "[5, 5]", "[4, 4]"]);
    refused(x.conv1d(&w, None, &options), Shape, &["Conv1d", "1 spatial"]);
    refused(x.conv2d(&zeros(&[3, 1, 2, 2]), None, &options), Shape, &["[1, 2, 4, 4]", "[3, 1, 2, 2]"]);
    let w = zeros(&[3, 2, 2, 2]);
    refused(x.conv2d(&w, Some(&zeros(&[2])), &options), Shape, &["[2]", "[3]"]);
    let with = |change: &dyn Fn(&mut ConvOptions)| {
        let mut options = ConvOptions::default();
        change(&mut options);
        x.conv2d(&w, None, &options)
    };
    refused(with(&|o| o.stride = vec![0]), Value, &["stride 0", "1 to"]);
    refused(with(&|o| o.stride = vec![1, 1, 1]), Value, &["stride", "3 axes", "2"]);
    refused(with(&|o| o.dilation = vec![usize::MAX]), Value, &["dilation"]);
    refused(with(&|o| o.groups = 2), Shape, &["3", "2 groups"]);
    refused(with(&|o| o.groups = 0), Shape, &["0 groups"]);
    refused(with(&|o| o.padding = Padding::all(usize::MAX)), Value, &["padding"]);
    let pool = |change: &dyn Fn(&mut PoolOptions)| {
        let mut options = PoolOptions::new(2, 2);
        change(&mut options);
        x.max_pool2d_with(&options)
    };
    refused(pool(&|o| o.padding = Padding::all(2)), Value, &["smaller than the kernel"]);
    refused(pool(&|o| o.kernel = vec![5]), Shape, &["[5, 5]", "[4, 4]"]);
    refused(pool(&|o| o.kernel = vec![0]), Value, &["kernel 0"]);
    refused(x.adaptive_avg_pool2d(&[0]), Value, &["output size 0"]);
    let transposed = ConvTransposeOptions::default().output_padding(vec![1]);
    refused(x.conv_transpose2d(&zeros(&[2, 1, 2, 2]), None, &transposed), Value, &["output_padding 1"]);
    let transposed = ConvTransposeOptions::default().padding(Padding::all(3));
    refused(x.conv_transpose2d(&zeros(&[2, 1, 2, 2]), None, &transposed), Shape, &["cuts off"]);
}

#[test]
fn places_work_for_every_dtype() {
    for dtype in DType::ALL {
        let x = Tensor::from_f64(&[1., 0., 1., 0., 0., 1.], &[2, 3], dtype).unwrap();
        let same = |name: &str, y: Tensor, want: [f64; 6]| {
            assert_eq!((y.dtype(), y.to_f64()), (dtype, want.to_vec()), "{name} {dtype}");
        };
        let rows = [x.at(0, 0).unwrap(), x.at(0, 1).unwrap()];
        same("reshape", x.reshape(&[3, -1]).unwrap(), [1., 0., 1., 0., 0., 1.]);
        same("transpose", x.t().unwrap(), [1., 0., 0., 0., 1., 1.]);
        same("stack", Tensor::stack(&[&rows[0], &rows[1]], 1).unwrap(), [1., 0., 0., 0., 1., 1.]);
        same("concat", Tensor::concat(&[&rows[1], &rows[0]], 0).unwrap(), [0., 0., 1., 1., 0., 1.]);
        let halves = x.slice(1, 0..2).unwrap().pad(&[(0, 0), (1, 0)], 1.0).unwrap();
        same("slice and pad", halves, [1., 1., 0., 1., 0., 0.]);
        same("broadcast", rows[0].broadcast_to(&[2, 3]).unwrap(), [1., 0., 1., 1., 0., 1.]);
        let index = Tensor::from_vec(vec![2i64, 0, 0], &[3]).unwrap();
        same("index_select", x.index_select(1, &index).unwrap(), [1., 1., 1., 1., 0., 0.]);
    }
}

#[test]
fn a_view_is_no_copy() {
    // A slice of a transpose reads the right elements, and so does an op that needs them in row-major order.
    let x = Random::new(4).tensor(&[3, 4, 5]);
    let view = x.permute(&[2, 0, 1]).unwrap().slice(0, 1..4).unwrap();
    let copy = Tensor::from_vec(view.to_vec::<f64>().unwrap(), view.shape()).unwrap();
    let w = Random::new(5).tensor(&[2, 4]);
    assert_eq!(bits(&view.linear(&w, None).unwrap()), bits(&copy.linear(&w, None).unwrap()));
    assert_eq!(bits(&view.max_pool1d(2, 1).unwrap()), bits(&copy.max_pool1d(2, 1).unwrap()));
}

/// Numbers passed by mistake: zero, too large, far too large.
#[test]
fn nothing_panics() {
    let odd = [0, 1, 2, 3, 5, 1 << 33, usize::MAX];
    let equations = ["", "ij,jk", "...i,...i", "ii", "iii->i", "i...j->", "a,b->ba", "ab,bc->", "-", ",->,", "..", "é"];
    let (mut fine, mut refusals) = (0, 0);
    let mut count = |results: Vec<bool>| {
        fine += results.iter().filter(|&&ok| ok).count();
        refusals += results.iter().filter(|&&ok| !ok).count();
    };
    for seed in 0..3000 {
        let r = Random::new(seed);
        let tensor = |rank: usize| {
            let shape = r.sizes(rank, 0, 4);
            let dtype = DType::ALL[if r.size(0, 9) == 0 { r.size(0, 5) } else { 1 }];
            Tensor::zeros(&shape, dtype)
        };
        let any = |r: &Random| odd[r.size(0, odd.len() - 1)];
        let few = |r: &Random| (0..r.size(0, 3)).map(|_| any(r)).collect::<Vec<_>>();
        // Mostly numbers for which a result is small enough to make.
        let small = |r: &Random| if r.flag() { r.sizes(r.size(1, 2), 0, 3) } else { vec![1] };
        let (x, w, v) = (tensor(r.size(0, 5)), tensor(r.size(0, 5)), tensor(r.size(0, 2)));
        let axis = r.size(0, 9) as isize - 5;
        let padding = match r.size(0, 3) {
            0 => Padding::Valid,
            1 => Padding::Same,
            2 => Padding::all(r.size(0, 2)),
            _ => Padding::Explicit((0..r.size(0, 3)).map(|_| (r.size(0, 1), any(&r).min(1 << 31))).collect()),
        };
        let huge = matches!(&padding, Padding::Explicit(p) if p.iter().any(|p| p.1 > 9));
        let mut conv = ConvOptions::default().stride(small(&r)).padding(padding).dilation(small(&r)).groups(any(&r));
        if r.size(0, 3) == 0 {
            conv.stride = few(&r);
            conv.dilation = few(&r);
        }
        let transposed = ConvTransposeOptions::default()
            .stride(small(&r))
            .padding(conv.padding.clone())
            .output_padding(small(&r))
            .dilation(small(&r))
            .groups(any(&r));
        let pool = PoolOptions::default()
            .kernel(if r.flag() { few(&r) } else { vec![2] })
            .stride(small(&r))
            .padding(conv.padding.clone())
            .ceil(r.flag())
            .count_include_pad(r.flag());
        let scales = [0.5, 2.0, -1.0, f64::NAN, f64::MAX];
        let mode = if r.flag() { Interpolation::Nearest } else { Interpolation::Linear };
        // A padding of 2^31 is legal; its result is only too large to make in a test.
        if !huge {
            count(vec![
                x.conv1d(&w, None, &conv).is_ok(),
                x.conv2d(&w, Some(&v), &conv).is_ok(),
                x.conv2d(&w, None, &conv).is_ok(),
                x.conv3d(&w, None, &conv).is_ok(),
                x.conv_transpose1d(&w, None, &transposed).is_ok(),
                x.conv_transpose2d(&w, None, &transposed).is_ok(),
                x.conv_transpose3d(&w, Some(&v), &transposed).is_ok(),
            ]);
        }
        count(vec![
            x.max_pool1d_with(&pool).is_ok(),
            x.max_pool2d_with(&pool).is_ok(),
            x.avg_pool2d_with(&pool).is_ok(),
            x.avg_pool3d_with(&pool).is_ok(),
            x.adaptive_avg_pool1d(&small(&r)).is_ok(),
            x.adaptive_avg_pool2d(&small(&r)).is_ok(),
            x.batch_norm(&v, &v, Some(&v), Some(&v), 1e-5).is_ok(),
            x.batch_norm_train(Some(&v), None, 0.0).is_ok(),
            x.layer_norm(&few(&r), None, None, 1e-5).is_ok(),
            x.layer_norm(v.shape(), Some(&v), Some(&v), 1e-5).is_ok(),
            x.group_norm(any(&r), Some(&v), None, 1e-5).is_ok(),
            x.instance_norm(Some(&v), None, 1e-5).is_ok(),
            x.rms_norm(Some(&v), 1e-5).is_ok(),
            x.matmul(&w).is_ok(),
            x.batch_matmul(&w).is_ok(),
            x.matmul_ext(&w).is_ok(),
            x.linear(&w, Some(&v)).is_ok(),
            x.bias_add(&v).is_ok(),
            x.addmm(&x, &w).is_ok(),
            x.addmv(&w, &v).is_ok(),
            x.mv(&v).is_ok(),
            v.dot(&v).is_ok(),
            v.outer(&v).is_ok(),
            v.baddbmm(&x, &w).is_ok(),
            v.addbmm(&x, &w).is_ok(),
            Tensor::einsum(equations[r.size(0, equations.len() - 1)], &[&x, &w]).is_ok(),
            Tensor::einsum(equations[r.size(0, equations.len() - 1)], &[&x]).is_ok(),
            x.scaled_dot_product_attention(&w, &w, Some(&v), r.flag(), None).is_ok(),
            x.scaled_dot_product_attention(&x, &x, None, r.flag(), Some(f64::NAN)).is_ok(),
            x.reshape(&[r.size(0, 3) as isize - 2, isize::MAX]).is_ok(),
            x.reshape(&[r.size(0, 3) as isize - 1, r.size(0, 4) as isize]).is_ok(),
            x.flatten(any(&r)).is_ok(),
            x.unsqueeze(axis).is_ok(),
            x.squeeze(axis).is_ok(),
            x.transpose(axis, isize::MIN).is_ok(),
            x.transpose(axis, -1).is_ok(),
            x.permute(&few(&r)).is_ok(),
            x.slice(axis, any(&r)..any(&r)).is_ok(),
            x.at(axis, any(&r)).is_ok(),
            x.split(&few(&r), axis).is_ok(),
            x.chunk(any(&r), axis).is_ok(),
            Tensor::concat(&[&x, &w], axis).is_ok(),
            Tensor::stack(&[&x, &w], axis).is_ok(),
            x.pad(&[(r.size(0, 2), 1), (0, usize::MAX)], f64::NAN).is_ok(),
            x.gather(axis, &w).is_ok(),
            x.index_select(axis, &v).is_ok(),
            v.embedding(&x).is_ok(),
            x.interpolate(&Resize::To(small(&r)), mode, r.flag()).is_ok(),
            x.interpolate(&Resize::By(vec![scales[r.size(0, 4)]; r.size(0, 3)]), mode, false).is_ok(),
            x.grid_sample(&w, mode, GridPadding::Border, r.flag()).is_ok(),
            x.scatter_add(axis, &w, &w).is_ok(),
            x.scatter_add(axis, &w.cast(DType::I64), &w).is_ok(),
            x.index_put(&v, &w, r.flag()).is_ok(),
            x.index_put(&v.cast(DType::I64), &w, r.flag()).is_ok(),
            x.topk(any(&r), axis, r.flag()).is_ok(),
            x.sort(axis, r.flag()).is_ok(),
        ]);
    }
    assert!(fine > 5000 && refusals > 5000, "{fine} went well, {refusals} were refused");
}
