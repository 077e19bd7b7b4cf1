//! NumPy arrays that are read by position.

use std::{
    fs::File,
    io::{self, Read, Write},
};

use precast::error::{Error, Result};

use super::{
    MOST_BYTES, MOST_HEADER_BYTES, Npy, NpyArray, entry_of, find, inputs_of, shown, split, unpacked, with_targets,
};
use crate::{
    data::{
        Dataset, Inputs, Targets,
        numbers::Wide,
        origin::{Parts, Read as HowRead},
    },
    readers::{
        npy_header::Header,
        rows::{Rows, failed},
    },
};

/// Bytes that are read together.
const PART: usize = 1 << 20;

impl Npy {
    /// Reads the arrays as [`read`](Npy::read) does. An array of inputs that takes more than `memory` bytes is
    /// [stored](Dataset::stored): its examples are read when they are needed, from its file or, for an entry of an `.npz`
    /// file and for an array in Fortran's order, from a temporary file.
    ///
    /// # Errors
    /// As [`read`](Npy::read), but for the length of the inputs.
    pub fn read_within(&self, memory: u64) -> Result<Dataset> {
        self.within(memory, true)
    }

    /// Reads inputs as [`read_within`](Npy::read_within) does, without targets, which may be missing.
    ///
    /// # Errors
    /// As [`read_within`](Npy::read_within).
    pub fn read_inputs_within(&self, memory: u64) -> Result<Dataset> {
        self.within(memory, false)
    }

    fn within(&self, memory: u64, wants_targets: bool) -> Result<Dataset> {
        let limit = usize::try_from(memory).unwrap_or(usize::MAX).clamp(MOST_BYTES, isize::MAX as usize);
        let targets = self.targets.as_ref().filter(|_| wants_targets);
        let (inputs, targets) = match &self.file {
            None => {
                let file = File::open(&self.inputs).map_err(|error| Error::io(&self.inputs, &error))?;
                let met = file.metadata().map_err(|error| Error::io(&self.inputs, &error))?;
                if !met.is_file() || met.len() <= memory {
                    return self.read_all(limit, wants_targets);
                }
                (StoredArray::of(file, shown(&self.inputs))?, targets.map(|name| self.array(name, limit)).transpose()?)
            }
            Some(path) => {
                let open = || File::open(path).map(io::BufReader::new).map_err(|error| Error::io(path, &error));
                let (mut archive, at) = find(open()?, path, &self.inputs)?;
                let origin = entry_of(path, &self.inputs);
                let broken = |error: zip::result::ZipError| Error::data(error.to_string()).in_file(&origin);
                let size = archive.by_index(at).map_err(broken)?.size();
                if size <= memory {
                    return self.read_all(limit, wants_targets);
                }
                let mut file = precast_base::files::temporary()?;
                let mut entry = archive.by_index(at).map_err(broken)?.take(size);
                io::copy(&mut entry, &mut file).map_err(|error| Error::data(error.to_string()).in_file(&origin))?;
                drop(entry);
                let inputs = StoredArray::of(file, origin)?;
                let targets = targets.map(|name| {
                    let (mut archive, at) = find(open()?, path, name)?;
                    unpacked(&mut archive, at, entry_of(path, name), limit)
                });
                (inputs, targets.transpose()?)
            }
        };
        inputs.check()?;
        let (origin, n) = (inputs.array.origin.clone(), inputs.len);
        with_targets(&origin, n, targets, Default::default(), |targets| {
            Dataset::stored(n, targets, move |places| inputs.read(places))
        })
    }
}

/// An array in a file, in the order of C.
struct StoredArray {
    rows: Rows,
    /// The array without its data.
    array: NpyArray,
    len: usize,
}

