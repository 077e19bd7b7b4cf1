//! The tensors of a written model: in it, or in its data file.

use super::{
    pieces::{Body, Numbers},
    rebuild::Rebuilder,
    schema,
    tensor::{Data, Tensor, field},
    wire::{put_bytes, put_int},
};
use precast::error::Result;

/// Alignment of tensors in a data file, as runtimes that map it want it.
const ALIGNMENT: u64 = 4096;

impl<'a> Rebuilder<'a> {
    /// Returns whether a tensor of a length in bytes is stored in the data file. Runtimes read lengths, conditions and
    /// bounds while they load the graph, so small tensors of them stay in it.
    fn goes_out(&self, tensor: &Tensor, bytes: u64) -> bool {
        let is_read_early =
            schema::float(tensor.elem).is_none() || tensor.dims.is_empty() || self.lengths.contains(&tensor.span.start);
        self.external.is_some_and(|wanted| bytes >= wanted.max(if is_read_early { 1024 } else { 0 }))
    }

    /// Returns the message of a tensor that changes its place: from or into a data file.
    pub fn moved(&mut self, tensor: &'a Tensor) -> Result<Option<Body<'a>>> {
        let is_external = matches!(tensor.data, Data::External(_));
        let can_move = !matches!(tensor.data, Data::Typed) && tensor.bytes()?.is_some();
        let is_large = can_move && tensor.bytes()?.is_some_and(|bytes| self.goes_out(tensor, bytes));
        if !is_external && !is_large {
            return Ok(None);
        }
        self.tensor(tensor, &tensor.name, false).map(Some)
    }

    /// Returns the message of a tensor under a name, low or as it is.
    pub fn tensor(&mut self, tensor: &'a Tensor, name: &str, is_low: bool) -> Result<Body<'a>> {
        debug_assert!(!self.explicit || !is_low, "an explicit model has weights of float32");
        let numbers = Numbers { tensor, to: is_low.then_some(self.low) };
        let mut body = Body::default();
        for (number, span) in self.fields(tensor.span)? {
            match number {
                field::NAME if *name == tensor.name => body.copy(span),
                field::NAME
                | field::DATA_TYPE
                | field::RAW_DATA
                | field::FLOAT_DATA
                | field::DATA_LOCATION
                | field::EXTERNAL_DATA => {}
                _ => body.copy(span),
            }
        }
        let mut head = Vec::new();
        let elem = if is_low { schema::elem(self.low) } else { tensor.elem };
        put_int(&mut head, field::DATA_TYPE, i64::from(elem.0));
        if *name != tensor.name {
            put_bytes(&mut head, field::NAME, name.as_bytes());
        }
        let outside = match (&tensor.data, self.external) {
            (Data::External(_), None) => true,
            _ => self.goes_out(tensor, numbers.len()?),
        };
        if !outside {
            body.bytes(&head);
            body.numbers(field::RAW_DATA, numbers)?;
            return Ok(body);
        }
        let end = match self.outside.last() {
            Some((last, at)) => (at + last.len()?).next_multiple_of(ALIGNMENT),
            None => 0,
        };
        let entries = [
            ("location", self.location.to_string()),
            ("offset", end.to_string()),
            ("length", numbers.len()?.to_string()),
        ];
        for (key, value) in entries {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, key.as_bytes());
            put_bytes(&mut entry, 2, value.as_bytes());
            put_bytes(&mut head, field::EXTERNAL_DATA, &entry);
        }
        put_int(&mut head, field::DATA_LOCATION, 1);
        body.bytes(&head);
        self.outside.push((numbers, end));
        Ok(body)
    }
}
