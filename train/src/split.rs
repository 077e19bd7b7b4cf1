//! The examples of each part of the data.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use precast::error::{Error, Result};
use precast_base::printable;

use super::{
    Partition, RunFile, Test, classes,
    data::{Csv, Source},
};
use crate::data::{Dataset, Inputs, Targets};

/// Places in the data of the examples of each part; empty for a part of another file.
pub(crate) struct Places {
    pub train: Vec<usize>,
    pub validation: Vec<usize>,
    pub test: Vec<usize>,
}

impl RunFile {
    /// Chooses the examples of each part.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) when no example is left to train with, and those of reading the column
    /// of groups.
    pub(crate) fn places(&self, all: &Dataset) -> Result<Places> {
        let n = all.len();
        if n < 2 && matches!(self.test, Test::Share(_)) {
            let words = format!("the data has {n} example; a run needs some to train with and some to test with");
            return Err(Error::data(words));
        }
        // The first test examples are the same with and without others for validation.
        let tested = self.test.number_of(n).map(|count| if self.test.is_share() { count.min(n - 1) } else { count });
        if let (Test::Count(count), Some(true)) = (&self.test, tested.map(|tested| tested >= n)) {
            let words = format!("`test` is {count}, and the data has {n} examples; some must be left to train with");
            return Err(self.wrong("test", Error::data(words)));
        }
        let validated = self.validation.as_ref().and_then(|part| part.number_of(n));
        if let Some(count) = validated.filter(|count| *count >= n - tested.unwrap_or(0)) {
            let tested = tested.map_or(String::new(), |tested| format!("`test` takes {tested} examples and "));
            let words = format!("{tested}`validation` {count}, and the data has {n}; some must be left to train with");
            return Err(self.wrong("validation", Error::data(words)));
        }
        let counts = [validated.unwrap_or(0), tested.unwrap_or(0)];
        match &self.partition {
            // Nothing is drawn, so the order is that of the data.
            _ if counts == [0, 0] => Ok(cut((0..n).collect(), counts, 0)),
            Partition::Shuffled => Ok(cut(all.order(self.options.seed, 0), counts, 0)),
            Partition::InOrder => {
                let places = cut((0..n).collect(), counts, self.data.overlap());
                if places.train.is_empty() || (counts[0] > 0 && places.validation.is_empty()) {
                    let words = "too few windows are left without those that reach into the next part; a longer \
                                 `stride` or a shorter `length` shares less of the text";
                    return Err(self.wrong("split", Error::data(words)));
                }
                Ok(places)
            }
            Partition::By(column) => {
                let Source::Csv(csv) = self.data.starting_from(&self.folder) else {
                    let words = "`split` by a column is for tables; allowed for other data: shuffled, in_order";
                    return Err(self.wrong("split", Error::run(words)));
                };
                let groups = csv.groups(column).map_err(|error| self.not_there("split", error.context("`split`")))?.0;
                if groups.len() != n {
                    return Err(Error::data("the data has changed while it was read"));
                }
                by_groups(&groups, all.order(self.options.seed, 0), counts).ok_or_else(|| {
                    let met = groups.iter().collect::<HashSet<_>>().len();
                    let words = format!("the column has {met} different words, too few for a part of each");
                    self.wrong("split", Error::data(words))
                })
            }
        }
    }

    /// Returns notes on groups whose names differ by little, and on files for tests and validation with groups of training
    /// examples.
    pub(crate) fn notes_on_groups(&self, places: &Places) -> Result<Vec<String>> {
        let (Partition::By(column), Source::Csv(csv)) = (&self.partition, self.data.starting_from(&self.folder)) else {
            return Ok(Vec::new());
        };
        let groups = csv.groups(column).map_err(|error| self.not_there("split", error.context("`split`")));
        let (of_rows, names) = groups?;
        let mut notes = classes::alike("groups of `split`", &names);
        let trained: HashSet<&String> = places.train.iter().filter_map(|&row| names.get(*of_rows.get(row)?)).collect();
        for (key, part) in [("test", Some(&self.test)), ("validation", self.validation.as_ref())] {
            let Some(Test::File(file)) = part else { continue };
            // The column may be missing there.
            let Ok((_, met)) = (Csv { file: self.folder.join(file), ..csv.clone() }).groups(column) else { continue };
            let mut shared = met.iter().filter(|name| trained.contains(name));
            if let Some(first) = shared.next() {
                notes.push(format!(
                    "`{key}`: {} of its {} groups of `split` are also those of training examples, such as `{}`",
                    1 + shared.count(),
                    met.len(),
                    printable(first)
                ));
            }
        }
        Ok(notes)
    }

