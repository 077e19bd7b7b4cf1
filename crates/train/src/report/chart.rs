//! Charts of training runs: losses and loss scales as SVG.

use std::{ops::Range, path::Path};

use plotters::{
    chart::MeshStyle,
    coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter},
    prelude::*,
};
use precast::error::{Error, Result};
use precast_base::files;

use super::{
    TrainingRun, joint_name,
    names::{Area, Drawn, TEXT, WIDTH, colour, draw_names, height_of},
    same_course,
};
use crate::training::Score;

const SIZE: (u32, u32) = (WIDTH, 640);
/// Height of the upper part.
const LOSS_HEIGHT: u32 = 380;

/// Draws the runs as an SVG document.
///
/// The upper part shows the loss of each step as a thin line and its running mean as a thick one, the lower part the
/// loss scale; both axes are logarithmic. A cross on the scale marks a skipped step. Losses that are not finite are
/// omitted. Losses far below the means, or not above 0, are drawn at the lower edge. Runs with the [same
/// course](same_course) share one curve.
///
/// # Errors
/// [`ErrorKind::Value`](precast::ErrorKind::Value) when no run has a step with a finite loss.
pub fn chart(runs: &[TrainingRun<'_>]) -> Result<String> {
    let all = || runs.iter().flat_map(|run| &run.history.steps);
    if !all().any(|step| step.loss.is_finite()) {
        return Err(Error::value("there is nothing to draw: no run has a step with a finite loss"));
    }
    let groups = same_course(runs);
    let names: Vec<String> = groups.iter().map(|group| joint_name(group)).collect();
    let of_names = height_of(&names);
    picture((SIZE.0, SIZE.1 + of_names), |root| {
        let (top, curves) = root.split_vertically(of_names);
        draw_names(&top, &names)?;
        let (above, below) = curves.split_vertically(LOSS_HEIGHT);
        let most = runs.iter().map(|run| run.history.steps.len()).max().unwrap_or(0);
        let steps = 0.0..(most.max(2) - 1) as f64;
        draw_losses(&above, &groups, steps.clone())?;
        draw_scales(&below, &groups, steps)
    })
}

/// Writes [`chart`] to a file, in one step.
///
/// # Errors
/// As [`chart`], and [`ErrorKind::Io`](precast::ErrorKind::Io) when the file cannot be written.
pub fn save_chart(file: impl AsRef<Path>, runs: &[TrainingRun<'_>]) -> Result<()> {
    files::replace(file, chart(runs)?.as_bytes())
}

/// Draws the score of each epoch as an SVG document, with a curve for each run; `None` if there are fewer than two
/// epochs, or the runs have different kinds of scores.
///
/// # Errors
/// [`ErrorKind::Value`](precast::ErrorKind::Value) when it cannot be drawn.
pub fn score_chart(runs: &[TrainingRun<'_>]) -> Result<Option<String>> {
    let groups = same_course(runs);
    let curves: Vec<Points> = groups
        .iter()
        .map(|group| {
            let epochs = group[0].history.epochs.iter().map(|epoch| ((epoch.epoch + 1) as f64, epoch.score.number()));
            epochs.filter(|(_, score)| score.is_finite()).collect()
        })
        .collect();
    let mut names = runs.iter().filter_map(|run| run.history.score()).map(Score::name);
    let Some(name) = names.next() else { return Ok(None) };
    let last = curves.iter().flatten().map(|(epoch, _)| *epoch).fold(0.0, f64::max);
    if names.any(|other| other != name) || last < 2.0 {
        return Ok(None);
    }
    let all = || curves.iter().flatten().map(|(_, score)| *score);
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max));
    // A single value needs an axis around it.
    let room = if low < high { 0.05 * (high - low).max(1e-3 * high.abs()) } else { (0.05 * high.abs()).max(0.05) };
    let names: Vec<String> = groups.iter().map(|group| joint_name(group)).collect();
    let of_names = height_of(&names);
    // Errors fall over decades; accuracies do not.
    let is_error = runs.iter().any(|run| run.history.score().is_some_and(|score| score.accuracy().is_none()));
    let svg = picture((SIZE.0, SIZE.1 - LOSS_HEIGHT + 60 + of_names), |root| {
        let (top, below) = root.split_vertically(of_names);
        draw_names(&top, &names)?;
        let (epochs, sets) = ((1.0..last, Some("epoch")), [(&curves[..], 1.0, 2)]);
        match is_error && low > 0.0 && high / low > LINEAR {
            true => draw_on(&below, epochs, ((low / 1.5..high * 1.5).log_scale(), name), &sets),
            false => draw_on(&below, epochs, (low - room..high + room, name), &sets),
        }
    })?;
    Ok(Some(svg))
}

/// Draws a picture as an SVG document.
pub(super) fn picture(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    let drawn = (|| -> Drawn {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        draw(&root)?;
        root.present()?;
        Ok(())
    })();
    drawn.map_err(|e| Error::value(format!("the picture could not be drawn: {e}")))?;
    Ok(svg)
}

/// Begins a chart in an area, with this height for the labels below it.
pub(super) fn builder<'a, 'b>(area: &'a Area<'b>, below: u32) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(12).margin_right(24).x_label_area_size(below).y_label_area_size(64);
    builder
}

