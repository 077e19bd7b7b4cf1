//! Measurement of the speeds of this machine, and their cache.

use std::{
    env, fs,
    hint::black_box,
    path::{Path, PathBuf},
};

use precast_kernels::{limits, threads};
use precast_tensor::{
    context,
    internals::TensorInternals as _,
    ops::{ConvOptions, Padding},
    with_recording,
};

use super::{Rate, Rates, Speeds, speeds::Work};
use crate::{
    DType, Op, Tensor,
    error::{Error, Result},
    io::files,
    observe::Sizes,
    precision::{self, Frame},
};

/// Size limit of a file of speeds, which has a few lines.
const MAX_BYTES: usize = 64 * 1024;

/// Rounds of measurements, so that brief load on the machine does not distort them.
const ROUNDS: usize = 3;

/// Seconds per measurement and round.
const MOMENT: f64 = 4e-3;

impl Speeds {
    /// Returns the speeds of this machine from the user's cache folder. If it has none for this processor, number of
    /// threads and version, they are [measured](Speeds::measure) and stored there. A cache that cannot be read or
    /// written is not an error.
    pub fn here() -> Self {
        Speeds::known().unwrap_or_else(|| {
            let speeds = Speeds::measure();
            if let Some(file) = Speeds::cache_file() {
                let _ = speeds.save(file);
            }
            speeds
        })
    }

    /// Returns the speeds of this machine if the user's cache folder has them for this processor, number of threads and
    /// version. Nothing is measured.
    pub fn known() -> Option<Self> {
        let known = Speeds::load(Speeds::cache_file()?).ok()?;
        (known.host == host()).then_some(known)
    }

    /// Returns the path of the cached speeds: in `precast` in `XDG_CACHE_HOME`, `~/.cache` or, on Windows,
    /// `LOCALAPPDATA`. `None` if there is no such folder.
    pub fn cache_file() -> Option<PathBuf> {
        let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
        let cache = folder("XDG_CACHE_HOME")
            .or_else(|| folder("LOCALAPPDATA"))
            .or_else(|| folder("HOME").map(|home| home.join(".cache")))?;
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
        let name: String = host().chars().map(plain).collect();
        Some(cache.join("precast").join(format!("speeds-{name}.json")))
    }

    /// Reads a file of speeds.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when it cannot be read, [`ErrorKind::Value`](crate::ErrorKind::Value)
    /// when it holds no speeds.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Speeds::parse(&files::read_text(path, MAX_BYTES)?).map_err(|error| error.in_file(path.display()))
    }

    /// Parses the text of a file of speeds.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when it holds no speeds.
    pub fn parse(text: &str) -> Result<Self> {
        let speeds: Speeds = crate::io::json::read(text.as_bytes()).map_err(|error| Error::value(error.to_string()))?;
        speeds.check()?;
        Ok(speeds)
    }

    /// Writes a file of speeds, creating its parent folders.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::value(error.to_string()))?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| Error::io(folder, &error))?;
        }
        files::replace_within(path, text.as_bytes(), MAX_BYTES)
    }

    /// Measures this machine. Takes about a second.
    pub fn measure() -> Self {
        let _off = precision::enter(Frame::Off);
        let _silence = context::silence();
        with_recording(true, || measure().unwrap_or_else(|error| unreachable!("ops on shapes that fit: {error}")))
    }
}

/// Returns processor, vectors, threads and version.
fn host() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let processor = model
        .map(|(_, name)| name.trim().to_string())
        .or_else(|| env::var("PROCESSOR_IDENTIFIER").ok())
        .unwrap_or_else(|| format!("{} {}", env::consts::OS, env::consts::ARCH));
    let threads = threads::count();
    let build = if cfg!(debug_assertions) { ", debug build" } else { "" };
    let version = env!("CARGO_PKG_VERSION");
    format!("{processor}, {}, threads {threads}, precast {version}{build}", limits::vectors())
}

