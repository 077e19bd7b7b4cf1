//! The examples of each part of the data.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use precast::{
    DType, Tensor,
    error::{Error, Result},
};
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
            Partition::Shuffled if !self.data.is_series() => Ok(cut(all.order(self.options.seed, 0), counts, 0)),
            Partition::InOrder | Partition::Shuffled => {
                let places = cut((0..n).collect(), counts, self.data.overlap());
                if places.train.is_empty() || (counts[0] > 0 && places.validation.is_empty()) {
                    let words = "too few windows are left without those that reach into the next part; a longer \
                                 `stride` or a shorter `length` shares less of the data";
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

    /// Returns notes on groups whose names differ by little, and on files for tests and validation with groups of other
    /// parts.
    pub(crate) fn notes_on_groups(&self, places: &Places) -> Result<Vec<String>> {
        let (Partition::By(column), Source::Csv(csv)) = (&self.partition, self.data.starting_from(&self.folder)) else {
            return Ok(Vec::new());
        };
        let groups = csv.groups(column).map_err(|error| self.not_there("split", error.context("`split`")));
        let (of_rows, names) = groups?;
        let mut notes = classes::alike("groups of `split`", &names);
        let of = |places: &[usize]| {
            let mut seen = HashSet::new();
            let groups = places.iter().filter_map(|&row| of_rows.get(row)).filter(|group| seen.insert(**group));
            groups.filter_map(|&group| names.get(group).cloned()).collect::<Vec<_>>()
        };
        let mut parts = vec![("training", false, of(&places.train))];
        for (key, part, places) in
            [("test", Some(&self.test), &places.test), ("validation", self.validation.as_ref(), &places.validation)]
        {
            let met = match part {
                Some(Test::File(file)) => {
                    // The column may be missing there.
                    let csv = Csv { file: self.folder.join(file), ..csv.clone() };
                    let Ok((_, met)) = csv.groups(column) else { continue };
                    (key, true, met)
                }
                _ => (key, false, of(places)),
            };
            // Those of one file are in one part, and are compared above.
            let others = parts.iter().filter(|(_, is_file, _)| met.1 || *is_file);
            notes.extend(others.flat_map(|(other, _, known)| notes_on_shared(key, &met.2, other, known)));
            parts.push(met);
        }
        Ok(notes)
    }

    /// Returns notes on test and validation examples that share places of a text with those for training.
    pub(crate) fn notes_on_overlaps(&self, places: &Places) -> Vec<String> {
        let overlap = self.data.overlap();
        let all = places.train.len() + places.validation.len() + places.test.len();
        if overlap == 0 || self.partition == Partition::InOrder || self.data.is_series() {
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

/// Returns notes on groups of a part that another part has as well, or that differ from those of the other by little.
fn notes_on_shared(key: &str, met: &[String], other: &str, known: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    let shared: Vec<&String> = met.iter().filter(|name| known.contains(name)).collect();
    if let [first, ..] = shared[..] {
        notes.push(format!(
            "`{key}`: {} of its {} groups of `split` are also those of {other} examples, such as `{}`",
            shared.len(),
            met.len(),
            printable(first)
        ));
    }
    let by_form: HashMap<String, &String> = known.iter().map(|name| (classes::form(name), name)).collect();
    let others = met.iter().filter(|name| !known.contains(name));
    let alike: Vec<_> = others.filter_map(|name| Some((name, by_form.get(&classes::form(name))?))).collect();
    if let [(name, twin), ..] = alike[..] {
        notes.push(format!(
            "`{key}`: {} of its {} groups of `split` are written in another way than those of {other} examples, such as `{}` and \
             `{}`; if they are one, write them in one way",
            alike.len(),
            met.len(),
            classes::visible(name),
            classes::visible(twin)
        ));
    }
    notes
}

/// Returns notes on examples of a part that are training examples as well, or validation examples: copies of the data, rows
/// that repeat. `targets` are those of the training examples as read. Windows of a text, of which `stride` is given, are
/// found wherever they begin.
pub(crate) fn notes_on_copies(
    train: &Dataset,
    targets: &Targets,
    parts: &[(&str, &Dataset)],
    stride: Option<usize>,
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let mut note = |key: &str, part: &Dataset, count: usize, are: String| {
        if count > 0 {
            let words = format!("of its {} examples, {count} {are}", part.len());
            notes.push(format!("{key}: {words}, so its score is not one of new examples alone"));
        }
    };
    if let Some(stride) = stride {
        let mut known = vec![("training", train)];
        for (key, part) in parts {
            for (other, text) in &known {
                note(key, part, windows_in(text, stride, part), format!("are in the {other} text"));
            }
            known.push((key.trim_matches('`'), part));
        }
        return Ok(notes);
    }
    let Some(trained) = digests(train, targets)? else { return Ok(notes) };
    let mut known = vec![("training", trained.into_iter().collect::<HashSet<u64>>())];
    for (key, part) in parts {
        let Some(digests) = digests(part, part.targets())? else { continue };
        for (other, known) in &known {
            let count = digests.iter().filter(|digest| known.contains(digest)).count();
            note(key, part, count, format!("have inputs and targets of a {other} example"));
        }
        known.push((key.trim_matches('`'), digests.into_iter().collect()));
    }
    Ok(notes)
}

/// Returns the number of windows that occur in the text of other windows, by hashes that roll over it.
fn windows_in(text: &Dataset, stride: usize, part: &Dataset) -> usize {
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
    let (Inputs::Indices(text), Inputs::Indices(windows), &[length]) = (text.inputs(), part.inputs(), text.shape())
    else {
        return 0;
    };
    let push = |hash: u64, token: i64| hash.wrapping_mul(BASE).wrapping_add(token as u64 + 1);
    let mut wanted: HashMap<u64, usize> = HashMap::new();
    for window in windows.chunks_exact(length) {
        *wanted.entry(window.iter().fold(0, |hash, &token| push(hash, token))).or_default() += 1;
    }
    let last = text.len().saturating_sub(length);
    let tokens = text
        .chunks_exact(length)
        .enumerate()
        .flat_map(|(place, window)| &window[..if place * length == last { length } else { stride.min(length) }]);
    let tokens: Vec<i64> = tokens.copied().collect();
    // The weight of the token that leaves a window.
    let first = (0..length).fold(1u64, |power, _| power.wrapping_mul(BASE));
    let (mut hash, mut count) = (0, 0);
    for (place, &token) in tokens.iter().enumerate() {
        let leaving = place.checked_sub(length).map_or(0, |before| first.wrapping_mul(tokens[before] as u64 + 1));
        hash = push(hash, token).wrapping_sub(leaving);
        if place + 1 >= length {
            count += wanted.remove(&hash).unwrap_or(0);
        }
    }
    count
}

/// Most numbers that are looked at together.
const PART: usize = 1 << 20;

/// Most numbers of examples on disk that are read once more for this.
const MOST_READ: usize = 1 << 26;

/// Returns a number for each example, which equal examples have in common; `None` for tables, and for examples on disk that
/// take long to read.
fn digests(data: &Dataset, targets: &Targets) -> Result<Option<Vec<u64>>> {
    let (Inputs::Numbers(_) | Inputs::Indices(_)) = data.form() else { return Ok(None) };
    let (n, width) = (data.len(), data.shape().iter().product::<usize>());
    if matches!(data.inputs(), Inputs::Stored(_)) && n.saturating_mul(width) > MOST_READ {
        return Ok(None);
    }
    let mut digests = Vec::with_capacity(n);
    for inputs in data.try_batches_of_inputs((PART / width.max(1)).max(1))? {
        let bits = |x: &Tensor| -> Result<Vec<u64>> {
            Ok(match x.dtype() {
                DType::I64 => x.to_vec::<i64>()?.into_iter().map(|index| index as u64).collect(),
                _ => x.to_vec::<f32>()?.into_iter().map(|number| number.to_bits().into()).collect(),
            })
        };
        let inputs = inputs?;
        let examples = inputs.first().and_then(|x| x.shape().first().copied()).unwrap_or(0);
        let inputs = inputs.iter().map(bits).collect::<Result<Vec<_>>>()?;
        for i in 0..examples {
            let row = |all: usize, of: usize, i: usize| all / of * i..all / of * (i + 1);
            let (example, mut digest) = (digests.len(), DefaultHasher::new());
            inputs.iter().for_each(|all| all[row(all.len(), examples, i)].hash(&mut digest));
            match targets {
                Targets::Numbers { values, .. } => {
                    values[row(values.len(), n, example)].iter().for_each(|x| x.to_bits().hash(&mut digest));
                }
                Targets::Classes { values, .. } => values[row(values.len(), n, example)].hash(&mut digest),
                _ => {}
            }
            digests.push(digest.finish());
        }
    }
    Ok(Some(digests))
}
