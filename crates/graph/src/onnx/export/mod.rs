//! Export: a recorded graph as an ONNX model.
//!
//! Each node of the graph is written as the node of ONNX that computes the same, or as several. A low op is written in
//! its low dtype where the opset has it and one rounding suffices, else in float32 between casts, which is what low
//! means here.

mod call;
mod message;
mod nodes;
mod ops;
mod writer;

use std::{collections::HashSet, path::Path};

use self::{
    message::{Declared, Val},
    nodes::{Nodes, at, carried, constant},
    writer::Writer,
};
use super::convert::check_free;
use crate::{Dim, Graph, Kind, Node};
use precast::{
    error::{Error, Result},
    io::files::replace,
};

/// The opsets that can be written.
const OPSETS: std::ops::RangeInclusive<i64> = 13..=24;
/// Files of protobuf end before 2 GB.
const LARGEST: usize = i32::MAX as usize;

/// Options of an export.
///
/// ```
/// let options = precast_graph::onnx::ExportOptions::new().opset(17).explicit(true);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ExportOptions {
    opset: i64,
    explicit: bool,
    replace: bool,
}

impl Default for ExportOptions {
    fn default() -> Self {
        ExportOptions { opset: 20, explicit: false, replace: true }
    }
}

impl ExportOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        ExportOptions::default()
    }

    /// Sets the version of ONNX's operators, from 13 to 24. Default: 20.
    pub fn opset(mut self, version: i64) -> Self {
        self.opset = version;
        self
    }

    /// Sets the explicit form: each low op computes in float32, and its result is rounded by a cast to the low dtype
    /// and back. Every runtime keeps it to the bit. Default: no.
    pub fn explicit(mut self, yes: bool) -> Self {
        self.explicit = yes;
        self
    }

    /// Sets whether an existing file is replaced. Default: yes.
    pub fn replace(mut self, yes: bool) -> Self {
        self.replace = yes;
        self
    }
}

/// Writes a graph as an ONNX model. The file is whole or absent.
///
/// Parameters are initialisers under their paths, and nodes have the names of the graph; the path of a node's cell is in
/// its metadata, where torch's exporter has it. A graph that runs batches of any size has the symbolic axis `batch`. The
/// graph is one of evaluation: dropout and statistics of a batch are refused.
///
/// # Errors
/// [`ErrorKind::Unsupported`](precast::ErrorKind::Unsupported) for a node that ONNX cannot express, with its name, its cell,
/// its op and the reason; [`ErrorKind::Value`](precast::ErrorKind::Value) for an opset that cannot be written;
/// [`ErrorKind::Io`](precast::ErrorKind::Io) when the file cannot be written, or exists and is not to be replaced.
///
/// ```
/// use precast::{layers::{Dense, Rng}, prelude::*};
/// use precast_graph::{Graph, onnx::{self, ExportOptions, ImportOptions, OnnxModel}};
/// let net = Child::new(Dense::new(3, 2, &mut Rng::seed(1)));
/// let x = Tensor::ones(&[4, 3], DType::F32);
/// let graph = Graph::trace(&net, &[x.clone()])?;
/// let path = std::env::temp_dir().join(format!("precast-export-{}.onnx", std::process::id()));
/// onnx::export(&graph, &path, &ExportOptions::new())?;
/// let again = OnnxModel::open(&path)?.import(&ImportOptions::new())?;
/// assert_eq!(again.call(&x)?.to_f64(), net.call(&x)?.to_f64());
/// # std::fs::remove_file(path).ok();
/// # Ok::<(), precast::Error>(())
/// ```
pub fn export(graph: &Graph, path: impl AsRef<Path>, options: &ExportOptions) -> Result<()> {
    let path = path.as_ref();
    check_free(path, options.replace)?;
    replace(path, &export_bytes(graph, options)?)
}

/// Returns the bytes of the model that [`export`] writes.
///
/// # Errors
/// As [`export`], without those of files.
pub fn export_bytes(graph: &Graph, options: &ExportOptions) -> Result<Vec<u8>> {
    let opset = options.opset;
    if !OPSETS.contains(&opset) {
        let (first, last) = (OPSETS.start(), OPSETS.end());
        return Err(Error::value(format!("opset {opset} cannot be written; allowed: {first} to {last}")));
    }
    if let Some(buffer) = graph.updated().next() {
        return Err(Error::unsupported(format!(
            "the graph updates the buffer `{buffer}`, as in training; an export is of a graph in evaluation: call `eval`, \
             and trace again"
        )));
    }
    let model = written(graph, options)?;
    let bytes = message::model(&model, opset, ir(opset));
    match bytes.len() > LARGEST {
        true => {
            Err(Error::unsupported(format!("the model has {} bytes, and a file of ONNX ends before 2 GB", bytes.len())))
        }
        false => Ok(bytes),
    }
}

