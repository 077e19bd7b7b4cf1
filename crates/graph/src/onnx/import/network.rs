//! An imported model as a cell.

use std::cell::RefCell;

use precast_base::names::did_you_mean;

use super::{
    params::Weights,
    run::{Runner, Watch},
    step::Body,
    value::{Item, Value},
};
use crate::onnx::{schema, tensor::Elem};
use precast::{
    Cell, Child, DType, Tensor,
    cell::Forward,
    error::{Error, Result},
    io::models::Model,
};

/// An imported model: a network with the model's parameters, which runs the model's nodes.
///
/// Made by [`OnnxModel::import`](super::super::OnnxModel::import). A node that reads weights is a cell of the kind that
/// a layer with its arithmetic has (`Dense` for a matrix product, `Conv2d`, `LayerNorm`, ...), so that policies know
/// it. Its path is that of its weights (`encoder.0.fc` for `encoder.0.fc.weight`), or of its scope (`a.q` for
/// `/a/q/MatMul`), or else its name. Other parameters belong to the network itself, under the model's names.
///
/// Inputs and outputs have the order of the model. Integers of every width are i64.
#[derive(Cell, Debug)]
pub struct OnnxNetwork {
    weights: Weights,
    body: Body,
    inputs: Vec<Input>,
    outputs: Vec<String>,
}

/// An input of a network.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub name: String,
    pub elem: Option<Elem>,
    /// The declared axes, with the name of a symbolic one; those whose length is fixed have it.
    pub axes: Option<Vec<(String, Option<usize>)>>,
    /// The declared length of the first axis. Other batches run where the nodes allow them.
    pub batch: Option<usize>,
}

impl OnnxNetwork {
    pub(super) fn new(weights: Weights, body: Body, inputs: Vec<Input>) -> Self {
        let outputs = body.outputs.clone();
        OnnxNetwork { weights, body, inputs, outputs }
    }

    /// Returns the names of the inputs, in the order of a call.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().map(|input| &input.name[..])
    }

    /// Returns the names of the outputs, in the order of a call's results.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().map(String::as_str)
    }

    /// Returns inputs by name in the order of a call.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for an input that is missing, unknown or there twice.
    pub fn in_order(&self, inputs: &[(String, Tensor)]) -> Result<Vec<Tensor>> {
        let names: Vec<String> = self.inputs().map(str::to_string).collect();
        for (at, (name, _)) in inputs.iter().enumerate() {
            if !names.contains(name) {
                return Err(unknown("input", name, &names));
            }
            if inputs[..at].iter().any(|(other, _)| other == name) {
                return Err(Error::value(format!("the input `{name}` is there twice")));
            }
        }
        let given = |name: &String| {
            let found = inputs.iter().find(|(other, _)| other == name).map(|(_, x)| x.clone());
            found.ok_or_else(|| Error::value(format!("the input `{name}` is missing")))
        };
        names.iter().map(given).collect()
    }

    /// Runs the network, and calls `watch` with the name and the value of every floating tensor that a node makes.
    pub(super) fn run(&self, inputs: &[Tensor], watch: Option<Watch<'_>>) -> Result<Vec<Tensor>> {
        if inputs.len() != self.inputs.len() {
            let names: Vec<&str> = self.inputs().collect();
            return Err(Error::shape(format!(
                "takes {} inputs ({}), got {}",
                names.len(),
                names.join(", "),
                inputs.len()
            )));
        }
        let pairs = self.inputs.iter().zip(inputs);
        let values = pairs.map(|(input, x)| input.value(x)).collect::<Result<Vec<Value>>>()?;
        let runner = Runner { weights: &self.weights, watch };
        let made = runner.body(&self.body, values, None).map_err(|error| self.of_batch(error, inputs))?;
        let tensor = |(value, name): (Value, &String)| match value {
            Value::One(item) => Ok(item.x),
            Value::Many(_) => {
                Err(Error::unsupported(format!("the output `{name}` is a sequence; only tensors can be returned")))
            }
            Value::Absent => Err(Error::unsupported(format!("the output `{name}` is an empty optional value"))),
        };
        made.into_iter().zip(&self.outputs).map(tensor).collect()
    }

    /// Adds the declared batch to the error of a call with another one.
    fn of_batch(&self, error: Error, inputs: &[Tensor]) -> Error {
        let other = self.inputs.iter().zip(inputs).find_map(|(input, x)| {
            let (declared, met) = (input.batch?, *x.shape().first()?);
            (declared != met)
                .then(|| format!("the model declares a batch of {declared} for `{}`, got {met}", input.name))
        });
        other.into_iter().fold(error, Error::context)
    }

    /// Runs the network, and calls `each` with what its nodes make.
    pub(super) fn observed(&self, inputs: &[Tensor], each: &mut dyn FnMut(&str, &Tensor)) -> Result<Vec<Tensor>> {
        let each = RefCell::new(each);
        self.run(inputs, Some(&|name, x| each.borrow_mut()(name, x)))
    }
}

