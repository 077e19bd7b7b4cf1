//! Kernels in the three dtypes, compared with copying memory, alternating on one machine:
//! `cargo bench --bench kernels [FILTER]`.
//!
//! Each row is a workload, each column the minimum time of one candidate relative to the first. Those of other crates
//! are in `tools/benches`.

#[path = "peers/sizes.rs"]
mod sizes;

use std::{hint::black_box, time::Instant};

use half::{bf16, f16};
use precast::{DType, Tensor};
use precast_kernels::bench;

/// A named workload.
type Candidate<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// Runs the candidates alternately, prints their minimum times relative to the first, and returns the first's in
/// seconds.
fn compare(filter: &str, work: &str, mut candidates: Vec<Candidate>) -> Option<f64> {
    if !work.contains(filter) {
        return None;
    }
    let mut least = vec![f64::INFINITY; candidates.len()];
    let time = |run: &mut dyn FnMut(), repeats: usize| {
        let start = Instant::now();
        (0..repeats).for_each(|_| run());
        start.elapsed().as_secs_f64() / repeats as f64
    };
    // About two milliseconds per turn.
    let repeats: Vec<usize> =
        candidates.iter_mut().map(|(_, run)| (2e-3 / time(run, 2).max(1e-9)).clamp(1.0, 1e5) as usize).collect();
    for _ in 0..25 {
        for (i, (_, run)) in candidates.iter_mut().enumerate() {
            least[i] = least[i].min(time(run, repeats[i]));
        }
    }
    print!("{work:<32} {:>9.2} us", least[0] * 1e6);
    for ((name, _), time) in candidates.iter().zip(&least).skip(1) {
        print!("   {name} {:.2}", time / least[0]);
    }
    println!();
    Some(least[0])
}

/// Compares the same workload in f32, f16 and bf16, and prints the f32 throughput from its number of multiplications
/// and additions.
fn dtypes<'a>(filter: &str, work: &str, flops: usize, [f32, f16, bf16]: [Box<dyn FnMut() + 'a>; 3]) {
    if let Some(seconds) = compare(filter, work, vec![("f32", f32), ("f16", f16), ("bf16", bf16)]) {
        println!("{:>44} {:.0} Gflop/s", "f32:", flops as f64 / seconds / 1e9);
    }
}

fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 % 1000) as f32 - 500.0) / 300.0).collect()
}

fn tensor(shape: &[usize], dtype: DType) -> Tensor {
    Tensor::from_vec(numbers(shape.iter().product()), shape).unwrap().cast(dtype)
}

fn casts(filter: &str) {
    for len in [0, 1, 17, 1000, 65_537, 1 << 20, 16 << 20] {
        let wide = numbers(len);
        let (mut wide_out, bytes, mut bytes_out) = (vec![0f32; len], vec![1u8; 3 * len], vec![0u8; 3 * len]);
        macro_rules! both_ways {
            ($($t:ident, $narrow:ident, $widen:ident;)*) => { $(
                let low: Vec<$t> = wide.iter().map(|&x| $t::from_f32(x)).collect();
                let mut low_out = low.clone();
                compare(filter, &format!("cast f32 to {} {len}", stringify!($t)), vec![
                    ("memcpy of as many bytes", Box::new(|| black_box(&mut bytes_out).copy_from_slice(&bytes[..3 * len]))),
                    ("precast", Box::new(|| bench::$narrow(&wide, black_box(&mut low_out)))),
                ]);
                compare(filter, &format!("cast {} to f32 {len}", stringify!($t)), vec![
                    ("memcpy of as many bytes", Box::new(|| black_box(&mut bytes_out).copy_from_slice(&bytes[..3 * len]))),
                    ("precast", Box::new(|| bench::$widen(&low, black_box(&mut wide_out)))),
                ]);
            )* };
        }
        both_ways! {
            f16, f32_to_f16, f16_to_f32;
            bf16, f32_to_bf16, bf16_to_f32;
        }
    }
}

fn products(filter: &str) {
    for ((m, k, n), transposed, name) in sizes::products() {
        let right = if transposed { [n, k] } else { [k, n] };
        let pair = |dtype| (tensor(&[m, k], dtype), tensor(&right, dtype));
        let [f, h, bf] = [DType::F32, DType::F16, DType::Bf16].map(pair);
        let run = |(a, b): &(Tensor, Tensor)| {
            black_box(if transposed { a.linear(b, None) } else { a.matmul(b) }.unwrap());
        };
        dtypes(filter, &name, 2 * m * k * n, [Box::new(|| run(&f)), Box::new(|| run(&h)), Box::new(|| run(&bf))]);
    }
}

type Op = fn(&Tensor) -> precast::Result<Tensor>;

