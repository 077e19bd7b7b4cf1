//! Storage: a shared ndarray of one of the dtypes.

use std::ops::{Deref, DerefMut};

use half::{bf16, f16};
use ndarray::{ArcArray, ArrayD, ArrayViewD, IxDyn};

use crate::{
    DType,
    dtype::Element,
    error::{Error, Result},
    kernels::{
        cast::{Convert, converted},
        elementwise::{MapSlices, Sum, map},
        memory::{Pooled, recycle, uninit_vec},
        strides::row_major,
    },
};

/// A shared n-dimensional array with a run-time dtype. Views (transposes, slices) share the storage.
#[derive(Clone)]
pub(crate) enum Array {
    F64(Storage<f64>),
    F32(Storage<f32>),
    F16(Storage<f16>),
    Bf16(Storage<bf16>),
    I64(Storage<i64>),
    Bool(Storage<bool>),
}

/// An array of one element type. The last one that holds its memory gives it back to the pool of buffers.
#[derive(Clone)]
pub(crate) struct Storage<T: Element>(Option<ArcArray<T, IxDyn>>);

impl<T: Element> Storage<T> {
    /// Of no elements, and without memory.
    pub fn empty() -> Self {
        Storage(Some(ArcArray::from_shape_vec(IxDyn(&[0]), Vec::new()).expect("no element")))
    }

    /// Another holder of the same memory.
    pub fn share(&self) -> ArcArray<T, IxDyn> {
        (**self).clone()
    }
}

impl<T: Element> Deref for Storage<T> {
    type Target = ArcArray<T, IxDyn>;
    fn deref(&self) -> &ArcArray<T, IxDyn> {
        self.0.as_ref().expect("only dropping empties it")
    }
}

impl<T: Element> DerefMut for Storage<T> {
    fn deref_mut(&mut self) -> &mut ArcArray<T, IxDyn> {
        self.0.as_mut().expect("only dropping empties it")
    }
}

impl<T: Element> Drop for Storage<T> {
    fn drop(&mut self) {
        if let Some(Ok(alone)) = self.0.take().map(ArcArray::try_into_owned_nocopy) {
            recycle(alone.into_raw_vec_and_offset().0);
        }
    }
}

/// Opens an [`Array`] of any dtype: in the body, `$a` is the [`Storage`] and `$t` its element type.
macro_rules! with_array {
    ($array:expr, $a:ident: $t:ident => $body:expr) => {
        match $array {
            $crate::tensor::Array::F64($a) => {
                #[allow(dead_code)]
                type $t = f64;
                $body
            }
            $crate::tensor::Array::F32($a) => {
                #[allow(dead_code)]
                type $t = f32;
                $body
            }
            $crate::tensor::Array::F16($a) => {
                #[allow(dead_code)]
                type $t = half::f16;
                $body
            }
            $crate::tensor::Array::Bf16($a) => {
                #[allow(dead_code)]
                type $t = half::bf16;
                $body
            }
            $crate::tensor::Array::I64($a) => {
                #[allow(dead_code)]
                type $t = i64;
                $body
            }
            $crate::tensor::Array::Bool($a) => {
                #[allow(dead_code)]
                type $t = bool;
                $body
            }
        }
    };
}

/// Opens an [`Array`] of a floating dtype; `else` is the value for the others.
macro_rules! with_float {
    ($array:expr, $a:ident: $t:ident => $body:expr, else $other:expr) => {
        match $array {
            $crate::tensor::Array::F64($a) => {
                #[allow(dead_code)]
                type $t = f64;
                $body
            }
            $crate::tensor::Array::F32($a) => {
                #[allow(dead_code)]
                type $t = f32;
                $body
            }
            $crate::tensor::Array::F16($a) => {
                #[allow(dead_code)]
                type $t = half::f16;
                $body
            }
            $crate::tensor::Array::Bf16($a) => {
                #[allow(dead_code)]
                type $t = half::bf16;
                $body
            }
            $crate::tensor::Array::I64(_) | $crate::tensor::Array::Bool(_) => $other,
        }
    };
}

pub(crate) use {with_array, with_float};

