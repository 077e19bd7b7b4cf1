//! Windows of examples that follow one another.

use precast::error::Result;

use super::{Dataset, Inputs, numbers::Wide};

impl Dataset {
    /// Returns windows of examples of numbers, of shape `[length, numbers]`: those that end with each of `ends`, with the targets of
    /// the examples `later`. `names` are those of the numbers of one example.
    pub(crate) fn windows(&self, length: usize, ends: &[usize], later: &[usize], names: &[String]) -> Result<Self> {
        let Inputs::Numbers(values) = self.inputs() else { unreachable!("examples of numbers in memory") };
        let width: usize = self.shape().iter().product();
        let window = |&end: &usize| values[(end + 1 - length) * width..(end + 1) * width].iter().copied();
        let inputs = Inputs::Numbers(ends.iter().flat_map(window).collect());
        let of = self.select(later)?;
        let mut data = Dataset::of(inputs, &[length, width], of.targets().clone())?;
        data = data.with_class_names(self.class_names().to_vec())?;
        // The digits beyond f32 of each example of a window.
        let columns = (0..length).flat_map(|place| {
            let at: Vec<usize> = ends.iter().map(|end| end + 1 + place - length).collect();
            self.wide.inputs.take(&at).into_columns(width)
        });
        data.wide.inputs = Wide::new(columns.collect());
        data.wide.targets = of.wide.targets.clone();
        data.read = self.read.clone();
        let name = |place: usize| {
            let (before, name) = (length - 1 - place / width, names.get(place % width)?);
            Some(if before == 0 { name.clone() } else { format!("{name}, {before} before") })
        };
        let all: Vec<String> = (0..length * width).filter_map(name).collect();
        Ok(data.with_input_names(all))
    }
}
