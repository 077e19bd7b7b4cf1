//! `cargo xtask convert`: time and memory of a conversion, compared with a copy of the same file.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::shell::{self, Result};

/// One-line description.
pub const ABOUT: &str = "[--gib N]: time and memory of `precast convert` beside `cp`, on a file of 2 GiB";

/// Number of runs of each, alternating.
const ROUNDS: usize = 3;

pub fn run(words: &[String]) -> Result {
    let gib: usize = match words {
        [] => 2,
        [option, number] if option == "--gib" => {
            let gib = number.parse().ok().filter(|gib| (1..=64).contains(gib));
            gib.ok_or(format!("--gib takes a whole number from 1 to 64, met `{number}`"))?
        }
        _ => return Err(format!("met `{}`; allowed: --gib N", words.join(" "))),
    };
    shell::run("cargo", &["build", "--release", "--bin", "precast"], &[])?;
    let folder = std::env::temp_dir().join(format!("precast-xtask-convert-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let measured = measure(&folder, gib);
    fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    measured
}

fn measure(folder: &Path, gib: usize) -> Result {
    let (from, copied, converted) = (folder.join("from.safetensors"), folder.join("copy"), folder.join("converted"));
    make(&from, gib).map_err(|error| format!("{}: {error}", from.display()))?;
    let precast = shell::target().join("release/precast");
    println!("| round | cp, s | cp and sync, s | convert, s | convert, peak MiB |\n| --- | --- | --- | --- | --- |");
    for round in 1..=ROUNDS {
        let start = Instant::now();
        timed(Command::new("cp").args([&from, &copied]))?;
        let copy = start.elapsed().as_secs_f64();
        timed(Command::new("sync").arg(&copied))?;
        let synced = start.elapsed().as_secs_f64();
        remove(&copied)?;
        let mut convert = Command::new(&precast);
        convert.arg("convert").args([&from, &converted]).args(["--policy", "o2", "--quiet"]);
        let (seconds, peak) = timed(convert.stdout(std::process::Stdio::null()))?;
        remove(&converted)?;
        println!("| {round} | {copy:.2} | {synced:.2} | {seconds:.2} | {peak:.0} |");
    }
    Ok(())
}

/// Writes a file with matrices of 64 MiB, one in 16 belonging to a norm and left unconverted.
fn make(path: &Path, gib: usize) -> io::Result<()> {
    const ELEMENTS: usize = 16 << 20;
    let count = gib * 16;
    let names = (0..count).map(|i| format!("layers.{i}.{}.weight", if i % 16 == 0 { "norm" } else { "fc" }));
    let entries = names.enumerate().map(|(i, name)| {
        let shape = if i % 16 == 0 { format!("[{ELEMENTS}]") } else { format!("[4096,{}]", ELEMENTS / 4096) };
        let (start, end) = (i * ELEMENTS * 4, (i + 1) * ELEMENTS * 4);
        format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}}")
    });
    let header = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    let mut file = File::create(path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    // Numbers like those of weights: of both signs, with magnitudes between 2^-20 and 1.
    let mut state = 1u64;
    let numbers = (0..ELEMENTS).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let exponent = -((state >> 40) as i32 % 20);
        ((state >> 33) as i32 as f32 / 2f32.powi(31)) * 2f32.powi(exponent)
    });
    let block: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
    for _ in 0..count {
        file.write_all(&block)?;
    }
    file.sync_all()
}

/// Returns the seconds and the peak MiB of a command, as reported by Linux.
fn timed(command: &mut Command) -> Result<(f64, f64)> {
    let shown = format!("{command:?}");
    let start = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("{shown}: {error}"))?;
    let mut peak = 0.0f64;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("{shown}: {error}"))? {
            break status;
        }
        let told = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = told.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        peak = peak.max(line.unwrap_or(0.0) / 1024.0);
        thread::sleep(Duration::from_millis(5));
    };
    let seconds = start.elapsed().as_secs_f64();
    if status.success() { Ok((seconds, peak)) } else { Err(format!("{shown} ended with {status}")) }
}

fn remove(file: &Path) -> Result {
    fs::remove_file(file).map_err(|error| format!("{}: {error}", file.display()))
}
