//! Requirements of a region on an op, derived only from the text of COMPARE.md and from lists: nothing here asks the
//! code under test for a dtype, the op of a name, or the contents of a list.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use precast::{Autocast, DType, ErrorKind, Op, catalogue::System};

use super::names::{OF_GRAPHS_ALONE, is_called, is_in_a_table, stands_at};

static LISTS: LazyLock<Lists> = LazyLock::new(Lists::recorded);
static AUTOCAST: LazyLock<Autocast> = LazyLock::new(|| Autocast::new("paddle-3.3").unwrap());

/// The keywords of `auto_cast`.
#[derive(Clone, Debug)]
pub struct Region {
    pub enabled: bool,
    pub level: String,
    /// Dtype; `None` if not given.
    pub dtype: Option<DType>,
    pub promote: bool,
    pub white: Vec<String>,
    pub black: Vec<String>,
}

impl Default for Region {
    fn default() -> Self {
        let names = Vec::new;
        Region { enabled: true, level: "O1".into(), dtype: None, promote: true, white: names(), black: names() }
    }
}

pub const LEVELS: [&str; 4] = ["O0", "OD", "O1", "O2"];

/// List of an op.
#[derive(Clone, Copy, PartialEq)]
enum Listed {
    White,
    Black,
    Nowhere,
}

/// Products and `prelu`, which refuse mixed inputs.
const REFUSE: &str = "
    MatMul MatMulExt BatchMatMul Mv Addmm Einsum Linear Conv1d Conv2d Conv3d ConvTranspose2d
    ScaledDotProductAttention Prelu
";

/// Ops that return the dtype of the normalized input, whatever their parameters are.
const NORMS: &[Op] = &[Op::BatchNorm, Op::LayerNorm, Op::GroupNorm, Op::InstanceNorm];

/// Norms of Paddle's in which the first input decides, and is lowered alone.
const FIRST_DECIDES: &[&str] = &["batch_norm", "layer_norm", "moving_average_abs_max_scale", "sync_batch_norm"];

/// Arithmetic, in which integers become floats when combined with any.
const ARITHMETIC: &[Op] = &[Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Maximum, Op::Minimum, Op::Pow, Op::Atan2];

/// Ops that return booleans.
const QUESTIONS: &[Op] = &[Op::Less, Op::Equal, Op::GreaterEqual, Op::LogicalAnd, Op::IsNan, Op::IsFinite];

fn is_cast(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
}

/// Returns the narrowest floating-point dtype that holds the numbers of both.
fn wider(a: DType, b: DType) -> DType {
    match (a, b) {
        (a, b) if a == b => a,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        // f16 has more digits, bf16 more range: neither holds the other.
        _ => DType::F32,
    }
}

/// Returns the widest of the floating-point dtypes, if there are any.
pub fn widest(inputs: &[DType]) -> Option<DType> {
    inputs.iter().copied().filter(|dtype| matches!(dtype, DType::F64) || is_cast(*dtype)).reduce(wider)
}

impl Region {
    /// Returns the same region here.
    pub fn autocast(&self) -> Autocast {
        let region = AUTOCAST.clone().enabled(self.enabled).op_level(&self.level).use_promote(self.promote);
        let region = self.dtype.into_iter().fold(region, Autocast::dtype);
        region.low(&self.white).full(&self.black)
    }

    /// Returns the low dtype: f16 by default.
    pub fn low(&self) -> DType {
        self.dtype.unwrap_or(DType::F16)
    }

    /// Returns whether a custom list has a name of no op here: an error of the kind `List`, whatever else is given.
    /// `ran` are the ops that Paddle ran.
    pub fn names_an_unknown(&self, ran: &[&str]) -> bool {
        self.white.iter().chain(&self.black).any(|name| !is_known(name, ran))
    }

    fn casts_nothing(&self) -> bool {
        !self.enabled || self.level == "O0"
    }

