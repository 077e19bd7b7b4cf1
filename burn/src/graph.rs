//! The ops of a forward pass, recorded without computing them, and what the op lists of a policy would do with each.
//!
//! burn does not report its ops while it runs, so op lists cannot be put into force on it. But it records them on a
//! device of their own, before a run:
//!
//! ```
//! use burn::{nn::LinearConfig, prelude::*, tensor::activation::softmax};
//! use precast_burn::{Policy, graph::Graph};
//! let fc = LinearConfig::new(8, 4).init(&Device::default());
//! let graph = Graph::record(&fc, |fc, device| softmax(fc.forward(Tensor::<2>::zeros([2, 8], device)), 1))?;
//! println!("{}", graph.painted(&Policy::named("auto-bf16")?)?);
//! # Ok::<(), precast_burn::Error>(())
//! ```

use std::{collections::HashMap, fmt};

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Bool, DType as Theirs, Device, Int, Tensor},
};
use precast_policy::{
    DType, Error, Op, Outline, OutlinedCell, Policy, Result,
    catalogue::System,
    policy::Entry,
    precision::{Frame, Treatment, resolve},
    printable,
};

use crate::weight::last_read;

/// The ops of a forward pass, in the order in which they run.
#[derive(Clone, Debug)]
pub struct Graph {
    ops: Vec<Recorded>,
}

/// An op, with the numbers of its tensors and their dtypes.
#[derive(Clone, Debug)]
struct Recorded {
    name: String,
    inputs: Vec<(u64, Option<DType>)>,
    outputs: Vec<(u64, Option<DType>)>,
}

/// The ops of a graph, each with the casts that a policy asks for.
#[derive(Clone, Debug)]
pub struct Painted {
    /// The ops, in order.
    pub ops: Vec<PaintedOp>,
}

/// An op with the casts of its inputs, and the reason.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PaintedOp {
    /// Name in burn's graphs, such as `Matmul`.
    pub name: String,
    /// Dtypes of the floating inputs as they come.
    pub from: Vec<DType>,
    /// Dtypes of the floating inputs after the casts.
    pub to: Vec<DType>,
    /// Dtype of the result, if it is floating.
    pub output: Option<DType>,
    /// The list that decides, and its name.
    pub because: String,
    /// `true` when the list asks for f32 and an input is low.
    pub widened: bool,
}

