//! A chart of a search: the error of each run against the number of cells lowered or quantized.

use plotters::prelude::*;
use precast::error::Result;
use precast_base::printable;
use precast_diagnose::tune::Tuned;

use super::{
    chart::{builder, grid, picture, power_of, whole},
    names::{TEXT, colour},
};

const SIZE: (u32, u32) = (960, 420);

/// Draws a search as an SVG document: a point for each set that was run, with its error on a logarithmic axis; a cross
/// for one beyond the budget; and a line for the budget. An error that is not finite is at the upper edge, one of 0 at
/// the lower edge.
///
/// # Errors
/// [`ErrorKind::Value`](precast::ErrorKind::Value) when it cannot be drawn.
pub fn tune_chart(tuned: &Tuned) -> Result<String> {
    let errors = || tuned.runs.iter().map(|run| run.error).filter(|error| error.is_finite() && *error > 0.0);
    let low = errors().fold(tuned.budget, f64::min) / 3.0;
    let high = errors().fold(tuned.budget, f64::max) * 3.0;
    let points = || {
        let inside = |error: f64| if error.is_nan() { high } else { error.clamp(low, high) };
        tuned.runs.iter().map(move |run| ((run.low as f64, inside(run.error)), run.error <= tuned.budget))
    };
    let most = tuned.cells.len().max(1) as f64;
    picture(SIZE, |root| {
        let mut chart = builder(root, 44).build_cartesian_2d(0.0..most, (low..high).log_scale())?;
        grid(&mut chart.configure_mesh())
            .x_label_formatter(&|cells| whole(*cells))
            .y_label_formatter(&|error| power_of(10.0, *error))
            .x_desc(format!(
                "cells {} (a cross marks a set beyond the budget; at the upper edge, its error is not finite)",
                tuned.verb()
            ))
            .y_desc(tuned.metric)
            .draw()?;
        let budget = format!("budget {}", printable::number(tuned.budget));
        let line = colour(1).stroke_width(2);
        chart
            .draw_series(LineSeries::new([(0.0, tuned.budget), (most, tuned.budget)], line))?
            .label(budget)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], line));
        let passed = points().filter(|(_, passed)| *passed);
        chart.draw_series(passed.map(|(point, _)| Circle::new(point, 4, colour(0).filled())))?;
        let failed = points().filter(|(_, passed)| !*passed);
        chart.draw_series(failed.map(|(point, _)| Cross::new(point, 4, colour(1).stroke_width(2))))?;
        let mut legend = chart.configure_series_labels();
        let legend = legend.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.85));
        legend.border_style(TRANSPARENT).label_font(TEXT).draw()?;
        Ok(())
    })
}
