//! Results are bitwise identical with any number of threads, and, except for listed sums, with vectors of any width.
//!
//! The width is read once per process. The test therefore runs itself, once for each width, in a process that does all
//! the work with 1, 2 and 5 threads and prints a digest of every result; these are then compared. With AMX, results are
//! identical with any number of threads, and those in other dtypes than bf16 are the same as without.

mod digest;
mod inputs;
mod ops;
mod steps;

#[path = "../../benches/steps/nets.rs"]
mod nets;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    process::Command,
    thread,
};

use precast::{DType, Op, observe, optim::Method, set_threads};

use digest::Digests;

const THREADS: [usize; 3] = [1, 2, 5];
const WIDTHS: [&str; 3] = ["16", "8", "1"];

/// Environment variable that makes the process print digests.
const ASKED: &str = "PRECAST_PRINT_DIGESTS";

const FEW_ROWS: &str = "products of rows with at most eight rows, or with one, add up the lanes of vectors";
const FEW_CHANNELS: &str = "weight gradients of few channels add up the lanes of vectors; without vectors, the input's \
    gradient is a sum over the taps of products, and the weight's one over images";

/// Workloads whose sums depend on the vector width (docs/engine.md), with the reason. They are compared across threads
/// only.
const SUMMED_BY_WIDTH: &[(&str, &str)] = &[
    ("linear of few rows", FEW_ROWS),
    ("matmul of few rows, gradients", FEW_ROWS),
    ("mv", FEW_ROWS),
    ("dot", FEW_ROWS),
    ("outer, gradients", FEW_ROWS),
    ("addmv", FEW_ROWS),
    ("addr, gradients", FEW_ROWS),
    ("bilinear", FEW_ROWS),
    ("attention", "rows of few queries are products of few rows"),
    ("attention, gradients", "as its results"),
    ("conv1d, gradients", FEW_CHANNELS),
    ("conv2d, gradients", FEW_CHANNELS),
    ("conv2d of few channels, gradients", FEW_CHANNELS),
    ("conv2d of groups, gradients", FEW_CHANNELS),
    ("conv2d of each channel, gradients", FEW_CHANNELS),
    ("conv3d, gradients", FEW_CHANNELS),
    ("conv_transpose1d", FEW_CHANNELS),
    ("conv_transpose1d, gradients", FEW_CHANNELS),
    ("conv_transpose2d", FEW_CHANNELS),
    ("conv_transpose2d, gradients", FEW_CHANNELS),
    ("conv_transpose3d", FEW_CHANNELS),
    ("conv_transpose3d, gradients", FEW_CHANNELS),
    ("step of lenet5, gradients", "convolutions, and dense layers of four samples"),
    ("step of mlp", "dense layers of four samples"),
    ("step of mlp, gradients", "dense layers of four samples"),
    ("step of resnet18", "a dense layer of four samples"),
    ("step of resnet18, gradients", "convolutions"),
    ("step of lstm, gradients", "a dense layer of four samples"),
];

/// Workloads of a single thread, whatever the number of threads: loops over elements that no kernel shares.
const ALONE: &[&str] = &[
    "CrossEntropy",
    "Equal",
    "Greater",
    "GreaterEqual",
    "IsFinite",
    "IsInf",
    "IsNan",
    "Less",
    "LessEqual",
    "NotEqual",
    "Trace",
    "argmax, argmin",
    "bce_with_logits",
    "bias_add",
    "binary_cross_entropy",
    "cross_entropy",
    "cross_entropy of probabilities",
    "cross_entropy with options",
    "ctc_loss",
    "dropout",
    "flip, roll",
    "grid_sample of volumes",
    "huber_loss",
    "index_copy",
    "kl_div",
    "l1_loss",
    "masks",
    "mean of all",
    "mse_loss",
    "nll_loss",
    "pad",
    "poisson_nll_loss",
    "rotary_embedding",
    "scatter",
    "smooth_l1_loss",
    "sum of all",
    "sum of columns",
    "sum of rows",
    "topk, sort",
    "tril, triu",
];

/// Prints digests: for each workload, in each dtype, with each number of threads.
fn print_digests() {
    let mut seen = BTreeSet::new();
    for threads in THREADS {
        set_threads(threads);
        let mut print = |name: &str, work: &dyn Fn(&mut Digests)| {
            let mut digests = Digests::default();
            let before = precast_kernels::bench::shared();
            let ((), events) = observe::watch(|| work(&mut digests));
            if threads > 2 && precast_kernels::bench::shared() > before {
                println!("shared|{name}");
            }
            seen.extend(events.into_iter().map(|event| event.op));
            println!("digest|{name}|{threads}|{:016x}", digests.results.value());
            if let Some(gradients) = digests.gradients {
                println!("digest|{name}, gradients|{threads}|{:016x}", gradients.value());
            }
        };
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::F64] {
            ops::all(dtype, &mut print);
        }
        steps::all(&mut print);
    }
    println!("amx|{}", precast::uses_amx());
    let forgotten: Vec<&Op> = Op::ALL.iter().filter(|op| op.has_kernel() && !seen.contains(op)).collect();
    assert!(forgotten.is_empty(), "no work calls {forgotten:?}");
}

/// Results of a process with vectors of at most this width.
struct Done {
    /// Digests by workload and number of threads.
    digests: BTreeMap<(String, usize), String>,
    /// Workloads shared by several threads.
    shared: BTreeSet<String>,
    /// `true` when bf16 was multiplied by AMX.
    amx: bool,
}