/// Sets the style of axes and grid.
pub(super) fn grid<'m, 'a, 'b, X, Y, DB>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, DB>,
) -> &'m mut MeshStyle<'a, 'b, X, Y, DB>
where
    X: Ranged + ValueFormatter<X::ValueType>,
    Y: Ranged + ValueFormatter<Y::ValueType>,
    DB: DrawingBackend,
{
    mesh.disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.5))
        .label_style(TEXT)
}

/// Draws sets of curves on these axes: each curve in its colour, each set with its opacity and its width.
fn draw_on<Y: AsRangedCoord<Value = f64>>(
    area: &Area<'_>,
    (x, x_name): (Range<f64>, Option<&str>),
    (y, y_name): (Y, &str),
    sets: &[(&[Points], f64, u32)],
) -> Drawn
where
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let mut chart = builder(area, if x_name.is_some() { 44 } else { 28 }).build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    grid(&mut mesh).x_label_formatter(&|x| whole(*x)).y_label_formatter(&|y| tick(*y)).y_desc(y_name);
    if let Some(name) = x_name {
        mesh.x_desc(name);
    }
    mesh.draw()?;
    for (curves, visible, width) in sets {
        for (i, points) in curves.iter().enumerate() {
            let style = colour(i).mix(*visible).stroke_width(*width);
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        }
    }
    Ok(())
}

/// Runs with the same course.
type Group<'a> = Vec<TrainingRun<'a>>;

/// Points of a curve.
type Points = Vec<(f64, f64)>;

/// Ratio of the largest to the smallest loss up to which the axis is linear: a logarithmic one would have no two ticks.
const LINEAR: f64 = 20.0;

fn draw_losses(area: &Area<'_>, groups: &[Group<'_>], steps: Range<f64>) -> Drawn {
    let losses: Vec<Points> = groups.iter().map(|group| losses(&group[0])).collect();
    let shortest = losses.iter().map(Vec::len).filter(|len| *len > 0).min().unwrap_or(0);
    let window = (shortest / 40).max(1);
    let means: Vec<Points> = losses.iter().map(|losses| running_mean(losses, window)).collect();
    let range = range_of(&losses, &means);
    let inside = |curves: Vec<Points>| -> Vec<Points> {
        let of_curve = |points: Points| points.into_iter().map(|(x, y)| (x, y.max(range.start))).collect();
        curves.into_iter().map(of_curve).collect()
    };
    let (losses, means) = (inside(losses), inside(means));
    let sets = [(&losses[..], 0.25, 1), (&means[..], 1.0, 2)];
    let name = if window > 1 { format!("loss (thick: mean of {window} steps)") } else { "loss".into() };
    match range.end / range.start <= LINEAR {
        true => draw_on(area, (steps, None), (range, &name), &sets),
        false => draw_on(area, (steps, None), (range.log_scale(), &name), &sets),
    }
}

