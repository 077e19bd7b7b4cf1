//! Tensors: values with a run-time dtype and a place on the tape.

mod backward;
mod build;
mod coded;
pub mod context;
mod fmt;
mod grads;
mod late;
pub mod listener;
mod param;
pub mod pass;
mod range;
pub mod recording;
mod rows;
mod tape;
mod unread;
mod value;

use std::sync::{Arc, Mutex};

pub use backward::Moment;
pub use backward::backward_of;
pub use build::TensorElement;
pub(crate) use build::elements;
use coded::Coded;
pub use context::{is_recording, with_recording};
pub use grads::{Factors, Unscaled};
pub use grads::{Grads, Scaling};
pub use param::Param;
pub use param::Rounding;
pub(crate) use precast_kernels::{Array, Stored, with_array, with_float};
pub use range::Beyond;
pub use tape::LeafId;
pub use tape::{Backward, enable_grad, no_grad};
pub(crate) use tape::{Call, Forward, Node, What, Written, record};
pub use tape::{Place, next_id, record_segment};
pub(crate) use unread::{Unread, UnreadNorm};
pub(crate) use value::Value;
pub use value::WeakTensor;

use crate::{
    DType, Op,
    error::{Error, Result},
};
use listener::{CastCall, CastRole};
use precast_kernels::memory::within_memory;

/// Runs kernels, whose memory may be more than the system has.
///
/// # Errors
/// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when it is; otherwise that of `f`.
pub(crate) fn fitting<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    within_memory(f).unwrap_or_else(|shortage| Err(Error::shape(shortage.to_string())))
}

/// An n-dimensional array with a run-time dtype and, when it takes part in training, a place on the tape.
///
/// Cloning is cheap: the value is shared and never changed in place.
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

struct Inner {
    dtype: DType,
    shape: Vec<usize>,
    /// Value, shared with copies elsewhere on the tape. Empty while it is unread.
    data: Arc<Value>,
    /// 16-bit source, if this f32 tensor is its exact widening.
    narrow: Option<Tensor>,
    /// Value of a parameter, if this is its low copy.
    copy_of: Option<Tensor>,
    place: Place,
    /// Low copies of a parameter's value. They are dropped with the value, so a changed parameter has none.
    casts: Option<Arc<LowCopies>>,
    /// `true` when the storage belongs to a parameter or a low copy of one, and so is not an activation.
    of_parameter: bool,
}

/// Least bytes of a low copy whose memory is worth a second cast.
const LARGE: usize = 1 << 20;

/// Low copies of a parameter's value. A [large](LARGE) one that the tape has read only once is computed again by the
/// backward pass: then there is none for a dtype.
type LowCopies = Mutex<Vec<(DType, Option<Array>)>>;

impl From<&Tensor> for Tensor {
    /// Returns the same tensor, sharing its value.
    fn from(tensor: &Tensor) -> Self {
        tensor.clone()
    }
}

impl Tensor {
    /// Creates a tensor outside the tape.
    pub(crate) fn from_array(array: Array) -> Self {
        Tensor::placed(array, Place::None)
    }

    pub(crate) fn placed(array: Array, place: Place) -> Self {
        Tensor::new(array.into(), place, None)
    }

    /// Creates the value of a parameter: a leaf of the tape that keeps its low copies.
    pub(crate) fn parameter(array: Array, id: Option<LeafId>) -> Self {
        Tensor::new(array.into(), id.map_or(Place::None, Place::Leaf), Some(Arc::default()))
    }

