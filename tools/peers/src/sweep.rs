//! All cases of all ops, and the largest errors among them.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{IsTerminal, Write as _},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use precast::{DType, Op};

use crate::{Options, bounds, held, peer::Peer, units::Measured};

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];
const DIRECTIONS: [&str; 2] = ["forward", "backward"];

/// The cases of an op in a dtype.
#[derive(Default)]
pub struct Row {
    family: &'static str,
    cases: usize,
    /// Errors of forward and backward, each with the call that has the largest one.
    ours: [(Measured, String); 2],
    torch: Option<[Measured; 2]>,
    backward: bool,
    formula: bool,
    errors: Vec<String>,
}

/// Results of all cases.
pub struct Swept {
    /// Rows by the index of the op in `ops`, and of the dtype.
    rows: BTreeMap<(usize, usize), Row>,
    ops: Vec<Op>,
    pub torch: String,
}

/// Runs all cases, in as many processes as there are cores.
pub fn sweep(options: &Options) -> Result<Swept, String> {
    let every = Op::ALL.iter().copied().filter(|op| op.has_kernel());
    let ops: Vec<Op> = match &options.ops[..] {
        [] => every.collect(),
        some => some.to_vec(),
    };
    if let Some(op) = ops.iter().find(|op| !op.has_kernel()) {
        return Err(format!("{op} has no kernel"));
    }
    let (next, rows, torch) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()), Mutex::new(String::new()));
    let work = || -> Result<(), String> {
        let mut peer = Peer::start(&options.python)?;
        *torch.lock().expect("no panic") = format!("torch {}, {}", peer.version, peer.vectors);
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&op) = ops.get(at) else { return Ok(()) };
            for (d, dtype) in DTYPES.into_iter().enumerate() {
                let row = row(&mut peer, options, op, dtype);
                rows.lock().expect("no panic").insert((at, d), row);
            }
            progress(at + 1, ops.len());
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(4);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err("a worker panicked".into())))
    })?;
    let torch = torch.into_inner().expect("no panic");
    Ok(Swept { rows: rows.into_inner().expect("no panic"), ops, torch })
}

fn progress(done: usize, all: usize) {
    if std::io::stderr().is_terminal() {
        let end = if done == all { "\n" } else { "" };
        eprint!("\r{done} of {all} ops{end}");
        let _ = std::io::stderr().flush();
    }
}

fn row(peer: &mut Peer, options: &Options, op: Op, dtype: DType) -> Row {
    let mut row = Row::default();
    for number in 0..options.cases {
        match held::hold(peer, options.seed, op, dtype, number) {
            Err(why) => row.errors.push(why),
            Ok(held) => {
                row.family = held.family.name;
                row.cases += 1;
                row.backward |= held.backward;
                row.formula = held.formula;
                for (all, ours) in row.ours.iter_mut().zip(held.ours) {
                    let joined = all.0.join(ours);
                    let bits = |m: Measured| m.worst.map(|(a, b)| (a.to_bits(), b.to_bits()));
                    if row.cases == 1 || bits(joined) != bits(all.0) {
                        all.1.clone_from(&held.call);
                    }
                    all.0 = joined;
                }
                if let Some(torch) = held.torch {
                    let all = row.torch.get_or_insert_default();
                    *all = [all[0].join(torch[0]), all[1].join(torch[1])];
                }
            }
        }
    }
    row
}

impl Swept {
    /// Returns the errors beyond their bounds, numbers of another kind, and calls that could not be run.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for ((at, d), row) in &self.rows {
            failures.extend(row.errors.iter().take(3).cloned());
            let op = self.ops[*at];
            for (direction, (measured, call)) in row.ours.iter().enumerate() {
                if row.family.is_empty() {
                    continue;
                }
                let way = DIRECTIONS[direction];
                let bound = bounds::largest(row.family, op, DTYPES[*d], direction);
                let (number, exact) = measured.worst.unwrap_or_default();
                let worst = format!("{call}: {number:e}, exactly {exact:e}");
                if measured.units > bound {
                    failures.push(format!("{way} {:.3} units, {bound} allowed: {worst}", measured.units));
                }
                if measured.other_kind > 0 && !bounds::allows_other_kinds(op, direction) {
                    failures.push(format!("{way} {} of another kind: {worst}", measured.other_kind));
                }
            }
        }
        failures
    }

    /// Formats a line for each op and dtype: ours and torch's, forward and backward.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "family\top\tdtype\tcases\tforward\tbackward\ttorch_forward\ttorch_backward\tother_kind\treference\n",
        );
        for (at, op) in self.ops.iter().enumerate() {
            for (d, dtype) in DTYPES.into_iter().enumerate() {
                let row = &self.rows[&(at, d)];
                let shown = |there: bool, units: f64| if there { format!("{units:.2}") } else { "-".into() };
                let [forward, backward] = [0, 1].map(|i| row.ours[i].0.units);
                let [theirs, theirs_back] = [0, 1].map(|i| row.torch.map_or(0.0, |torch| torch[i].units));
                let torch = row.torch.is_some();
                let other: usize = row.ours.iter().map(|(measured, _)| measured.other_kind).sum();
                let _ = writeln!(
                    text,
                    "{}\t{op}\t{dtype}\t{}\t{forward:.2}\t{}\t{}\t{}\t{other}\t{}",
                    row.family,
                    row.cases,
                    shown(row.backward, backward),
                    shown(torch, theirs),
                    shown(torch && row.backward, theirs_back),
                    if row.formula { "formula" } else { "torch" },
                );
            }
        }
        text
    }
}