/// An op on tensors of some shapes, forward and backward.
struct Probe {
    op: Op,
    shapes: &'static [&'static [usize]],
    run: fn(&[Tensor]) -> Result<Tensor>,
}

type Field = fn(&mut Rates) -> &mut Rate;

/// Returns the measured calls for each rate: tensors of the sizes found in networks, which exceed the nearest caches,
/// and products of their shapes, large and small.
fn families() -> [(Field, Vec<Probe>); 7] {
    let probe = |op, shapes, run| Probe { op, shapes, run };
    let linear: fn(&[Tensor]) -> Result<Tensor> = |x| x[0].linear(&x[1], None);
    let same: fn(&[Tensor]) -> Result<Tensor> =
        |x| x[0].conv2d(&x[1], None, &ConvOptions::default().padding(Padding::Same));
    let attention: fn(&[Tensor]) -> Result<Tensor> =
        |x| x[0].scaled_dot_product_attention(&x[1], &x[2], None, true, None);
    [
        (
            |rates| &mut rates.product,
            vec![
                probe(Op::Linear, &[&[64, 784], &[512, 784]], linear),
                probe(Op::Linear, &[&[32, 400], &[120, 400]], linear),
                probe(Op::Linear, &[&[512, 128], &[384, 128]], linear),
                probe(Op::MatMul, &[&[256, 256], &[256, 256]], |x| x[0].matmul(&x[1])),
            ],
        ),
        (
            |rates| &mut rates.convolution,
            vec![
                probe(Op::Conv2d, &[&[32, 1, 28, 28], &[6, 1, 5, 5]], same),
                probe(Op::Conv2d, &[&[32, 6, 14, 14], &[16, 6, 5, 5]], same),
                probe(Op::Conv2d, &[&[4, 32, 32, 32], &[32, 32, 3, 3]], same),
                probe(Op::Conv2d, &[&[8, 128, 8, 8], &[128, 128, 3, 3]], same),
            ],
        ),
        (
            |rates| &mut rates.elementwise,
            vec![
                probe(Op::Relu, &[&[128, 1024]], |x| x[0].relu()),
                probe(Op::Add, &[&[128, 1024], &[128, 1024]], |x| x[0].add(&x[1])),
            ],
        ),
        (
            |rates| &mut rates.function,
            vec![
                probe(Op::Gelu, &[&[128, 512]], |x| x[0].gelu()),
                probe(Op::Tanh, &[&[128, 512]], |x| x[0].tanh()),
                probe(Op::Softmax, &[&[256, 256]], |x| x[0].softmax(-1)),
            ],
        ),
        (
            |rates| &mut rates.norm,
            vec![
                probe(Op::LayerNorm, &[&[512, 256], &[256], &[256]], |x| {
                    x[0].layer_norm(&[256], Some(&x[1]), Some(&x[2]), 1e-5)
                }),
                probe(Op::BatchNorm, &[&[8, 32, 32, 32], &[32], &[32]], |x| {
                    x[0].batch_norm_train(Some(&x[1]), Some(&x[2]), 1e-5).map(|(y, ..)| y)
                }),
            ],
        ),
        (
            |rates| &mut rates.attention,
            vec![
                probe(Op::ScaledDotProductAttention, &[&[8, 4, 64, 32], &[8, 4, 64, 32], &[8, 4, 64, 32]], attention),
                probe(
                    Op::ScaledDotProductAttention,
                    &[&[1, 2, 256, 64], &[1, 2, 256, 64], &[1, 2, 256, 64]],
                    attention,
                ),
            ],
        ),
        (|rates| &mut rates.pool, vec![probe(Op::MaxPool2d, &[&[32, 6, 28, 28]], |x| x[0].max_pool2d(2, 2))]),
    ]
}

/// Subject of a measurement.
struct Timed {
    run: Box<dyn Fn() -> Result<()>>,
    work: Work,
    /// Fastest time so far.
    nanos: f64,
}