impl Graph {
    /// Records the ops of a forward pass. `forward` is called with the network on the recording device, and creates its
    /// input there; the numbers in the input do not matter. Nothing is computed.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when two dtypes meet in an op that burn refuses to record, with the
    /// weight that was read last; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when `forward` reads the
    /// result of an op, as code does that branches on a number: that needs a computation;
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) with burn's words when it fails otherwise. burn panics in all cases,
    /// which prints lines; the panic is caught here.
    pub fn record<M: Module, O>(net: &M, forward: impl FnOnce(M, &Device) -> O) -> Result<Graph> {
        // A parameter that is drawn while the device records would become an op.
        net.visit(&mut Draw);
        let (net, device) = (net.valid(), Device::capture());
        last_read();
        let captured = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            device.capture_scope(|scope| {
                let result = forward(net.to_device(&device), &device);
                let completed = scope.complete([], []);
                drop(result);
                completed
            })
        }));
        let captured = match captured {
            Ok(captured) => {
                captured.map_err(|error| Error::unsupported(format!("the ops cannot be recorded: {error}")))?
            }
            Err(panic) => {
                let words =
                    panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
                let words = words.unwrap_or("a panic without words");
                if words.contains("DTypeMismatch") {
                    let read = last_read().map(|path| format!(" The weight read last is `{}`.", printable(&path)));
                    return Err(Error::dtype(format!(
                        "an op takes floating inputs of different dtypes.{} {CAST_IT}",
                        read.unwrap_or_default()
                    )));
                }
                if words.contains("has no concrete value") {
                    return Err(Error::unsupported(
                        "the forward pass reads the result of an op, and a recording computes none".to_string(),
                    ));
                }
                return Err(Error::shape(format!("the forward pass failed while it was recorded: {}", words.trim())));
            }
        };
        let dtype = |theirs: Theirs| match theirs {
            Theirs::F64 => Some(DType::F64),
            Theirs::F32 => Some(DType::F32),
            Theirs::F16 => Some(DType::F16),
            Theirs::BF16 => Some(DType::Bf16),
            _ => None,
        };
        let ops = captured.graph.operations.iter().filter_map(|op| {
            let name = name(&format!("{op:?}"))?;
            let inputs = op.inputs().map(|tensor| (tensor.id.value(), dtype(tensor.dtype))).collect();
            let outputs = op.outputs().map(|tensor| (tensor.id.value(), dtype(tensor.dtype))).collect();
            Some(Recorded { name, inputs, outputs })
        });
        Ok(Graph { ops: ops.collect() })
    }

    /// Returns the number of ops.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Checks that no op takes floating inputs of different dtypes. burn does not promote: on a CPU such an op panics, and
    /// on wgpu with fusion its result is garbage without an error. A recording of the network as a plan has changed it
    /// finds a cast that is missing between two modules:
    ///
    /// ```
    /// use burn::{nn::LinearConfig, prelude::*};
    /// use precast_burn::{Amp, Forward, Policy, graph::Graph};
    /// let mut net = Amp::new(LinearConfig::new(8, 4).init(&Device::default()));
    /// let _applied = Policy::named("o2")?.apply(&mut net)?;
    /// let forward = |net: Amp<_>, device: &Device| net.forward(Tensor::<2>::zeros([2, 8], device));
    /// Graph::record(&net, forward)?.check()?;
    ///
    /// // The call of the module inside casts nothing.
    /// let forward = |net: Amp<nn::Linear>, device: &Device| net.inner().forward(Tensor::<2>::zeros([2, 8], device));
    /// let error = Graph::record(&net, forward).and_then(|graph| graph.check()).unwrap_err();
    /// assert!(error.to_string().contains("different dtypes"));
    /// # Ok::<(), precast_burn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) with the first such op, and the number of all.
    pub fn check(&self) -> Result<()> {
        let floats = |op: &Recorded| -> Vec<DType> { op.inputs.iter().filter_map(|(_, dtype)| *dtype).collect() };
        let mixed = |op: &Recorded| floats(op).windows(2).any(|two| two[0] != two[1]);
        let Some(at) = self.ops.iter().position(mixed) else { return Ok(()) };
        let (op, number) = (&self.ops[at], self.ops.iter().filter(|op| mixed(op)).count());
        let mut dtypes: Vec<&str> = floats(op).iter().map(|dtype| dtype.name()).collect();
        dtypes.dedup();
        let before: Vec<&str> = self.ops[at.saturating_sub(3)..at].iter().map(|op| op.name.as_str()).collect();
        let before = if before.is_empty() { String::new() } else { format!(", behind {}", before.join(", ")) };
        let more = if number > 1 { format!("; {} more ops like it", number - 1) } else { String::new() };
        Err(Error::dtype(format!(
            "op {at} of {}, `{}`, takes {}{before}{more}. {CAST_IT}",
            self.ops.len(),
            op.name,
            dtypes.join(" and ")
        )))
    }

    /// Decides for each op what a policy would cast, by the function that decides for precast's own regions. The dtypes
    /// that it gives to results are those of the inputs of the ops behind. Record the network without a plan for it: with
    /// one, the casts of the plan are ops, too.
    ///
    /// The ops are burn's: a linear layer is a product and a sum, where torch has one op, so an f32 bias widens the sum.
    ///
    /// # Errors
    /// Those of [`Policy::plan`]; [`ErrorKind::List`](crate::ErrorKind::List) for an op that the lists refuse.
    pub fn painted(&self, policy: &Policy) -> Result<Painted> {
        let plan = policy.plan_outline(Outline::new([OutlinedCell::new("", "Network")])?)?;
        let frame = plan.decisions[0].adapter.as_ref().map(|adapter| adapter.frame());
        let mut met: HashMap<u64, DType> = HashMap::new();
        let mut ops = Vec::new();
        for recorded in &self.ops {
            let listed = Op::named_in(System::Burn, &recorded.name).unwrap_or_default();
            // A name of burn may be several ops here, of which a list may have one.
            let op = listed.iter().copied().find(|op| plan.listed.contains_key(op)).or(listed.first().copied());
            let floats = recorded.inputs.iter().filter_map(|(id, dtype)| Some((id, (*dtype)?)));
            let from: Vec<DType> = floats.map(|(id, dtype)| met.get(id).copied().unwrap_or(dtype)).collect();
            let casts = match op {
                Some(op) => resolve(frame.as_ref(), op, &from)?,
                None => Default::default(),
            };
            let to = if op.is_some() { casts.after(&from) } else { from.clone() };
            let widest = to.iter().copied().reduce(DType::promote);
            let mut output = None;
            for (id, dtype) in &recorded.outputs {
                let Some(dtype) = dtype else { continue };
                let result = casts.output.or(widest).unwrap_or(*dtype);
                met.insert(*id, result);
                output = Some(result);
            }
            let entry = op.and_then(|op| plan.listed.get(&op));
            let because = match (&frame, entry) {
                (Some(Frame::Fixed(_)), _) => format!("level {}", policy.level),
                (Some(_), Some(Entry { treatment, origin, because, .. })) => match because {
                    Some(because) => format!("{treatment} list, {origin}: {}", printable(because)),
                    None => format!("{treatment} list, {origin}"),
                },
                (Some(_), None) if from != to => "unlisted: dtypes meet, and the widest wins".to_string(),
                (Some(_), None) if op.is_some() => format!("unlisted: {}", plan.unlisted.meaning()),
                (Some(_), None) => "not an op that lists can name".to_string(),
                (None, _) => "no casts".to_string(),
            };
            let full = entry.is_some_and(|entry| entry.treatment == Treatment::Full);
            let widened = full && from.iter().any(|dtype| dtype.is_low());
            ops.push(PaintedOp { name: recorded.name.clone(), from, to, output, because, widened });
        }
        Ok(Painted { ops })
    }
}