/// Returns the version of the format that came with an opset.
fn ir(opset: i64) -> i64 {
    match opset {
        ..=14 => 7,
        15..=18 => 8,
        19..=20 => 9,
        21..=22 => 10,
        23 => 11,
        _ => 12,
    }
}

fn written(graph: &Graph, options: &ExportOptions) -> Result<message::Graph> {
    let explicit = options.explicit;
    let taken: HashSet<String> = graph.nodes().iter().map(|node| node.name.clone()).collect();
    let mut model = message::Graph { name: "main".into(), ..message::Graph::default() };
    let mut writer = Writer::new(options.opset, taken);
    let mut nodes = Nodes { graph, explicit, values: Vec::new() };
    for node in graph.nodes() {
        writer.cell.clone_from(&node.cell);
        let mark = writer.mark();
        let of = &node.outputs[0];
        let given = Val { name: node.name.clone(), dtype: of.dtype };
        let values = match &node.kind {
            Kind::Input => {
                if writer.batch_of.is_none() {
                    let axis = of.shape.iter().position(|len| (len.each, len.plus) == (1, 0));
                    writer.batch_of = axis.map(|axis| (given.clone(), axis));
                }
                model.inputs.push(declared(given.clone(), &of.shape));
                writer.cast(&given, carried(of.dtype, explicit)).map(|x| vec![x])
            }
            Kind::Parameter(param) => {
                let value = param.tensor();
                let given = Val { dtype: value.dtype(), ..given };
                model.initialisers.push((node.name.clone(), value));
                writer.cast(&given, carried(of.dtype, explicit)).map(|x| vec![x])
            }
            Kind::Constant(x) => {
                let x = x.cast(carried(of.dtype, explicit));
                constant(&mut writer, &x, &of.shape).map(|x| vec![x])
            }
            Kind::StopGradient => Ok(vec![nodes.value(node.inputs[0]).clone()]),
            Kind::Op(op) => nodes.op(&mut writer, node, *op),
        };
        let values = values.map_err(|e| at(node, e))?;
        nodes.values.push(named(&mut writer, node, &mark, values));
    }
    outputs(graph, &nodes, &mut writer, &mut model)?;
    model.nodes = writer.read_nodes(&model.outputs);
    Ok(model)
}

/// Names the nodes and the values of a node of the graph. A value that is one of its inputs keeps its name.
fn named(writer: &mut Writer, node: &Node, mark: &writer::Mark, values: Vec<Val>) -> Vec<Val> {
    let name = |port: usize| if node.outputs.len() == 1 { node.name.clone() } else { format!("{}:{port}", node.name) };
    // An input or a parameter has its name already, and a cast of it has another.
    let makes = !matches!(node.kind, Kind::Input | Kind::Parameter(_));
    let is_new = |x: &Val| makes && x.name.starts_with(writer::PROVISIONAL);
    let results = values.iter().take(node.outputs.len()).enumerate().filter(|(_, x)| is_new(x));
    let results: Vec<(Val, String)> = results.map(|(port, x)| (x.clone(), name(port))).collect();
    let renamed = writer.complete(mark, &node.name, &results);
    let new = |x: Val| Val { name: renamed.get(&x.name).cloned().unwrap_or(x.name), ..x };
    values.into_iter().map(new).collect()
}

/// Declares the outputs, each with a name of its own and the dtype of the graph.
fn outputs(graph: &Graph, nodes: &Nodes<'_>, writer: &mut Writer, model: &mut message::Graph) -> Result<()> {
    let many = graph.outputs().len() > 1;
    writer.cell.clear();
    for (place, &port) in graph.outputs().iter().enumerate() {
        let of = graph.output(port);
        let mut name = if many { format!("output_{}", place + 1) } else { "output".to_string() };
        while writer.taken.contains(&name) {
            name.push('_');
        }
        writer.taken.insert(name.clone());
        let mark = writer.mark();
        let x = nodes.value(port).clone();
        let x = match x.dtype == of.dtype {
            true => writer.node_of("Identity", x.dtype, &[&x], &[])?,
            false => writer.cast_anew(&x, of.dtype)?,
        };
        writer.complete(&mark, &name, &[(x.clone(), name.clone())]);
        model.outputs.push(declared(Val { name, ..x }, &of.shape));
    }
    Ok(())
}

fn declared(value: Val, shape: &[Dim]) -> Declared {
    let axis = |len: &Dim| match len.each {
        0 => Ok(len.plus),
        _ => Err(len.to_string().replace('b', "batch")),
    };
    Declared { value, axes: Some(shape.iter().map(axis).collect()) }
}