fn draw_scales(area: &Area<'_>, groups: &[Group<'_>], steps: Range<f64>) -> Drawn {
    let scales = || groups.iter().flat_map(|group| &group[0].history.steps).map(|step| f64::from(step.scale));
    let (low, high) = (scales().fold(f64::MAX, f64::min), scales().fold(1.0, f64::max));
    let mut chart = builder(area, 44).build_cartesian_2d(steps, (low / 2.0..high * 2.0).log_scale().base(2.0))?;
    grid(&mut chart.configure_mesh())
        .x_label_formatter(&|step| whole(*step))
        .y_label_formatter(&|scale| power_of(2.0, *scale))
        .y_labels(8)
        .x_desc("step (a cross marks a step that was skipped)")
        .y_desc("loss scale")
        .draw()?;
    for (i, group) in groups.iter().enumerate() {
        let history = group[0].history;
        let points: Vec<(f64, f64)> =
            history.steps.iter().enumerate().map(|(x, step)| (x as f64, f64::from(step.scale))).collect();
        chart.draw_series(LineSeries::new(staircase(&points), colour(i).stroke_width(2)))?;
        let skipped = points.iter().zip(&history.steps).filter(|(_, step)| step.is_skipped());
        chart.draw_series(skipped.map(|(&point, _)| Cross::new(point, 4, colour(i).stroke_width(2))))?;
    }
    Ok(())
}

/// Formats a number of an axis that may be logarithmic.
fn tick(number: f64) -> String {
    if (0.01..=100.0).contains(&number.abs()) || number == 0.0 { short(number) } else { power_of(10.0, number) }
}