/// Advice for an op of mixed dtypes.
const CAST_IT: &str = "A module before it may return f32 into 16 bits: a rule with `run: float32-inside` in place of \
                       `float32` casts its result back, and `run: inherit` keeps it in the precision around it. A tensor that \
                       code creates needs `.cast(x.dtype())`. burn does not promote, and computes garbage on some devices";

/// Initializes each parameter.
struct Draw;

impl ModuleVisitor for Draw {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let _ = param.base();
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        let _ = param.base();
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        let _ = param.base();
    }
}

/// Returns the name of an op from its debug form, `Float(F32, Matmul(MatmulOpIr { .. }))`; `None` for one that computes
/// nothing.
fn name(debug: &str) -> Option<String> {
    let (family, rest) = debug.split_once('(')?;
    if matches!(family, "Init" | "Drop") {
        return None;
    }
    let rest = match family {
        "NumericFloat" | "NumericInt" | "Float" => rest.split_once(", ")?.1,
        _ => rest,
    };
    let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
    Some(rest[..end].to_string())
}

impl fmt::Display for Painted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtypes = |dtypes: &[DType]| dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" ");
        let casts = |op: &PaintedOp| match op.from == op.to {
            true => dtypes(&op.from),
            false => format!("{} cast to {}", dtypes(&op.from), dtypes(&op.to)),
        };
        let width = |of: &dyn Fn(&PaintedOp) -> usize| self.ops.iter().map(of).max().unwrap_or(0);
        let (names, inputs) = (width(&|op| op.name.len()), width(&|op| casts(op).len()));
        for (at, op) in self.ops.iter().enumerate() {
            let output = op.output.map_or("", DType::name);
            writeln!(f, "{at:4}  {:names$}  {:inputs$}  {output:4}  {}", op.name, casts(op), op.because)?;
        }
        let changed = self.ops.iter().filter(|op| op.from != op.to).count();
        writeln!(f, "{} ops, {changed} with casts", self.ops.len())?;
        let widened: Vec<String> = self
            .ops
            .iter()
            .enumerate()
            .filter(|(_, op)| op.widened)
            .map(|(at, op)| format!("{} ({at})", op.name))
            .collect();
        if !widened.is_empty() {
            writeln!(
                f,
                "to follow the lists in code, compute these by `precast_burn::in_f32`: {}",
                widened.join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ops_are_those_of_burn() {
        for (debug, expected) in [
            ("Float(F32, Matmul(MatmulOpIr { lhs: TensorIr }))", Some("Matmul")),
            ("NumericFloat(BF16, Add(BinaryOpIr))", Some("Add")),
            ("Module(LayerNorm(LayerNormOpIr))", Some("LayerNorm")),
            ("BaseFloat(Cast(CastOpIr))", Some("Cast")),
            ("Drop(TensorIr)", None),
            ("Init(InitOperationIr)", None),
            ("", None),
        ] {
            assert_eq!(name(debug).as_deref(), expected, "{debug}");
        }
    }
}
