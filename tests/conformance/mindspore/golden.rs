//! MindSpore's recorded behaviour: `mindspore/golden.json`.

use std::collections::BTreeMap;

use precast::{DType, Level, Tensor};
use serde::Deserialize;

use crate::common::golden::{golden, recorded_beside};

/// The networks of the file, by name.
#[derive(Deserialize)]
pub struct Golden {
    #[serde(default)]
    pub nets: BTreeMap<String, Net>,
}

/// One network: its inputs, and its results in each case.
#[derive(Deserialize)]
pub struct Net {
    pub params: BTreeMap<String, Array>,
    pub inputs: Vec<Value>,
    #[serde(default)]
    pub kwargs: BTreeMap<String, Value>,
    pub original_cells: Vec<CellRow>,
    #[serde(default)]
    pub cases: BTreeMap<String, Record>,
}

/// A result or an input: a tensor, a list of them, or a Python value, recorded by its type.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Value {
    Tensor(Array),
    List(Vec<Value>),
    Python { py: String },
}

#[derive(Deserialize)]
pub struct Array {
    pub dtype: String,
    pub shape: Vec<usize>,
    data: Vec<Number>,
}

/// A number of 9 significant digits, or the name of one that JSON cannot represent.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    Named(String),
}

/// The recording of one lowering of a network. COMPARE.md names the parts that are not read.
#[derive(Default, Deserialize)]
pub struct Record {
    pub convert_error: Option<Raised>,
    #[serde(default)]
    pub cells: Vec<CellRow>,
    #[serde(default)]
    pub param_dtypes: Vec<String>,
    /// Recorded for networks with less than 12 parameters.
    pub param_names: Option<Vec<String>>,
    /// Level remembered by the network, which is empty after O0 and after custom lists.
    #[serde(rename = "_amp_level")]
    pub level: Option<String>,
    pub pynative: Option<Run>,
    pub graph: Option<Run>,
}

#[derive(Deserialize, Debug)]
pub struct Raised {
    #[serde(rename = "type")]
    pub kind: String,
    pub message: String,
}

/// One cell of the lowered network: its wrappers (outermost first), its `to_float` flag.
#[derive(Deserialize, Clone)]
pub struct CellRow {
    pub path: String,
    pub class: String,
    #[serde(default)]
    pub wrappers: Vec<String>,
    pub flag: Option<String>,
    pub same_object_as: Option<String>,
}

/// MindSpore's two execution modes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Op by op.
    PyNative,
    /// As one compiled graph.
    Graph,
}

/// One call of the lowered network.
#[derive(Deserialize)]
pub struct Run {
    pub out: Option<Value>,
    pub error: Option<Raised>,
    ops: Option<Vec<Vec<serde_json::Value>>>,
}

/// One op that ran: its path, name and dtypes.
pub struct OpRow {
    pub path: String,
    pub name: String,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    /// `true` when the inputs are listed before the implicit cast; the output dtype reveals that of the computation.
    pub before_cast: bool,
}

impl Golden {
    /// Reads the file, if the folder has it.
    pub fn read() -> Option<Golden> {
        let json = golden("mindspore/golden.json")?;
        Some(serde_json::from_value(json).unwrap_or_else(|e| panic!("mindspore/golden.json: {e}")))
    }

    /// Reads the recurrent cells of several sizes, which were recorded later.
    pub fn recurrent() -> Option<Golden> {
        let json = recorded_beside("mindspore/recurrent.json")?;
        Some(serde_json::from_value(json).unwrap_or_else(|e| panic!("mindspore/recurrent.json: {e}")))
    }
}

/// Returns the dtype of a code in the file; MindSpore's int32 is i64 here.
pub fn dtype(code: &str) -> DType {
    match code {
        "f64" => DType::F64,
        "f32" | "fp32" => DType::F32,
        "f16" | "fp16" => DType::F16,
        "bf16" => DType::Bf16,
        "i32" | "i64" | "i8" | "u8" => DType::I64,
        "b" => DType::Bool,
        code => panic!("a dtype of the golden file is not understood: `{code}`"),
    }
}

impl Array {
    /// Returns the numbers.
    pub fn numbers(&self) -> Vec<f64> {
        let number = |x: &Number| match x {
            Number::Finite(x) => *x,
            Number::Named(name) => name.parse().expect("inf, -inf or nan"),
        };
        self.data.iter().map(number).collect()
    }

    /// Returns a tensor of the recorded dtype: the printed digits determine every f32 and f16 number.
    pub fn tensor(&self) -> Tensor {
        Tensor::from_f64(&self.numbers(), &self.shape, dtype(&self.dtype)).expect("the shape fits the data")
    }
}