/// Formats a number of an axis in few letters, without digits due to rounding: `0.25`, `1.6e6`.
fn short(number: f64) -> String {
    if number != 0.0 && !(1e-3..1e4).contains(&number.abs()) && number.abs() > 1e-12 {
        let text = format!("{number:.3e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    let text = format!("{number:.4}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_string(),
        text => text.to_string(),
    }
}

/// Formats a number of an axis that counts; one between two counts has no label.
pub(super) fn whole(number: f64) -> String {
    if (number - number.round()).abs() < 1e-6 { format!("{number:.0}") } else { String::new() }
}

/// Returns the finite losses of a run with their steps.
fn losses(run: &TrainingRun<'_>) -> Vec<(f64, f64)> {
    let steps = run.history.steps.iter().enumerate();
    steps.map(|(x, step)| (x as f64, step.loss)).filter(|(_, loss)| loss.is_finite()).collect()
}

/// Returns the mean of each loss and the losses before it, over this number of steps.
fn running_mean(points: &[(f64, f64)], window: usize) -> Vec<(f64, f64)> {
    let mean = |i: usize| {
        let recent = &points[(i + 1).saturating_sub(window)..=i];
        recent.iter().map(|point| point.1).sum::<f64>() / recent.len() as f64
    };
    points.iter().enumerate().map(|(i, point)| (point.0, mean(i))).collect()
}

/// Returns the loss axis: from the lowest mean to the highest loss, eight decades at most.
fn range_of(losses: &[Vec<(f64, f64)>], means: &[Vec<(f64, f64)>]) -> Range<f64> {
    let high = losses.iter().flatten().map(|point| point.1).fold(0.0, f64::max).min(f64::MAX / 2.0);
    let high = if high > 0.0 { high.max(1e-300) } else { 1.0 };
    let low = means.iter().flatten().map(|point| point.1).fold(high, f64::min).max(high * 1e-8);
    low / 1.5..high * 1.5
}

/// Returns the points with corners: a scale is constant until the step at which it changes.
fn staircase(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let corners = points.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
    corners.chain(points.last().copied()).collect()
}

/// Formats `65536` as `2¹⁶`, and a number that is not a power of the base with four digits at most.
pub(super) fn power_of(base: f64, number: f64) -> String {
    let exponent = number.log(base).round();
    if (number / base.powf(exponent) - 1.0).abs() > 1e-6 {
        return short(format!("{number:.3e}").parse::<f64>().unwrap_or(number));
    }
    let superscript = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => char::from_u32('⁰' as u32 + digit.to_digit(10).unwrap_or(0)).unwrap_or(digit),
    };
    let exponent: String = format!("{exponent:.0}").chars().map(superscript).collect();
    format!("{base}{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::{History, Step};
    use precast::scale::{Cause, Outcome};
    use serde_json::json;

    fn run_of(losses: &[f64]) -> History {
        let step = |(i, &loss): (usize, &f64)| {
            let cause = Cause::Overflow { scale: 1024.0, first: "fc.weight".into(), origin: None };
            let skipped = Outcome::Skipped { cause };
            let outcome = if i == 1 { skipped } else { Outcome::Stepped };
            let scale = if i < 2 { 1024.0 } else { 512.0 };
            // Only the library makes the record of a step.
            let step = json!({"epoch": 0, "loss": null, "scale": scale, "outcome": outcome, "seconds": 0.0});
            let mut step: Step = serde_json::from_value(step).unwrap();
            step.loss = loss;
            step
        };
        History { steps: losses.iter().enumerate().map(step).collect(), ..History::default() }
    }

    #[test]
    fn names_are_shown_and_escaped() {
        let history = run_of(&[2.0, 1.0, 0.5]);
        let svg = chart(&[
            TrainingRun { name: "O2 <f16>", history: &history },
            TrainingRun { name: "O0", history: &history },
        ])
        .unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("O2 &lt;f16&gt;") && svg.contains("O0") && svg.contains("loss scale"));
    }

    #[test]
    fn runs_of_the_same_course_are_one_curve() {
        let (one, other) = (run_of(&[2.0, 1.0, 0.5]), run_of(&[2.0, 1.0, 0.25]));
        let runs = [("a", &one), ("b", &other), ("c", &one)].map(|(name, history)| TrainingRun { name, history });
        let names: Vec<String> = same_course(&runs).iter().map(|group| joint_name(group)).collect();
        assert_eq!(names, ["a = c", "b"]);
        let (both, first) = (chart(&runs).unwrap(), chart(&runs[..2]).unwrap());
        assert!(both.contains("a = c"));
        assert_eq!(both.matches("<polyline").count(), first.matches("<polyline").count());
    }

    #[test]
    fn every_run_that_can_be_drawn_is_drawn() {
        for losses in [&[1.0][..], &[0.0, 0.0], &[-1.0, -2.0], &[f64::NAN, 1.0], &[f64::INFINITY, 3e300, 1e-300]] {
            let history = run_of(losses);
            assert!(chart(&[TrainingRun { name: "x", history: &history }]).is_ok(), "{losses:?}");
        }
        for losses in [&[][..], &[f64::NAN, f64::INFINITY]] {
            let history = run_of(losses);
            assert!(chart(&[TrainingRun { name: "x", history: &history }]).is_err(), "{losses:?}");
        }
        assert!(chart(&[]).is_err());
    }

    #[test]
    fn the_mean_runs_over_the_last_steps() {
        let points: Vec<(f64, f64)> = (0..80).map(|x| (x as f64, x as f64)).collect();
        let mean = running_mean(&points, 2);
        assert_eq!(mean[0], (0.0, 0.0));
        assert_eq!(mean[79], (79.0, 78.5));
    }

    #[test]
    fn scales_are_written_as_powers() {
        assert_eq!([65536.0, 1.0, 0.5, 100.0].map(|scale| power_of(2.0, scale)), ["2¹⁶", "2⁰", "2⁻¹", "100"]);
        assert_eq!([100.0, 0.001, 0.2].map(|loss| power_of(10.0, loss)), ["10²", "10⁻³", "0.2"]);
        // Ticks of an axis are computed, and so nearly powers.
        assert_eq!([9.999999996e-5, 2.0000000004].map(|error| power_of(10.0, error)), ["10⁻⁴", "2"]);
        assert_eq!([1.0, 1.5, 2.0000000001].map(whole), ["1", "", "2"]);
        assert_eq!([-1e-17, 0.5, 3.0].map(short), ["0", "0.5", "3"]);
        assert_eq!([1.6e6, -25000.0, 1.25e-5].map(short), ["1.6e6", "-2.5e4", "1.25e-5"]);
        assert_eq!([1.6e6, 1e6, 250.0].map(tick), ["1.6e6", "10⁶", "250"]);
    }
}
