//! Time and peak memory of a step over batch, width, depth, sequence and images, beside the limits of the machine:
//! `-- growth`.
//!
//! Each size of each axis runs in processes of its own, in turns in f32 and at O2 in bf16.

use std::{fs, hint::black_box, process::Command, time::Instant};

use plotters::prelude::*;
use precast::{cost::Limits, prelude::*};

use crate::{
    Column, Trainer,
    axes::{AXES, Axis},
    busy,
    families::{COLUMNS, arithmetic, peak},
    memory::{mib, resident},
    peers::{Options, fastest},
};

/// Argument with which the bench asks a child process for one line.
pub const ASKED: &str = "growth-of";

/// Least duration of a measurement in seconds.
const LEAST: f64 = 0.3;

/// One size, measured in one column.
#[derive(Clone, Copy)]
struct Point {
    size: usize,
    /// Seconds per step, and what arithmetic and memory allow at least.
    seconds: f64,
    limit: f64,
    /// Peak of the process in bytes, and what weights, averages and the larger of kept activations and gradients need.
    peak: f64,
    least: f64,
}

/// An axis, measured.
struct Curves {
    axis: &'static Axis,
    columns: Vec<(Column, Vec<Point>)>,
}

/// Prints the axes that are named, and draws them.
pub fn print(options: &Options) -> Result<()> {
    let limits = Limits::measure();
    let known = || AXES.iter().map(|axis| axis.name);
    if let Some(name) = options.names.iter().find(|name| !known().any(|axis| axis == **name)) {
        let known = known().collect::<Vec<_>>().join(", ");
        return Err(Error::path(format!("no axis is called `{name}`; allowed: {known}")));
    }
    let asked = |axis: &&Axis| options.names.is_empty() || options.names.iter().any(|name| name == axis.name);
    let mut all = Vec::new();
    for axis in AXES.iter().filter(asked) {
        let curves = measure(axis, options, &limits)?;
        table(&curves);
        all.push(curves);
    }
    match &options.svg {
        Some(file) => draw(file, &all).map_err(|e| Error::value(format!("{file} cannot be drawn: {e}"))),
        None => Ok(()),
    }
}

fn measure(axis: &'static Axis, options: &Options, limits: &Limits) -> Result<Curves> {
    let mut columns: Vec<(Column, Vec<Point>)> = COLUMNS.map(|column| (column, Vec::new())).into();
    for &size in axis.sizes {
        let mut lines: Vec<Vec<[f64; 5]>> = vec![Vec::new(); columns.len()];
        for _ in 0..options.rounds {
            for ((column, _), lines) in columns.iter().zip(&mut lines) {
                lines.push(ask(axis.name, size, column)?);
            }
        }
        for ((column, points), lines) in columns.iter_mut().zip(lines) {
            let least_of = |i: usize| fastest(&lines.iter().map(|line| line[i]).collect::<Vec<_>>());
            let [_, peak_bytes, least, arithmetic, _] = lines[0];
            let by_arithmetic = peak(limits, *column).map_or(0.0, |rate| arithmetic / rate);
            let limit = f64::max(by_arithmetic, least_of(4));
            points.push(Point { size, seconds: least_of(0), limit, peak: peak_bytes, least });
        }
    }
    Ok(Curves { axis, columns })
}