impl Timed {
    fn new(probe: &Probe, dtype: DType) -> Result<Self> {
        let leaf = |shape: &&[usize]| -> Result<Tensor> {
            let count = shape.iter().product::<usize>();
            let numbers: Vec<f32> = (0..count).map(|i| ((i * 7919 % 1000) as f32 - 500.0) / 300.0).collect();
            Ok(Tensor::from_vec(numbers, shape)?.cast(dtype).requires_grad())
        };
        let inputs = probe.shapes.iter().map(leaf).collect::<Result<Vec<Tensor>>>()?;
        let run = probe.run;
        let seed = ones_like(&run(&inputs)?);
        let work = Work::of(
            probe.op,
            &Sizes {
                inputs: probe.shapes.iter().map(|shape| shape.to_vec()).collect(),
                output: seed.shape().to_vec(),
                ..Sizes::default()
            },
        );
        let run = move || {
            let y = run(&inputs)?;
            // What no other op reads is computed when it is read.
            black_box(y.array().address());
            let grads = y.backward_from(&seed)?;
            Ok(inputs.iter().filter_map(|x| grads.of(x)).for_each(|grad| _ = black_box(grad.array().address())))
        };
        Ok(Timed { run: Box::new(run), work, nanos: f64::INFINITY })
    }

    /// Returns the cast from f32 and, for the gradient, back.
    fn cast(to: DType) -> Result<Self> {
        let x = Tensor::zeros(&[128, 512], DType::F32).requires_grad();
        let seed = ones_like(&x.cast(to));
        let elements = x.len() as f64;
        let run = move || {
            let grads = x.cast(to).backward_from(&seed)?;
            // A widening is computed when it is read.
            Ok(_ = black_box(grads.of(&x).map(|grad| grad.array().address())))
        };
        Ok(Timed {
            run: Box::new(run),
            work: Work { elements, ..Work::of(Op::Cast, &Sizes::default()) },
            nanos: f64::INFINITY,
        })
    }

    fn measure(&mut self) -> Result<()> {
        (self.run)()?;
        self.nanos = self.nanos.min(1e9 / limits::best(MOMENT, || _ = (self.run)(), 1));
        Ok(())
    }
}

fn ones_like(y: &Tensor) -> Tensor {
    Tensor::full(y.shape(), 1.0, y.dtype())
}

fn measure() -> Result<Speeds> {
    const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];
    let call = Probe { op: Op::Relu, shapes: &[&[4]], run: |x| x[0].relu() };
    let mut call = Timed::new(&call, DType::F32)?;
    let mut casts = [Timed::cast(DType::F16)?, Timed::cast(DType::Bf16)?];
    let families = families();
    let mut timed = Vec::new();
    for (family, (_, probes)) in families.iter().enumerate() {
        for (probe, dtype) in probes.iter().flat_map(|probe| (0..3).map(move |dtype| (probe, dtype))) {
            timed.push((family, dtype, Timed::new(probe, DTYPES[dtype])?));
        }
    }
    // Dtypes take turns, so that other load on the machine affects all of them.
    threads::alone(|| {
        (0..ROUNDS).try_for_each(|_| {
            call.measure()?;
            casts.iter_mut().try_for_each(Timed::measure)?;
            timed.iter_mut().try_for_each(|(.., timed)| timed.measure())
        })
    })?;
    let call = call.nanos;
    let mut rates = [Rates::default(); 3];
    for (dtype, rates) in rates.iter_mut().enumerate() {
        for (family, (field, _)) in families.iter().enumerate() {
            let of = timed.iter().filter(|(f, d, _)| (*f, *d) == (family, dtype));
            *field(rates) = fit(&of.map(|(.., timed)| (timed.work, timed.nanos - call)).collect::<Vec<_>>());
        }
    }
    let [mut f32, mut f16, mut bf16] = rates;
    f32.cast = 0.0;
    for (rates, timed) in [&mut f16, &mut bf16].into_iter().zip(&casts) {
        rates.cast = (timed.nanos - call).max(0.0) / timed.work.elements;
    }
    let (cache, byte) = memory();
    let parallel = parallel(&f32.product)?;
    Ok(Speeds { host: host(), call, cache, byte, parallel, f32, f16, bf16 })
}

