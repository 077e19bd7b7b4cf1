//! The header of a `.npy` file.

use precast_base::printable;

/// Parsed header: a Python dictionary with these three keys.
#[derive(Clone)]
pub(super) struct Header {
    pub dtype: Dtype,
    pub fortran_order: bool,
    pub shape: Vec<usize>,
}

impl Header {
    pub fn of(text: &str) -> Result<Header, String> {
        let wrong = || {
            if text.contains("'descr': [") {
                return "records; allowed: an array of numbers; in Python, \
                        `numpy.lib.recfunctions.structured_to_unstructured` makes one of it"
                    .into();
            }
            let like = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
            format!("the header `{}` is none of a plain array, such as `{like}`", printable(text.trim_end()))
        };
        let (mut dtype, mut fortran_order, mut shape) = (None, None, None);
        let mut words = Words(text);
        let mut read = || -> Option<()> {
            words.mark('{')?;
            while words.mark('}').is_none() {
                let key = words.text()?;
                words.mark(':')?;
                match key {
                    "descr" => dtype = Some(words.text()?),
                    "fortran_order" => fortran_order = Some(words.truth()?),
                    "shape" => shape = Some(words.lengths()?),
                    _ => return None,
                }
                if words.mark(',').is_none() {
                    words.mark('}')?;
                    break;
                }
            }
            words.0.trim().is_empty().then_some(())
        };
        read().ok_or_else(wrong)?;
        let (Some(dtype), Some(fortran_order), Some(shape)) = (dtype, fortran_order, shape) else {
            return Err(wrong());
        };
        Ok(Header { dtype: Dtype::of(dtype)?, fortran_order, shape })
    }

    /// Checks the number of bytes that follow the header.
    pub fn check_length(&self, met: u64) -> Result<(), String> {
        let shape = &self.shape;
        let wanted = shape.iter().try_fold(self.dtype.bytes, |all, &axis| all.checked_mul(axis));
        if wanted.is_some_and(|wanted| wanted as u64 == met) {
            return Ok(());
        }
        let wanted = wanted.map_or("more bytes than can be counted".into(), |wanted| format!("{wanted} bytes"));
        Err(format!("an array of shape {shape:?} takes {wanted}, but {met} follow the header"))
    }
}

/// Remaining text of a header.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn mark(&mut self, mark: char) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(mark)?;
        Some(())
    }

    /// Parses quoted text, with the prefix `u` in Python 2.
    fn text(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start();
        let rest = rest.strip_prefix('u').unwrap_or(rest);
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (text, rest) = rest[1..].split_once(quote)?;
        self.0 = rest;
        Some(text)
    }

    fn truth(&mut self) -> Option<bool> {
        match self.name()? {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        }
    }

    /// Parses a word of letters and digits.
    fn name(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start();
        let (name, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len()));
        self.0 = rest;
        (!name.is_empty()).then_some(name)
    }

    /// Parses `(3, 4)`, `(3,)` or `()`; Python 2 wrote `(3L, 4L)` on Windows.
    fn lengths(&mut self) -> Option<Vec<usize>> {
        let mut lengths = Vec::new();
        self.mark('(')?;
        while self.mark(')').is_none() {
            let length = self.name()?;
            lengths.push(length.strip_suffix('L').unwrap_or(length).parse().ok()?);
            if self.mark(',').is_none() {
                self.mark(')')?;
                // `(3)` is a number in Python.
                return (lengths.len() > 1).then_some(lengths);
            }
        }
        Some(lengths)
    }
}

/// Dtype of an array: kind, size and byte order.
#[derive(Clone, Copy)]
pub(super) struct Dtype {
    pub kind: char,
    pub bytes: usize,
    pub big_endian: bool,
}

impl Dtype {
    /// Parses NumPy's notation: `<f4`, `|u1`.
    fn of(text: &str) -> Result<Dtype, String> {
        let (big_endian, rest) = match text.strip_prefix('>') {
            Some(rest) => (true, rest),
            None => (false, text.trim_start_matches(['<', '|', '='])),
        };
        let kinds = [("f", [2, 4, 8, 8]), ("i", [1, 2, 4, 8]), ("u", [1, 2, 4, 8]), ("b", [1, 1, 1, 1])];
        let known = kinds.iter().find_map(|(kind, sizes)| {
            let bytes = rest.strip_prefix(kind)?.parse().ok().filter(|bytes| sizes.contains(bytes))?;
            Some(Dtype { kind: kind.chars().next()?, bytes, big_endian })
        });
        known.ok_or_else(|| {
            let allowed = "allowed: float16 to float64, integers of 8 to 64 bits, bool";
            let (kind, remedy) = match rest.chars().next() {
                Some('U' | 'S') => ("text", "; `numpy.unique(x, return_inverse=True)` gives its classes as integers"),
                Some('O') => (
                    "objects",
                    "; `x.astype('float32')` makes numbers of them, `numpy.unique(x, return_inverse=True)` classes of words",
                ),
                Some('c') => ("complex numbers", "; `numpy.stack([x.real, x.imag], -1)` makes real ones of them"),
                Some('M') => ("dates", "; `x.astype('float64')` makes numbers of them"),
                Some('m') => ("durations", "; `x.astype('float64')` makes numbers of them"),
                Some('V') => ("raw bytes", "; `x.view('uint8')` makes numbers of them"),
                Some('f' | 'g') => ("long floats", "; `x.astype('float64')` rounds them"),
                _ => ("unknown", ""),
            };
            format!("dtype `{}`, {kind}; {allowed}{remedy}", printable(text))
        })
    }

    /// Returns whether inputs of this dtype are indices.
    pub fn is_index(self) -> bool {
        self.kind == 'i' && self.bytes >= 4
    }
}
