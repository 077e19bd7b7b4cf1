//! The types that each operator of ONNX takes and gives, by the version of its domain.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use super::tensor::Elem;
use precast::DType;

/// The schemas of onnx.defs.
const TABLE: &str = include_str!("types.tsv");

/// The types of an operator, from a version of its domain on.
#[derive(Debug)]
pub(super) struct Schema {
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    /// A type variable that must be low where the own one is.
    with: Option<&'static str>,
    /// The floating types of each type variable.
    floats: HashMap<&'static str, Floats>,
}

/// An input or an output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub kind: Kind,
    /// `true` when it may be repeated.
    variadic: bool,
    /// `true` when each of the repeated ones has a type of its own.
    pub mixed: bool,
}

/// The type of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A type variable, such as `T`.
    Variable(&'static str),
    Float32,
    /// Another fixed type, such as int64.
    Other,
}

#[derive(Clone, Copy, Debug, Default)]
struct Floats {
    f32: bool,
    f16: bool,
    bf16: bool,
    f64: bool,
}

/// Operators that are functions in which two type variables meet in one node.
const TOGETHER: [(&str, &str); 2] = [("Attention", "T2"), ("RMSNormalization", "T")];

/// Operators that are functions with constants of float32 inside.
const FULL: [&str; 1] = ["MeanVarianceNormalization"];

type Versions = BTreeMap<i64, Schema>;

/// By domain and op.
static SCHEMAS: LazyLock<HashMap<&'static str, HashMap<&'static str, Versions>>> = LazyLock::new(|| {
    let mut schemas: HashMap<_, HashMap<_, Versions>> = HashMap::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or("");
        let (domain, op, since, _kind) = (next(), next(), next(), next());
        let (inputs, outputs, mut floats) = (ports(next()), ports(next()), floats(next()));
        if FULL.contains(&op) {
            floats.values_mut().for_each(|floats| *floats = Floats { f16: false, bf16: false, ..*floats });
        }
        let with = TOGETHER.iter().find(|(function, _)| *function == op).map(|(_, variable)| *variable);
        let schema = Schema { inputs, outputs, with, floats };
        let domain = if domain == "ai.onnx" { "" } else { domain };
        schemas.entry(domain).or_default().entry(op).or_default().insert(since.parse().unwrap_or(1), schema);
    }
    schemas
});

fn ports(column: &'static str) -> Vec<Port> {
    let port = |text: &'static str| {
        let (name, kind) = text.rsplit_once(':')?;
        let kind = match kind {
            "f32" => Kind::Float32,
            fixed if fixed.starts_with("tensor(") => Kind::Other,
            variable => Kind::Variable(variable),
        };
        Some(Port { kind, variadic: name.contains('*'), mixed: name.contains('~') })
    };
    column.split(' ').filter_map(port).collect()
}

fn floats(column: &'static str) -> HashMap<&'static str, Floats> {
    let variable = |text: &'static str| {
        let (name, types) = text.split_once('=')?;
        let has = |wanted: &str| types.split([',', '+']).any(|known| known == wanted);
        Some((name, Floats { f32: has("f32"), f16: has("f16"), bf16: has("bf16"), f64: has("f64") }))
    };
    column.split(';').filter_map(variable).collect()
}