fn done(width: &str, amx: &str) -> Done {
    let mut this = Command::new(env::current_exe().unwrap());
    this.args(["--exact", "no_bit_depends_on_the_machine", "--nocapture"])
        .env(ASKED, "1")
        .env("PRECAST_VECTORS", width)
        .env("PRECAST_AMX", amx);
    let output = this.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "vectors of {width}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    let after = |word: &'static str| text.lines().filter_map(move |line| line.split_once(word));
    let digests = after("digest|").map(|(_, line)| {
        let [name, threads, digest] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("a line of three: {line}")
        };
        ((name.to_string(), threads.parse().unwrap()), digest.to_string())
    });
    Done {
        digests: digests.collect(),
        shared: after("shared|").map(|(_, name)| name.to_string()).collect(),
        amx: after("amx|").any(|(_, used)| used == "true"),
    }
}

#[test]
fn no_bit_depends_on_the_machine() {
    if env::var_os(ASKED).is_some() {
        return print_digests();
    }
    // Concurrently, since one thread leaves cores idle.
    let by_width = thread::scope(|scope| {
        let running = WIDTHS.map(|width| scope.spawn(move || done(width, "0")));
        running.map(|done| done.join().unwrap())
    });
    let names: BTreeSet<&str> = by_width[0].digests.keys().map(|(name, _)| &**name).collect();
    assert!(names.len() > 500, "{} works", names.len());
    let mut wrong = Vec::new();
    let mut by_width_only = BTreeSet::new();
    for name in &names {
        let of = |width: usize, threads| by_width[width].digests.get(&(name.to_string(), threads));
        let first = WIDTHS.iter().enumerate().map(|(width, words)| {
            let one = of(width, 1).unwrap_or_else(|| panic!("{name} was not done with vectors of {words}"));
            for threads in &THREADS[1..] {
                if of(width, *threads) != Some(one) {
                    wrong.push(format!("{name}: other bits with {threads} threads, vectors of {words}"));
                }
            }
            one
        });
        let first: Vec<&String> = first.collect();
        if first.iter().any(|digest| *digest != first[0]) {
            by_width_only.insert(*name);
        }
    }
    let is = |name: &str, work: &str| name.strip_suffix(work).is_some_and(|before| before.ends_with(' '));
    // Products of f64, and all without vectors, are those of a single-threaded crate.
    if has_vectors() {
        let done = names.iter().filter(|name| !name.starts_with("f64 ") && !name.ends_with(", gradients"));
        for name in done {
            let alone = ALONE.iter().any(|work| is(name, work));
            if alone == by_width[0].shared.contains(*name) {
                wrong.push(format!("{name}: {}", if alone { "shared, and listed" } else { "too small to be shared" }));
            }
        }
    }
    let listed = |name: &str| SUMMED_BY_WIDTH.iter().any(|(work, _)| is(name, work));
    wrong.extend(
        by_width_only.iter().filter(|name| !listed(name)).map(|name| format!("{name}: other bits with other vectors")),
    );
    if has_sixteen_lanes() {
        let stale = SUMMED_BY_WIDTH.iter().filter(|(work, _)| !by_width_only.iter().any(|name| is(name, work)));
        wrong.extend(stale.map(|(work, _)| format!("{work}: listed, and the same with all vectors")));
    } else {
        println!("this machine has no vectors of 16: those of 8 were compared with those of 1");
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), names.len(), wrong.join("\n"));
}

fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    cfg!(target_arch = "aarch64")
}

fn has_sixteen_lanes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[test]
fn amx_changes_bits_of_bf16_alone_whatever_the_number_of_threads() {
    let (with, without) = thread::scope(|scope| {
        let running = ["1", "0"].map(|amx| scope.spawn(move || done("16", amx)));
        running.map(|done| done.join().unwrap()).into()
    });
    let mut wrong = Vec::new();
    let mut changed = 0;
    for ((name, threads), digest) in &with.digests {
        if with.digests[&(name.clone(), 1)] != *digest {
            wrong.push(format!("{name}: other bits with {threads} threads"));
        }
        let differs = without.digests[&(name.clone(), *threads)] != *digest;
        if differs && !name.contains("bf16") {
            wrong.push(format!("{name}: other bits with AMX"));
        }
        changed += usize::from(differs);
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), with.digests.len(), wrong.join("\n"));
    assert!(!without.amx, "it was forbidden");
    assert_eq!(changed > 0, with.amx, "{changed} works have other bits with AMX");
}

/// Optimizers are found in their source: each of them, and each of their options, has a workload of that name.
#[test]
fn no_option_of_an_optimizer_is_forgotten() {
    let mut names = Vec::new();
    steps::optimizers(&mut |name, _| names.push(name.to_string()));
    let mut found = 0;
    for method in Method::all() {
        let optimizer = method.name();
        let options = method.options().into_iter().map(|option| option.name);
        // The options of Muon for the other parameters are those of AdamW.
        for option in options.filter(|option| option != "others").chain([String::new()]) {
            let tested = |name: &String| name.to_lowercase().contains(optimizer) && name.contains(&option);
            assert!(names.iter().any(tested), "no work has the name of {optimizer} and of its option `{option}`");
            found += 1;
        }
    }
    assert!(found >= 30, "{found} optimizers and options were found");
}
