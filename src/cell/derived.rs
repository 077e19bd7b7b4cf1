//! Runtime support for `#[derive(Cell)]`. The macro sees tokens, not types, so the compiler decides here, by the type
//! of each field, whether the field is part of the tree.
//!
//! For `(&&&of(&field)).place()` the compiler takes the first of three traits that fits, with one reference less each
//! time: a [`Member`] is part of the tree; a type that holds a cell or a parameter in another way is refused, and tensors
//! that are not marked; everything else is plain data.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, LinkedList, VecDeque},
    marker::PhantomData,
    rc::Rc,
    sync::{Arc, LazyLock, Mutex, OnceLock, RwLock, atomic::AtomicU64},
};

use serde::{Serialize, de::DeserializeOwned};

pub use inventory;
pub use precast_base::document::words;
pub use precast_tensor::formula;
pub use serde;
pub use serde_json;
pub use typetag;

use super::{Cell, Child, Copies, Member, Params, Part, PartMut, copies::not_copied, kinds};
use crate::{Param, Tensor, error::Result as Copied, options::Options};

pub use super::asked::{Asked, Described};
pub use crate::options::read::read as read_options;
pub use kinds::Registered;

/// The type of a field.
#[derive(Debug)]
pub struct Of<T: ?Sized>(PhantomData<fn(&T)>);

/// Captures the type of a field.
pub fn of<T: ?Sized>(_: &T) -> Of<T> {
    Of(PhantomData)
}

/// Names a type.
pub fn typed<T: ?Sized>() -> Of<T> {
    Of(PhantomData)
}

/// A saved type whose options are stated by `#[options]`.
pub trait HasOptions {
    fn described(&self) -> Described;
}

impl<T: Options> HasOptions for &Of<T> {
    fn described(&self) -> Described {
        Described::Options(T::options())
    }
}

/// A saved type whose fields are known to serde alone.
pub trait AsksSerde {
    fn described(&self) -> Described;
}

impl<T: DeserializeOwned> AsksSerde for Of<T> {
    fn described(&self) -> Described {
        Described::ByReading(Asked::ask::<T>)
    }
}

/// A field that is part of the tree.
#[derive(Clone, Copy, Debug)]
pub struct InTheTree;

impl InTheTree {
    pub fn visit<M: Member + ?Sized>(self, member: &M, name: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        member.visit(name, visitor);
    }
    pub fn visit_mut<M: Member + ?Sized>(self, member: &mut M, name: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        member.visit_mut(name, visitor);
    }
}

/// A field that contributes nothing to the tree. A refused field also counts as one, after the refusal.
#[derive(Clone, Copy, Debug)]
pub struct PlainData;

