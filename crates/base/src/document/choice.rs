//! Enum variants with options, in a form suited to hand-written files.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{
        self, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, VariantAccess, Visitor,
        value::{MapAccessDeserializer, MapDeserializer, StrDeserializer},
    },
    forward_to_deserialize_any,
};

/// Enum variant, written as its name, `adam`, or as a map of its name and its options, `sgd: {momentum: 0.9}`. A name
/// alone selects the default options of the variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice<T>(pub T);

impl<T: Serialize> Serialize for Choice<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, or a map of a name and its options")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<T, E> {
                T::deserialize(Name { name, error: std::marker::PhantomData })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(Reader(std::marker::PhantomData)).map(Choice)
    }
}

/// Deserializer of a name alone, read as an enum variant without content or with an empty map.
struct Name<'a, E> {
    name: &'a str,
    error: std::marker::PhantomData<E>,
}

impl<'de, E: de::Error> Deserializer<'de> for Name<'_, E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, E: de::Error> EnumAccess<'de> for Name<'_, E> {
    type Error = E;
    type Variant = NoOptions<E>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, NoOptions<E>), E> {
        let name: StrDeserializer<'_, E> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, NoOptions(std::marker::PhantomData)))
    }
}

struct NoOptions<E>(std::marker::PhantomData<E>);

impl<E: de::Error> NoOptions<E> {
    fn map<'de>() -> MapDeserializer<'de, std::iter::Empty<(&'de str, &'de str)>, E> {
        MapDeserializer::new(std::iter::empty())
    }
}

impl<'de, E: de::Error> VariantAccess<'de> for NoOptions<E> {
    type Error = E;

    fn unit_variant(self) -> Result<(), E> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, E> {
        seed.deserialize(Self::map())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, E> {
        visitor.visit_map(Self::map())
    }

    fn struct_variant<V: Visitor<'de>>(self, _fields: &'static [&'static str], visitor: V) -> Result<V::Value, E> {
        visitor.visit_map(Self::map())
    }
}

/// List of words; in hand-written files also a single word, `head` for `[head]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Words(pub Vec<String>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        words(deserializer).map(Words)
    }
}

/// Reads a list of words, or a single one.
///
/// # Errors
/// Those of the deserializer, and for a single number with a decimal point, whose digits would be lost.
pub fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct Reader;
    impl<'de> Visitor<'de> for Reader {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a word, or a list of words, `[a, b]`")
        }

        fn visit_str<E: de::Error>(self, word: &str) -> Result<Vec<String>, E> {
            Ok(vec![word.into()])
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<Vec<String>, E> {
            Ok(vec![number.to_string()])
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Vec<String>, E> {
            Ok(vec![number.to_string()])
        }

        fn visit_f64<E: de::Error>(self, _: f64) -> Result<Vec<String>, E> {
            Err(E::custom("a number alone may lose digits; in a list, `[0.50]`, it is read as it is written"))
        }

        fn visit_bool<E: de::Error>(self, word: bool) -> Result<Vec<String>, E> {
            Ok(vec![word.to_string()])
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
            let mut words = Vec::new();
            while let Some(word) = list.next_element()? {
                words.push(word);
            }
            Ok(words)
        }
    }
    deserializer.deserialize_any(Reader)
}

#[cfg(test)]
mod tests {
    use super::{super::from_str, *};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase", deny_unknown_fields)]
    enum Method {
        Adam,
        Sgd {
            #[serde(default)]
            momentum: f64,
        },
    }

    #[test]
    fn a_name_alone_is_a_choice_without_options() {
        let read = |text: &str| from_str::<Choice<Method>>(text).map(|choice| choice.0);
        assert_eq!(read("adam").unwrap(), Method::Adam);
        assert_eq!(read("sgd").unwrap(), Method::Sgd { momentum: 0.0 });
        assert_eq!(read("sgd: {momentum: 0.5}").unwrap(), Method::Sgd { momentum: 0.5 });
        for wrong in ["adm", "sgd: {momentun: 0.5}", "[adam]", "3", "{sgd: {}, adam: {}}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let text = serde_yaml::to_string(&Choice(Method::Sgd { momentum: 0.5 })).unwrap();
        assert_eq!(read(&text).unwrap(), Method::Sgd { momentum: 0.5 });
    }

    #[test]
    fn a_word_is_a_list_of_one() {
        let read = |text: &str| from_str::<Words>(text).map(|words| words.0);
        for (text, words) in [
            ("NA", &["NA"][..]),
            ("[NA]", &["NA"]),
            ("[]", &[]),
            ("-999", &["-999"]),
            ("[-999.0, NA, 7]", &["-999.0", "NA", "7"]),
            ("'-999.0'", &["-999.0"]),
            ("true", &["true"]),
        ] {
            assert_eq!(read(text).unwrap(), words, "{text}");
        }
        for wrong in ["{a: b}", "[[a]]", "-999.0"] {
            let message = read(wrong).unwrap_err().to_string();
            assert!(!message.is_empty(), "{wrong}");
        }
    }
}
