//! Colours on a terminal: 16-bit dtypes in one, float32 in another, errors in red.

use std::{
    borrow::Cow,
    ffi::OsString,
    io::{self, IsTerminal},
    sync::atomic::{AtomicU8, Ordering},
};

use clap::{
    ColorChoice, ValueEnum,
    builder::styling::{AnsiColor, Style},
};

const LOW: Style = AnsiColor::Cyan.on_default();
const FULL: Style = AnsiColor::Yellow.on_default();
const ERROR: Style = AnsiColor::Red.on_default().bold();

/// The value of `--color`, as its index in `ColorChoice`: the process has one standard output.
static CHOICE: AtomicU8 = AtomicU8::new(ColorChoice::Auto as u8);

pub(super) fn choose(choice: ColorChoice) {
    CHOICE.store(choice as u8, Ordering::Relaxed);
}

/// Returns the requested colours of a command line, read first of all, since its errors and its help are also coloured.
pub(super) fn asked_for(args: &[OsString]) -> ColorChoice {
    let args = args.iter().map(|arg| arg.to_str().unwrap_or_default());
    let next = args.clone().skip(1).chain([""]);
    let values = args.zip(next).filter_map(|(arg, next)| match arg {
        "--color" => Some(next),
        _ => arg.strip_prefix("--color="),
    });
    let known = values.filter_map(|value| ColorChoice::from_str(value, false).ok());
    known.last().unwrap_or(ColorChoice::Auto)
}

/// Returns whether a stream gets colours.
fn wanted(stream: &impl IsTerminal) -> bool {
    let choice = CHOICE.load(Ordering::Relaxed);
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    match choice {
        _ if choice == ColorChoice::Always as u8 => true,
        _ if choice == ColorChoice::Never as u8 => false,
        _ => stream.is_terminal() && !set("NO_COLOR") && !dumb(),
    }
}

/// Returns the word before an error.
pub(super) fn error_word() -> String {
    if wanted(&io::stderr()) { format!("{ERROR}error:{ERROR:#}") } else { "error:".into() }
}

/// Returns the text for standard output, with its dtypes coloured if that is wanted.
pub(super) fn painted(text: &str) -> Cow<'_, str> {
    if wanted(&io::stdout()) { paint(text).into() } else { text.into() }
}

/// Colours each dtype that is a word by itself, and not part of a name such as `o2-bf16`.
fn paint(text: &str) -> String {
    let in_name = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    let style = |word: &str| match word.trim_end_matches(['.', '-']) {
        "f16" | "bf16" | "float16" | "bfloat16" => Some(LOW),
        "f32" | "float32" => Some(FULL),
        _ => None,
    };
    let mut painted = String::with_capacity(2 * text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let named = in_name(first);
        let (word, after) = rest.split_at(rest.find(|c| in_name(c) != named).unwrap_or(rest.len()));
        match style(word) {
            Some(style) => painted += &format!("{style}{word}{style:#}"),
            None => painted += word,
        }
        rest = after;
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_are_painted_and_names_are_not() {
        let (low, full) = (|word: &str| format!("{LOW}{word}{LOW:#}"), |word: &str| format!("{FULL}{word}{FULL:#}"));
        let expected = format!("o2-bf16: runs {}, returns {} (of f16.weight)", low("f16"), full("f32"));
        assert_eq!(paint("o2-bf16: runs f16, returns f32 (of f16.weight)"), expected);
        assert_eq!(paint("größer"), "größer");
    }

    #[test]
    fn the_last_choice_on_the_line_counts() {
        let asked = |line: &str| asked_for(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(asked("plan --color always x --color=never"), ColorChoice::Never);
        assert_eq!(asked("plan --color"), ColorChoice::Auto);
    }
}