/// Measures ops on whole tensors of 256K elements, compared with copying as many f32, the lower bound of any op.
fn functions(filter: &str) {
    let ops: [(&str, Op); 13] = [
        ("add", |x| x.add(x)),
        ("relu", |x| x.relu()),
        ("exp", |x| x.exp()),
        ("expm1", |x| x.expm1()),
        ("tanh", |x| x.tanh()),
        ("sigmoid", |x| x.sigmoid()),
        ("erf", |x| x.erf()),
        ("gelu", |x| x.gelu()),
        ("softmax", |x| x.softmax(-1)),
        ("log softmax", |x| x.log_softmax(-1)),
        ("layer norm", |x| x.layer_norm(&[512], None, None, 1e-5)),
        ("sum of columns", |x| x.sum(&[0], false)),
        // A view reads the result, which is not computed before.
        ("batch norm", |x| x.reshape(&[4, 64, 32, 32])?.batch_norm_train(None, None, 1e-5)?.0.reshape(&[512, 512])),
    ];
    let shape = [512, 512];
    let (from, mut to) = (numbers(512 * 512), numbers(512 * 512));
    for (name, op) in ops {
        let run = |x: &Tensor| drop(black_box(op(x).unwrap()));
        let [f, h, b] = [DType::F32, DType::F16, DType::Bf16].map(|dtype| tensor(&shape, dtype));
        compare(
            filter,
            &format!("function {name}"),
            vec![
                ("memcpy of as many f32", Box::new(|| black_box(&mut to).copy_from_slice(&from))),
                ("f32", Box::new(|| run(&f))),
                ("f16", Box::new(|| run(&h))),
                ("bf16", Box::new(|| run(&b))),
            ],
        );
    }
}

/// Measures convolutions and their gradients in the three dtypes.
fn convolutions(filter: &str) {
    let axis = |length, kernel, stride, padding| [length, kernel, stride, 1, padding];
    let one = axis(1, 1, 1, 0);
    let square = |sizes, axis| (sizes, [one, axis, axis]);
    let all = [
        ("resnet 3-32", square([8, 1, 3, 32], axis(32, 3, 1, 1))),
        ("resnet 32-32", square([8, 1, 32, 32], axis(32, 3, 1, 1))),
        ("resnet 32-64 stride 2", square([8, 1, 32, 64], axis(32, 3, 2, 1))),
        ("resnet 32-64 1x1 stride 2", square([8, 1, 32, 64], axis(32, 1, 2, 0))),
        ("resnet 64-64", square([8, 1, 64, 64], axis(16, 3, 1, 1))),
        ("resnet 128-128", square([8, 1, 128, 128], axis(8, 3, 1, 1))),
        ("resnet 256-256", square([8, 1, 256, 256], axis(4, 3, 1, 1))),
        ("lenet 1-6", square([32, 1, 1, 6], axis(28, 5, 1, 2))),
        ("lenet 6-16", square([32, 1, 6, 16], axis(14, 5, 1, 0))),
        ("wide 64-64 of 56x56", square([4, 1, 64, 64], axis(56, 3, 1, 1))),
        ("odd 37-41 of 13x17", ([3, 1, 37, 41], [one, axis(13, 3, 1, 1), axis(17, 3, 1, 1)])),
        ("one pixel 64-64", square([16, 1, 64, 64], axis(1, 3, 1, 1))),
        ("depthwise 64", square([8, 64, 64, 64], axis(16, 3, 1, 1))),
        ("depthwise 64 of 56x56", square([4, 64, 64, 64], axis(56, 3, 1, 1))),
        ("depthwise 128 stride 2", square([4, 128, 128, 128], axis(56, 3, 2, 1))),
        ("depthwise 512 of 7x7", square([4, 512, 512, 512], axis(7, 3, 1, 1))),
        ("four groups 64-64", square([8, 4, 64, 64], axis(14, 3, 1, 1))),
        ("dilated 16-16", square([8, 1, 16, 16], [24, 3, 1, 3, 3])),
        ("one axis 32-64", ([8, 1, 32, 64], [one, one, axis(100, 9, 1, 4)])),
        ("three axes 8-16", ([2, 1, 8, 16], [axis(8, 3, 1, 1), axis(12, 3, 1, 1), axis(12, 3, 1, 1)])),
    ];
    for (name, (sizes, axes)) in all {
        let c = bench::Convolution { sizes, axes };
        let [x, weight, grad] = c.elements().map(numbers);
        let low = |from: &[f32]| from.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>();
        let (x16, weight16, grad16) = (low(&x), low(&weight), low(&grad));
        let low = |from: &[f32]| from.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
        let (xb, weightb, gradb) = (low(&x), low(&weight), low(&grad));
        for (which, what) in ["forward", "input gradient", "weight gradient"].into_iter().enumerate() {
            let work = format!("convolution {name} {what}");
            let f32 = || drop(black_box(bench::convolution_f32(which, &c, &x, &weight, &grad)));
            let f16 = || drop(black_box(bench::convolution_f16(which, &c, &x16, &weight16, &grad16)));
            let bf16 = || drop(black_box(bench::convolution_bf16(which, &c, &xb, &weightb, &gradb)));
            dtypes(filter, &work, c.flops(), [Box::new(f32), Box::new(f16), Box::new(bf16)]);
        }
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    precast::set_threads(1);
    casts(&filter);
    products(&filter);
    functions(&filter);
    convolutions(&filter);
}
