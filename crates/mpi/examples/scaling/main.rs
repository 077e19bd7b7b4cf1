//! A model of data-parallel steps on 8 to 4,096 ranks, by figures measured on few.
//!
//! ```console
//! $ mpirun -n 2 scaling measure 25     # the constants of this machine, and sums of 25 million numbers beside the model
//! $ scaling                            # efficiency over ranks, and what bounds it
//! $ scaling --svg FILE                 # the same, drawn
//! $ scaling numbers=350e6 step=0.9 latency=2e-6 message=0.5e-6 bandwidth=24e9
//! ```
//!
//! | parameter | default |
//! | --- | --- |
//! | `numbers`, `step` | weights, and seconds of a rank for the gradients of a step; two networks |
//! | `latency`, `message`, `bandwidth` | seconds until a message arrives, seconds of the processor for one sent and one received, bytes per second; three networks of wires |
//! | `add`, `copy`, `round` | seconds for a number, of one thread: to add it, to copy it, to round it to bf16 |
//! | `shards` | shards of a rank; 1 |
//! | `words` | words of a vote; 32 |
//! | `ranks` | numbers of ranks, with commas |

mod draw;
mod measure;
mod model;

use std::{env, error::Error, io::Write as _, process::ExitCode};

use model::{Parts, Pattern, Speeds, Sum, Trained, Wires, efficiency, vote};
use precast_mpi::Wire;

/// The share of an exchange that a hook in the backward pass hides.
const HIDDEN: f64 = 0.8;

/// The ranks, networks and speeds of a table.
pub struct Figures {
    pub trained: Vec<Trained>,
    pub wires: Vec<Wires>,
    speeds: Speeds,
    shards: usize,
    words: f64,
    pub ranks: Vec<usize>,
}

/// A variant of the exchange.
#[derive(Clone, Copy)]
pub struct Variant {
    pub name: &'static str,
    wire: Wire,
    hidden: f64,
    /// Buckets have 2^18 numbers on any number of ranks, and not the default of `Exchange`.
    fixed: bool,
    pattern: Pattern,
}

const PLAIN: Variant =
    Variant { name: "float32", wire: Wire::Float32, hidden: 0.0, fixed: false, pattern: Pattern::Flat };
const BF16: Variant = Variant { name: "bfloat16-both", wire: Wire::BFloat16Both, ..PLAIN };

pub const VARIANTS: [Variant; 6] = [
    PLAIN,
    Variant { name: "float32, buckets of 2^18", fixed: true, ..PLAIN },
    Variant { name: "float32, 80 % hidden", hidden: HIDDEN, ..PLAIN },
    BF16,
    Variant { name: "bfloat16-both, 80 % hidden", hidden: HIDDEN, ..BF16 },
    Variant { name: "float32, by halves", pattern: Pattern::Halves, ..PLAIN },
];

