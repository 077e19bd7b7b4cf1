//! Writing a stored model with each tensor in the dtype of its cell.

use std::{collections::HashMap, path::Path};

use super::{Plan, Region};
use crate::{
    DType,
    cell::no_such_path,
    error::Result,
    io::stored::{ConvertOptions, Converted, StoredModel},
};

impl Plan {
    /// Writes a model with each tensor in the dtype in which its cell runs. A tensor of a cell that runs low is stored
    /// low; one of any other cell stays as it is, or is stored in f32 if the options [widen](ConvertOptions::widen).
    /// Integers, f64 and 8-bit numbers stay as they are.
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
        let runs: HashMap<&str, Region> = self.decisions.iter().map(|d| (d.path.as_str(), d.run)).collect();
        let dtype_of = |cell: &str| match runs.get(cell) {
            Some(run) => Ok(run.dtype().filter(|dtype| dtype.is_low()).or(options.widen.then_some(DType::F32))),
            None => Err(no_such_path(cell, runs.keys().copied())),
        };
        model.convert(to.as_ref(), options, &dtype_of, progress)
    }
}
