//! Tensors: values with a run-time dtype, and their place on the tape.

mod array;
mod backward;
mod build;
pub(crate) mod context;
mod fmt;
mod grads;
pub(crate) mod listener;
mod param;
pub(crate) mod pass;
mod range;
pub(crate) mod recording;
mod tape;

use std::sync::{Arc, Mutex, OnceLock};

pub(crate) use array::{Array, Stored, with_array, with_float};
pub(crate) use backward::backward_of;
pub use build::TensorElement;
pub(crate) use context::{is_recording, with_recording};
pub use grads::Grads;
pub(crate) use grads::{Factors, Scaling, Unscaled, first_non_finite};
pub use param::Param;
pub(crate) use param::Rounding;
pub(crate) use range::Beyond;
pub use tape::{Backward, no_grad};
pub(crate) use tape::{Call, Forward, LeafId, Node, Place, What, Written, next_id, record, record_segment};

use crate::DType;
use listener::{CastCall, CastRole};

/// An n-dimensional array with a run-time dtype and, when it takes part in training, its place on the tape.
///
/// Cloning is cheap: the value is shared and never changed in place.
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

struct Inner {
    dtype: DType,
    shape: Vec<usize>,
    /// The value, shared with copies that stand elsewhere on the tape; empty while a widening has not been read.
    data: Arc<OnceLock<Array>>,
    /// The 16-bit tensor of which this f32 tensor is the exact widening.
    narrow: Option<Tensor>,
    place: Place,
    /// Low copies of a parameter's value. They live and die with the value, so a changed parameter has none.
    casts: Option<Arc<LowCopies>>,
    /// Whether the storage is a parameter's or a low copy of one, and so is no activation.
    of_parameter: bool,
}

/// Low copies of a parameter's value.
type LowCopies = Mutex<Vec<(DType, Array)>>;

impl From<&Tensor> for Tensor {
    /// The same tensor; its value is shared.
    fn from(tensor: &Tensor) -> Self {
        tensor.clone()
    }
}

impl Tensor {
    /// A tensor outside the tape.
    pub(crate) fn from_array(array: Array) -> Self {
        Tensor::placed(array, Place::None)
    }

    pub(crate) fn placed(array: Array, place: Place) -> Self {
        Tensor::new(array, place, None)
    }

    /// The value of a parameter: a leaf of the tape that keeps its low copies.
    pub(crate) fn parameter(array: Array, id: Option<LeafId>) -> Self {
        Tensor::new(array, id.map_or(Place::None, Place::Leaf), Some(Arc::default()))
    }

