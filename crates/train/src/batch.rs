//! The batch of a fault: the examples that the run saved, in place of data that is gone, and the example whose input is an outlier.

use std::path::Path;

use precast::{
    Tensor,
    error::{Error, Result},
    storage::weights,
};
use precast_base::printable::number;

use super::{
    About, RunFile, SavedFault,
    data::Source,
    faults::{BATCH, FAULT, name_of_further},
};
use crate::data::{Batch, Dataset, Inputs, Split, Targets};

/// Reads the saved batch of a fault.
///
/// # Errors
/// [`ErrorKind::Run`](precast::ErrorKind::Run) when it does not have the examples that the fault names, and the errors of
/// reading its file.
fn saved(folder: &Path, fault: &SavedFault, train: usize) -> Result<Batch> {
    let file = folder.join(BATCH);
    let mut tensors = weights::read(&file)?;
    let (x, y) = (tensors.remove("x"), tensors.remove("y"));
    let further: Vec<Tensor> = (0..).map_while(|i| tensors.remove(&name_of_further(i))).collect();
    let rows = |of: &Option<Tensor>| of.as_ref().and_then(|of| of.shape().first().copied()).unwrap_or(0);
    let n = fault.examples.len();
    let (Some(x), Some(y), true) = (&x, &y, [rows(&x), rows(&y)] == [n, n]) else {
        let words = format!("expected `x` and `y` of {n} examples, got {} and {}", rows(&x), rows(&y));
        return Err(Error::run(words).in_file(file.display()));
    };
    if let Some(most) = fault.examples.iter().max().filter(|most| **most >= train) {
        let words = format!("`examples` has {most}, and there are {train} training examples");
        return Err(Error::run(words).in_file(folder.join(FAULT).display()));
    }
    if let Some((i, other)) = further.iter().enumerate().find(|(_, x)| x.shape().first() != Some(&n)) {
        let (name, met) = (name_of_further(i), rows(&Some(other.clone())));
        return Err(Error::run(format!("expected `{name}` of {n} examples, got {met}")).in_file(file.display()));
    }
    Ok(Batch { x: x.clone(), further, y: y.clone() })
}

/// Rejects a saved batch that cannot be read, or has other examples than the fault names.
pub(super) fn check(folder: &Path, fault: &SavedFault, train: usize) -> Result<()> {
    saved(folder, fault, train).map(drop)
}

/// Returns data with as many training examples as the run had: those of the saved batch, and zeros. This is enough for
/// the step of the fault, and for no other.
pub(super) fn data_of(folder: &Path, fault: &SavedFault, about: &About) -> Result<Split> {
    let Batch { x, further, y } = saved(folder, fault, about.train_examples)?;
    // Copies the examples of the batch to these places among as many examples.
    fn rows<T: Clone + Default>(batch: &[T], places: &[usize], all: usize) -> Vec<T> {
        let width = batch.len() / places.len().max(1);
        let mut values = vec![T::default(); all * width];
        for (row, &place) in places.iter().enumerate() {
            values[place * width..(place + 1) * width].clone_from_slice(&batch[row * width..(row + 1) * width]);
        }
        values
    }
    let of = |places: &[usize], all: usize| {
        let shape = y.shape()[1..].to_vec();
        let inputs = |x: &Tensor| -> Result<Inputs> {
            Ok(match x.dtype().is_float() {
                true => Inputs::Numbers(rows(&x.to_vec()?, places, all)),
                false => Inputs::Indices(rows(&x.to_vec()?, places, all)),
            })
        };
        let targets = match y.dtype().is_float() {
            true => Targets::Numbers { shape, values: rows(&y.to_vec()?, places, all) },
            false => Targets::Classes { shape, values: rows(&y.to_vec()?, places, all) },
        };
        let first = Dataset::of(inputs(&x)?, &x.shape()[1..], targets)?;
        further.iter().try_fold(first, |data, x| data.with_further(inputs(x)?, &x.shape()[1..]))
    };
    let in_order: Vec<usize> = (0..fault.examples.len()).collect();
    Ok(Split { train: of(&fault.examples, about.train_examples)?, test: of(&in_order, in_order.len())? })
}

/// Factor above the median of its column from which a number is an outlier: no distribution of measurements reaches it.
const OUTLIER: f32 = 1000.0;

/// Describes the largest input of the batch, with its place in the data, if it is an outlier of its column.
pub(super) fn outlier(file: &RunFile, fault: &SavedFault) -> Result<Option<String>> {
    let all = file.data.read_within(&file.folder, file.memory.0)?;
    let Inputs::Numbers(values) = all.inputs() else { return Ok(None) };
    let width = values.len() / all.len().max(1);
    // Places in the data.
    let rows = file.places(&all)?.train;
    let row = |example: usize| rows.get(example).copied();
    let places = fault.examples.iter().filter_map(|example| row(*example));
    let places = places.flat_map(|row| (0..width).map(move |column| (row, column)));
    let size = |(row, column): (usize, usize)| values[row * width + column].abs();
    let Some((row, column)) = places.max_by(|a, b| size(*a).total_cmp(&size(*b))) else { return Ok(None) };
    let mut others: Vec<f32> = (0..all.len()).map(|row| size((row, column))).collect();
    let middle = others.len() / 2;
    let (_, median, _) = others.select_nth_unstable_by(middle, f32::total_cmp);
    if size((row, column)) <= OUTLIER * *median {
        return Ok(None);
    }
    let place = match &file.data {
        Source::Csv(csv) => {
            let name = csv.file.file_name().unwrap_or_default().to_string_lossy();
            format!("{name}:{}", csv.line_of(row, &file.folder)?)
        }
        _ => format!("example {} of the data", row + 1),
    };
    let name = all.input_names().get(column).cloned().unwrap_or_else(|| (column + 1).to_string());
    let number = number(values[row * width + column]);
    Ok(Some(format!("{place}: column {name} is {number}; half of its numbers are at most {median:.3}")))
}
