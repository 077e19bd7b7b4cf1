//! Ops of 256 Ki elements and more beside torch's, in turns: `cargo bench --bench ops -- --python PATH [NAMES]`.
//!
//! `--python` names a Python that has torch, whose f32 op is then 1.00; without one, precast's own f32 is. `--threads N` and
//! `--rounds N` as for the steps. Times are the median over the rounds of the ratio to the base in the same round.

#[path = "peers/torch.rs"]
mod torch;

use std::{hint::black_box, time::Instant};

use precast::prelude::*;
use torch::{Torch, median};

type Op = fn(&Tensor) -> Result<Tensor>;

const SQUARE: &[usize] = &[512, 512];
const IMAGES: &[usize] = &[8, 64, 32, 32];

/// The ops, as in `peers/torch_times.py`.
const OPS: [(&str, &[usize], Op); 11] = [
    ("add", SQUARE, |x| x.add(x)),
    ("relu", SQUARE, |x| x.relu()),
    ("exp", SQUARE, |x| x.exp()),
    ("tanh", SQUARE, |x| x.tanh()),
    ("sigmoid", SQUARE, |x| x.sigmoid()),
    ("log", SQUARE, |x| x.log()),
    ("gelu", SQUARE, |x| x.gelu()),
    ("softmax", SQUARE, |x| x.softmax(-1)),
    ("layer_norm", SQUARE, |x| x.layer_norm(&[512], None, None, 1e-5)),
    ("batch_norm", IMAGES, |x| Ok(x.batch_norm_train(None, None, 1e-5)?.0)),
    ("max_pool2d", IMAGES, |x| x.max_pool2d(2, 2)),
];

const DTYPES: [(&str, DType); 3] = [("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::Bf16)];

/// Calls of one measurement.
const CALLS: usize = 20;

fn seconds(op: Op, x: &Tensor) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..CALLS {
        black_box(op(x)?);
    }
    Ok(start.elapsed().as_secs_f64() / CALLS as f64)
}

fn main() -> Result<()> {
    let (mut python, mut threads, mut rounds, mut names) = (None, 1, 25, Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|text| text.parse().ok()).expect("a number follows");
        match arg.as_str() {
            "--bench" => {}
            "--threads" => threads = number(),
            "--rounds" => rounds = number(),
            "--python" => python = args.next(),
            _ => names.push(arg),
        }
    }
    precast::set_threads(threads);
    let mut torch =
        python.map(|python| Torch::start(&python).map_err(|e| Error::io(python.as_ref(), &e))).transpose()?;
    if let Some((_, version)) = &torch {
        println!("{version}, {threads} threads");
    }
    for (name, shape, op) in OPS.into_iter().filter(|(name, ..)| names.is_empty() || names.iter().any(|n| n == name)) {
        let count: usize = shape.iter().product();
        let numbers = (0..count).map(|i| ((i * 7919 % 1000) as f32 - 500.0) / 300.0).collect();
        let x = Tensor::from_vec(numbers, shape)?;
        let ours = DTYPES.map(|(_, dtype)| x.cast(dtype));
        // torch's three dtypes, then precast's.
        let mut times: [Vec<f64>; 6] = Default::default();
        for round in 0..=rounds {
            for (i, (mode, _)) in DTYPES.iter().enumerate() {
                let asked = torch.as_mut().and_then(|(torch, _)| torch.time(name, mode, threads, CALLS).ok());
                let own = seconds(op, &ours[i])?;
                // The first round warms both up.
                if round > 0 {
                    times[i].extend(asked);
                    times[3 + i].push(own);
                }
            }
        }
        let base = if times[0].is_empty() { times[3].clone() } else { times[0].clone() };
        print!("{name:<12} 1.00 is {:>7.1} us ", median(base.clone()) * 1e6);
        for (i, (who, dtype)) in ["torch ", ""].iter().flat_map(|who| DTYPES.map(|(dtype, _)| (who, dtype))).enumerate()
        {
            if !times[i].is_empty() {
                print!("  {who}{dtype} {:5.2}", median(times[i].iter().zip(&base).map(|(a, b)| a / b).collect()));
            }
        }
        println!();
    }
    Ok(())
}