    /// Returns the dtypes of the inputs of an op on this list, as seen by its kernel. `first` is whether the first
    /// input decides, and is lowered alone.
    fn cast(&self, list: Listed, first: bool, inputs: &[DType]) -> Vec<DType> {
        let promotes = self.level != "O2" || self.promote;
        let deciding = if first { &inputs[..1] } else { inputs };
        let to = match list {
            _ if self.casts_nothing() => return inputs.to_vec(),
            Listed::White => self.low(),
            Listed::Black => DType::F32,
            Listed::Nowhere if !promotes => self.low(),
            Listed::Nowhere if self.level == "OD" => DType::F32,
            Listed::Nowhere if deciding.contains(&DType::F32) => DType::F32,
            Listed::Nowhere => self.low(),
        };
        let alone = first && to == self.low();
        let cast = |(i, from): (usize, &DType)| if is_cast(*from) && (i == 0 || !alone) { to } else { *from };
        inputs.iter().enumerate().map(cast).collect()
    }

    /// Returns the dtypes of the inputs of our op as seen by its kernel, or the kind of error.
    pub fn ours(&self, op: Op, inputs: &[DType]) -> Result<Vec<DType>, ErrorKind> {
        if !LEVELS.contains(&self.level.as_str()) {
            return Err(ErrorKind::Level);
        }
        let is_named = |names: &[String]| names.iter().any(|name| is_called(op, name));
        let stands_on = |list: &BTreeSet<String>| list.iter().any(|name| stands_at(op, name));
        let (white, black) = LISTS.at(&self.level, self.low());
        let list = match (stands_on(white), stands_on(black)) {
            _ if is_named(&self.white) => Listed::White,
            _ if is_named(&self.black) => Listed::Black,
            (true, false) => Listed::White,
            (false, true) => Listed::Black,
            (false, false) => Listed::Nowhere,
            (true, true) => panic!("{op} stands on both of Paddle's lists"),
        };
        let first = FIRST_DECIDES.iter().any(|name| is_called(op, name));
        let cast = self.cast(list, first, inputs);
        let Some(widest) = widest(&cast) else { return Ok(cast) };
        if cast.iter().any(|dtype| dtype.is_float() && *dtype != widest)
            && REFUSE.split_whitespace().any(|name| name == op.name())
        {
            return Err(ErrorKind::DType);
        }
        let meets = |dtype: DType| match dtype {
            DType::I64 => ARITHMETIC.contains(&op),
            dtype => is_cast(dtype) && !NORMS.contains(&op),
        };
        Ok(cast.into_iter().map(|dtype| if meets(dtype) { widest } else { dtype }).collect())
    }
}

/// Returns the dtype of the result of our op for inputs as seen by its kernel.
pub fn gives(op: Op, inputs: &[DType]) -> DType {
    match op {
        op if QUESTIONS.contains(&op) => DType::Bool,
        Op::ArgMax => DType::I64,
        op if NORMS.contains(&op) => inputs[0],
        _ => widest(inputs).unwrap_or(inputs[0]),
    }
}

/// Returns whether an op here must have this name: it is on one of Paddle's lists, in a table of these tests, or among
/// the ops that Paddle `ran`. For other names the catalogue decides.
pub fn is_known(name: &str, ran: &[&str]) -> bool {
    let is_listed = || LISTS.0.values().flatten().any(|list| list.contains(name));
    let must_be = !OF_GRAPHS_ALONE.split_whitespace().any(|known| known == name)
        && (is_listed() || is_in_a_table(name) || ran.contains(&name));
    must_be || Op::named_in(System::Paddle, name).is_ok()
}

/// Paddle's recorded lists, by level and low dtype.
struct Lists(BTreeMap<(String, &'static str), [BTreeSet<String>; 2]>);

impl Lists {
    /// Reads the recorded lists of this repository: they are Paddle's, whatever cases they are used for.
    fn recorded() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/paddle/lists.json");
        let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut all = BTreeMap::new();
        for level in ["OD", "O1", "O2"] {
            for dtype in DType::LOW {
                let of = |list: &str| {
                    let names = json[list][dtype.long_name()][level].as_array().expect("a list of names");
                    names.iter().map(|name| name.as_str().expect("a name").to_string()).collect()
                };
                all.insert((level.to_string(), dtype.long_name()), [of("white"), of("black")]);
            }
        }
        Lists(all)
    }

    fn at(&self, level: &str, low: DType) -> (&BTreeSet<String>, &BTreeSet<String>) {
        static EMPTY: BTreeSet<String> = BTreeSet::new();
        match self.0.get(&(level.to_string(), low.long_name())) {
            Some([white, black]) => (white, black),
            None => (&EMPTY, &EMPTY),
        }
    }
}