/// Returns the two non-negative numbers that fit all times best, by relative error.
fn fit(measured: &[(Work, f64)]) -> Rate {
    // Unit times of the two kinds of work, for a time of 1.
    let rows: Vec<(f64, f64)> = measured
        .iter()
        .map(|(work, nanos)| (work, nanos.max(1.0)))
        .map(|(work, nanos)| (work.multiply_adds / nanos, work.elements / nanos))
        .collect();
    let sum = |f: &dyn Fn(&(f64, f64)) -> f64| rows.iter().map(f).sum::<f64>();
    let (mm, ee, me) = (sum(&|r| r.0 * r.0), sum(&|r| r.1 * r.1), sum(&|r| r.0 * r.1));
    let (m, e) = (sum(&|r| r.0), sum(&|r| r.1));
    let alone = |of: f64, square: f64| if square > 0.0 { of / square } else { 0.0 };
    let determinant = mm * ee - me * me;
    let both = Rate { multiply_add: (m * ee - e * me) / determinant, element: (e * mm - m * me) / determinant };
    // A number that would be negative is 0, and the other is fitted alone: products are bound by products.
    match determinant > 1e-9 * mm * ee {
        true if both.multiply_add >= 0.0 && both.element >= 0.0 => both,
        _ if mm > 0.0 => Rate { multiply_add: alone(m, mm), element: 0.0 },
        _ => Rate { multiply_add: 0.0, element: alone(e, ee) },
    }
}

/// Measures the bytes that stay in the caches and the time of a byte beyond them.
fn memory() -> (f64, f64) {
    let rate = |bytes: usize| limits::copied(bytes, 2.0 * MOMENT);
    let (near, far) = (rate(64 << 10), rate(64 << 20));
    // A copy has two slices in the cache.
    let fits = (17..26).map(|log| 1 << log).take_while(|bytes| rate(*bytes) > (near * far).sqrt()).last();
    (2.0 * fits.unwrap_or(64 << 10) as f64, 1e9 / far)
}

/// Measures the speedup of a product on all threads over the given rate of one thread.
fn parallel(rate: &Rate) -> Result<f64> {
    let count = threads::count() as f64;
    if count < 2.0 {
        return Ok(1.0);
    }
    let a = Tensor::full(&[256, 512], 0.5, DType::F32);
    let b = Tensor::full(&[512, 512], 0.5, DType::F32);
    a.matmul(&b)?;
    let seconds = limits::best(10.0 * MOMENT, || _ = black_box(a.matmul(&b)), 1).recip();
    // One of the three products that make up a training step.
    let alone = (256 * 512 * 512) as f64 * rate.multiply_add / 3.0;
    Ok((alone / (seconds * 1e9)).clamp(1.0, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(multiply_adds: f64, elements: f64) -> Work {
        Work { multiply_adds, elements, ..Work::of(Op::Linear, &Sizes::default()) }
    }

    #[test]
    fn rates_are_found_from_times_that_they_give() {
        let time = |m: f64, e: f64| (work(m, e), 0.01 * m + 0.5 * e);
        let found = fit(&[time(1e6, 1e4), time(1e5, 2e4), time(9e5, 3e3)]);
        approx::assert_relative_eq!(found.multiply_add, 0.01, max_relative = 1e-9);
        approx::assert_relative_eq!(found.element, 0.5, max_relative = 1e-9);
        let found = fit(&[(work(0.0, 100.0), 50.0), (work(0.0, 200.0), 100.0)]);
        assert_eq!((found.multiply_add, found.element), (0.0, 0.5));
        // More elements in less time: they are free.
        let found = fit(&[(work(1e6, 1e5), 1e4), (work(1e6, 1e3), 1.1e4)]);
        assert!(found.element == 0.0 && (0.01..0.011).contains(&found.multiply_add), "{found:?}");
        assert_eq!(fit(&[]), Rate::default());
    }
}
