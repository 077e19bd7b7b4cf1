//! Single ops compared with torch's f32, alternating: `cargo bench --bench ops -- --python PATH`.
//!
//! `--threads N`, `--rounds N` and prefixes of names select the measurements. A ratio is the median over the rounds of
//! our time by the time of torch's f32 in the same round, followed by the ratio of the fastest of each. Without a
//! Python, our own f32 is 1.00. With `PRECAST_VECTORS=8` torch is limited to AVX2 as well.

#[path = "../peers/mod.rs"]
mod peers;

use std::{hint::black_box, time::Instant};

use peers::{Options, Torch, fastest, median};
use precast::{ConvOptions, Grads, cell::Params, prelude::*};
use precast_kernels::bench;

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// An op with sizes, under the name that torch's side uses too.
type Work = (&'static str, &'static [usize]);

/// Sizes from the performance targets, and odd ones.
const WORKS: [Work; 51] = [
    ("matmul", &[256, 256, 256]),
    ("matmul", &[512, 512, 512]),
    ("matmul", &[1024, 1024, 1024]),
    ("matmul", &[509, 127, 521]),
    ("matmul", &[31, 31, 31]),
    ("linear", &[64, 784, 512]),
    ("linear", &[32, 4096, 4096]),
    ("linear", &[1, 4096, 4096]),
    ("linear", &[4, 4096, 4096]),
    ("linear", &[7, 1021, 1031]),
    // Batch, channels, side, output channels, kernel, stride, padding: ResNet-18's, LeNet5's, odd ones.
    ("conv", &[8, 3, 32, 32, 3, 1, 1]),
    ("conv", &[8, 32, 32, 32, 3, 1, 1]),
    ("conv", &[8, 32, 32, 64, 3, 2, 1]),
    ("conv", &[8, 32, 32, 64, 1, 2, 0]),
    ("conv", &[8, 64, 16, 64, 3, 1, 1]),
    ("conv", &[8, 128, 8, 128, 3, 1, 1]),
    ("conv", &[8, 256, 4, 256, 3, 1, 1]),
    ("conv", &[32, 1, 28, 6, 5, 1, 2]),
    ("conv", &[32, 6, 14, 16, 5, 1, 0]),
    ("conv", &[3, 17, 29, 13, 3, 2, 1]),
    ("conv", &[1, 64, 56, 64, 1, 1, 0]),
    ("add", &[512, 512]),
    ("relu", &[512, 512]),
    ("exp", &[512, 512]),
    ("softmax", &[512, 512]),
    ("gelu", &[512, 512]),
    ("layer_norm", &[512, 512]),
    ("batch_norm", &[4, 64, 32]),
    ("add", &[1, 37]),
    ("relu", &[1, 37]),
    ("exp", &[1, 37]),
    ("softmax", &[997, 257]),
    ("gelu", &[997, 257]),
    ("layer_norm", &[997, 257]),
    ("batch_norm", &[3, 17, 29]),
    ("add", &[4096, 4096]),
    ("attention", &[8, 4, 64, 32]),
    ("attention", &[1, 8, 1024, 64]),
    ("attention", &[2, 3, 131, 40]),
    ("unscale", &[151, 168_874]),
    ("unscale", &[10, 6_171]),
    ("unscale", &[1, 37]),
    // Rows and columns of a table, rows that are read or written; with gradients.
    ("gather", &[4096, 64, 16_384]),
    ("gather_rows", &[4096, 64, 16_384]),
    ("scatter_add", &[4096, 64, 16_384]),
    ("scatter_add_rows", &[4096, 64, 16_384]),
    ("index_select", &[4096, 64, 16_384]),
    ("index_add", &[4096, 64, 16_384]),
    ("index_put", &[4096, 64, 16_384]),
    ("masked_select", &[4096, 64, 16_384]),
    ("slice", &[4096, 64, 2048]),
];

