//! `children!`: a cell lists its fields, and the compiler checks that none is forgotten.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor, value::MapAccessDeserializer};

use super::{AsCell, Cell, Child, Node, NodeMut};
use crate::{DType, Param};

/// What may stand in a field that [`children!`](crate::children) lists: a [`Child`], a [`Param`], or a list or option of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot sit in a cell tree: the precision planner would not see it",
    label = "neither a slot nor a parameter",
    note = "hold a cell as `Child<{Self}>`, or mark plain data with `field: _`"
)]
pub trait Member {
    /// Shows itself under a name.
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Node<'_>));
    /// As [`visit`](Member::visit), mutably.
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, NodeMut<'_>));
}

impl<C: ?Sized + AsCell> Member for Child<C> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Node<'_>)) {
        visitor(name, Node::Cell(self.slot()));
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, NodeMut<'_>)) {
        visitor(name, NodeMut::Cell(self.slot_mut()));
    }
}

impl Member for Param {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Node<'_>)) {
        visitor(name, Node::Param(self));
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, NodeMut<'_>)) {
        visitor(name, NodeMut::Param(self));
    }
}

impl<M: Member> Member for Option<M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Node<'_>)) {
        if let Some(member) = self {
            member.visit(name, visitor);
        }
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, NodeMut<'_>)) {
        if let Some(member) = self {
            member.visit_mut(name, visitor);
        }
    }
}

impl<M: Member> Member for Vec<M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Node<'_>)) {
        for (i, member) in self.iter().enumerate() {
            member.visit(&format!("{name}.{i}"), visitor);
        }
    }
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, NodeMut<'_>)) {
        for (i, member) in self.iter_mut().enumerate() {
            member.visit_mut(&format!("{name}.{i}"), visitor);
        }
    }
}

/// What may be marked `field: _`. A cell or parameter with this mark would be hidden from plans, optimizers and weight files.
/// Cells and parameters have a second implementation, so the compiler cannot choose and refuses.
#[doc(hidden)]
pub trait PlainDataNotACellOrParameter<Why> {}
impl<T: ?Sized> PlainDataNotACellOrParameter<()> for T {}
/// A slot, a parameter, or a list of them.
#[doc(hidden)]
#[derive(Debug)]
pub struct SitsInTheTree;
impl<M: Member> PlainDataNotACellOrParameter<SitsInTheTree> for M {}
/// A cell outside a slot.
#[doc(hidden)]
#[derive(Debug)]
pub struct BareCell;
impl<C: Cell> PlainDataNotACellOrParameter<BareCell> for C {}

/// Does not compile for a cell or a parameter.
#[doc(hidden)]
pub fn marked_as_plain_data<T: PlainDataNotACellOrParameter<Why>, Why>(_: &T) {}

/// A field's name in paths: that of `r#type` is `type`.
#[doc(hidden)]
pub const fn name_of_field(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// Writes [`Cell::visit`](crate::Cell::visit) and [`Cell::visit_mut`](crate::Cell::visit_mut) from the list of a struct's fields.
///
/// Fields that are plain data are marked `field: _`. A field left out does not compile, and neither does a cell that is
/// not held in a [`Child`](crate::Child).
///
/// ```
/// use precast::prelude::*;
///
/// #[derive(Debug, Serialize, Deserialize)]
/// struct Head { fc: Child<Dense>, classes: usize }
///
/// #[typetag::serde]
/// impl Cell for Head {
///     children!(Self { fc, classes: _ });
///     fn forward(&self, x: &Tensor) -> Result<Tensor> { self.fc.call(x) }
/// }
/// ```
#[macro_export]
macro_rules! children {
    (@parse [$($pattern:tt)*] Self { $($field:ident $(: $skip:tt)?),* $(,)? }) => {
        #[allow(unused_variables)]
        fn visit(&self, visitor: &mut dyn FnMut(&str, $crate::cell::Node<'_>)) {
            let $($pattern)* = self;
            $( $crate::children!(@one visit self $field visitor $($skip)?); )*
        }
        #[allow(unused_variables)]
        fn visit_mut(&mut self, visitor: &mut dyn FnMut(&str, $crate::cell::NodeMut<'_>)) {
            let $($pattern)* = self;
            $( $crate::children!(@one visit_mut self $field visitor $($skip)?); )*
        }
    };
    (@one visit $this:ident $field:ident $visitor:ident _) => { $crate::cell::marked_as_plain_data(&$this.$field); };
    (@one visit_mut $this:ident $field:ident $visitor:ident _) => {};
    (@one $method:ident $this:ident $field:ident $visitor:ident) => {
        $crate::cell::Member::$method($field, const { $crate::cell::name_of_field(stringify!($field)) }, $visitor);
    };
    (@parse $($other:tt)*) => {
        compile_error!("write `children!(Self { field, data: _ })`: every field of the struct, by name, and no `..`");
    };
    ($($pattern:tt)*) => { $crate::children!(@parse [$($pattern)*] $($pattern)*); };
}

/// Reads a slot: a map whose first key is `to_float` has the cell under `cell`; every other map is the cell itself.
pub(super) fn read_slot<'de, D: Deserializer<'de>, C: Deserialize<'de>>(
    deserializer: D,
) -> Result<(Option<DType>, C), D::Error> {
    struct SlotVisitor<C>(std::marker::PhantomData<C>);

    impl<'de, C: Deserialize<'de>> Visitor<'de> for SlotVisitor<C> {
        type Value = (Option<DType>, C);

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a cell: a map with `kind` and its fields, or `to_float` and `cell`")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let first: Option<String> = map.next_key()?;
            if first.as_deref() != Some("to_float") {
                let replay = Replay { first, map };
                return Ok((None, C::deserialize(MapAccessDeserializer::new(replay))?));
            }
            let to_float: DType = map.next_value()?;
            if !to_float.is_castable() {
                return Err(A::Error::custom(format!("to_float takes float32, float16 or bfloat16, got {to_float}")));
            }
            match map.next_key::<String>()?.as_deref() {
                Some("cell") => {}
                Some(other) => return Err(A::Error::unknown_field(other, &["cell"])),
                None => return Err(A::Error::missing_field("cell")),
            }
            let cell = map.next_value()?;
            match map.next_key::<String>()? {
                None => Ok((Some(to_float), cell)),
                Some(key) => Err(A::Error::unknown_field(&key, &["to_float", "cell"])),
            }
        }
    }

    deserializer.deserialize_map(SlotVisitor(std::marker::PhantomData))
}

/// A map whose first key was already read.
struct Replay<A> {
    first: Option<String>,
    map: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Replay<A> {
    type Error = A::Error;

    fn next_key_seed<K: serde::de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(key) => seed.deserialize(serde::de::value::StringDeserializer::new(key)).map(Some),
            None => self.map.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: serde::de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
