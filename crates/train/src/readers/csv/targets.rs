//! Targets of the rows: classes or numbers.

use std::collections::BTreeSet;

use precast::error::{Error, Result};

use super::{
    Csv, TargetKind,
    cells::{MARKS, is_error},
    number_format::{MINUS, POINTS, UNIT},
    table::Table,
};
use crate::readers::in_message;
use crate::{
    data::{Targets, numbers::Wide},
    readers::class_names::ClassNames,
};

/// The targets of a table.
pub(super) struct Found {
    pub targets: Targets,
    pub class_names: Vec<String>,
    /// Digits of the numbers that f32 cannot represent.
    pub wide: Wide,
    pub notes: Vec<String>,
}

/// Number of rows from which distinct classes in all of them suggest numbers or names instead.
const MANY: usize = 10;

impl Table<'_> {
    /// Reads the targets in some columns.
    pub fn targets(&self, csv: &Csv, places: &[usize]) -> Result<Found> {
        let mut found =
            Found { targets: Targets::None, class_names: Vec::new(), wide: Wide::default(), notes: Vec::new() };
        let &[first, ref others @ ..] = places else { return Ok(found) };
        let kind = match csv.kind() {
            Some(kind) => kind,
            None if !others.is_empty() => TargetKind::Numbers,
            None if !csv.class_names.is_empty() => TargetKind::Classes,
            None => self.kind(first)?,
        };
        match kind {
            TargetKind::Classes if !others.is_empty() => {
                return Err(Error::value(format!("classes in {} columns; allowed: one column", places.len())));
            }
            TargetKind::Classes => {
                let (values, names) = self.classes(first, &csv.class_names)?;
                let are_numbers = || names.iter().all(|name| self.format.number(name).is_some());
                if csv.r#as.is_none() && values.len() >= MANY && names.len() == values.len() {
                    let column = self.shown(first);
                    let words = format!("{column}: each of the {} rows is a class of its own", values.len());
                    let cure = if are_numbers() { "`as: numbers` reads numbers" } else { "none tells of another row" };
                    found.notes.push(format!("{}: {words}; {cure}", self.origin()));
                }
                (found.targets, found.class_names) = (Targets::Classes { shape: vec![], values }, names);
            }
            TargetKind::Numbers => {
                let (values, wide, notes) = self.numbers(places, false)?;
                found.targets = Targets::Numbers { shape: vec![places.len()], values };
                (found.wide, found.notes) = (wide, notes);
            }
        }
        Ok(found)
    }

    /// Determines the kind of a target column: text and integers are classes; numbers with a fraction, an exponent or
    /// thousands are numbers.
    fn kind(&self, place: usize) -> Result<TargetKind> {
        let (mut number, mut text) = (None, None);
        let (mut texts, mut formatted, mut looks_so) = (0, 0, None);
        let (mut unread, mut is_unread) = (0, None);
        for row in self.rows() {
            let row = row?;
            let cell = self.target(&row, place)?;
            if self.format.number(cell).is_none() {
                text.get_or_insert_with(|| (row.line, cell.to_string()));
                texts += 1;
                if !self.format.others(&[cell]).is_empty() {
                    looks_so.get_or_insert_with(|| (row.line, cell.to_string()));
                    formatted += 1;
                }
                if is_error(cell) {
                    let words =
                        format!("{}: `{cell}` is an error of a spreadsheet: remove these rows", self.shown(place));
                    return Err(self.at(row.line, format!("{words}; if it is a class, say `as: classes`")));
                }
                // Whole numbers are classes, however they are written.
                let told = self.format.told_of(cell).filter(|(what, _)| *what == UNIT || cell.contains(POINTS));
                if let Some(told) = told {
                    is_unread.get_or_insert_with(|| (row.line, cell.to_string(), told));
                    unread += 1;
                }
            } else if cell.trim_start_matches(MINUS).parse::<i64>().is_err() {
                number.get_or_insert_with(|| (row.line, cell.to_string()));
            }
        }
        // Words among numbers often mark missing values.
        if let Some((line, cell)) = looks_so.filter(|_| 2 * formatted > texts) {
            let formats = self.formats(place, &cell).join(", or with ");
            let words = format!("`{}` looks like a number with {formats}", in_message(&cell));
            return Err(self.at(line, format!("{}: {words}; if it is a class, say `as: classes`", self.shown(place))));
        }
        if let Some((line, cell, (what, how))) = is_unread.filter(|_| 2 * unread > texts) {
            let words = format!("`{}` looks like a number {what}; {how}", in_message(&cell));
            return Err(self.at(line, format!("{}: {words}; if it is a class, say `as: classes`", self.shown(place))));
        }
        match (number, text) {
            (Some(_), Some((line, text))) if MARKS.contains(&&text[..]) => {
                let words = format!("`{}` marks a target that is not known: remove these rows", in_message(&text));
                Err(self.at(line, format!("{}: {words}; if it is a class, say `as: classes`", self.shown(place))))
            }
            (Some((line, number)), Some(_)) if self.format.number(&number).is_some_and(f64::is_nan) => {
                let words = format!("`{}` among words marks a missing label: remove these rows", in_message(&number));
                Err(self.at(line, format!("{}: {words}; if it is a class, say `as: classes`", self.shown(place))))
            }
            (Some((line, number)), Some((other, text))) => Err(self.at(
                other,
                format!(
                    "{}: `{}` is not a number, but `{number}` in line {line} is; say `as: classes` or `as: numbers`",
                    self.shown(place),
                    in_message(&text)
                ),
            )),
            (Some(_), None) => Ok(TargetKind::Numbers),
            (None, _) => Ok(TargetKind::Classes),
        }
    }

    /// Returns the class of each row, and the class names: those given, or those found.
    fn classes(&self, place: usize, given: &[String]) -> Result<(Vec<i64>, Vec<String>)> {
        let mut met = BTreeSet::new();
        if given.is_empty() {
            for row in self.rows() {
                let row = row?;
                let name = self.target(&row, place)?;
                if !met.contains(name) {
                    met.insert(name.to_string());
                }
            }
        }
        let names = ClassNames::new(given, met)?;
        let mut classes = Vec::new();
        for row in self.rows() {
            let row = row?;
            let class = names.index(self.target(&row, place)?);
            classes.push(class.map_err(|words| self.at(row.line, format!("{}: {words}", self.shown(place))))?);
        }
        Ok((classes, names.into_vec()))
    }
}
