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

mod painted;

use std::{collections::HashMap, sync::Arc};

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Bool, DType as Theirs, Device, Int, Tensor},
};
use precast_base::{path::named, printable};
use precast_policy::{DType, Error, Result};

pub use self::painted::{Painted, PaintedOp};
use crate::weight::{Attach, last_read, marked};

/// The ops of a forward pass, in the order in which they run.
#[derive(Clone, Debug)]
pub struct Graph {
    ops: Vec<Recorded>,
}

/// An op, with the numbers of its tensors and their dtypes.
#[derive(Clone, Debug)]
struct Recorded {
    name: String,
    /// Path of the module whose parameter it takes.
    module: Option<Arc<str>>,
    inputs: Vec<(u64, Option<DType>)>,
    outputs: Vec<(u64, Option<DType>)>,
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
        let (net, device) = (net.valid().apply_reparameterization(Attach(None)), Device::capture());
        last_read();
        let (captured, read) = marked(|| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                device.capture_scope(|scope| {
                    let result = forward(net.to_device(&device), &device);
                    let completed = scope.complete([], []);
                    drop(result);
                    completed
                })
            }))
        });
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
        let (mut ops, mut read) = (Vec::new(), read.into_iter());
        // Modules of the parameters, and of what was made of them alone, by the numbers of the tensors.
        let mut modules: HashMap<u64, Arc<str>> = HashMap::new();
        for op in &captured.graph.operations {
            let debug = format!("{op:?}");
            let inputs: Vec<_> = op.inputs().map(|tensor| (tensor.id.value(), dtype(tensor.dtype))).collect();
            let outputs: Vec<_> = op.outputs().map(|tensor| (tensor.id.value(), dtype(tensor.dtype))).collect();
            if is_mark(&debug)
                && let ([(copy, _)], Some(module)) = (&outputs[..], read.next())
            {
                modules.insert(*copy, module);
                continue;
            }
            let Some(name) = name(&debug) else { continue };
            let module = inputs.iter().find_map(|(id, _)| modules.get(id)).cloned();
            if let Some(module) = module.as_ref().filter(|_| inputs.iter().all(|(id, _)| modules.contains_key(id))) {
                modules.extend(outputs.iter().map(|(id, _)| (*id, module.clone())));
            }
            ops.push(Recorded { name, module, inputs, outputs });
        }
        Ok(Graph { ops })
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
        let of = op.module.as_deref().map_or(String::new(), |module| format!(" of {}", named(module)));
        Err(Error::dtype(format!(
            "op {at} of {}, `{}`{of}, takes {}{before}{more}. {CAST_IT}",
            self.ops.len(),
            op.name,
            dtypes.join(" and ")
        )))
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

/// Returns whether an op marks a parameter: it reverses no axis.
fn is_mark(debug: &str) -> bool {
    debug.starts_with("BaseFloat(Flip(") && debug.ends_with("axes: [] }))")
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
