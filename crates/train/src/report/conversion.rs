//! Reports of a conversion of a stored model, as a table and as a page.

use precast::{
    policy::{Rule, RunAs},
    storage::stored::{Converted, ConvertedTensor},
};
use precast_base::{printable, printable::bytes};

use super::{
    html::page_of,
    markup::{escaped, html_rows, html_table},
    table::{Layout, one_line_a_row},
};

const HEADER: [&str; 9] =
    ["tensor", "shape", "dtype", "largest", "not finite", "to infinity", "to zero", "to subnormal", "relative error"];
const NUMBERS: [usize; 6] = [3, 4, 5, 6, 7, 8];

/// Returns a table with a row for each tensor: its old and new dtypes, its largest value, and rounding losses.
pub fn conversion_table(converted: &Converted) -> String {
    conversion_table_by(converted, one_line_a_row)
}

/// Returns the table of [`conversion_table`] in another layout.
pub fn conversion_table_by(converted: &Converted, layout: Layout) -> String {
    layout(&HEADER, converted.tensors.iter().map(row).collect(), &NUMBERS)
}

/// Summarizes in a line how many tensors changed, and the number of bytes before and after.
pub fn conversion_summary(converted: &Converted) -> String {
    let Converted { tensors, bytes_before, bytes_after, .. } = converted;
    let changed: Vec<&ConvertedTensor> = tensors.iter().filter(|tensor| tensor.changed()).collect();
    let sum = |of: fn(&ConvertedTensor) -> u64| tensors.iter().map(of).sum::<u64>();
    let lost = [
        (sum(|tensor| tensor.not_finite.unwrap_or_default()), "were not finite"),
        (sum(|tensor| tensor.to_infinity), "became infinite"),
        (sum(|tensor| tensor.to_zero), "became 0"),
        (sum(|tensor| tensor.to_subnormal), "became subnormal"),
    ];
    let lost: Vec<String> =
        lost.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let lost = if lost.is_empty() { String::new() } else { format!("; values: {}", lost.join(", ")) };
    let (before, after) = (bytes(*bytes_before), bytes(*bytes_after));
    format!("{} of {} tensors changed; {before} before, {after} after{lost}", changed.len(), tensors.len())
}

/// The maximum number of tensors named in a line.
const NAMED: usize = 8;

/// Names in a line the tensors of low cells that are unchanged, with the reason and a rule to change them.
pub fn conversion_kept(converted: &Converted) -> Option<String> {
    let kept: Vec<(&str, &str)> =
        converted.tensors.iter().filter_map(|tensor| Some((tensor.name.as_str(), tensor.kept.as_deref()?))).collect();
    let (first, _) = kept.first()?;
    let some: Vec<String> =
        kept.iter().take(NAMED).map(|(name, why)| format!("`{}` ({why})", printable(name))).collect();
    let more = match kept.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let stay = match kept.len() {
        1 => "1 tensor of a cell that runs low stays as it was, not known as a weight".into(),
        n => format!("{n} tensors of cells that run low stay as they were, not known as weights"),
    };
    let rule = Rule::path(first, RunAs::Low).map(|rule| rule.to_line());
    let rule = rule.map_or(String::new(), |rule| format!("; a rule names a tensor to store it low: `{rule}`"));
    Some(format!("{stay}: {}{more}{rule}", some.join(", ")))
}

fn row(tensor: &ConvertedTensor) -> Vec<String> {
    let ConvertedTensor {
        name,
        shape,
        before,
        after,
        largest,
        not_finite,
        to_infinity,
        to_zero,
        to_subnormal,
        relative_error,
        ..
    } = tensor;
    let dtype = if tensor.changed() { format!("{before} -> {after}") } else { before.to_string() };
    let count = |count: &u64| if tensor.changed() { count.to_string() } else { "-".into() };
    vec![
        printable(name).into_owned(),
        format!("{shape:?}"),
        dtype,
        largest.map_or("-".into(), |largest| format!("{largest:.3e}")),
        not_finite.map_or("-".into(), |count| count.to_string()),
        count(to_infinity),
        count(to_zero),
        count(to_subnormal),
        if tensor.changed() { format!("{relative_error:.1e}") } else { "-".into() },
    ]
}

