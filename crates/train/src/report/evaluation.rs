//! Scores in detail, as text and as HTML.

use std::fmt::Write as _;

use precast_base::printable;

use super::{
    markup::{escaped, html_table},
    table::{Layout, one_line_a_row},
};
use crate::training::{ClassScores, Evaluation, NumberScore, NumberScores};

/// Maximum number of classes with a row of their own.
const MOST_CLASSES: usize = 200;

/// Maximum number of classes in a confusion matrix that is shown as text, and as HTML.
const MOST_CONFUSED: [usize; 2] = [20, 60];

/// Returns the scores of each class and the confusion matrix, or the errors of each target, as tables.
pub fn evaluation_table(evaluation: &Evaluation) -> String {
    evaluation_table_by(evaluation, one_line_a_row)
}

/// Returns the tables of [`evaluation_table`] in another layout.
pub fn evaluation_table_by(evaluation: &Evaluation, layout: Layout) -> String {
    match evaluation {
        Evaluation::Classes(scores) => {
            let mut text = classes_table(scores, layout);
            if scores.confusion.is_empty() || scores.classes.len() > MOST_CONFUSED[0] {
                return text;
            }
            let names = || scores.classes.iter().map(|class| printable(&class.name).into_owned());
            let header: Vec<String> = ["target \\ answer".to_string()].into_iter().chain(names()).collect();
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            let row = |(name, counts): (String, &Vec<usize>)| {
                [name].into_iter().chain(counts.iter().map(usize::to_string)).collect()
            };
            let rows = names().zip(&scores.confusion).map(row).collect();
            text += "\n\n";
            text + &layout(&header, rows, &Vec::from_iter(1..header.len()))
        }
        Evaluation::Numbers(scores) => numbers_table(scores, layout),
    }
}

fn classes_table(scores: &ClassScores, layout: Layout) -> String {
    let number = |share: f64| format!("{share:.4}");
    let rows = scores.classes.iter().take(MOST_CLASSES).map(|class| {
        let name = printable(&class.name).into_owned();
        vec![name, class.count.to_string(), number(class.precision), number(class.recall), number(class.f1)]
    });
    let mean = |of: fn(&crate::training::ClassScore) -> f64| {
        number(scores.classes.iter().map(of).sum::<f64>() / scores.classes.len() as f64)
    };
    let macro_mean = vec![
        "mean of the classes".to_string(),
        scores.count.to_string(),
        mean(|class| class.precision),
        mean(|class| class.recall),
        number(scores.macro_f1),
    ];
    let header = ["class", "examples", "precision", "recall", "F1"];
    layout(&header, rows.chain([macro_mean]).collect(), &[1, 2, 3, 4])
}

fn numbers_table(scores: &NumberScores, layout: Layout) -> String {
    let row = |score: &NumberScore| {
        let name = if score.name.is_empty() { "all".into() } else { printable(&score.name).into_owned() };
        let errors = [score.mean_squared_error, score.root_mean_squared_error, score.mean_absolute_error];
        let errors = errors.iter().map(|error| format!("{error:.4e}"));
        let r_squared = format!("{:.4}", score.r_squared);
        let accuracy = score.accuracy.map(|share| format!("{share:.4}"));
        [name, score.count.to_string()].into_iter().chain(errors).chain([r_squared]).chain(accuracy).collect()
    };
    let mut header = vec!["target", "numbers", "MSE", "RMSE", "MAE", "R²"];
    header.extend(scores.total.accuracy.map(|_| "accuracy at 0.5"));
    layout(&header, scores.targets.iter().chain([&scores.total]).map(row).collect(), &Vec::from_iter(1..header.len()))
}

/// Returns the scores as HTML: the tables, with the confusion matrix shaded by the share of each target.
pub(super) fn evaluation_html(evaluation: &Evaluation) -> String {
    let first = format!("<p>{}: {}</p>\n", evaluation.score().name(), escaped(&evaluation.score().to_string()));
    first
        + &match evaluation {
            Evaluation::Classes(scores) => {
                let left_out = match scores.classes.len().saturating_sub(MOST_CLASSES) {
                    0 => String::new(),
                    more => format!("<p>{more} more classes are in <code>scores.json</code>.</p>\n"),
                };
                classes_table(scores, html_table) + &left_out + &confusion(scores)
            }
            Evaluation::Numbers(scores) => numbers_table(scores, html_table),
        }
}

/// Draws the confusion matrix: a row for each class of the targets, a column for each of the answers.
fn confusion(scores: &ClassScores) -> String {
    if scores.confusion.is_empty() || scores.classes.len() > MOST_CONFUSED[1] {
        return String::new();
    }
    let mut html = String::from(
        "<h3>Confusion matrix: targets in rows, answers in columns</h3>\n<div class=\"table\"><table class=\"confusion\">\n",
    );
    let heads = scores.classes.iter().map(|class| format!("<th class=\"number\">{}</th>", escaped(&class.name)));
    html += &format!("<tr><th></th>{}</tr>\n", heads.collect::<String>());
    for (row, (class, counts)) in scores.classes.iter().zip(&scores.confusion).enumerate() {
        let cell = |(column, &count): (usize, &usize)| {
            // Blue for right answers, orange for wrong ones: told apart with the common colour-vision deficiencies.
            let colour = if row == column { "0, 114, 178" } else { "213, 94, 0" };
            let share = count as f64 / class.count.max(1) as f64;
            let shade = if count == 0 { 0.0 } else { 0.08 + 0.6 * share };
            let title = format!("{} answered as {}", escaped(&class.name), escaped(&scores.classes[column].name));
            let text = if count == 0 { String::new() } else { count.to_string() };
            format!(
                "<td class=\"number\" title=\"{title}: {count}\" style=\"background: rgba({colour}, {shade:.2})\">{text}</td>"
            )
        };
        let cells: String = counts.iter().enumerate().map(cell).collect();
        writeln!(html, "<tr><th>{}</th>{cells}</tr>", escaped(&class.name)).expect("writing to a string");
    }
    html + "</table></div>"
}