    /// Creates a tensor with its own value. A parameter's has room for low copies.
    fn new(value: Value, place: Place, casts: Option<Arc<LowCopies>>) -> Self {
        let (dtype, shape) = value.layout();
        Tensor(Arc::new(Inner {
            dtype,
            shape,
            data: Arc::new(value),
            narrow: None,
            copy_of: None,
            place,
            of_parameter: casts.is_some(),
            casts,
        }))
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Returns the lengths of the axes; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.0.shape.len()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.0.shape.iter().product()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value. A widening, a low copy that was [dropped](Tensor::to_record), or what is [unread](Unread), is
    /// computed here, on first read.
    pub(crate) fn array(&self) -> &Array {
        self.0.data.read(|| {
            if let Some(full) = &self.0.copy_of {
                return full.kept_copy(self.0.dtype).unwrap_or_else(|| full.array().cast(self.0.dtype));
            }
            let narrow = self.0.narrow.as_ref().expect("a tensor without data is the widening of another");
            context::tell(|listener| listener.widen(narrow, self.0.dtype));
            narrow.array().cast(self.0.dtype)
        })
    }

    /// Returns the value in row-major order for mutation, unshared if this is the only handle.
    pub(crate) fn into_array(self) -> Array {
        let _ = self.array();
        let value = match Arc::try_unwrap(self.0).map(|inner| inner.data) {
            Ok(data) => Value::into_array(data),
            Err(shared) => shared.data.get().cloned(),
        };
        value.expect("it was just read").contiguous()
    }

    /// Returns the same value at the same place of the tape, with an [identity](Tensor::identity) of its own.
    pub fn with_own_identity(&self) -> Tensor {
        Tensor::placed(self.array().clone(), self.place().clone())
    }

    pub(crate) fn place(&self) -> &Place {
        &self.0.place
    }

    /// Returns the same value outside the tape: no gradient flows through it.
    pub fn detach(&self) -> Tensor {
        if let Place::None = self.0.place {
            return self.clone();
        }
        self.with_place(Place::None)
    }

    /// Returns the form kept for the backward pass: a widening drops its elements, since its 16-bit source takes half
    /// the bytes and can restore them.
    pub fn to_keep(&self) -> Tensor {
        match &self.0.narrow {
            None if self.0.data.get().is_none() && self.0.copy_of.is_some() => self.dropped(),
            None => self.coded().map_or_else(|| self.detach(), Coded::into_tensor),
            Some(narrow) => self.beside(self.0.dtype, Arc::default(), Some(narrow.detach()), Place::None),
        }
    }

    /// Returns the form in which the tape keeps a tensor that an op saves, as [`to_keep`](Tensor::to_keep). A low copy that was read only
    /// here drops its elements too, since the parameter can restore them; not in a recomputed cell, which reads them again
    /// at once.
    pub(crate) fn to_record(&self, op: Op, inputs: &[Tensor], result: &Value) -> Tensor {
        match &self.0.copy_of {
            Some(full) if full.kept_copy(self.0.dtype).is_none() && !context::in_backward() => self.dropped(),
            _ => self.to_codes(op, inputs, result).map_or_else(|| self.to_keep(), Coded::into_tensor),
        }
    }

    /// Returns this low copy without its elements.
    fn dropped(&self) -> Tensor {
        self.beside(self.0.dtype, Arc::default(), None, Place::None)
    }

    /// Returns the low copy that is kept with this value of a parameter.
    fn kept_copy(&self, dtype: DType) -> Option<Array> {
        let casts = self.0.casts.as_ref()?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        casts.iter().find(|(kept, _)| *kept == dtype)?.1.clone()
    }

    /// Returns the same value as a new leaf of the tape, for gradients with respect to something other than a
    /// [`Param`](crate::Param).
    pub fn requires_grad(&self) -> Tensor {
        self.with_place(Place::Leaf(LeafId::fresh()))
    }

    /// Returns whether gradients flow through this tensor.
    pub fn is_tracked(&self) -> bool {
        !matches!(self.0.place, Place::None)
    }

    pub(crate) fn with_place(&self, place: Place) -> Tensor {
        // The source of a widening stays at its old place on the tape: a cast back must not lead there.
        let narrow = match place {
            Place::None => self.0.narrow.as_ref().map(Tensor::detach),
            _ => {
                let _ = self.array();
                None
            }
        };
        self.beside(self.0.dtype, self.0.data.clone(), narrow, place)
    }

    /// Returns the same numbers in the fewest bytes: the source of an unread widening, else this tensor.
    pub fn least(&self) -> &Tensor {
        match (self.0.data.get(), &self.0.narrow) {
            (None, Some(narrow)) => narrow,
            _ => self,
        }
    }

    /// Returns the 16-bit tensor of which this is a widening; `None` for another tensor. Its numbers are the same.
    pub fn source(&self) -> Option<&Tensor> {
        self.0.narrow.as_ref()
    }

    /// Returns this widening as that of the same 16-bit tensor elsewhere on the tape.
    pub(crate) fn widening_of(&self, narrow: Tensor) -> Tensor {
        let place = tape::record_cast(&narrow, self.0.dtype);
        self.beside(self.0.dtype, self.0.data.clone(), Some(narrow), place)
    }

    /// Returns a counterpart of the same shape, elsewhere on the tape or in another dtype.
    fn beside(&self, dtype: DType, data: Arc<Value>, narrow: Option<Tensor>, place: Place) -> Tensor {
        Tensor(Arc::new(Inner {
            dtype,
            shape: self.0.shape.clone(),
            data,
            narrow,
            copy_of: if dtype == self.0.dtype { self.0.copy_of.clone() } else { None },
            place,
            casts: None,
            of_parameter: self.0.of_parameter,
        }))
    }

    /// Converts to another dtype. Gradients flow back in the dtype they came from.
    ///
    /// f32 to f16 or bf16 rounds once to nearest even, keeps subnormals, overflows to infinity and keeps NaN. A
    /// widening from 16 bit to f32 is exact, so it is deferred until it is read, and casting it back returns the 16-bit
    /// tensor: two adjacent lowered ops pay for no round trip. Floats to integers truncate. Integers and floats to bool
    /// are `!= 0`.
    pub fn cast(&self, to: DType) -> Tensor {
        self.cast_as(CastRole::Other, to)
    }

    /// Casts as [`cast`](Tensor::cast) does, noting the tensor's role for the search for non-finite numbers.
    pub(crate) fn cast_as(&self, what: CastRole, to: DType) -> Tensor {
        self.cast_with(what, to, self.0.casts.as_deref())
    }

    /// Casts as [`cast_as`](Tensor::cast_as) does, without the cache of a parameter's low copies.
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
        let Some(casts) = kept.filter(|_| to.is_low()) else {
            let unread = self.0.data.unread().filter(|_| !context::is_heard());
            let value = match unread.and_then(|unread| unread.narrowed(to)) {
                Some(unread) => unread.into(),
                None => self.array().cast(to).into(),
            };
            let cast = self.beside(to, Arc::new(value), None, tape::record_cast(self, to));
            self.tell_cast(what, &cast, true);
            return cast;
        };
        let (copy, computed) = {
            let mut casts = casts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let found = casts.iter().position(|(dtype, _)| *dtype == to);
            match found.map(|at| &mut casts[at].1) {
                Some(Some(copy)) => (copy.clone(), false),
                // A cell that is recomputed is the last to read it.
                Some(None) if context::in_backward() => (self.array().cast(to), true),
                Some(read_once) => (read_once.insert(self.array().cast(to)).clone(), true),
                None => {
                    let copy = self.array().cast(to);
                    let keeps = !context::is_recording() || self.len() * to.bytes() < LARGE;
                    casts.push((to, keeps.then(|| copy.clone())));
                    (copy, true)
                }
            }
        };
        let cast = Tensor(Arc::new(Inner {
            dtype: to,
            shape: self.0.shape.clone(),
            data: Value::filled(copy),
            narrow: None,
            copy_of: Some(self.clone()),
            place: tape::record_cast(self, to),
            casts: None,
            of_parameter: self.0.of_parameter,
        }));
        self.tell_cast(what, &cast, computed);
        cast
    }

