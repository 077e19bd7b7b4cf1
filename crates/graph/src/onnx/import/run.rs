//! The run of a model, node by node.

use std::collections::HashMap;

use super::{
    params::Weights,
    step::{Action, Body, Call, Place, Run, Step},
    value::{Item, Value},
};
use precast::{
    Tensor,
    cell::Part,
    error::{Error, Result},
    precision::Frame,
    precision::enter,
    recording::{self, hidden},
};

/// A receiver of the values that nodes make.
pub(super) type Watch<'a> = &'a dyn Fn(&str, &Tensor);

/// The names that a body can read.
pub(super) struct Names<'a> {
    outer: Option<&'a Names<'a>>,
    values: HashMap<&'a str, Value>,
}

impl Names<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).or_else(|| self.outer.and_then(|outer| outer.get(name)))
    }
}

/// A run of a network, or of a part of it at import.
pub(super) struct Runner<'a> {
    pub weights: &'a Weights,
    pub watch: Option<Watch<'a>>,
}

impl<'a> Runner<'a> {
    /// Runs a body with values for its inputs. `outer` has the names around it.
    pub fn body(&self, body: &'a Body, inputs: Vec<Value>, outer: Option<&Names<'_>>) -> Result<Vec<Value>> {
        if inputs.len() > body.inputs.len() {
            return Err(Error::value(format!("a graph of {} inputs is given {}", body.inputs.len(), inputs.len())));
        }
        let mut names = Names { outer, values: HashMap::new() };
        for (name, item) in &body.constants {
            names.values.insert(name, item.clone().into());
        }
        for (name, place) in &body.params {
            names.values.insert(name, self.param(*place).into());
        }
        // Inputs that the caller leaves out are absent.
        let given = inputs.into_iter().chain(std::iter::repeat(Value::Absent));
        names.values.extend(body.inputs.iter().map(String::as_str).zip(given));
        for step in &body.steps {
            let made = self.step(step, &names).map_err(|e| step.at(e))?;
            self.keep(step, made, &mut names.values).map_err(|e| step.at(e))?;
        }
        let output = |name: &String| {
            let missing = || Error::model(format!("no node makes the output `{name}`"));
            names.get(name).cloned().ok_or_else(missing)
        };
        body.outputs.iter().map(output).collect()
    }

    /// Stores the results of a node under their names.
    fn keep<'b>(&self, step: &'b Step, made: Vec<Value>, values: &mut HashMap<&'b str, Value>) -> Result<()> {
        let count = made.len();
        let mut made = made.into_iter();
        for (index, name) in step.outputs.iter().enumerate() {
            let value = match made.next() {
                Some(value) => value,
                None if name.is_empty() => continue,
                None => {
                    return Err(Error::unsupported(format!(
                        "its output {index} (`{name}`) cannot be computed; it has {count} here"
                    )));
                }
            };
            if name.is_empty() {
                continue;
            }
            if let Some(watch) = self.watch {
                value.each(&mut |item| {
                    if item.is_float() {
                        watch(name, &item.x);
                    }
                });
            }
            values.insert(name, value);
        }
        step.last.iter().for_each(|name| _ = values.remove(&name[..]));
        Ok(())
    }

    fn param(&self, place: Place) -> Item {
        let (param, elem) = self.weights.param(place);
        Item::computed(param.tensor(), elem)
    }

    /// Returns the results of a node.
    pub fn step(&self, step: &'a Step, names: &Names<'_>) -> Result<Vec<Value>> {
        let value = |name: &String| match &name[..] {
            "" => Ok(Value::Absent),
            name => names.get(name).cloned().ok_or_else(|| {
                Error::model(format!(
                    "reads `{name}`, which is not an input, no initialiser, and not made by a node before it"
                ))
            }),
        };
        let inputs = step.inputs.iter().map(value).collect::<Result<Vec<Value>>>()?;
        let call = Call { step, inputs };
        match &step.action {
            Action::Op(run) => match &step.cell {
                Some((cell, params)) => self.in_cell(call, *run, *cell, params),
                None if call.inputs.iter().all(Value::is_known) => {
                    Ok(hidden(|| run(&call))?.into_iter().map(Value::into_known).collect())
                }
                None => {
                    let _wide = step.wide.then(|| enter(Frame::Off));
                    run(&call)
                }
            },
            Action::If => self.choose(&call, names),
            Action::Branch(body) => self.body(body, vec![], Some(names)),
            Action::Function(body) => self.body(body, call.inputs, None),
            Action::Loop => self.repeat(&call, names),
            Action::Scan => self.scan(&call, names),
            Action::Map => self.map(&call, names),
            Action::Refused(why) => Err(Error::unsupported(why)),
        }
    }

    /// Runs a node through the slot of its cell, whose adapter casts the inputs that are not parameters.
    fn in_cell(&self, call: Call<'_>, run: Run, cell: usize, params: &[usize]) -> Result<Vec<Value>> {
        let Call { step, inputs } = call;
        let cast = |index: &usize| match &inputs[*index] {
            Value::One(item) if item.is_float() && !params.contains(index) => Some(item.x.clone()),
            _ => None,
        };
        let places: Vec<usize> = (0..inputs.len()).filter(|index| cast(index).is_some()).collect();
        let given: Vec<Tensor> = (0..inputs.len()).filter_map(|index| cast(&index)).collect();
        let mut made = Vec::new();
        let outputs = self.weights.cell(cell).with(given, |cell, given| {
            let mut inputs = inputs;
            for (index, x) in places.iter().zip(given) {
                if let Value::One(item) = &mut inputs[*index] {
                    item.x = x;
                }
            }
            let mut own = params.iter();
            cell.visit(&mut |_, part| {
                if let (Part::Param(param), Some(index)) = (part, own.next())
                    && let Some(Value::One(item)) = inputs.get_mut(*index)
                {
                    item.x = param.tensor();
                }
            });
            made = run(&Call { step, inputs })?;
            let mut outputs = Vec::new();
            made.iter().for_each(|value| value.each(&mut |item| outputs.push(item.x.clone())));
            Ok(outputs)
        })?;
        let mut outputs = outputs.into_iter();
        Ok(made.into_iter().map(|value| value.refilled(&mut outputs)).collect())
    }
}

/// Returns a condition.
pub(super) fn truth(call: &Call<'_>, index: usize) -> Result<bool> {
    let item = call.item(index)?;
    if !item.known && recording::is_on() {
        let name = &call.step.inputs[index];
        return Err(Error::unsupported(format!(
            "its condition `{name}` depends on the inputs, and a graph has no numbers before it runs; fix the input that decides it"
        )));
    }
    match item.x.to_f64()[..] {
        [number] => Ok(number != 0.0),
        ref numbers => Err(Error::shape(format!("its condition has {} numbers; expected 1", numbers.len()))),
    }
}
