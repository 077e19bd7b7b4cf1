//! Storage: a shared ndarray with a run-time dtype.

use half::{bf16, f16};
use ndarray::{ArrayD, ArrayViewD};
use precast_base::{
    DType, Element,
    error::{Error, Result},
};

use crate::{
    cast::{Convert, converted},
    elementwise::{Function, MapSlices, Sum, map, map_into},
    memory::{Item, Pooled, SharedArray, copied, uninit_vec},
    strides::row_major,
};

/// A shared n-dimensional array with a run-time dtype. Views (transposes, slices) share the storage.
#[derive(Clone)]
pub enum Array {
    /// f64 elements.
    F64(Storage<f64>),
    /// f32 elements.
    F32(Storage<f32>),
    /// f16 elements.
    F16(Storage<f16>),
    /// bf16 elements.
    Bf16(Storage<bf16>),
    /// i64 elements.
    I64(Storage<i64>),
    /// bool elements.
    Bool(Storage<bool>),
}

/// An array of one element type.
pub type Storage<T> = SharedArray<T>;

/// Dispatches on the dtype of an [`Array`]: in the body, `$a` is the [`Storage`] and `$t` its element type.
#[macro_export]
macro_rules! with_array {
    ($array:expr, $a:ident: $t:ident => $body:expr) => {
        match $array {
            $crate::Array::F64($a) => {
                #[allow(dead_code)]
                type $t = f64;
                $body
            }
            $crate::Array::F32($a) => {
                #[allow(dead_code)]
                type $t = f32;
                $body
            }
            $crate::Array::F16($a) => {
                #[allow(dead_code)]
                type $t = half::f16;
                $body
            }
            $crate::Array::Bf16($a) => {
                #[allow(dead_code)]
                type $t = half::bf16;
                $body
            }
            $crate::Array::I64($a) => {
                #[allow(dead_code)]
                type $t = i64;
                $body
            }
            $crate::Array::Bool($a) => {
                #[allow(dead_code)]
                type $t = bool;
                $body
            }
        }
    };
}

/// Dispatches on the dtype of a floating [`Array`]; `else` is the value for other dtypes.
#[macro_export]
macro_rules! with_float {
    ($array:expr, $a:ident: $t:ident => $body:expr, else $other:expr) => {
        match $array {
            $crate::Array::F64($a) => {
                #[allow(dead_code)]
                type $t = f64;
                $body
            }
            $crate::Array::F32($a) => {
                #[allow(dead_code)]
                type $t = f32;
                $body
            }
            $crate::Array::F16($a) => {
                #[allow(dead_code)]
                type $t = half::f16;
                $body
            }
            $crate::Array::Bf16($a) => {
                #[allow(dead_code)]
                type $t = half::bf16;
                $body
            }
            $crate::Array::I64(_) | $crate::Array::Bool(_) => $other,
        }
    };
}

/// Returns the elements in row-major order for mutation, copying shared storage first. `None` when the layout has gaps.
pub fn alone_mut<T: Stored>(a: &mut Storage<T>) -> Option<&mut [T]> {
    if !a.is_alone() {
        *a = SharedArray::new(row_major(&a.view()), a.shape())?;
    }
    a.alone_mut()
}

/// Element type that knows its variant of [`Array`].
pub trait Stored: Element + Item {
    /// Returns the array as a variant of [`Array`].
    fn wrap(array: Storage<Self>) -> Array;
    /// Returns the array of this type; `None` for another dtype.
    fn unwrap(array: &Array) -> Option<&Storage<Self>>;
    /// Returns the array of this type, mutable; `None` for another dtype.
    fn unwrap_mut(array: &mut Array) -> Option<&mut Storage<Self>>;
}

macro_rules! stored {
    ($($t:ty => $v:ident),*) => { $(
        impl Stored for $t {
            fn wrap(array: Storage<Self>) -> Array { Array::$v(array) }
            fn unwrap(array: &Array) -> Option<&Storage<Self>> {
                match array { Array::$v(a) => Some(a), _ => None }
            }
            fn unwrap_mut(array: &mut Array) -> Option<&mut Storage<Self>> {
                match array { Array::$v(a) => Some(a), _ => None }
            }
        }
    )* };
}
stored!(f64 => F64, f32 => F32, f16 => F16, bf16 => Bf16, i64 => I64, bool => Bool);

impl Array {
    /// Returns an array without elements or memory.
    pub fn empty() -> Array {
        Array::from_vec(Pooled::<f32>::default(), &[0]).expect("no element")
    }

    /// Creates an array from elements in row-major order.
    pub fn from_vec<T: Stored>(data: impl Into<Pooled<T>>, shape: &[usize]) -> Result<Array> {
        let data = data.into();
        let len = data.len();
        SharedArray::new(data, shape).map(T::wrap).ok_or_else(|| {
            Error::shape(format!(
                "{len} elements do not fill the shape {shape:?}, which has {}",
                shape.iter().fold(1usize, |all, &axis| all.saturating_mul(axis))
            ))
        })
    }

    /// Creates an array from an ndarray, reusing its memory if it is in row-major order.
    pub fn from_ndarray<T: Stored>(array: ArrayD<T>) -> Array {
        let shape = array.shape().to_vec();
        let data = match array.is_standard_layout() && !array.is_empty() {
            true => match array.into_raw_vec_and_offset() {
                (all, Some(0) | None) if all.len() == shape.iter().product::<usize>() => all.into(),
                (all, at) => copied(&all[at.unwrap_or(0)..][..shape.iter().product()]),
            },
            false => row_major(&array.view()),
        };
        Array::from_vec(data, &shape).expect("one element for each")
    }