    /// Notifies listeners of a cast of this tensor.
    fn tell_cast(&self, what: CastRole, output: &Tensor, computed: bool) {
        if !context::is_heard() {
            return;
        }
        let backward = context::in_backward();
        let of = match self.place().leaf() {
            Some(leaf) => CastRole::Leaf(leaf),
            None if backward => CastRole::Gradient,
            None => what,
        };
        let slot = context::slot_of_call();
        context::tell(|listener| listener.cast(&CastCall { of, input: self, output, computed, slot, backward }));
    }

    /// Returns whether all numbers are finite. Integers and booleans are.
    pub fn has_only_finite(&self) -> bool {
        self.peak().is_finite()
    }

    /// Returns the number of the node of the tape that wrote this tensor; `None` for a leaf and off the tape.
    pub fn node(&self) -> Option<u64> {
        match &self.0.place {
            Place::Node(node) => Some(node.id),
            _ => None,
        }
    }

    /// Returns the op that computed this tensor on the tape, beyond casts and changes of its shape; `None` for a leaf and
    /// off the tape.
    pub(crate) fn made_by(&self) -> Option<Op> {
        let mut place = &self.0.place;
        while let Place::Node(node) = place {
            match node.op? {
                Op::Cast | Op::Reshape | Op::Transpose => place = node.inputs.first()?,
                op => return Some(op),
            }
        }
        None
    }

    /// Returns a number that identifies this value among all live ones, wherever it is on the tape.
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.0.data) as usize
    }

    /// Returns a handle that keeps the [identity](Tensor::identity) from being used again, without keeping the numbers.
    pub fn downgrade(&self) -> WeakTensor {
        WeakTensor::of(&self.0.data)
    }

    /// Returns the activations that the op which computed this tensor from `inputs` keeps for its backward pass.
    pub(crate) fn kept(&self, inputs: &[Tensor]) -> Vec<Activation> {
        let Place::Node(node) = &self.0.place else { return Vec::new() };
        let came: Vec<usize> = inputs.iter().filter_map(Tensor::activation).map(|kept| kept.address).collect();
        let kept = node.saved.iter().filter_map(Tensor::activation);
        kept.map(|kept| Activation { came_in: came.contains(&kept.address), ..kept }).collect()
    }

    /// Returns the memory kept when this tensor is saved; `None` if it belongs to a parameter.
    pub(crate) fn activation(&self) -> Option<Activation> {
        if self.0.of_parameter {
            return None;
        }
        let (dtype, len, came_in) = (self.dtype(), self.len(), false);
        match (&self.0.data.get(), &self.0.narrow, self.coded()) {
            (None, Some(narrow), _) => narrow.activation(),
            (None, None, Some(Coded { rows, .. })) => {
                Some(Activation { address: Arc::as_ptr(&rows) as usize, dtype, len, bytes: rows.bytes(), came_in })
            }
            _ => Some(Activation { address: self.array().address(), dtype, len, bytes: len * dtype.bytes(), came_in }),
        }
    }
}

/// Activation kept by the tape.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Activation {
    /// Start address of its storage. Storage kept by two ops counts once.
    pub address: usize,
    /// Its dtype.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
    /// The memory that it takes, in bytes: less than its elements do, where a rule keeps them in 8 bits.
    pub bytes: usize,
    /// `true` for an input of the op.
    pub came_in: bool,
}

impl PartialEq for Activation {
    /// Compares without the addresses, which differ between equal runs.
    fn eq(&self, other: &Activation) -> bool {
        (self.dtype, self.len, self.bytes, self.came_in) == (other.dtype, other.len, other.bytes, other.came_in)
    }
}
