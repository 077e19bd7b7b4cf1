//! Writing a stored model with each tensor in the dtype of its cell.

use std::{collections::HashMap, path::Path};

use super::{Decision, Plan};
use crate::{
    DType,
    cell::no_such_path,
    error::Result,
    io::stored::{
        ConvertOptions, Converted, StoredModel, StoredTensor, Target, UNKNOWN, cell_of, is_average, is_weight,
    },
    policy::Level,
    printable::printable,
};

impl Plan {
    /// Writes a model with each weight in the dtype in which its cell runs. A weight of a cell that runs low is stored
    /// low; a tensor of any other cell stays as it is, or is stored in f32 if the options [widen](ConvertOptions::widen).
    /// Integers, f64 and 8-bit numbers stay as they are.
    ///
    /// Which tensors are weights is known by the kind of the cell and their names. All others of a cell that runs low stay
    /// as they are, and [say so](crate::io::stored::ConvertedTensor::kept): tables of frequencies, scales of quantised
    /// weights, running statistics and averages, decay factors, schedules, masks. A rule of the policy whose path is the name
    /// of a tensor decides for it: [`Plan::tensors`].
    ///
    /// A file is written as a file, a folder as a folder, each in one step. Of a folder, the index and the dtype in
    /// `config.json` are kept true, and other small files are copied. No more than a few MiB are in memory. `progress`
    /// is called with the number of bytes that were read since the last call; there are [`StoredModel::bytes`] in all.
    ///
    /// # Errors
    /// [`ErrorKind::Path`](crate::ErrorKind::Path) when the plan is of another model.
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when finite values would become infinite, unless the options
    /// [allow it](ConvertOptions::allow_overflow). [`ErrorKind::Weights`](crate::ErrorKind::Weights) for a
    /// [`Checkpoint`](crate::Checkpoint).
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when a file cannot be read or written, and when something is there
    /// already, unless the options [replace it](ConvertOptions::replace). On any error, what was there stays as it was.
    ///
    /// ```
    /// use precast::{io::{stored::{ConvertOptions, StoredModel}, weights}, prelude::*};
    /// # let folder = std::env::temp_dir().join(format!("precast-doc-convert-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// # let (from, to) = (folder.join("f32.safetensors"), folder.join("f16.safetensors"));
    /// let of = |shape: &[usize]| Tensor::full(shape, 0.1, DType::F32);
    /// weights::write(&from, [("fc.weight", of(&[2, 3])), ("norm.weight", of(&[3])), ("norm.bias", of(&[3]))])?;
    ///
    /// let model = StoredModel::open(&from)?;
    /// let plan = Policy::named("o2")?.plan_outline(model.outline())?;
    /// let converted = plan.convert(&model, &to, ConvertOptions::new(), &mut |_bytes| ())?;
    /// assert_eq!((converted.bytes_before, converted.bytes_after), (48, 36));
    ///
    /// let written = weights::read(&to)?;
    /// assert_eq!((written["fc.weight"].dtype(), written["norm.weight"].dtype()), (DType::F16, DType::F32));
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn convert(
        &self,
        model: &StoredModel,
        to: impl AsRef<Path>,
        options: ConvertOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Converted> {
        let decisions: HashMap<&str, &Decision> = self.decisions.iter().map(|d| (d.path.as_str(), d)).collect();
        let target_of = |tensor: &StoredTensor| {
            let cell = cell_of(&tensor.name).0;
            match decisions.get(cell) {
                Some(decision) => Ok(self.target(decision, tensor, options.widen)),
                None => Err(no_such_path(cell, decisions.keys().copied())),
            }
        };
        model.convert(to.as_ref(), options, &target_of, progress)
    }

    /// How a tensor of a cell is stored.
    fn target(&self, decision: &Decision, tensor: &StoredTensor, widen: bool) -> Target {
        let wide = if widen { Target::In(DType::F32) } else { Target::Same };
        // Level O0 lowers nothing, whatever the rules say.
        if let Some(rule) = self.tensors.get(&tensor.name).filter(|_| self.policy.level != Level::O0) {
            return if rule.stores_low() { Target::In(self.policy.dtype) } else { wide };
        }
        let Some(low) = decision.run.dtype().filter(|dtype| dtype.is_low()) else { return wide };
        let Decision { path, kind, .. } = decision;
        if is_weight(path, kind, cell_of(&tensor.name).1, tensor.shape.len()) {
            return Target::In(low);
        }
        match tensor.castable() {
            Some(dtype) if dtype != low => Target::Kept(match () {
                () if is_average(path) => "a moving average".into(),
                () if kind == UNKNOWN => "of an Unknown cell".into(),
                () => format!("no weight of {}", printable(kind)),
            }),
            _ => Target::Same,
        }
    }
}