fn noise(shape: &[usize], dtype: DType) -> Result<Tensor> {
    let numbers = (0..shape.iter().product()).map(|i: usize| ((i * 7919 % 1000) as f32 - 500.0) / 300.0).collect();
    Ok(Tensor::from_vec::<f32>(numbers, shape)?.cast(dtype))
}

/// Returns an op that reads or writes elements by their index, forward and backward.
fn indexed(op: &'static str, n: usize, c: usize, m: usize, dtype: DType) -> Result<Box<dyn FnMut() -> Result<()>>> {
    let index = |count: usize| (0..count).map(|i| (i * 2_654_435_761 % n) as i64).collect::<Vec<_>>();
    let of = |rows: &[usize], shape: &[usize]| Tensor::from_vec(index(rows.iter().product()), shape);
    let (each, rows, one) = (of(&[m, c], &[m, c])?, of(&[m], &[m, 1])?.broadcast_to(&[m, c])?, of(&[m], &[m])?);
    let (table, values) = (Param::new(noise(&[n, c], dtype)?), Param::new(noise(&[m, c], dtype)?));
    let mask = noise(&[n, c], DType::F32)?.gt(&Tensor::scalar(0.0, DType::F32))?;
    Ok(Box::new(move || {
        let (x, y) = (table.tensor(), values.tensor());
        let made = match op {
            "gather" => x.gather(0, &each)?,
            "gather_rows" => x.gather(0, &rows)?,
            "scatter_add" => x.scatter_add(0, &each, &y)?,
            "scatter_add_rows" => x.scatter_add(0, &rows, &y)?,
            "index_select" => x.index_select(0, &one)?,
            "index_add" => x.index_add(0, &one, &y)?,
            "index_put" => x.index_put(&one, &y, true)?,
            "masked_select" => x.masked_select(&mask)?,
            _ => x.slice(0, 1..m)?,
        };
        black_box(made.sum_all()?.backward()?);
        Ok(())
    }))
}

/// Returns the work as a repeatable closure.
fn ours((op, sizes): Work, dtype: DType) -> Result<Box<dyn FnMut() -> Result<()>>> {
    fn unary(x: Tensor, f: fn(&Tensor) -> Result<Tensor>) -> Box<dyn FnMut() -> Result<()>> {
        Box::new(move || f(&x).map(|y| drop(black_box(y))))
    }
    fn binary(
        a: Tensor,
        b: Tensor,
        f: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + 'static,
    ) -> Box<dyn FnMut() -> Result<()>> {
        Box::new(move || f(&a, &b).map(|y| drop(black_box(y))))
    }
    Ok(match (op, sizes) {
        ("matmul", &[m, k, n]) => binary(noise(&[m, k], dtype)?, noise(&[k, n], dtype)?, |a, b| a.matmul(b)),
        ("linear", &[m, k, n]) => {
            let bias = noise(&[n], dtype)?;
            binary(noise(&[m, k], dtype)?, noise(&[n, k], dtype)?, move |x, w| x.linear(w, Some(&bias)))
        }
        ("conv", &[batch, inputs, side, outputs, kernel, stride, padding]) => {
            let options = ConvOptions::default().stride(vec![stride]).padding(Padding::all(padding));
            let w = noise(&[outputs, inputs, kernel, kernel], dtype)?;
            binary(noise(&[batch, inputs, side, side], dtype)?, w, move |x, w| x.conv2d(w, None, &options))
        }
        ("batch_norm", &[batch, channels, side]) => {
            // The result is computed when it is read, as by a view.
            let shape = [batch, channels, side, side];
            unary(noise(&shape, dtype)?, |x| x.batch_norm_train(None, None, 1e-5)?.0.reshape(x.shape()))
        }
        ("attention", &[batch, heads, length, width]) => unary(noise(&[batch, heads, length, width], dtype)?, |x| {
            x.scaled_dot_product_attention(x, x, None, true, None)
        }),
        ("unscale", &[tensors, size]) => {
            let params: Params = (0..tensors).map(|_| Param::new(Tensor::zeros(&[size], DType::F32))).collect();
            let mut grads = Grads::default();
            for (_, param) in params.iter() {
                grads.set(param, noise(&[size], dtype)?);
            }
            let scale = LossScale::dynamic();
            Box::new(move || {
                black_box(scale.already_scaled(grads.clone()).unscale(&params)?);
                Ok(())
            })
        }
        (op, &[n, c, m]) => indexed(op, n, c, m, dtype)?,
        (op, &[m, n]) => {
            let f: fn(&Tensor) -> Result<Tensor> = match op {
                "add" => |x| x.add(x),
                "relu" => Tensor::relu,
                "exp" => Tensor::exp,
                "softmax" => |x| x.softmax(-1),
                "gelu" => Tensor::gelu,
                "layer_norm" => |x| x.layer_norm(&[x.shape()[1]], None, None, 1e-5),
                other => return Err(Error::path(format!("no op is called `{other}`"))),
            };
            unary(noise(&[m, n], dtype)?, f)
        }
        (op, sizes) => return Err(Error::path(format!("`{op}` does not go by {sizes:?}"))),
    })
}