    /// Returns the dtype of the elements.
    pub fn dtype(&self) -> DType {
        match self {
            Array::F64(_) => DType::F64,
            Array::F32(_) => DType::F32,
            Array::F16(_) => DType::F16,
            Array::Bf16(_) => DType::Bf16,
            Array::I64(_) => DType::I64,
            Array::Bool(_) => DType::Bool,
        }
    }

    /// Returns the length of each axis.
    pub fn shape(&self) -> &[usize] {
        with_array!(self, a: T => a.shape())
    }

    /// Returns a typed view, or `None` for another dtype.
    pub fn view<T: Stored>(&self) -> Option<ArrayViewD<'_, T>> {
        T::unwrap(self).map(|a| a.view())
    }

    /// Returns the same elements in row-major order without gaps.
    pub fn contiguous(&self) -> Array {
        fn go<T: Stored>(a: &Storage<T>) -> Array {
            if a.is_standard_layout() {
                T::wrap(a.clone())
            } else {
                Array::from_vec(row_major(&a.view()), a.shape()).expect("one element for each")
            }
        }
        with_array!(self, a: T => go::<T>(a))
    }

    /// Returns the elements in row-major order; `None` for another dtype or a layout with gaps.
    pub fn slice<T: Stored>(&self) -> Option<&[T]> {
        T::unwrap(self).and_then(|a| a.as_slice())
    }

    /// Returns the elements as [`slice`](Array::slice) does, mutable. Shared storage is copied first.
    pub fn slice_mut<T: Stored>(&mut self) -> Option<&mut [T]> {
        T::unwrap_mut(self).and_then(alone_mut)
    }

    /// Prepares all elements for overwriting. Shared storage is set aside, and new memory with arbitrary elements takes
    /// its place.
    pub fn renewed(&mut self) -> Renewed<'_> {
        fn go<T: Stored>(a: &mut Storage<T>) -> Option<Array> {
            if a.is_alone() {
                return None;
            }
            let new = SharedArray::new(uninit_vec(a.len()), a.shape()).expect("one element for each");
            Some(T::wrap(std::mem::replace(a, new)))
        }
        let old = with_array!(&mut *self, a: T => go::<T>(a));
        Renewed { new: self, old }
    }

    /// Converts to another dtype, rounding each element once.
    pub fn cast(&self, to: DType) -> Array {
        fn go<A: Stored + Convert<B>, B: Stored>(a: &Storage<A>) -> Array {
            let data = match a.as_slice() {
                Some(from) => converted(from),
                None => converted(&row_major(&a.view())),
            };
            Array::from_vec(data, a.shape()).expect("one element for each")
        }
        if to == self.dtype() {
            return self.contiguous();
        }
        with_array!(self, a: A => match to {
            DType::F64 => go::<A, f64>(a),
            DType::F32 => go::<A, f32>(a),
            DType::F16 => go::<A, f16>(a),
            DType::Bf16 => go::<A, bf16>(a),
            DType::I64 => go::<A, i64>(a),
            DType::Bool => go::<A, bool>(a),
            other => crate::unknown(other),
        })
    }

    /// Returns the sum of two floating arrays of one shape and dtype, each element rounded once.
    pub fn add(&self, other: &Array) -> Array {
        self.clone().added(other.clone())
    }

    /// Returns the sum as [`add`](Array::add) does, in the memory of one of the two if that has no other owner.
    pub fn added(self, other: Array) -> Array {
        self.combined(other, &Sum)
    }

    /// Returns a function of two floating arrays of one shape and dtype, each element rounded once. It takes the memory of
    /// one of them if that has no other owner.
    pub fn combined(self, other: Array, f: &dyn Function) -> Array {
        fn go<T: Stored + MapSlices>(f: &dyn Function, a: Array, b: Array) -> Array {
            let [mut a, mut b] = [a, b].map(|x| x.contiguous());
            for is_second in [false, true] {
                let (own, other) = if is_second { (&mut b, &a) } else { (&mut a, &b) };
                let own = T::unwrap_mut(own).and_then(SharedArray::alone_mut);
                if let (Some(own), Some(other)) = (own, other.slice::<T>()) {
                    map_into(f, own, other, is_second);
                    return if is_second { b } else { a };
                }
            }
            let slices = [&a, &b].map(|x| x.slice::<T>().expect("contiguous arrays of one dtype"));
            Array::from_vec(map(f, &slices), a.shape()).expect("one element for each")
        }
        match self.dtype() {
            DType::F64 => go::<f64>(f, self, other),
            DType::F32 => go::<f32>(f, self, other),
            DType::F16 => go::<f16>(f, self, other),
            DType::Bf16 => go::<bf16>(f, self, other),
            dtype => unreachable!("gradients are floating, not {dtype}"),
        }
    }

    /// Returns the address of the first element.
    pub fn address(&self) -> usize {
        with_array!(self, a: T => a.as_ptr() as usize)
    }
}

/// An array whose elements are being overwritten. Dropped before it is [done](Renewed::done), by a panic, it has its old
/// storage again, if that was shared; else the elements so far.
pub struct Renewed<'a> {
    new: &'a mut Array,
    old: Option<Array>,
}

impl Renewed<'_> {
    /// Returns the old elements, if they are not in the memory of the new ones, and the new ones.
    pub fn parts(&mut self) -> (Option<&Array>, &mut Array) {
        (self.old.as_ref(), self.new)
    }

    /// Keeps the new elements, all of which are written.
    pub fn done(mut self) {
        self.old = None;
    }
}

impl Drop for Renewed<'_> {
    fn drop(&mut self) {
        if let Some(old) = self.old.take() {
            *self.new = old;
        }
    }
}