/// Returns a standalone page, light or dark like the reader's system. `heads` are lines of name and text above the
/// table.
pub fn conversion_html(converted: &Converted, heads: &[(&str, String)]) -> String {
    let heads = heads.iter().map(|(name, text)| vec![name.to_string(), text.clone()]);
    let heads = html_table(&["", ""], heads.collect(), &[]);
    let class = |tensor: &ConvertedTensor| match tensor.changed() {
        _ if tensor.to_infinity > 0 => "lost",
        true => "",
        false => "same",
    };
    let rows = converted.tensors.iter().map(|tensor| (class(tensor), row(tensor)));
    let kept = conversion_kept(converted).map(|kept| format!("<p>{}</p>\n", escaped(&kept))).unwrap_or_default();
    let (summary, table) = (conversion_summary(converted), html_rows(&HEADER, rows, &NUMBERS));
    page_of("What a conversion did", &format!("{heads}\n<p>{summary}</p>\n{kept}{table}\n"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use precast::{
        DType, Policy, Tensor,
        storage::{stored::StoredModel, weights},
    };

    use super::*;

    /// Converts a file with one tensor; only the library makes the result of a conversion.
    fn converted(test: &str) -> Converted {
        let file = |name: &str| std::env::temp_dir().join(format!("precast-{test}-{name}-{}", std::process::id()));
        let (from, to) = (file("from"), file("to"));
        weights::write(&from, [("fc.weight", Tensor::ones(&[1, 2], DType::F32))]).unwrap();
        let model = StoredModel::open(&from).unwrap();
        let plan = Policy::named("o2").unwrap().plan_outline(model.outline()).unwrap();
        let converted = plan.convert(&model, &to).unwrap();
        fs::remove_file(from).unwrap();
        fs::remove_file(to).unwrap();
        converted
    }

    #[test]
    fn a_page_shows_what_a_file_says_and_reads_none_of_it() {
        let mut converted = converted("page");
        (converted.bytes_before, converted.bytes_after) = (8, 4);
        let tensor = &mut converted.tensors[0];
        (tensor.name, tensor.shape) = ("<script>\"a\u{1b}&".into(), vec![2]);
        (tensor.before, tensor.after, tensor.kept) = ("f32".into(), "f16".into(), None);
        (tensor.largest, tensor.not_finite) = (Some(1e5), Some(3));
        (tensor.to_infinity, tensor.to_zero, tensor.to_subnormal, tensor.relative_error) = (1, 0, 2, 0.25);
        let page = conversion_html(&converted, &[("from", "<b>".into())]);
        assert!(page.contains("<tr class=\"lost\"><td>&lt;script&gt;&quot;a\\u{1b}&amp;</td>"), "{page}");
        assert!(page.contains("<td>&lt;b&gt;</td>") && !page.contains("<script>"), "{page}");
        let summary = "1 of 1 tensors changed; 8 B before, 4 B after; values: 3 were not finite, 1 became infinite, \
                       2 became subnormal";
        assert_eq!(conversion_summary(&converted), summary);
        let numbers = ["1.000e5", "3", "1", "0", "2"].map(|number| format!("<td class=\"number\">{number}</td>"));
        assert!(page.contains(&numbers.concat()), "{page}");
    }

    #[test]
    fn tensors_that_stay_are_counted_and_some_of_them_named() {
        let mut converted = converted("kept");
        converted.tensors[0].kept = Some("a moving average".into());
        converted.tensors = vec![converted.tensors[0].clone(); 20];
        let line = conversion_kept(&converted).unwrap();
        let named = ["`fc.weight` (a moving average)"; 8].join(", ");
        let head = "20 tensors of cells that run low stay as they were, not known as weights: ";
        assert!(
            line.starts_with(&format!("{head}{named} and 12 more; a rule names a tensor to store it low: `{{ path: ")),
            "{line}"
        );
    }
}
