//! Time of painting per node, from a hundred to a million nodes: `cargo bench --bench paint [-- --svg FILE]`.
//!
//! The graph is a chain of blocks, each a product, its activation, and a branch added to it. With `--svg`, the growth
//! is drawn.

use std::{error::Error, hint::black_box, time::Instant};

use plotters::prelude::*;
use precast::{DType, Result, policy::Pack};
use precast_graph::{
    GraphPolicy, Port,
    conformance::{Device, TypeGraph, casts, paint},
};

const SIZES: [usize; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];

/// Phases timed.
const WORKS: [&str; 3] = ["build", "paint", "casts"];

/// Builds a chain of blocks; every other one has a sum, which is on the deny list, in its branch.
fn graph(nodes: usize) -> Result<TypeGraph> {
    let mut graph = TypeGraph::default();
    let mut add = |op: &str, inputs: &[Port]| {
        let name = format!("{op}_{}", graph.nodes.len());
        graph.add(&name, op, DType::F32, inputs)
    };
    let mut x = add("Placeholder", &[])?;
    for block in 0..nodes / 5 {
        let weight = add("Const", &[])?;
        let product = add("MatMul", &[x, weight])?;
        let relu = add("Relu", &[product])?;
        let branch = add(if block % 2 == 0 { "Sum" } else { "Tanh" }, &[relu])?;
        x = add("Add", &[relu, branch])?;
    }
    Ok(graph)
}

/// Returns the minimum nanoseconds per node of each phase on a graph of this size.
fn measure(size: usize) -> Result<[f64; 3]> {
    let policy = GraphPolicy::from_pack(DType::F16, Pack::named("tensorflow-2.21-fp16")?)?;
    let device = Device::any();
    let mut least = [f64::INFINITY; 3];
    for _ in 0..(5_000_000 / size).clamp(5, 200) {
        let start = Instant::now();
        let graph = graph(size)?;
        let built = Instant::now();
        let painting = paint(&graph, &policy, &device)?;
        let painted = Instant::now();
        black_box(casts(&graph, &painting));
        let times = [built - start, painted - built, painted.elapsed()];
        for (least, time) in least.iter_mut().zip(times) {
            *least = least.min(time.as_secs_f64() * 1e9 / graph.nodes.len() as f64);
        }
    }
    Ok(least)
}

/// Draws a line for each phase, over the nodes.
fn draw(file: &str, figures: &[[f64; 3]]) -> std::result::Result<(), Box<dyn Error>> {
    const TEXT: (&str, u32) = ("sans-serif", 14);
    let colours = [RGBColor(0, 158, 115), RGBColor(0, 114, 178), RGBColor(213, 94, 0)];
    let most = figures.iter().flatten().copied().fold(0.0, f64::max);
    let root = SVGBackend::new(file, (720, 360)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((80.0..1_250_000.0).log_scale(), 0.0..most * 1.3)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.5))
        .label_style(TEXT)
        .x_label_formatter(&|nodes| format!("{nodes:.0}"))
        .y_label_formatter(&|time| format!("{time:.0}"))
        .x_desc("nodes")
        .y_desc("nanoseconds for each node")
        .draw()?;
    for (i, (work, colour)) in WORKS.into_iter().zip(colours).enumerate() {
        let points = SIZES.iter().zip(figures).map(|(&size, figures)| (size as f64, figures[i]));
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style).point_size(3))?
            .label(work)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(TRANSPARENT)
        .label_font(TEXT)
        .draw()?;
    root.present()?;
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    println!("nanoseconds for each node\n{:>9}  {:>7} {:>7} {:>7}", "nodes", WORKS[0], WORKS[1], WORKS[2]);
    let mut figures = Vec::new();
    for size in SIZES {
        let [build, paint, casts] = measure(size)?;
        println!("{size:>9}  {build:>7.0} {paint:>7.0} {casts:>7.0}");
        figures.push([build, paint, casts]);
    }
    let mut arguments = std::env::args().skip_while(|argument| argument != "--svg").skip(1);
    arguments.next().map_or(Ok(()), |file| draw(&file, &figures))
}