impl StoredArray {
    fn of(mut file: File, origin: String) -> Result<Self> {
        let io = |error: io::Error| failed(&origin, &error);
        let wrong = |words: String| Error::data(words).in_file(&origin);
        let length = file.metadata().map_err(io)?.len();
        let mut start = Vec::new();
        io::Seek::rewind(&mut file).map_err(io)?;
        (&file).take(MOST_HEADER_BYTES as u64 + 12).read_to_end(&mut start).map_err(io)?;
        let (header, data) = split(&start).map_err(wrong)?;
        let at = (start.len() - data.len()) as u64;
        let header = Header::of(header).map_err(wrong)?;
        header.check_length(length - at).map_err(wrong)?;
        let array = NpyArray { origin: origin.clone(), header, data: Vec::new(), first: 0 };
        let (len, shape) = array.examples()?;
        let each = shape.iter().product::<usize>() * array.header.dtype.bytes;
        let rows = Rows::of(file, &origin, at, each)?;
        let stored = StoredArray { rows, array, len };
        if stored.array.header.fortran_order { stored.in_order_of_c(at, each) } else { Ok(stored) }
    }

    /// Copies an array in Fortran's order to a temporary file.
    fn in_order_of_c(self, at: u64, each: usize) -> Result<Self> {
        let StoredArray { rows, mut array, len } = self;
        let (bytes, shape) = (array.header.dtype.bytes, &array.header.shape[1..]);
        // The places of the elements of an example in the order of C, in Fortran's order: the first axis is fastest.
        let place = |mut at: usize| {
            let digits = shape.iter().map(|&axis| {
                let digit = at % axis;
                at /= axis;
                digit
            });
            digits.zip(shape).fold(0, |place, (digit, axis)| place * axis + digit)
        };
        let places: Vec<usize> = (0..each / bytes).map(place).collect();
        let io = |error: io::Error| failed(&array.origin, &error);
        let write = |file: &mut dyn Write| {
            let some = (PART / each.max(1)).max(1);
            for first in (0..len).step_by(some) {
                let count = some.min(len - first);
                let (mut part, mut column) = (vec![0; count * each], vec![0; count * bytes]);
                for (i, &place) in places.iter().enumerate() {
                    rows.read_at(&mut column, at + ((i * len + first) * bytes) as u64).map_err(io)?;
                    for (row, element) in part.chunks_exact_mut(each).zip(column.chunks_exact(bytes)) {
                        row[place * bytes..][..bytes].copy_from_slice(element);
                    }
                }
                file.write_all(&part).map_err(|error| failed("a temporary file", &error))?;
            }
            Ok(())
        };
        let (rows, ()) = Rows::written(&array.origin, each, write)?;
        array.header.fortran_order = false;
        Ok(StoredArray { rows, array, len })
    }

    /// Reads examples into an array.
    fn some(&self, places: &[usize]) -> Result<NpyArray> {
        let NpyArray { origin, header, .. } = &self.array;
        let mut header = header.clone();
        header.shape[0] = places.len();
        let (data, first) = (self.rows.read(places)?, places.first().copied().unwrap_or(0));
        Ok(NpyArray { origin: origin.clone(), header, data, first })
    }

    /// Reads all examples once, and refuses those that are not valid.
    fn check(&self) -> Result<()> {
        let each: usize = self.array.header.shape[1..].iter().product();
        let some = (PART / (each * size_of::<f64>()).max(1)).max(1);
        for first in (0..self.len).step_by(some) {
            let array = self.some(&(first..self.len.min(first + some)).collect::<Vec<_>>())?;
            let Inputs::Numbers(values) = inputs_of(&array)?.0 else { continue };
            if let Some(i) = values.iter().position(|value| !value.is_finite()) {
                let (place, example) = (i % each, first + i / each);
                let words = format!("value {place} of example {example} is {}; allowed: finite numbers", values[i]);
                return Err(self.array.refused(words));
            }
        }
        Ok(())
    }

    fn read(&self, places: &[usize]) -> Result<Dataset> {
        let array = self.some(places)?;
        let (values, inputs, _) = inputs_of(&array)?;
        let data = Dataset::of(values, &array.header.shape[1..], Targets::None)?;
        Ok(data.with_origin(Parts { inputs, targets: Wide::default() }, HowRead::default()))
    }
}