/// An element type that knows its variant of [`Array`].
pub(crate) trait Stored: Element {
    fn wrap(array: ArcArray<Self, IxDyn>) -> Array;
    fn unwrap(array: &Array) -> Option<&Storage<Self>>;
    fn unwrap_mut(array: &mut Array) -> Option<&mut Storage<Self>>;
}

macro_rules! stored {
    ($($t:ty => $v:ident),*) => { $(
        impl Stored for $t {
            fn wrap(array: ArcArray<Self, IxDyn>) -> Array { Array::$v(Storage(Some(array))) }
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
    /// From a flat vector in row-major order.
    pub fn from_vec<T: Stored>(data: Vec<T>, shape: &[usize]) -> Result<Array> {
        let len = data.len();
        match ArrayD::from_shape_vec(IxDyn(shape), data) {
            Ok(array) => Ok(T::wrap(array.into_shared())),
            Err(_) => Err(Error::shape(format!(
                "{len} elements do not fill the shape {shape:?}, which has {}",
                shape.iter().fold(1usize, |all, &axis| all.saturating_mul(axis))
            ))),
        }
    }

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

    pub fn shape(&self) -> &[usize] {
        with_array!(self, a: T => a.shape())
    }

    /// A view with a type, or `None` when the dtype is another.
    pub fn view<T: Stored>(&self) -> Option<ArrayViewD<'_, T>> {
        T::unwrap(self).map(|a| a.view())
    }

    /// The same elements in row-major order without gaps.
    pub fn contiguous(&self) -> Array {
        fn go<T: Stored>(a: &Storage<T>) -> Array {
            if a.is_standard_layout() {
                T::wrap(a.share())
            } else {
                T::wrap(ArcArray::from_shape_vec(a.raw_dim(), row_major(&a.view())).expect("one element for each"))
            }
        }
        with_array!(self, a: T => go::<T>(a))
    }

    /// The elements in row-major order; `None` when the dtype is another or the layout has gaps.
    pub fn slice<T: Stored>(&self) -> Option<&[T]> {
        T::unwrap(self).and_then(|a| a.as_slice())
    }

    /// As [`slice`](Array::slice), mutable; storage that somebody else holds is copied first.
    pub fn slice_mut<T: Stored>(&mut self) -> Option<&mut [T]> {
        T::unwrap_mut(self).and_then(|a| a.as_slice_mut())
    }

    /// Prepares for all elements to be written. Where somebody else holds them, they are returned, and new memory with any
    /// elements takes their place.
    pub fn renew(&mut self) -> Option<Array> {
        fn go<T: Stored>(a: &mut Storage<T>) -> Option<Array> {
            match a.0.take().expect("only dropping empties it").try_into_owned_nocopy() {
                Ok(alone) => {
                    a.0 = Some(alone.into_shared());
                    None
                }
                Err(shared) => {
                    let new = ArcArray::from_shape_vec(shared.raw_dim(), uninit_vec(shared.len()));
                    a.0 = Some(new.expect("one element for each"));
                    Some(T::wrap(shared))
                }
            }
        }
        with_array!(self, a: T => go::<T>(a))
    }

    /// Another dtype, each element rounded once.
    pub fn cast(&self, to: DType) -> Array {
        fn go<A: Stored + Convert<B>, B: Stored>(a: &ArcArray<A, IxDyn>) -> Array {
            let data = match a.as_slice() {
                Some(from) => converted(from),
                None => converted(&Pooled::from(row_major(&a.view()))),
            };
            B::wrap(ArcArray::from_shape_vec(a.raw_dim(), data).expect("one element for each"))
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
        })
    }

    /// The sum of two floating arrays of one shape and dtype, each element rounded once.
    pub fn add(&self, other: &Array) -> Array {
        fn go<T: Stored + MapSlices>(a: &Array, b: &Array) -> Array {
            let (a, b) = (a.contiguous(), b.contiguous());
            let slices = [&a, &b].map(|x| x.slice::<T>().expect("contiguous arrays of one dtype"));
            Array::from_vec(map(&Sum, &slices), a.shape()).expect("one element for each")
        }
        with_float!(self, a: T => { let _ = a; go::<T>(self, other) }, else unreachable!("only floating tensors have gradients"))
    }

    /// Address of the first element.
    pub fn address(&self) -> usize {
        with_array!(self, a: T => a.as_ptr() as usize)
    }
}
