//! Memory over training steps: a step reuses the buffers of the previous one.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    env,
    process::Command,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use precast::{Checkpoint, LossScale, Sgd, prelude::*, sequential, set_threads, storage::weights};
use precast_kernels::{bench, memory::KEPT_BYTES};

/// Blocks of at least this many bytes are counted: among the tensors of a step only the logits are smaller, as are the
/// map of ten parameters' gradients and the queue of the tape's nodes (at most 2,048 bytes), which each step makes
/// anew.
const LARGE: usize = 4096;

/// Memory requested by a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Asked {
    /// Large blocks of numbers and lists, including all tensors.
    blocks: usize,
    bytes: usize,
    /// Large blocks aligned to vectors, unlike any `Vec` of numbers: the packed operands of a product. Those packed by
    /// the library are kept from step to step; `matrixmultiply` allocates and frees memory for each product.
    packed: usize,
}

static BLOCKS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static PACKED: AtomicUsize = AtomicUsize::new(0);
static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST_IN_USE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn count(layout: Layout) {
    let bytes = layout.size();
    if bytes >= LARGE && layout.align() > align_of::<u64>() {
        PACKED.fetch_add(1, Relaxed);
    } else if bytes >= LARGE {
        BLOCKS.fetch_add(1, Relaxed);
        BYTES.fetch_add(bytes, Relaxed);
    }
    MOST_IN_USE.fetch_max(IN_USE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: it is the system's allocator, called with unchanged arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Locks, so that one test at a time counts.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    set_threads(1);
    turn
}

fn asked_for(f: impl FnOnce()) -> Asked {
    let all = || [&BLOCKS, &BYTES, &PACKED].map(|count| count.load(Relaxed));
    let before = all();
    f();
    let after = all();
    let [blocks, bytes, packed] = std::array::from_fn(|i| after[i] - before[i]);
    Asked { blocks, bytes, packed }
}

type Net = fn(&mut Rng) -> Result<Child>;

fn lenet5(rng: &mut Rng) -> Result<Child> {
    Ok(sequential![
        Conv2dSpec::new(1, 6, 5).padding(Padding::all(2)).build(rng)?,
        ReLU,
        MaxPool2d::new(2),
        Conv2d::new(6, 16, 5, rng),
        ReLU,
        MaxPool2d::new(2),
        Flatten::default(),
        Dense::new(400, 120, rng),
        ReLU,
        Dense::new(120, 84, rng),
        ReLU,
        Dense::new(84, 10, rng),
    ]
    .into())
}

fn normed(rng: &mut Rng) -> Result<Child> {
    Ok(sequential![
        Conv2dSpec::new(1, 8, 3).stride(2).bias(false).build(rng)?,
        BatchNorm2d::new(8),
        ReLU,
        AdaptiveAvgPool2d::new(4),
        Flatten::default(),
        LayerNorm::new(&[128]),
        GELU::default(),
        Dense::new(128, 10, rng),
    ]
    .into())
}

const NETS: [(&str, Net); 2] = [("LeNet5", lenet5), ("norms", normed)];

/// Makes a training step of a network on noise.
fn step_of(net: Net, level: Level, dtype: DType, optimizer: &str) -> Result<impl FnMut()> {
    const SAMPLES: usize = 32;
    let mut rng = Rng::seed(0);
    let mut net = net(&mut rng)?;
    net.set_train(true);
    auto_mixed_precision(&mut net, level, dtype)?;
    let noise: Vec<f32> = (0..SAMPLES * 28 * 28).map(|_| rng.normal(0.0, 1.0) as f32).collect();
    let x = Tensor::from_vec(noise, &[SAMPLES, 1, 28, 28])?;
    let y = Tensor::from_vec((0..SAMPLES as i64).map(|i| i % 10).collect(), &[SAMPLES])?;
    let mut optimizer: Box<dyn Optimizer> = match optimizer {
        "sgd" => Box::new(Sgd::new(net.params(), 0.01).momentum(0.9)),
        _ => Box::new(AdamW::new(net.params(), 1e-3)),
    };
    let mut scale = LossScale::fixed(128.0)?;
    Ok(move || {
        let loss = net.call(&x).unwrap().cross_entropy(&y).unwrap();
        let _ = scale.step(&mut *optimizer, &loss).unwrap();
    })
}

const LEVELS: [(Level, DType); 3] = [(Level::O0, DType::F16), (Level::O1, DType::F16), (Level::O2, DType::Bf16)];

/// Number of steps until the optimizer has its averages, and all kept memory has its final address.
const FIRST: usize = 5;

/// Tolerated difference of the arena's own maps between steps: a B-tree's nodes (544 bytes) are split and joined as
/// addresses fall.
const MAPS: usize = 8 * 544;

#[test]
fn a_step_allocates_no_tensor_after_the_first_ones() {
    let _turn = alone();
    // Without vectors, `matrixmultiply` multiplies.
    let packs_itself = bench::vectors() != "no vectors";
    for (name, net) in NETS {
        for (level, dtype) in LEVELS {
            for optimizer in ["sgd", "adam"] {
                let mut step = step_of(net, level, dtype, optimizer).unwrap();
                (0..FIRST).for_each(|_| step());
                let asked = asked_for(&mut step);
                assert_eq!((asked.blocks, asked.bytes), (0, 0), "{name} {level} {dtype} {optimizer}: {asked:?}");
                assert_eq!(asked.packed == 0, packs_itself, "{name} {level} {dtype} {optimizer}: {asked:?}");
            }
        }
    }
}

#[test]
fn memory_does_not_grow_over_steps() {
    let _turn = alone();
    for (name, net) in NETS {
        for (level, dtype) in LEVELS {
            let mut step = step_of(net, level, dtype, "sgd").unwrap();
            (0..FIRST).for_each(|_| step());
            let before = IN_USE.load(Relaxed);
            (0..100).for_each(|_| step());
            let after = IN_USE.load(Relaxed);
            assert!(after <= before + MAPS, "{name} {level} {dtype}: {before} bytes before 100 steps, {after} after");
        }
    }
}

/// Enough steps to show a leak of one byte per step.
#[test]
fn memory_does_not_grow_over_ten_thousand_small_steps() {
    let _turn = alone();
    let mut rng = Rng::seed(0);
    let mut net: Child =
        sequential![Dense::new(4, 8, &mut rng), LayerNorm::new(&[8]), ReLU, Dense::new(8, 3, &mut rng)].into();
    net.set_train(true);
    auto_mixed_precision(&mut net, Level::O2, DType::F16).unwrap();
    let (x, y) = (Tensor::ones(&[2, 4], DType::F32), Tensor::from_vec(vec![0i64, 2], &[2]).unwrap());
    let mut optimizer = Adam::new(net.params(), 1e-3);
    let mut scale = LossScale::dynamic();
    let mut step = || {
        let loss = net.call(&x).unwrap().cross_entropy(&y).unwrap();
        let _ = scale.step(&mut optimizer, &loss).unwrap();
    };
    (0..FIRST).for_each(|_| step());
    let before = IN_USE.load(Relaxed);
    (0..10_000).for_each(|_| step());
    let after = IN_USE.load(Relaxed);
    assert!(after <= before + MAPS, "{before} bytes before 10,000 steps, {after} after");
}

/// The width of vectors is read once per process.
#[test]
fn allocations_are_the_same_at_every_vector_width() {
    const THIS: &str = "allocations_are_the_same_at_every_vector_width";
    let _turn = alone();
    for width in ["8", "1"] {
        let mut others = Command::new(env::current_exe().unwrap());
        let output = others.args(["--skip", THIS]).env("PRECAST_VECTORS", width).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        // One of them needs an allocator that reports what it returns.
        let others = 7 + usize::from(cfg!(all(target_os = "linux", target_env = "gnu")));
        assert!(output.status.success() && text.contains(&format!("{others} passed")), "vectors of {width}: {text}");
    }
}

#[test]
fn what_a_user_made_is_not_kept() {
    let _turn = alone();
    let before = IN_USE.load(Relaxed);
    for i in 0..100 {
        drop(Tensor::from_vec(vec![1f32; 10_000 + i], &[10_000 + i]).unwrap());
    }
    assert!(IN_USE.load(Relaxed) < before + 10_000);
}

/// Returns the resident bytes of this process.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

/// Runs a test in a process of its own, as what is kept depends on the tests before it. Returns true in that process.
fn in_own_process(test: &str) -> bool {
    const ALONE: &str = "PRECAST_TEST_OWN_PROCESS";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    // Starting a process allocates as well.
    let _turn = alone();
    let output = Command::new(env::current_exe().unwrap()).args(["--exact", test]).env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// Also memory in the middle of the allocator's heap.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn what_is_not_kept_goes_back_to_the_system() {
    if !in_own_process("what_is_not_kept_goes_back_to_the_system") {
        return;
    }
    let part = 8 << 20;
    let mut between = Vec::new();
    let tensors: Vec<Tensor> = (0..192)
        .map(|i| {
            between.push(vec![i as u8; 64 << 10]);
            Tensor::full(&[part / 4], 1.0, DType::F32)
        })
        .collect();
    assert!(resident() >= 192 * part, "1.5 GiB are in use");
    drop(tensors);
    let after = resident();
    assert!(after <= KEPT_BYTES + (128 << 20), "{} MiB are still there", after >> 20);
    assert_eq!(between.len(), 192);
}

/// Allocates and frees tensors of one and a half times the limit, and returns the bytes that are left of them.
fn left_of_tensors() -> usize {
    let before = IN_USE.load(Relaxed);
    let part = KEPT_BYTES / 8;
    let tensors: Vec<Tensor> = (0..12).map(|_| Tensor::zeros(&[part / 4], DType::F32)).collect();
    assert!(IN_USE.load(Relaxed) >= 12 * part);
    drop(tensors);
    IN_USE.load(Relaxed).saturating_sub(before)
}

#[test]
fn nothing_is_kept_above_the_limit_until_it_is_needed_again() {
    if !in_own_process("nothing_is_kept_above_the_limit_until_it_is_needed_again") {
        return;
    }
    let kept = left_of_tensors();
    // With the list of them.
    assert!(kept <= KEPT_BYTES + (64 << 10), "{kept} bytes are kept");
    let before = IN_USE.load(Relaxed);
    left_of_tensors();
    let kept = IN_USE.load(Relaxed) - before + kept;
    assert!(kept >= 12 * (KEPT_BYTES / 8), "{kept} bytes are kept of those that were needed again");
}

#[test]
fn a_tensor_above_the_limit_is_not_kept() {
    if !in_own_process("a_tensor_above_the_limit_is_not_kept") {
        return;
    }
    let before = IN_USE.load(Relaxed);
    drop(Tensor::zeros(&[KEPT_BYTES / 4 + 1], DType::F32));
    let kept = IN_USE.load(Relaxed).saturating_sub(before);
    assert!(kept <= KEPT_BYTES, "{kept} bytes are kept");
}

/// The state of a network with 32 MiB of weights and momenta is in use before, and two parts of it at most are added.
#[test]
fn weights_and_checkpoints_are_written_in_parts() {
    let _turn = alone();
    let net = Child::new(Dense::new(2048, 2048, &mut Rng::seed(1)));
    let mut optimizer = Sgd::new(net.params(), 0.1).momentum(0.9);
    let x = Tensor::ones(&[1, 2048], DType::F32);
    optimizer.update(&net.call(&x).unwrap().sum_all().unwrap().backward().unwrap()).unwrap();
    let checkpoint = Checkpoint::of(&net, &[&optimizer], &LossScale::none());
    let file = env::temp_dir().join(format!("precast-parts-{}.safetensors", std::process::id()));
    for (name, bytes, write) in [
        ("weights", 16 << 20, &(|| weights::save(&net, &file)) as &dyn Fn() -> Result<()>),
        ("a checkpoint", 32 << 20, &|| checkpoint.save(&file)),
    ] {
        let before = IN_USE.load(Relaxed);
        MOST_IN_USE.store(before, Relaxed);
        write().unwrap();
        let more = MOST_IN_USE.load(Relaxed) - before;
        assert!(std::fs::metadata(&file).unwrap().len() > bytes, "all of {name} is written");
        assert!(more < 1 << 20, "{name}: {more} bytes beyond the state");
    }
    std::fs::remove_file(file).unwrap();
}
