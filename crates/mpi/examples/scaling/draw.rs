//! Efficiency over ranks, drawn.

use std::error::Error;

use plotters::prelude::*;

use crate::{Figures, VARIANTS};

/// Draws a panel for each network: a line for each network of wires, in float32 with nothing hidden, and a thin one in bf16
/// with most of the exchange hidden.
pub fn draw(file: &str, figures: &Figures) -> Result<(), Box<dyn Error>> {
    const TEXT: (&str, u32) = ("sans-serif", 14);
    let colours = [RGBColor(213, 94, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115)];
    let root = SVGBackend::new(file, (880, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let (first, last) = (figures.ranks.first().copied().unwrap_or(8), figures.ranks.last().copied().unwrap_or(4096));
    for (trained, panel) in figures.trained.iter().zip(root.split_evenly((1, figures.trained.len()))) {
        let mut chart = ChartBuilder::on(&panel)
            .margin(12)
            .margin_right(24)
            .caption(&trained.name, TEXT)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d((first as f64 * 0.9..last as f64 * 1.1).log_scale().base(2.0), 0.0..105.0)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .axis_style(BLACK.mix(0.5))
            .label_style(TEXT)
            .x_label_formatter(&|ranks| format!("{ranks:.0}"))
            .y_label_formatter(&|share| format!("{share:.0}"))
            .x_desc("ranks")
            .y_desc("% of a step in which a rank computes")
            .draw()?;
        for (wires, colour) in figures.wires.iter().zip(colours) {
            for (variant, width, note) in [(VARIANTS[0], 3, ""), (VARIANTS[4], 1, ", bf16, hidden")] {
                let point = |&ranks: &usize| (ranks as f64, 100.0 * figures.efficiency(trained, wires, ranks, variant));
                let style = colour.stroke_width(width);
                chart
                    .draw_series(LineSeries::new(figures.ranks.iter().map(point), style))?
                    .label(format!("{}{note}", wires.name))
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(TRANSPARENT)
            .label_font(TEXT)
            .draw()?;
    }
    root.present()?;
    Ok(())
}