    /// A tensor with a value of its own. A parameter's has room for low copies.
    fn new(array: Array, place: Place, casts: Option<Arc<LowCopies>>) -> Self {
        Tensor(Arc::new(Inner {
            dtype: array.dtype(),
            shape: array.shape().to_vec(),
            data: filled(array),
            narrow: None,
            place,
            of_parameter: casts.is_some(),
            casts,
        }))
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Lengths of the axes; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value. A widening is done here, when somebody first reads it.
    pub(crate) fn array(&self) -> &Array {
        self.0.data.get_or_init(|| {
            let narrow = self.0.narrow.as_ref().expect("a tensor without data is the widening of another");
            context::tell(|listener| listener.widen(narrow, self.0.dtype));
            narrow.array().cast(self.0.dtype)
        })
    }

    /// The value in row-major order, to be changed: alone in its storage when nobody else holds it.
    pub(crate) fn into_array(self) -> Array {
        let _ = self.array();
        let value = match Arc::try_unwrap(self.0).map(|inner| inner.data) {
            Ok(data) => Arc::try_unwrap(data).unwrap_or_else(|shared| (*shared).clone()).into_inner(),
            Err(shared) => shared.data.get().cloned(),
        };
        value.expect("it was just read").contiguous()
    }

    pub(crate) fn place(&self) -> &Place {
        &self.0.place
    }

    /// The same value outside the tape: no gradient flows through it.
    pub fn detach(&self) -> Tensor {
        if let Place::None = self.0.place {
            return self.clone();
        }
        self.with_place(Place::None)
    }

    /// What is kept of this tensor for the backward pass: a widening without its elements, since its 16-bit source has
    /// half the bytes and gives them again.
    pub(crate) fn to_keep(&self) -> Tensor {
        match &self.0.narrow {
            None => self.detach(),
            Some(narrow) => self.beside(self.0.dtype, Arc::default(), Some(narrow.detach()), Place::None),
        }
    }

    /// The same value as a new leaf of the tape, for gradients with respect to something that is not a
    /// [`Param`](crate::Param).
    pub fn requires_grad(&self) -> Tensor {
        self.with_place(Place::Leaf(LeafId::fresh()))
    }

    /// Whether gradients flow through this tensor.
    pub fn is_tracked(&self) -> bool {
        !matches!(self.0.place, Place::None)
    }

    pub(crate) fn with_place(&self, place: Place) -> Tensor {
        // What a widening was made of stands where it stood: a cast back must not lead there.
        let narrow = match place {
            Place::None => self.0.narrow.as_ref().map(Tensor::detach),
            _ => {
                let _ = self.array();
                None
            }
        };
        self.beside(self.0.dtype, self.0.data.clone(), narrow, place)
    }

    /// The same numbers in the fewest bytes: of a widening that nobody has read, what was widened.
    pub(crate) fn least(&self) -> &Tensor {
        match (self.0.data.get(), &self.0.narrow) {
            (None, Some(narrow)) => narrow,
            _ => self,
        }
    }

    /// The 16-bit tensor of which this one is the widening.
    pub(crate) fn narrow(&self) -> Option<&Tensor> {
        self.0.narrow.as_ref()
    }

    /// This widening as that of the same 16-bit tensor elsewhere on the tape.
    pub(crate) fn widening_of(&self, narrow: Tensor) -> Tensor {
        let place = tape::record_cast(&narrow, self.0.dtype);
        self.beside(self.0.dtype, self.0.data.clone(), Some(narrow), place)
    }

    /// A tensor of the same shape that stands for this one: elsewhere on the tape, or in another dtype.
    fn beside(&self, dtype: DType, data: Arc<OnceLock<Array>>, narrow: Option<Tensor>, place: Place) -> Tensor {
        Tensor(Arc::new(Inner {
            dtype,
            shape: self.0.shape.clone(),
            data,
            narrow,
            place,
            casts: None,
            of_parameter: self.0.of_parameter,
        }))
    }

    /// Rounds or widens to another dtype; gradients flow back in the dtype they came from.
    ///
    /// f32 to f16 or bf16 rounds once to nearest even, keeps subnormals, overflows to infinity and keeps NaN. A
    /// widening from 16 bit to f32 is exact, so it is not done before somebody reads it, and casting it back gives the
    /// 16-bit tensor again: two lowered neighbours pay for no round trip. Floats to integers truncate; integers and
    /// floats to bool are `!= 0`.
    pub fn cast(&self, to: DType) -> Tensor {
        self.cast_as(CastRole::Other, to)
    }

    /// As [`cast`](Tensor::cast), told what this tensor is, for those who look for a number that is not finite.
    pub(crate) fn cast_as(&self, what: CastRole, to: DType) -> Tensor {
        self.cast_with(what, to, self.0.casts.as_deref())
    }

    /// As [`cast_as`](Tensor::cast_as), but a parameter's low copy is made anew and not kept.
    pub(crate) fn cast_anew(&self, what: CastRole, to: DType) -> Tensor {
        self.cast_with(what, to, None)
    }

    fn cast_with(&self, what: CastRole, to: DType, kept: Option<&LowCopies>) -> Tensor {
        if to == self.dtype() {
            return self.clone();
        }
        if let Some(narrow) = &self.0.narrow
            && narrow.dtype() == to
        {
            return narrow.clone();
        }
        if self.dtype().is_low() && to == DType::F32 {
            let place = tape::record_cast(self, to);
            let narrow = if let Place::None = place { self.detach() } else { self.clone() };
            let wide = self.beside(to, Arc::default(), Some(narrow), place);
            self.tell_cast(what, &wide, false);
            return wide;
        }
        let mut computed = true;
        let array = match kept {
            None => self.array().cast(to),
            Some(casts) => {
                let mut casts = casts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                match casts.iter().find(|(dtype, _)| *dtype == to) {
                    Some((_, array)) => {
                        computed = false;
                        array.clone()
                    }
                    None => {
                        let array = self.array().cast(to);
                        casts.push((to, array.clone()));
                        array
                    }
                }
            }
        };
        let cast = self.beside(to, filled(array), None, tape::record_cast(self, to));
        self.tell_cast(what, &cast, computed);
        cast
    }

    /// Lets listeners hear of a cast of this tensor.
    fn tell_cast(&self, what: CastRole, output: &Tensor, computed: bool) {
        if !context::is_heard() {
            return;
        }
        let backward = context::in_backward();
        let of = match self.place().leaf() {
            Some(leaf) => CastRole::Leaf(leaf.0),
            None if backward => CastRole::Gradient,
            None => what,
        };
        let slot = context::slot();
        context::tell(|listener| listener.cast(&CastCall { of, input: self, output, computed, slot, backward }));
    }

    /// Whether all numbers are finite; integers and booleans are.
    pub(crate) fn has_only_finite(&self) -> bool {
        // A widening is exact.
        first_non_finite(&[self.least().array().contiguous()], 1.0).is_none()
    }

    /// What tells this value from all others that are alive, whatever its place on the tape.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0.data) as usize
    }

    /// What the op that made this tensor of some inputs keeps for its backward pass.
    pub(crate) fn kept(&self, inputs: &[Tensor]) -> Vec<Activation> {
        let Place::Node(node) = &self.0.place else { return Vec::new() };
        let came: Vec<usize> = inputs.iter().filter_map(Tensor::activation).map(|kept| kept.address).collect();
        let kept = node.saved.iter().filter_map(Tensor::activation);
        kept.map(|kept| Activation { came_in: came.contains(&kept.address), ..kept }).collect()
    }

    /// What is kept in memory when this tensor is saved; `None` for what belongs to a parameter.
    pub(crate) fn activation(&self) -> Option<Activation> {
        if self.0.of_parameter {
            return None;
        }
        match (&self.0.data.get(), &self.0.narrow) {
            (None, Some(narrow)) => narrow.activation(),
            _ => Some(Activation {
                address: self.array().address(),
                dtype: self.dtype(),
                len: self.len(),
                came_in: false,
            }),
        }
    }
}

/// An activation that the tape keeps.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct Activation {
    /// Where its storage begins. Storage that two ops keep is counted once.
    pub address: usize,
    pub dtype: DType,
    pub len: usize,
    /// Whether it is an input of the op.
    pub came_in: bool,
}

impl PartialEq for Activation {
    /// Without the addresses, which differ between two equal runs.
    fn eq(&self, other: &Activation) -> bool {
        (self.dtype, self.len, self.came_in) == (other.dtype, other.len, other.came_in)
    }
}

fn filled(array: Array) -> Arc<OnceLock<Array>> {
    Arc::new(OnceLock::from(array))
}