    /// Returns notes on test and validation examples that share places of a text with those for training.
    pub(crate) fn notes_on_overlaps(&self, places: &Places) -> Vec<String> {
        let overlap = self.data.overlap();
        let all = places.train.len() + places.validation.len() + places.test.len();
        if overlap == 0 || self.partition == Partition::InOrder {
            return Vec::new();
        }
        // The number of windows for training before each place.
        let mut before = vec![0; all + 1];
        places.train.iter().for_each(|&place| before[place + 1] = 1);
        (0..all).for_each(|place| before[place + 1] += before[place]);
        let is_shared =
            |place: &&usize| before[(**place + overlap + 1).min(all)] > before[place.saturating_sub(overlap)];
        let note = |(key, part): (&str, &Vec<usize>)| {
            let shared = part.iter().filter(is_shared).count();
            (shared > 0).then(|| {
                format!(
                    "`{key}`: {shared} of {} windows overlap those for training, as `stride` is below `length`, so their \
                     score is not that of new text; `split: in_order` takes the end of the text",
                    part.len()
                )
            })
        };
        [("test", &places.test), ("validation", &places.validation)].into_iter().filter_map(note).collect()
    }
}

/// Cuts an order of examples into parts, the last for tests, and leaves out `gap` examples before each boundary.
fn cut(mut order: Vec<usize>, [validated, tested]: [usize; 2], gap: usize) -> Places {
    let mut last = |count: usize| {
        let part = order.split_off(order.len().saturating_sub(count));
        if count > 0 {
            order.truncate(order.len().saturating_sub(gap));
        }
        part
    };
    let (test, validation) = (last(tested), last(validated));
    order.shrink_to_fit();
    Places { train: order, validation, test }
}

/// Divides whole groups among parts, in the order of their first examples; `None` if none is left to train with.
fn by_groups(groups: &[usize], order: Vec<usize>, [validated, tested]: [usize; 2]) -> Option<Places> {
    let mut sizes = vec![0; groups.iter().max()? + 1];
    groups.iter().for_each(|&group| sizes[group] += 1);
    let mut seen = HashSet::new();
    let mut left: Vec<usize> = order.iter().map(|&place| groups[place]).filter(|group| seen.insert(*group)).collect();
    let mut part = |most: usize| {
        let (mut taken, mut count) = (HashSet::new(), 0);
        if most > 0 {
            for &group in &left {
                if count + sizes[group] <= most {
                    count += sizes[group];
                    taken.insert(group);
                }
            }
            if taken.is_empty() {
                taken.extend(left.iter().copied().min_by_key(|group| sizes[*group]));
            }
            left.retain(|group| !taken.contains(group));
        }
        taken
    };
    let (test, validation) = (part(tested), part(validated));
    let has_all = !left.is_empty() && (validated == 0 || !validation.is_empty());
    let of = |is_in: &dyn Fn(&usize) -> bool| order.iter().copied().filter(|place| is_in(&groups[*place])).collect();
    has_all.then(|| Places {
        train: of(&|group| !test.contains(group) && !validation.contains(group)),
        validation: of(&|group| validation.contains(group)),
        test: of(&|group| test.contains(group)),
    })
}

/// Returns notes on parts of which most examples are training examples, too: copies of the data, rows that repeat.
pub(crate) fn notes_on_copies(train: &Dataset, parts: &[(&str, &Dataset)]) -> Vec<String> {
    let Some(trained) = digests(train).map(|digests| digests.collect::<HashSet<u64>>()) else { return Vec::new() };
    let note = |(key, part): &(&str, &Dataset)| {
        let count = digests(part)?.filter(|digest| trained.contains(digest)).count();
        let words = format!("of its {} examples, {count} have inputs and targets of a training example", part.len());
        (2 * count > part.len()).then(|| format!("{key}: {words}, so its score is not one of new examples"))
    };
    parts.iter().filter_map(note).collect()
}

/// Returns a number for each example, which equal examples have in common; `None` for inputs that are not numbers in memory.
fn digests(data: &Dataset) -> Option<impl Iterator<Item = u64>> {
    let Inputs::Numbers(inputs) = data.inputs() else { return None };
    let n = data.len();
    let row = move |all: usize, example: usize| all / n * example..all / n * (example + 1);
    let of = move |example: usize| {
        let mut digest = DefaultHasher::new();
        let mut numbers = |all: &[f32]| all[row(all.len(), example)].iter().for_each(|x| x.to_bits().hash(&mut digest));
        numbers(inputs);
        match data.targets() {
            Targets::Numbers { values, .. } => numbers(values),
            Targets::Classes { values, .. } => values[row(values.len(), example)].hash(&mut digest),
            _ => {}
        }
        digest.finish()
    };
    Some((0..n).map(of))
}