impl Value {
    /// Returns the tensors in order.
    pub fn leaves(&self) -> Vec<&Array> {
        match self {
            Value::Tensor(array) => vec![array],
            Value::List(items) => items.iter().flat_map(Value::leaves).collect(),
            Value::Python { .. } => vec![],
        }
    }

    /// Formats the nesting of the tensors: `(_ (_ _))`.
    pub fn nesting(&self) -> String {
        match self {
            Value::Tensor(_) => "_".into(),
            Value::List(items) => format!("({})", items.iter().map(Value::nesting).collect::<Vec<_>>().join(" ")),
            Value::Python { py } => py.clone(),
        }
    }
}

impl Run {
    /// Returns the ops in order, if recorded.
    pub fn ops(&self) -> Option<Vec<OpRow>> {
        let strings = |v: &serde_json::Value| -> Vec<String> {
            serde_json::from_value(v.clone()).unwrap_or_else(|e| panic!("an op row is not understood: {e}: {v}"))
        };
        let row = |row: &Vec<serde_json::Value>| match &row[..] {
            [path, name, inputs, outputs, mark @ ..] => OpRow {
                path: path_of(path.as_str().unwrap_or_default()),
                name: name.as_str().unwrap_or_default().into(),
                inputs: strings(inputs),
                outputs: strings(outputs),
                before_cast: mark.iter().any(|m| m == "pre-cast-inputs"),
            },
            _ => panic!("an op row is not understood: {row:?}"),
        };
        Some(self.ops.as_ref()?.iter().map(row).collect())
    }
}

/// Returns the path of a cell here: the root's is empty, and a wrapper has no path of its own.
fn path_of(recorded: &str) -> String {
    let path = recorded.split(':').next().unwrap_or_default();
    let parts = path.split('.').filter(|part| !matches!(*part, "<root>" | "_backbone"));
    parts.collect::<Vec<_>>().join(".")
}

impl Record {
    /// Returns the call recorded in a mode.
    pub fn run(&self, mode: Mode) -> Option<&Run> {
        match mode {
            Mode::PyNative => self.pynative.as_ref(),
            Mode::Graph => self.graph.as_ref(),
        }
    }

    /// Returns the mode to compare with, and a second one if both were recorded. If lowering failed there is none, and
    /// either will do.
    pub fn modes(&self) -> (Mode, Option<Mode>) {
        match (&self.pynative, &self.graph) {
            (Some(_), Some(_)) => (Mode::PyNative, Some(Mode::Graph)),
            (None, Some(_)) => (Mode::Graph, None),
            (_, None) => (Mode::PyNative, None),
        }
    }

    /// Returns the cells with wrappers folded into the cell they wrap. A level on top of another turns the first one's
    /// wrappers into cells with the wrapped cell as `_backbone`.
    pub fn seats(&self) -> Vec<CellRow> {
        let mut outer: Vec<String> = Vec::new();
        let mut seats = Vec::new();
        for row in &self.cells {
            if row.class.starts_with("_OutputTo") {
                outer.push(row.class.clone());
                continue;
            }
            let mut seat = row.clone();
            seat.path = path_of(&row.path);
            seat.wrappers.splice(0..0, outer.drain(..));
            seats.push(seat);
        }
        seats
    }
}

/// Lowering of a network, parsed from the name of a case: `O2/f16`, `custom_white[Dense]/f16` or `twice[O1,O2]/f16`.
#[derive(Clone, Debug, PartialEq)]
pub enum Lowering {
    Level(Level),
    White(Vec<String>),
    Black(Vec<String>),
    Twice(Level, Level),
}

/// Parses the name of a case; `None` if it is not recognized.
pub fn lowering(case: &str) -> Option<(Lowering, DType)> {
    let (what, low) = case.rsplit_once('/')?;
    let low = match low {
        "f16" => DType::F16,
        "bf16" => DType::Bf16,
        _ => return None,
    };
    let (word, items) = match what.split_once('[') {
        None => (what, vec![]),
        Some((word, rest)) => {
            let items = rest.strip_suffix(']')?.split(',').filter(|item| !item.is_empty());
            (word, items.map(str::to_string).collect::<Vec<String>>())
        }
    };
    let level = |name: &str| name.parse::<Level>().ok();
    let lowering = match (word, &items[..]) {
        ("twice", [a, b]) => Lowering::Twice(level(a)?, level(b)?),
        ("custom_white", _) => Lowering::White(items),
        ("custom_black", _) => Lowering::Black(items),
        (name, []) => Lowering::Level(level(name)?),
        _ => return None,
    };
    Some((lowering, low))
}