impl PlainData {
    pub fn visit<T: ?Sized>(self, _: &T, _: &str, _: &mut dyn FnMut(&str, Part<'_>)) {}
    pub fn visit_mut<T: ?Sized>(self, _: &mut T, _: &str, _: &mut dyn FnMut(&str, PartMut<'_>)) {}
}

/// A field that holds tensors, which are neither trained nor saved: it compiles with the mark `#[cell(data)]`.
#[derive(Clone, Copy, Debug)]
pub struct Constant;

impl Constant {
    pub fn visit<T: ?Sized>(self, _: &T, _: &str, _: &mut dyn FnMut(&str, Part<'_>))
    where
        for<'never> &'never T: IsTrained,
    {
    }
    pub fn visit_mut<T: ?Sized>(self, _: &mut T, _: &str, _: &mut dyn FnMut(&str, PartMut<'_>)) {}
}

/// Never holds; because of the lifetime in the bound, the compiler checks it at the field.
#[diagnostic::on_unimplemented(
    message = "a `Tensor` in a cell is neither trained nor written to weight files",
    label = "no parameter",
    note = "a tensor that is trained is a `Param`, `Param::new(tensor)`; one that is only saved, `Param::buffer(tensor)`",
    note = "a constant is marked: `#[cell(data)]` above the field"
)]
pub trait IsTrained {}

/// Requirement on a field marked `#[cell(data)]`.
#[diagnostic::on_unimplemented(
    message = "the mark `#[cell(data)]` would hide a slot or a parameter from plans, optimizers and weight files",
    label = "sits in the tree",
    note = "take the mark away"
)]
pub trait IsMarked {}
impl IsMarked for PlainData {}
impl IsMarked for Constant {}

/// Refuses a marked field that is part of the tree.
pub fn marked(_: impl IsMarked) -> PlainData {
    PlainData
}

pub trait IsMember {
    fn place(&self) -> InTheTree;
}

impl<T: ?Sized + Member> IsMember for &&Of<T> {
    fn place(&self) -> InTheTree {
        InTheTree
    }
}

pub trait IsMisplaced<T: ?Sized, Why> {
    /// The bound never holds: a member is found first.
    fn place(&self) -> PlainData
    where
        T: Member;
}

impl<T: ?Sized + Holds<Why>, Why> IsMisplaced<T, Why> for &Of<T> {
    fn place(&self) -> PlainData
    where
        T: Member,
    {
        PlainData
    }
}

/// A tensor, or a collection of them.
pub trait Tensors {}
impl Tensors for Tensor {}
impl<T: Tensors> Tensors for Option<T> {}
impl<T: Tensors> Tensors for Vec<T> {}
impl<T: Tensors> Tensors for Box<T> {}
impl<T: Tensors> Tensors for Arc<T> {}
impl<T: Tensors, const N: usize> Tensors for [T; N] {}

pub trait IsConstant {
    fn place(&self) -> Constant;
}

impl<T: ?Sized + Tensors> IsConstant for &Of<T> {
    fn place(&self) -> Constant {
        Constant
    }
}

pub trait IsPlainData {
    fn place(&self) -> PlainData;
}

impl<T: ?Sized> IsPlainData for Of<T> {
    fn place(&self) -> PlainData {
        PlainData
    }
}

/// The copy of a field. For `(&&&&of(&field)).copy(..)` the compiler takes the first trait that fits: a counter shared
/// by clones, a member, data that is `Clone`, anything else.
pub trait CopiesCounter {
    fn copy(&self, field: &Arc<AtomicU64>, copies: &mut Copies) -> Copied<Arc<AtomicU64>>;
}

impl CopiesCounter for &&&Of<Arc<AtomicU64>> {
    fn copy(&self, field: &Arc<AtomicU64>, copies: &mut Copies) -> Copied<Arc<AtomicU64>> {
        Ok(copies.counter(field))
    }
}

pub trait CopiesMember<T> {
    fn copy(&self, field: &T, copies: &mut Copies) -> Copied<T>;
}

impl<T: Member> CopiesMember<T> for &&Of<T> {
    fn copy(&self, field: &T, copies: &mut Copies) -> Copied<T> {
        field.copied(copies)
    }
}

pub trait CopiesData<T> {
    fn copy(&self, field: &T, copies: &mut Copies) -> Copied<T>;
}

impl<T: Clone> CopiesData<T> for &Of<T> {
    fn copy(&self, field: &T, _: &mut Copies) -> Copied<T> {
        Ok(field.clone())
    }
}

pub trait CopiesNothing<T> {
    fn copy(&self, field: &T, copies: &mut Copies) -> Copied<T>;
}

impl<T> CopiesNothing<T> for Of<T> {
    fn copy(&self, _: &T, _: &mut Copies) -> Copied<T> {
        Err(not_copied::<T>())
    }
}

/// Copies a cell into a slot. A function, so that the compiler says once what a cell lacks.
pub fn copied_in_slot<C: Cell>(cell: &C, copies: &mut Copies) -> Copied<Child> {
    Ok(Child::of(cell.copied(copies)?))
}

/// Requirements of `#[cell(saved)]` on a type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is marked `#[cell(saved)]`, and files cannot hold it",
    label = "a saved cell is written and read",
    note = "derive both traits of serde: `#[derive(Cell, Debug, Serialize, Deserialize)]`; or take `saved` away"
)]
pub trait Written {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Written for T {}

pub const fn is_written<T: Written>() {}

/// A type that is a cell, a slot or a parameter, or has one inside. `Why` encodes the position, so that the
/// implementations do not overlap.
pub trait Holds<Why> {}

#[derive(Debug)]
pub struct Itself;
/// In an element of a tuple, or in the values of a map.
#[derive(Debug)]
pub struct At<const PLACE: usize, Why>(PhantomData<Why>);
/// Inside a pointer or a collection.
#[derive(Debug)]
pub struct Inside<Why>(PhantomData<Why>);

impl<C: ?Sized + Cell> Holds<Itself> for C {}
impl<C: ?Sized> Holds<Itself> for Child<C> {}
impl Holds<Itself> for Param {}
impl Holds<Itself> for Params {}

macro_rules! holds {
    ($($collection:ident)*) => { $(impl<T: Holds<Why>, Why> Holds<Inside<Why>> for $collection<T> {})* };
}
holds!(Option Vec VecDeque LinkedList BTreeSet HashSet RefCell Mutex RwLock OnceLock LazyLock);

macro_rules! pointers {
    ($($pointer:ident)*) => { $(impl<T: ?Sized + Holds<Why>, Why> Holds<Inside<Why>> for $pointer<T> {})* };
}
pointers!(Box Rc Arc);

impl<T: ?Sized + Holds<Why>, Why> Holds<Inside<Why>> for &T {}
impl<T: Holds<Why>, Why> Holds<Inside<Why>> for [T] {}
impl<T: Holds<Why>, Why, const N: usize> Holds<Inside<Why>> for [T; N] {}
impl<T: Holds<Why>, E, Why> Holds<At<0, Why>> for Result<T, E> {}
impl<K, V: Holds<Why>, Why> Holds<At<1, Why>> for BTreeMap<K, V> {}
impl<K, V: Holds<Why>, Why, S> Holds<At<1, Why>> for HashMap<K, V, S> {}

/// For each element of a tuple: that element holds a cell, the others may be anything.
macro_rules! tuple_holds {
    ($($place:literal: ($($before:ident)*) $here:ident ($($after:ident)*);)*) => { $(
        impl<$($before,)* $here: Holds<Why>, $($after,)* Why> Holds<At<$place, Why>> for ($($before,)* $here, $($after,)*) {}
    )* };
}
tuple_holds! {
    0: () A ();
    0: () A (B); 1: (A) B ();
    0: () A (B C); 1: (A) B (C); 2: (A B) C ();
    0: () A (B C D); 1: (A) B (C D); 2: (A B) C (D); 3: (A B C) D ();
    0: () A (B C D E); 1: (A) B (C D E); 2: (A B) C (D E); 3: (A B C) D (E); 4: (A B C D) E ();
    0: () A (B C D E F); 1: (A) B (C D E F); 2: (A B) C (D E F); 3: (A B C) D (E F); 4: (A B C D) E (F); 5: (A B C D E) F ();
}