impl Figures {
    fn read(words: &[String]) -> Result<Figures, String> {
        let number = |name: &str| -> Result<Option<f64>, String> {
            let Some(text) = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')) else {
                return Ok(None);
            };
            let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
            number.map(Some).ok_or_else(|| format!("{name}={text}: a number above 0 is allowed"))
        };
        const NAMES: [&str; 11] =
            ["numbers", "step", "latency", "message", "bandwidth", "add", "copy", "round", "shards", "words", "ranks"];
        if let Some(word) = words.iter().find(|word| NAMES.iter().all(|name| Some(*name) != word.split('=').next())) {
            return Err(format!("met `{word}`; allowed: measure, --svg FILE, and NAME=NUMBER of {}", NAMES.join(", ")));
        }
        // Measured at O2 in bf16 on one thread (PERFORMANCE.md), divided by 32: 64 pictures of 224 x 224, 8 sequences of
        // 1,024 tokens.
        let mut trained = vec![
            Trained { name: "ResNet-50".into(), numbers: 25.6e6, step: 0.42 },
            Trained { name: "GPT-2 small".into(), numbers: 124e6, step: 1.8 },
        ];
        match (number("numbers")?, number("step")?) {
            (None, None) => {}
            (Some(numbers), Some(step)) => {
                trained = vec![Trained { name: format!("{:.0} M numbers", numbers / 1e6), numbers, step }];
            }
            _ => return Err("`numbers` and `step` belong together: give both or neither".into()),
        }
        let wires = |name: &str, latency: f64, message: f64, bandwidth: f64| Wires {
            name: name.into(),
            latency,
            message,
            bandwidth,
            by_processor: false,
        };
        let mut all = vec![
            wires("10 GbE", 25e-6, 5e-6, 1.17e9),
            wires("25 GbE", 20e-6, 4e-6, 2.9e9),
            wires("InfiniBand 100", 1.5e-6, 0.5e-6, 12e9),
        ];
        match (number("latency")?, number("message")?, number("bandwidth")?) {
            (None, None, None) => {}
            (Some(latency), Some(message), Some(bandwidth)) => {
                all = vec![wires("these wires", latency, message, bandwidth)];
            }
            _ => return Err("`latency`, `message` and `bandwidth` belong together: give all or none".into()),
        }
        let speeds = Speeds {
            add: number("add")?.unwrap_or(0.5e-9),
            copy: number("copy")?.unwrap_or(0.5e-9),
            round: number("round")?.unwrap_or(0.6e-9),
        };
        let listed = words.iter().find_map(|word| word.strip_prefix("ranks="));
        let ranks = listed.unwrap_or("8,16,32,64,128,256,512,1024,2048,4096").split(',');
        let ranks = ranks.map(|text| match text.parse() {
            Ok(ranks @ 2..=65536) => Ok(ranks),
            _ => Err(format!("ranks={text}: numbers from 2 to 65536, with commas, are allowed")),
        });
        Ok(Figures {
            trained,
            wires: all,
            speeds,
            shards: number("shards")?.map_or(1, |shards| shards as usize).max(1),
            words: number("words")?.unwrap_or(32.0),
            ranks: ranks.collect::<Result<_, _>>()?,
        })
    }

    fn parts(&self, trained: &Trained, wires: &Wires, ranks: usize, variant: Variant) -> (Parts, f64) {
        let sum = Sum {
            ranks,
            shards: ranks * self.shards,
            numbers: trained.numbers,
            bucket: (if variant.fixed { 1 << 18 } else { (ranks << 14).clamp(1 << 18, 1 << 24) }) as f64,
            wire: variant.wire,
            pattern: variant.pattern,
        };
        let mut parts = sum.parts(wires, &self.speeds);
        // Gradients are gathered from their tensors, and sums written to them.
        let ends = trained.numbers * self.speeds.copy;
        (parts.adding, parts.whole) = (parts.adding + ends, parts.whole + ends);
        (parts, vote(ranks, self.words, wires))
    }

    /// Returns the share of a step in which a rank computes.
    pub fn efficiency(&self, trained: &Trained, wires: &Wires, ranks: usize, variant: Variant) -> f64 {
        let (parts, vote) = self.parts(trained, wires, ranks, variant);
        efficiency(trained, self.shards as f64, &parts, vote, variant.hidden)
    }
}

/// Writes a line.
pub fn say(line: &str) -> Result<(), Box<dyn Error>> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

fn tables(figures: &Figures) -> Result<(), Box<dyn Error>> {
    let columns = || figures.trained.iter().flat_map(|trained| figures.wires.iter().map(move |wires| (trained, wires)));
    let names: Vec<String> = columns().map(|(trained, wires)| format!("{}, {}", trained.name, wires.name)).collect();
    let head = |first: &str| {
        say(&format!("| {first} | {} |", names.join(" | ")))?;
        say(&format!("| --- |{}", " --- |".repeat(names.len())))
    };
    for variant in VARIANTS {
        say(&format!("\n{}: efficiency, %", variant.name))?;
        head("ranks")?;
        for &ranks in &figures.ranks {
            let cells = columns()
                .map(|(trained, wires)| format!("{:.1}", 100.0 * figures.efficiency(trained, wires, ranks, variant)));
            say(&format!("| {ranks} | {} |", cells.collect::<Vec<_>>().join(" | ")))?;
        }
    }
    say("\nms of bytes / messages / adding and copying / latency / a vote, float32")?;
    for variant in &VARIANTS[..2] {
        head(variant.name)?;
        for &ranks in &figures.ranks {
            let cells = columns().map(|(trained, wires)| {
                let (parts, vote) = figures.parts(trained, wires, ranks, *variant);
                let all = [parts.bytes, parts.messages, parts.adding, parts.latency, vote];
                all.map(|seconds| format!("{:.2}", seconds * 1e3)).join(" / ")
            });
            say(&format!("| {ranks} | {} |", cells.collect::<Vec<_>>().join(" | ")))?;
        }
    }
    say("\nbytes sent for each number by the rank with the most nodes, float32, on 64 ranks")?;
    for shards in [1, 2, 3, 4, 5, 6, 7, 8, 15, 16] {
        let sum = Sum {
            ranks: 64,
            shards: 64 * shards,
            numbers: 1e6,
            bucket: 1e6,
            wire: Wire::Float32,
            pattern: Pattern::Flat,
        };
        say(&format!("{shards:3} shards a rank: {:.2}", sum.bytes() / 1e6))?;
    }
    Ok(())
}

fn run() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    match &words[..] {
        [word, rest @ ..] if word == "measure" => {
            measure::run(rest.first().map_or(Ok(25.0), |millions| millions.parse())?)
        }
        [word, file, rest @ ..] if word == "--svg" => draw::draw(file, &Figures::read(rest)?),
        _ => tables(&Figures::read(&words)?),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}