/// Asks a process for one size of one axis in one column.
fn ask(axis: &str, size: usize, column: &Column) -> Result<[f64; 5]> {
    let this = std::env::current_exe().map_err(|e| Error::io("this bench".as_ref(), &e))?;
    let output = Command::new(this)
        .args([ASKED, axis, &size.to_string(), &column.name()])
        .output()
        .map_err(|e| Error::io("this bench".as_ref(), &e))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = said.split_whitespace().map_while(|word| word.parse().ok()).collect();
    numbers.try_into().map_err(|_| Error::value(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Trains one network in this process, and prints the numbers that [`measure`] reads.
pub fn answer(axis: &str, size: &str, column: &str) -> Result<()> {
    let column = COLUMNS.into_iter().find(|known| known.name() == column);
    let axis = AXES.iter().find(|known| known.name == axis);
    let (Some(Column::Ours(level, dtype)), Some(axis), Ok(size)) = (column, axis, size.parse()) else {
        return Err(Error::value("no such axis, size or column"));
    };
    let program = resident("VmRSS").unwrap_or(0);
    let mut trainer = Trainer::of((axis.task)(size)?, level, dtype)?;
    // Resets the peak, so that the building of the network does not count.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let first = trainer.time(1)?;
    let steps = (LEAST / first).ceil().clamp(1.0, 1000.0) as usize;
    let start = busy();
    let elapsed = trainer.time(steps)?;
    let seconds = start.zip(busy()).map_or(elapsed, |(start, end)| (end - start) / steps as f64);
    let peak = resident("VmHWM").unwrap_or(0);
    let kept = trainer.loss()?.tape_bytes();
    let (weights, averages) = trainer.weights_and_averages();
    let low = level != Some(Level::O0);
    let (copies, gradients) = if low { (weights / 2, weights / 2) } else { (0, weights) };
    let least = program + weights + averages + (kept + copies).max(gradients);
    let copying = trainer.least_bytes()? / copied(weights + averages + kept);
    println!("{seconds} {peak} {least} {} {copying}", arithmetic(&trainer)?);
    Ok(())
}

/// Returns the bytes per second, read and written, of copies between two halves of so many bytes: those of a cache if they
/// fit.
fn copied(bytes: usize) -> f64 {
    let half = (bytes / 2).clamp(1 << 14, 1 << 27);
    let (from, mut to) = (vec![1u8; half], vec![0u8; half]);
    let rate = |_| {
        let repeats = (1 << 24) / half + 1;
        let start = Instant::now();
        for _ in 0..repeats {
            to.copy_from_slice(black_box(&from));
            let _ = black_box(&mut to);
        }
        (2 * half * repeats) as f64 / start.elapsed().as_secs_f64()
    };
    (0..10).map(rate).fold(0.0, f64::max)
}

fn table(curves: &Curves) {
    let Axis { name, network, .. } = curves.axis;
    println!("\n{name}: {network}; ms (share of the limit, exponents of time and limit), MiB (least)");
    let [(_, wide), (_, low)] = &curves.columns[..] else { unreachable!("there are two columns") };
    for (i, (wide, low)) in wide.iter().zip(low).enumerate() {
        let cell = |points: &[Point], point: &Point| {
            let exponent = |of: fn(&Point) -> f64| match i.checked_sub(1).map(|before| points[before]) {
                None => String::new(),
                Some(before) => {
                    let growth = (of(point) / of(&before)).log2() / (point.size as f64 / before.size as f64).log2();
                    format!("{growth:5.2}")
                }
            };
            let (seconds, share) = (point.seconds * 1e3, point.limit / point.seconds);
            let (of_time, of_limit) = (exponent(|p| p.seconds), exponent(|p| p.limit));
            format!(
                "{seconds:10.3} ({share:4.2} {of_time:5} {of_limit:5}) {:8.1} ({:8.1})",
                mib(point.peak),
                mib(point.least)
            )
        };
        let (of_wide, of_low) = (cell(&curves.columns[0].1, wide), cell(&curves.columns[1].1, low));
        let (time, peak) = (low.seconds / wide.seconds, low.peak / wide.peak);
        println!("{:6} | {of_wide} | {of_low} | {time:5.2} {peak:5.2}", wide.size);
    }
}

/// Draws time and peak of each axis: thick the measured ones, thin the limits.
fn draw(file: &str, all: &[Curves]) -> std::result::Result<(), Box<dyn std::error::Error>> {
    const WIDTH: u32 = 1120;
    const HEIGHT: u32 = 270;
    let rows = all.len().div_ceil(2);
    let root = SVGBackend::new(file, (WIDTH, HEIGHT * rows as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let panels = root.split_evenly((rows, 4));
    for (curves, panels) in all.iter().zip(panels.chunks(2)) {
        let name = curves.axis.network;
        panel(&panels[0], &format!("{name}: ms of a step"), curves, |p| p.seconds * 1e3, |p| p.limit * 1e3, 10.0)?;
        panel(&panels[1], "MiB at the peak", curves, |p| mib(p.peak), |p| mib(p.least), 2.0)?;
    }
    root.present()?;
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    curves: &Curves,
    measured: fn(&Point) -> f64,
    limit: fn(&Point) -> f64,
    base: f64,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    const TEXT: (&str, u32) = ("sans-serif", 12);
    let colours = [RGBColor(213, 94, 0), RGBColor(0, 114, 178)];
    let points = || curves.columns.iter().flat_map(|(_, points)| points);
    let values = || points().flat_map(|p| [measured(p), limit(p)]);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let sizes = curves.axis.sizes;
    let (first, last) = (sizes[0] as f64, sizes[sizes.len() - 1] as f64);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .caption(title, TEXT)
        .x_label_area_size(34)
        .y_label_area_size(48)
        .build_cartesian_2d(
        (first..last * 1.05).log_scale().base(2.0),
        (low * 0.8..high * 1.3).log_scale().base(base),
    )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.5))
        .label_style(TEXT)
        .x_labels(sizes.len())
        .y_labels(6)
        .x_label_formatter(&|size| format!("{size:.0}"))
        .y_label_formatter(&|value| if *value < 1.0 { format!("{value}") } else { format!("{value:.0}") })
        .x_desc(curves.axis.unit)
        .draw()?;
    for ((column, points), colour) in curves.columns.iter().zip(colours) {
        let line = |of: fn(&Point) -> f64| points.iter().map(move |p| (p.size as f64, of(p)));
        chart.draw_series(LineSeries::new(line(limit), colour.mix(0.7).stroke_width(1)))?;
        chart
            .draw_series(LineSeries::new(line(measured), colour.stroke_width(3)))?
            .label(column.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(TRANSPARENT)
        .label_font(TEXT)
        .draw()?;
    Ok(())
}
