//! Import: an ONNX model as a network whose nodes are calls of tensor methods.
//!
//! Numbers that depend neither on inputs nor on parameters are known: lengths of axes, constants, and all that is
//! computed from them. Nodes read shapes, axes and counts from known numbers, so that a graph can be recorded.

mod call;
mod compile;
mod control;
mod data;
mod fold;
mod network;
mod ops;
mod options;
mod params;
mod run;
mod step;
mod value;
mod weigh;

pub use network::OnnxNetwork;
pub use options::{Fixed, ImportOptions};

pub(super) use fold::taken;

use super::{
    OnnxModel,
    graph::{Axis, Type},
    tensor::Elem,
};
use precast::{
    Child, Tensor,
    error::{Error, Result},
    no_grad,
};

impl OnnxModel {
    /// Imports the model as a network that can be run, trained and planned, and traced as a
    /// [`Graph`](crate::Graph).
    ///
    /// Floating initialisers of more than one number are parameters, under the model's names, and so are all that a
    /// product, a convolution, a norm, an embedding or a recurrent layer reads as its weight, also from a `Constant`
    /// node. Single numbers are constants, and so are masks, which have numbers beyond 65504. A node that reads such a
    /// constant runs in float32 in every region, because in a low dtype it may be infinite.
    ///
    /// Models are exported for evaluation: a batch norm uses its running statistics, which are buffers, and dropout
    /// does nothing, in training as well.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](precast::ErrorKind::Unsupported) for a node that cannot be run, with its name, its op
    /// and the reason; [`ErrorKind::Model`](precast::ErrorKind::Model) for a model that contradicts itself;
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for an input or an axis that the model does not have.
    pub fn import(&self, options: &ImportOptions) -> Result<Child<OnnxNetwork>> {
        self.network(options, true).map(Child::new)
    }

    /// Runs the model on inputs by name, and returns its outputs by name.
    ///
    /// # Errors
    /// As [`import`](OnnxModel::import); [`ErrorKind::Value`](precast::ErrorKind::Value) for an input that is missing or
    /// unknown; those of the ops, with the name of the node.
    pub fn run(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>> {
        let network = self.network(&ImportOptions::new(), true)?;
        let named: Vec<(String, Tensor)> = inputs.iter().map(|(name, x)| (name.to_string(), x.clone())).collect();
        let inputs = network.in_order(&named)?;
        let outputs = no_grad(|| network.run(&inputs, None))?;
        Ok(network.outputs().map(str::to_string).zip(outputs).collect())
    }

    fn network(&self, options: &ImportOptions, folded: bool) -> Result<OnnxNetwork> {
        let mut body = compile::compile(self)?;
        for (name, fixed) in &options.fixed {
            let input = self.graph.inputs.iter().find(|input| input.name == *name && body.inputs.contains(name));
            let input = input.ok_or_else(|| network::unknown("input", name, &body.inputs))?;
            let item = options.value(fixed, input)?;
            fold::fix(&mut body, name, item);
        }
        let symbols =
            self.graph.inputs.iter().flat_map(|input| input.axes.iter().flatten()).filter_map(|axis| match axis {
                Axis::Symbol(symbol) => Some(symbol.clone()),
                _ => None,
            });
        let symbols: Vec<String> = symbols.collect();
        if let Some((name, _)) = options.axes.iter().find(|(name, _)| !symbols.contains(name)) {
            return Err(network::unknown("symbolic axis", name, &symbols));
        }
        for input in self.graph.inputs.iter().filter(|input| body.inputs.contains(&input.name)) {
            let refused = |words: String| Error::unsupported(format!("input `{}`: {words}", input.name));
            match input.kind {
                Type::Nested(_) => {
                    return Err(refused("it is a sequence or an optional value; expected a tensor".into()));
                }
                Type::Tensor(elem) if elem != Elem::UNDEFINED => {
                    value::dtype_of(elem).map_err(|e| refused(e.to_string()))?;
                }
                _ => {}
            }
        }
        let chosen = weigh::choose(&mut body);
        if folded {
            fold::fold(&mut body)?;
        }
        fold::check(&body)?;
        let weights = weigh::arrange(&mut body, chosen)?;
        weigh::note_wide(&mut body, &Default::default());
        if folded {
            fold::note_last(&mut body);
        }
        let inputs = body.inputs.iter().filter_map(|name| self.graph.inputs.iter().find(|input| input.name == *name));
        let inputs = inputs.map(|input| network::Input {
            name: input.name.clone(),
            elem: input.elem(),
            axes: input.axes.as_ref().map(|axes| {
                let axis = |(place, axis): (usize, &Axis)| match axis {
                    Axis::Symbol(symbol) => (symbol.clone(), options.length(axis)),
                    Axis::Known(length) if place > 0 => (String::new(), Some(*length)),
                    _ => (String::new(), None),
                };
                axes.iter().enumerate().map(axis).collect()
            }),
            batch: input.axes.as_ref().and_then(|axes| match axes.first()? {
                Axis::Known(length) => Some(*length),
                _ => None,
            }),
        });
        let inputs = inputs.collect();
        Ok(OnnxNetwork::new(weights, body, inputs))
    }
}

/// Returns the numbers of a stored tensor.
pub(super) fn numbers(model: &OnnxModel, stored: &super::tensor::Tensor) -> Result<Tensor> {
    Ok(data::load(model, stored)?.x)
}

/// Runs a model in float32, calls `each` with the name and the value of every floating tensor that a node makes, in
/// bodies and functions as well, and returns the outputs by name.
pub(super) fn observe(
    model: &OnnxModel,
    inputs: &[(String, Tensor)],
    each: &mut dyn FnMut(&str, &Tensor),
) -> Result<Vec<(String, Tensor)>> {
    let network = model.network(&ImportOptions::new(), false)?;
    let inputs = network.in_order(inputs)?;
    let outputs = no_grad(|| network.observed(&inputs, each))?;
    Ok(network.outputs().map(str::to_string).zip(outputs).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use precast::DType;

    #[test]
    fn values_of_bodies_and_functions_are_observed() -> Result<()> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx/data");
        let model = OnnxModel::open(folder.join("exports/resnet-script/model.onnx"))?;
        let x = Tensor::ones(&[1, 3, 32, 32], DType::F32);
        let mut met = Vec::new();
        let outputs = observe(&model, &[("x0".into(), x.clone())], &mut |name, x| {
            met.push((name.to_string(), x.shape().to_vec()));
        })?;
        let nodes: usize =
            model.graph.nodes.iter().filter(|node| node.op != "Constant").map(|node| node.outputs.len()).sum();
        assert_eq!(met.len(), nodes);
        assert_eq!((&outputs[0].0[..], outputs[0].1.shape()), ("y0", &[1, 10][..]));
        assert_eq!(met.last(), Some(&("y0".to_string(), vec![1, 10])));
        let network = model.import(&ImportOptions::new())?;
        assert_eq!(network.call(&x)?.to_f64(), outputs[0].1.to_f64());
        Ok(())
    }
}
