//! Deserialization of the values of a text by serde. The code for each type calls its visitor; all else is shared.

use std::{cell::Cell, slice};

use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, VariantAccess, Visitor},
    forward_to_deserialize_any,
};

use super::{
    at::{AT, At},
    mistake::{CHARACTER, Form, LIST, Misread, Mistake, NAME, NO_OPTIONS, NUMBER, ONE_NAME, WHOLE},
    scalar::{self, Scalar},
    source::Place,
    tree::{Node, Value},
};

/// Reads a value from a tree.
pub(super) fn read<T: DeserializeOwned>(node: &Node<'_>) -> Result<T, (Mistake, Place)> {
    let first = Cell::new(None);
    let reader = Reader { node, key: node.place, first: &first, of_place: false };
    T::deserialize(reader).map_err(|error| {
        reader.placed(error);
        first.take().expect("the error is recorded")
    })
}

/// Reads the number under a key of a map.
pub(super) fn number_at(node: &Node<'_>, key: &str) -> Result<At<u32>, (Mistake, Place)> {
    let entries = match &node.value {
        Value::Map(entries) => entries.as_slice(),
        Value::Plain(text) if scalar::is_nothing(text) => &[],
        _ => return Err((Mistake::Expected(Form::Map), node.place)),
    };
    let is_key =
        |entry: &&[Node<'_>]| matches!(&entry[0].value, Value::Plain(text) | Value::Quoted(text) if text == key);
    match entries.chunks_exact(2).find(is_key) {
        Some(entry) => read(&entry[1]),
        None => Err((Mistake::Missing(key.into()), node.place)),
    }
}

/// A value, and the first mistake with its position. It is recorded because errors that cross trait objects become text.
#[derive(Clone, Copy)]
struct Reader<'a, 'de> {
    node: &'a Node<'de>,
    /// Position of its key, or its own if it has none.
    key: Place,
    first: &'a Cell<Option<(Mistake, Place)>>,
    /// `true` for the position of the value in its place.
    of_place: bool,
}

impl<'a, 'de> Reader<'a, 'de> {
    fn of(self, node: &'a Node<'de>) -> Self {
        Reader { node, key: node.place, ..self }
    }

    /// Records an error at a position, unless one is recorded.
    #[cold]
    #[inline(never)]
    fn at(self, error: Misread, place: Place) -> Misread {
        let first = self.first.take().or_else(|| error.0.map(|mistake| (*mistake, place)));
        self.first.set(first);
        Misread(None)
    }

    #[cold]
    fn placed(self, error: Misread) -> Misread {
        self.at(error, self.node.place)
    }

    #[cold]
    fn expected(self, form: Form) -> Misread {
        self.placed(Misread::new(Mistake::Expected(form)))
    }

    /// Returns the text of a scalar, as it is written.
    #[inline(never)]
    fn written(self) -> Result<&'a str, Misread> {
        match &self.node.value {
            Value::Plain(text) | Value::Quoted(text) => Ok(text),
            _ => Err(self.expected(Form::Single)),
        }
    }

    fn is_nothing(self) -> bool {
        matches!(&self.node.value, Value::Plain(text) if scalar::is_nothing(text))
    }

    #[inline(never)]
    fn text(self) -> Result<&'a str, Misread> {
        if self.is_nothing() { Err(self.expected(Form::Single)) } else { self.written() }
    }

    fn parsed<T>(self, form: Form, parse: impl Fn(&str) -> Option<T>) -> Result<T, Misread> {
        parse(scalar::trimmed(self.written()?)).ok_or_else(|| self.expected(form))
    }

    #[inline(never)]
    fn truth(self) -> Result<bool, Misread> {
        self.parsed(Form::Truth, scalar::truth)
    }

    #[inline(never)]
    fn unsigned<const MOST: u64>(self) -> Result<u64, Misread> {
        if self.of_place {
            return Ok(self.node.place.packed());
        }
        self.parsed(WHOLE, |text| scalar::unsigned(text).filter(|number| *number <= MOST))
    }

    #[inline(never)]
    fn signed<const LEAST: i64>(self) -> Result<i64, Misread> {
        self.parsed(WHOLE, |text| scalar::signed(text).filter(|number| (LEAST..=!LEAST).contains(number)))
    }

    #[inline(never)]
    fn number(self) -> Result<f64, Misread> {
        let finite = |text: &str| text.parse().ok().filter(|number: &f64| number.is_finite());
        self.parsed(NUMBER, |text| scalar::special(text).or_else(|| finite(text)))
    }

    /// Returns a number rounded once, from its digits.
    #[inline(never)]
    fn single_precision(self) -> Result<f32, Misread> {
        let finite = |text: &str| text.parse().ok().filter(|number: &f32| number.is_finite());
        self.parsed(NUMBER, |text| scalar::special(text).map(|number| number as f32).or_else(|| finite(text)))
    }

    #[inline(never)]
    fn character(self) -> Result<char, Misread> {
        let mut characters = self.text()?.chars();
        let first = characters.next().filter(|_| characters.as_str().is_empty());
        first.ok_or_else(|| self.expected(CHARACTER))
    }

    #[inline(never)]
    fn scalar(self) -> Result<Scalar<'a>, Misread> {
        let written = self.written()?;
        match self.node.value {
            Value::Quoted(_) => Ok(Scalar::Text(written)),
            _ => Scalar::of(written).ok_or_else(|| self.expected(NUMBER)),
        }
    }

    /// Returns the entries of a map; nothing is an empty map.
    #[inline(never)]
    fn entries(self) -> Result<Entries<'a, 'de>, Misread> {
        match &self.node.value {
            Value::Map(entries) => Ok(Entries { reader: self, rest: entries.iter(), key: None, value: None }),
            _ if self.is_nothing() => Ok(Entries { reader: self, rest: [].iter(), key: None, value: None }),
            _ => Err(self.expected(Form::Map)),
        }
    }

    /// Returns the items of a list; nothing is an empty list.
    #[inline(never)]
    fn items(self) -> Result<Items<'a, 'de>, Misread> {
        match &self.node.value {
            Value::List(items) => Ok(Items { reader: self, read: 0, rest: items.iter(), is_placed: false }),
            _ if self.is_nothing() => Ok(Items { reader: self, read: 0, rest: [].iter(), is_placed: false }),
            _ => Err(self.expected(LIST)),
        }
    }

    /// Returns the position of the value, then the value, as the items of a list.
    fn with_place(self) -> Items<'a, 'de> {
        Items { reader: self, read: 0, rest: [].iter(), is_placed: true }
    }

    /// Returns a name alone, or the one name of a map, with its options.
    #[inline(never)]
    fn variant(self) -> Result<Variant<'a, 'de>, Misread> {
        match &self.node.value {
            Value::Plain(_) | Value::Quoted(_) => Ok(Variant { name: self, options: None }),
            Value::Map(entries) => match entries.as_slice() {
                [name, options] => Ok(Variant { name: self.of(name), options: Some(self.of(options)) }),
                [_, _, second, ..] => Err(self.of(second).expected(ONE_NAME)),
                _ => Err(self.expected(NAME)),
            },
            Value::List(_) => Err(self.expected(NAME)),
        }
    }
}