fn time(run: &mut dyn FnMut() -> Result<()>, repeats: usize) -> Result<f64> {
    run()?;
    let start = Instant::now();
    for _ in 0..repeats {
        run()?;
    }
    Ok(start.elapsed().as_secs_f64() / repeats as f64)
}

fn main() -> Result<()> {
    let options = Options::read(9);
    precast::set_threads(options.threads);
    let mut torch = match &options.python {
        None => None,
        Some(python) => {
            let (torch, version) =
                Torch::start(python, "torch_ops.py", options.threads).map_err(|e| Error::io(python.as_ref(), &e))?;
            let (vectors, threads) = (bench::vectors(), options.threads);
            println!(
                "{version}, precast with {vectors}, {threads} threads; time relative to its f32, median (fastest)"
            );
            Some(torch)
        }
    };
    println!("{:<34} {:>10}  {:>12}  {:>12}  {:>12}", "", "1.00 is", "f32", "f16", "bf16");
    for work in WORKS {
        let sizes = work.1.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        let name = format!("{} {sizes}", work.0);
        if options.names.is_empty() || options.names.iter().any(|wanted| name.starts_with(wanted.as_str())) {
            row(work, &name, &options, torch.as_mut())?;
        }
    }
    Ok(())
}

fn row(work: Work, name: &str, options: &Options, mut torch: Option<&mut Torch>) -> Result<()> {
    let mut base = Vec::new();
    let mut times = [const { Vec::new() }; 3];
    let mut runs = Vec::new();
    for dtype in DTYPES {
        runs.push(ours(work, dtype)?);
    }
    // Some ten milliseconds per turn.
    let repeats = (1e-2 / time(&mut runs[0], 2)?).clamp(1.0, 2000.0) as usize;
    for _ in 0..options.rounds {
        if let Some(torch) = &mut torch {
            let line = format!("{} {repeats} {name}", options.threads);
            base.push(torch.time(&line).map_err(Error::value)?);
            // Cores that were idle or used by another process are slow at first.
            time(&mut runs[0], repeats)?;
        }
        for (run, times) in runs.iter_mut().zip(&mut times) {
            times.push(time(run, repeats)?);
        }
    }
    if torch.is_none() {
        base.clone_from(&times[0]);
    }
    print!("{name:<34} {:>7.1} us", fastest(&base) * 1e6);
    for times in times {
        let ratio = median(times.iter().zip(&base).map(|(a, b)| a / b).collect());
        print!("  {ratio:>5.2} ({:.2})", fastest(&times) / fastest(&base));
    }
    println!();
    Ok(())
}
