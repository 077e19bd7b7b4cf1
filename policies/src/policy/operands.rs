//! Operands of products in 8 bits or fewer: the word `operands` of a rule.

use std::{fmt, str::FromStr};

use precast_base::{Error, Result, names::by_name};
use precast_lowbit::{Format, Recipe, Rounding, Scaling};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor},
};

/// Quantization of the operands of the products of cells: those of their output, and of the gradients of input and weight.
///
/// ```
/// use precast_policy::policy::{Format, Operands, Rounding, Scaling};
///
/// let operands: Operands = "mxfp8".parse()?;
/// assert_eq!(operands.recipe().unwrap().output.left.format.name(), "e4m3");
/// let custom = Operands::custom(Format::E4M3, Format::E5M2, Scaling::Rows, Rounding::Nearest)?;
/// assert_eq!(custom.to_string(), "{ forward: e4m3, backward: e5m2, scale: rows, rounding: nearest }");
/// assert_eq!("none".parse::<Operands>()?.recipe(), None);
/// # Ok::<(), precast_policy::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Operands(Chosen);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Chosen {
    /// Not quantized: an exception to another rule.
    Nothing,
    Named(&'static Recipe),
    Custom {
        forward: Format,
        backward: Format,
        scale: Scaling,
        rounding: Rounding,
    },
}

/// The recipes with a name, to which operands refer.
static RECIPES: [Recipe; Recipe::ALL.len()] = Recipe::ALL;

/// The word for operands that are not quantized.
const NONE: &str = "none";

impl Operands {
    /// Operands that are not quantized, for exceptions to other rules: `none`.
    pub const NONE: Operands = Operands(Chosen::Nothing);

    /// Creates the operands of a recipe of formats: of inputs and weights, and of gradients, whose rounding is given.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for `e8m0`, which is a format of scales.
    pub fn custom(forward: Format, backward: Format, scale: Scaling, rounding: Rounding) -> Result<Self> {
        Recipe::custom(forward, backward, scale, rounding)?;
        Ok(Operands(Chosen::Custom { forward, backward, scale, rounding }))
    }

    /// Returns the recipe; `None` for operands that are not quantized.
    pub fn recipe(self) -> Option<Recipe> {
        match self.0 {
            Chosen::Nothing => None,
            Chosen::Named(recipe) => Some(*recipe),
            // Its formats were checked.
            Chosen::Custom { forward, backward, scale, rounding } => {
                Recipe::custom(forward, backward, scale, rounding).ok()
            }
        }
    }

    /// Returns them in a few words: the name of the recipe, or `e4m3 and e5m2 by rows`.
    pub(crate) fn words(self) -> String {
        match self.0 {
            Chosen::Custom { forward, backward, scale, rounding } => {
                let formats = match forward == backward {
                    true => forward.to_string(),
                    false => format!("{forward} and {backward}"),
                };
                let stochastic = if rounding == Rounding::Stochastic { ", stochastic" } else { "" };
                format!("{formats} by {}{stochastic}", scale.name())
            }
            _ => self.to_string(),
        }
    }
}

impl FromStr for Operands {
    type Err = Error;

    /// Reads the name of a recipe, or `none`.
    fn from_str(text: &str) -> Result<Self> {
        let mut names = [NONE; RECIPES.len() + 1];
        names.iter_mut().zip(&RECIPES).for_each(|(name, recipe)| *name = recipe.name);
        let name = by_name(text, names, |name| name, "unknown recipe of `operands`").map_err(Error::policy)?;
        let recipe = RECIPES.iter().find(|recipe| recipe.name == name);
        Ok(recipe.map_or(Operands::NONE, |recipe| Operands(Chosen::Named(recipe))))
    }
}

impl fmt::Display for Operands {
    /// Formats them as a policy has them, in a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Written::from(*self).fmt(f)
    }
}

/// Operands as they are written: the name of a recipe, or a table.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Written {
    Word(String),
    Table(Table),
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Written::Word(word) => f.pad(word),
            Written::Table(Table { forward, backward, scale, rounding }) => {
                write!(f, "{{ forward: {forward}, backward: {backward}, scale: {scale}, rounding: {rounding} }}")
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    forward: String,
    backward: String,
    scale: String,
    #[serde(default = "nearest")]
    rounding: String,
}

fn nearest() -> String {
    Rounding::Nearest.name().into()
}

impl From<Operands> for Written {
    fn from(operands: Operands) -> Self {
        match operands.0 {
            Chosen::Nothing => Written::Word(NONE.into()),
            Chosen::Named(recipe) => Written::Word(recipe.name.into()),
            Chosen::Custom { forward, backward, scale, rounding } => Written::Table(Table {
                forward: forward.name().into(),
                backward: backward.name().into(),
                scale: scale.name().into(),
                rounding: rounding.name().into(),
            }),
        }
    }
}

impl TryFrom<Written> for Operands {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        match written {
            Written::Word(word) => word.parse(),
            Written::Table(Table { forward, backward, scale, rounding }) => {
                let format = |key: &str, word: &str| {
                    by_name(word, Format::NUMBERS, Format::name, &format!("unknown format for `{key}`"))
                        .map_err(Error::policy)
                };
                let scale = by_name(&scale, Scaling::ALL, Scaling::name, "unknown word for `scale`");
                let rounding = by_name(&rounding, Rounding::ALL, Rounding::name, "unknown word for `rounding`");
                let (forward, backward) = (format("forward", &forward)?, format("backward", &backward)?);
                Operands::custom(forward, backward, scale.map_err(Error::policy)?, rounding.map_err(Error::policy)?)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Written {
    /// Deserializes by hand, so that messages name the keys of the map.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a recipe, such as mxfp8, or { forward: e4m3, backward: e5m2, scale: rows }")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Written, E> {
                Ok(Written::Word(word.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Written, A::Error> {
                Table::deserialize(de::value::MapAccessDeserializer::new(map)).map(Written::Table)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