impl Schema {
    /// Returns the schema of an operator in a version of its domain.
    pub fn of(domain: &str, op: &str, version: i64) -> Option<&'static Schema> {
        let versions = SCHEMAS.get(domain)?.get(op)?;
        Some(versions.range(..=version).next_back()?.1)
    }

    /// Returns the newest known version of the format.
    pub fn newest() -> i64 {
        SCHEMAS
            .get("")
            .into_iter()
            .flat_map(|ops| ops.values())
            .flat_map(|versions| versions.keys())
            .max()
            .copied()
            .unwrap_or(0)
    }

    /// Returns the first version of the format that has an operator.
    pub fn first(op: &str) -> Option<i64> {
        SCHEMAS.get("")?.get(op)?.keys().next().copied()
    }

    /// Returns the first version from which a type variable of an operator's first output may have a dtype.
    pub fn first_with(op: &str, dtype: DType) -> Option<i64> {
        let versions = SCHEMAS.get("")?.get(op)?;
        versions
            .iter()
            .find(|(_, schema)| schema.own().is_some_and(|own| schema.allows(own, dtype)))
            .map(|(since, _)| *since)
    }

    /// Returns the port of an input by its place.
    pub fn input(&self, place: usize) -> Option<&Port> {
        at(&self.inputs, place)
    }

    /// Returns the port of an output by its place.
    pub fn output(&self, place: usize) -> Option<&Port> {
        at(&self.outputs, place)
    }

    /// Returns whether a type variable may have a floating dtype.
    pub fn allows(&self, variable: &str, dtype: DType) -> bool {
        self.floats.get(variable).is_some_and(|floats| match dtype {
            DType::F32 => floats.f32,
            DType::F16 => floats.f16,
            DType::Bf16 => floats.bf16,
            DType::F64 => floats.f64,
            _ => false,
        })
    }

    /// Returns whether an input has a type variable.
    pub fn takes(&self, variable: &'static str) -> bool {
        self.inputs.iter().any(|port| port.kind == Kind::Variable(variable))
    }

    /// Returns whether a port has the type in which the operator computes.
    pub fn is_own(&self, port: &Port) -> bool {
        let is = |variable: Option<&'static str>| variable.is_some_and(|name| port.kind == Kind::Variable(name));
        is(self.own()) || is(self.with)
    }

    /// Returns the type variable in which the operator computes: that of its first output, else of its first input, if
    /// it may be float32.
    pub fn own(&self) -> Option<&'static str> {
        let variable = |port: &Port| match port.kind {
            Kind::Variable(name) if self.allows(name, DType::F32) => Some(name),
            _ => None,
        };
        let first = self.outputs.first().and_then(variable);
        first.or_else(|| self.inputs.first().and_then(variable))
    }
}

fn at(ports: &[Port], place: usize) -> Option<&Port> {
    ports.get(place).or_else(|| ports.last().filter(|last| last.variadic))
}

/// Returns the element type of a dtype.
pub(super) fn elem(dtype: DType) -> Elem {
    match dtype {
        DType::F16 => Elem::F16,
        DType::Bf16 => Elem::BF16,
        DType::F64 => Elem::F64,
        DType::I64 => Elem::INT64,
        DType::Bool => Elem::BOOL,
        _ => Elem::F32,
    }
}

/// Returns the dtype of a floating element type.
pub(super) fn float(elem: Elem) -> Option<DType> {
    Some(match elem {
        Elem::F32 => DType::F32,
        Elem::F16 => DType::F16,
        Elem::BF16 => DType::Bf16,
        Elem::F64 => DType::F64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use precast::{Op, catalogue::System};

    /// The versions at which ONNX's release notes let these ops take bfloat16.
    #[test]
    fn versions_are_those_of_the_format() {
        assert_eq!(Schema::first_with("MatMul", DType::Bf16), Some(13));
        assert_eq!(Schema::first_with("Conv", DType::Bf16), Some(22));
        assert_eq!(Schema::first_with("Conv", DType::F16), Some(1));
        assert_eq!(Schema::first_with("CumSum", DType::F16), Some(14));
        assert_eq!(Schema::first_with("NonMaxSuppression", DType::F16), None);
        let old = Schema::of("", "BatchNormalization", 9).unwrap();
        assert_eq!(old.input(4).unwrap().kind, Kind::Variable("T"));
        let new = Schema::of("", "BatchNormalization", 17).unwrap();
        assert_eq!((new.own(), new.input(4).unwrap().kind), (Some("T"), Kind::Variable("T2")));
        assert!(Schema::of("", "Gelu", 19).is_none() && Schema::of("nobody", "Gelu", 20).is_none());
    }

    #[test]
    fn lists_know_every_operator_by_its_bare_name() {
        for op in SCHEMAS.values().flat_map(|ops| ops.keys()) {
            let found = Op::named_in(System::Onnx, op).unwrap();
            assert!(found.iter().all(|found| found.names(System::Onnx).any(|name| name == *op)), "{op}: {found:?}");
        }
    }

    #[test]
    fn ports_may_be_repeated_and_mixed() {
        let concat = Schema::of("", "Concat", 13).unwrap();
        assert_eq!(concat.input(9).unwrap().kind, Kind::Variable("T"));
        assert!(Schema::of("", "Loop", 16).unwrap().input(5).unwrap().mixed);
        assert!(Schema::of("", "MatMul", 13).unwrap().input(2).is_none());
    }
}