macro_rules! scalars {
    ($($method:ident $visit:ident $read:expr;)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
            visitor.$visit($read(self)?).map_err(|error| self.placed(error))
        }
    )* };
}

impl<'de> Deserializer<'de> for Reader<'_, '_> {
    type Error = Misread;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        match self.node.value {
            Value::Map(_) => return self.deserialize_map(visitor),
            Value::List(_) => return self.deserialize_seq(visitor),
            _ => {}
        }
        let read = match self.scalar()? {
            Scalar::Nothing => return visitor.visit_unit().map_err(|error| self.at(error, self.key)),
            Scalar::Truth(truth) => visitor.visit_bool(truth),
            Scalar::Unsigned(number) => visitor.visit_u64(number),
            Scalar::Signed(number) => visitor.visit_i64(number),
            Scalar::Number(number) => visitor.visit_f64(number),
            Scalar::Text(text) => visitor.visit_str(text),
        };
        read.map_err(|error| self.placed(error))
    }

    scalars! {
        deserialize_bool visit_bool Reader::truth;
        deserialize_u8 visit_u64 Reader::unsigned::<{ u8::MAX as u64 }>;
        deserialize_u16 visit_u64 Reader::unsigned::<{ u16::MAX as u64 }>;
        deserialize_u32 visit_u64 Reader::unsigned::<{ u32::MAX as u64 }>;
        deserialize_u64 visit_u64 Reader::unsigned::<{ u64::MAX }>;
        deserialize_i8 visit_i64 Reader::signed::<{ i8::MIN as i64 }>;
        deserialize_i16 visit_i64 Reader::signed::<{ i16::MIN as i64 }>;
        deserialize_i32 visit_i64 Reader::signed::<{ i32::MIN as i64 }>;
        deserialize_i64 visit_i64 Reader::signed::<{ i64::MIN }>;
        deserialize_f32 visit_f32 Reader::single_precision;
        deserialize_f64 visit_f64 Reader::number;
        deserialize_char visit_char Reader::character;
        deserialize_str visit_str Reader::text;
        deserialize_string visit_str Reader::text;
        deserialize_identifier visit_str Reader::text;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        let read = if self.is_nothing() { visitor.visit_none() } else { visitor.visit_some(self) };
        read.map_err(|error| self.placed(error))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        if self.is_nothing() { visitor.visit_unit() } else { Err(self.expected(NO_OPTIONS)) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misread> {
        visitor.visit_newtype_struct(self).map_err(|error| self.placed(error))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        visitor.visit_seq(&mut self.items()?).map_err(|error| self.placed(error))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Misread> {
        self.deserialize_tuple_struct("", len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Misread> {
        let mut items = if name == AT { self.with_place() } else { self.items()? };
        let read = visitor.visit_seq(&mut items).map_err(|error| self.placed(error))?;
        items.end(len).map(|()| read)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        let mut entries = self.entries()?;
        match visitor.visit_map(&mut entries) {
            Ok(value) => entries.end().map(|()| value),
            Err(error) => Err(entries.failed(error)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misread> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misread> {
        visitor.visit_enum(self.variant()?).map_err(|error| self.placed(error))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { i128 u128 bytes byte_buf unit_struct }
}

/// The entries of a map that are not read yet.
struct Entries<'a, 'de> {
    reader: Reader<'a, 'de>,
    rest: slice::Iter<'a, Node<'de>>,
    /// The last key, and its value until it is read.
    key: Option<&'a Node<'de>>,
    value: Option<&'a Node<'de>>,
}

impl<'a, 'de> Entries<'a, 'de> {
    #[inline(never)]
    fn next_key(&mut self) -> Option<Reader<'a, 'de>> {
        (self.key, self.value) = (Some(self.rest.next()?), self.rest.next());
        self.key.map(|key| self.reader.of(key))
    }

    #[inline(never)]
    fn next_value(&mut self) -> Reader<'a, 'de> {
        let value = self.reader.of(self.value.take().expect("a key is read before its value"));
        Reader { key: self.key.map_or(value.key, |key| key.place), ..value }
    }

    /// Checks that all entries are read.
    #[inline(never)]
    fn end(mut self) -> Result<(), Misread> {
        match (self.value, self.next_key()) {
            (None, None) => Ok(()),
            (_, left) => Err(left.unwrap_or(self.reader).expected(ONE_NAME)),
        }
    }

    /// Adds the position to an error about a map: of its last key if it is about keys.
    #[cold]
    #[inline(never)]
    fn failed(self, error: Misread) -> Misread {
        let of_keys = matches!(error.0.as_deref(), Some(Mistake::Missing(_) | Mistake::UnknownKey(..)));
        let node = self.key.filter(|_| of_keys).unwrap_or(self.reader.node);
        self.reader.at(error, node.place)
    }
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Misread;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misread> {
        let Some(key) = self.next_key() else { return Ok(None) };
        seed.deserialize(key).map(Some).map_err(|error| key.placed(error))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misread> {
        let value = self.next_value();
        seed.deserialize(value).map_err(|error| value.placed(error))
    }
}

/// The items of a list that are not read yet, or a position and its value.
struct Items<'a, 'de> {
    reader: Reader<'a, 'de>,
    /// Number of items that are read.
    read: usize,
    rest: slice::Iter<'a, Node<'de>>,
    is_placed: bool,
}

impl<'a, 'de> Items<'a, 'de> {
    #[inline(never)]
    fn next(&mut self) -> Option<Reader<'a, 'de>> {
        self.read += 1;
        match self.is_placed {
            true => Some(Reader { of_place: self.read == 1, ..self.reader }),
            false => self.rest.next().map(|item| self.reader.of(item)),
        }
    }

    /// Checks that all items of a tuple are read.
    #[inline(never)]
    fn end(self, len: usize) -> Result<(), Misread> {
        match self.rest.len() {
            0 => Ok(()),
            left => {
                let expected = format!("a tuple of size {len}");
                Err(self.reader.placed(Misread::invalid_length(self.read + left, &expected.as_str())))
            }
        }
    }
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Misread;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misread> {
        let Some(item) = self.next() else { return Ok(None) };
        seed.deserialize(item).map(Some).map_err(|error| item.placed(error))
    }
}

/// Name of a variant, with its options.
struct Variant<'a, 'de> {
    name: Reader<'a, 'de>,
    options: Option<Reader<'a, 'de>>,
}

impl<'a, 'de> Variant<'a, 'de> {
    #[inline(never)]
    fn options(self) -> Result<Reader<'a, 'de>, Misread> {
        self.options.ok_or_else(|| self.name.expected(Form::Map))
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, '_> {
    type Error = Misread;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Misread> {
        match seed.deserialize(self.name) {
            Ok(variant) => Ok((variant, self)),
            Err(error) => Err(self.name.placed(error)),
        }
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_> {
    type Error = Misread;

    fn unit_variant(self) -> Result<(), Misread> {
        match self.options {
            Some(options) if !options.is_nothing() => Err(options.expected(NO_OPTIONS)),
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Misread> {
        let options = self.options()?;
        seed.deserialize(options).map_err(|error| options.placed(error))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Misread> {
        self.options()?.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Misread> {
        self.options()?.deserialize_map(visitor)
    }
}