/// Describes a name that the model does not have.
pub(super) fn unknown(what: &str, name: &str, allowed: &[String]) -> Error {
    let near = did_you_mean(name, allowed.iter().map(String::as_str));
    let allowed = if allowed.is_empty() { "none".into() } else { allowed.join(", ") };
    Error::value(format!("the model has no {what} `{name}`{near}; allowed: {allowed}"))
}

impl Input {
    /// Returns the shape of one example, without the first axis, where all other lengths are known.
    fn example(&self) -> Option<Vec<usize>> {
        self.axes.as_ref()?.split_first()?.1.iter().map(|(_, length)| *length).collect()
    }

    fn value(&self, x: &Tensor) -> Result<Value> {
        let wrong = |words: String| Error::shape(format!("input `{}`: {words}", self.name));
        if let Some(axes) = &self.axes {
            let lengths = axes.iter().map(|(_, length)| *length);
            if axes.len() != x.rank() {
                return Err(wrong(format!("it has {} axes, got {:?}", axes.len(), x.shape())));
            }
            for (place, ((name, _), (length, met))) in axes.iter().zip(lengths.zip(x.shape())).enumerate() {
                let Some(length) = length.filter(|length| length != met) else { continue };
                return Err(wrong(match &name[..] {
                    "" => format!("its axis {place} has the length {length}, got {met}"),
                    name => format!("its axis `{name}` is fixed to {length}, got {met}"),
                }));
            }
        }
        let elem = self.elem.unwrap_or_else(|| schema::elem(x.dtype()));
        let declared = super::value::dtype_of(elem).map_err(|e| e.context(format!("input `{}`", self.name)))?;
        let x = match (x.dtype(), declared) {
            (met, declared) if met == declared => x.clone(),
            // In a region of a low dtype, the input is rounded already.
            (met, declared) if met.is_low() && declared.is_float() => x.clone(),
            (met, declared) if met.is_float() && declared.is_float() => x.cast(declared),
            (met, _) => {
                let message = format!("input `{}` is of {elem}, got {}", self.name, met.long_name());
                return Err(Error::dtype(message));
            }
        };
        Ok(Item::computed(x, elem).into())
    }
}

impl OnnxNetwork {
    /// Returns the network as a model, with the shape and the dtype of one example where the network has one input and
    /// declares its lengths. The first axis is that of the batch.
    pub fn into_model(net: Child<OnnxNetwork>) -> Model {
        let only = match &net.cell().inputs[..] {
            [input] => input.example().zip(Some(input.elem)),
            _ => None,
        };
        let model = Model::new(net);
        match only {
            Some((shape, Some(elem))) if super::value::dtype_of(elem).is_ok_and(|dtype| dtype == DType::I64) => {
                model.input(shape).of_indices()
            }
            Some((shape, _)) => model.input(shape),
            None => model,
        }
    }
}

impl Forward for OnnxNetwork {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut outputs = self.run(std::slice::from_ref(x), None)?;
        match outputs.len() {
            1 => Ok(outputs.swap_remove(0)),
            n => Err(Error::shape(format!("the model has {n} outputs; call it with `call_many`"))),
        }
    }

    fn forward_many(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.run(inputs, None)
    }
}
