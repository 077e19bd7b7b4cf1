//! The choice of the constants of a model that are parameters, and of the nodes that become cells.

use std::collections::{HashMap, HashSet};

use super::{
    params::{Named, Weights, cell_of},
    step::{Action, Body, Place, Step},
    value::Item,
};
use precast::{
    Param, Tensor,
    error::{Error, Result},
};

/// The largest number of float16.
const BEYOND: f64 = 65504.0;

/// Returns the inputs of an op that are weights. Running statistics are among them.
fn weights_of(op: &str) -> &'static [usize] {
    match op {
        "MatMul" => &[0, 1],
        "Gemm" | "Conv" | "ConvTranspose" | "LayerNormalization" | "InstanceNormalization" | "GroupNormalization" => {
            &[1, 2]
        }
        "BatchNormalization" => &[1, 2, 3, 4],
        "RMSNormalization" | "PRelu" => &[1],
        "LSTM" | "GRU" | "RNN" => &[1, 2, 3],
        "Gather" => &[0],
        _ => &[],
    }
}

/// Returns the inputs of an op that are settings, such as the scales of a resizing.
fn settings_of(op: &str) -> &'static [usize] {
    match op {
        "Resize" => &[1, 2, 3],
        "Upsample" => &[1],
        "Clip" | "Dropout" | "Range" => &[0, 1, 2],
        "Pad" | "OneHot" => &[1, 2],
        "QuantizeLinear" | "DequantizeLinear" => &[0, 1, 2],
        "ConstantOfShape" | "Tile" => &[0, 1],
        _ => &[],
    }
}

/// Returns whether an op only changes the shape of its first input.
fn is_view(op: &str) -> bool {
    matches!(op, "Transpose" | "Reshape" | "Identity" | "Squeeze" | "Unsqueeze" | "Flatten" | "Cast")
}

/// The readers of a constant.
#[derive(Clone, Copy, Default)]
struct Readers {
    weight: bool,
    other: bool,
}

/// The constants that a body can read, by name, with their numbers in the order of the walk.
#[derive(Clone, Default)]
struct Scope(HashMap<String, usize>);

/// A constant that is a parameter.
pub(super) struct Weight {
    name: String,
    item: Item,
    param: Param,
}

/// Makes parameters of the constants that are weights: floating initialisers of more than one number, and all that a
/// product, a convolution, a norm, a table or a recurrent layer reads as its weight.
pub(super) fn choose(body: &mut Body) -> Vec<Weight> {
    let mut readers = Vec::new();
    read(body, &Scope::default(), &[], &mut readers);
    let (mut next, mut weights) = (0, Vec::new());
    take(body, &readers, &mut next, &mut weights);
    weights
}

/// Notes the readers of every constant.
fn read(body: &Body, outer: &Scope, given: &[(String, usize)], readers: &mut Vec<Readers>) {
    let mut scope = outer.clone();
    for input in &body.inputs {
        scope.0.remove(input);
    }
    for (name, _) in &body.constants {
        scope.0.insert(name.clone(), readers.len());
        readers.push(Readers::default());
    }
    scope.0.extend(given.iter().cloned());
    for step in &body.steps {
        let known = |name: &String| scope.0.get(name).copied();
        if is_view(&step.op) && matches!(step.action, Action::Op(_)) {
            match (step.inputs.first().and_then(known), step.outputs.first()) {
                (Some(of), Some(output)) => _ = scope.0.insert(output.clone(), of),
                (None, Some(output)) => _ = scope.0.remove(output),
                _ => {}
            }
            continue;
        }
        if !matches!(step.action, Action::Function(_)) {
            for (index, name) in step.inputs.iter().enumerate() {
                let Some(id) = known(name) else { continue };
                if weights_of(&step.op).contains(&index) {
                    readers[id].weight = true;
                } else if !settings_of(&step.op).contains(&index) {
                    readers[id].other = true;
                }
            }
        }
        for inner in step.bodies() {
            match &step.action {
                Action::Function(_) => {
                    let pairs = inner.inputs.iter().zip(&step.inputs);
                    let given: Vec<_> = pairs.filter_map(|(inner, name)| Some((inner.clone(), known(name)?))).collect();
                    read(inner, &Scope::default(), &given, readers);
                }
                _ => read(inner, &scope, &[], readers),
            }
        }
        for output in &step.outputs {
            scope.0.remove(output);
        }
    }
    for output in &body.outputs {
        if let Some(id) = scope.0.get(output) {
            readers[*id].other = true;
        }
    }
}

/// Moves the parameters out of the constants, in the order of [`read`].
fn take(body: &mut Body, readers: &[Readers], next: &mut usize, weights: &mut Vec<Weight>) {
    let Body { constants, params: own, initialisers, .. } = body;
    constants.retain(|(name, item)| {
        let Readers { weight, other } = readers[*next];
        *next += 1;
        let many = item.x.len() > 1;
        let is_weight =
            weight && item.x.rank() > 0 || other && many && initialisers.contains(name) && !is_mask(&item.x);
        let is_param = is_weight && item.is_float() && item.x.all_finite() && !item.x.is_empty();
        if is_param {
            own.push((name.clone(), Place::Own(weights.len())));
            weights.push(Weight { name: name.clone(), item: item.clone(), param: Param::new(item.x.clone()) });
        }
        !is_param
    });
    for step in &mut body.steps {
        step.bodies_mut().for_each(|inner| take(inner, readers, next, weights));
    }
}

/// Returns whether a tensor has numbers that no weight has: those that hide elements from a softmax.
fn is_mask(x: &Tensor) -> bool {
    x.dtype().is_float() && x.to_f64().iter().any(|number| number.abs() > BEYOND)
}

/// Notes the nodes that read a constant beyond the range of float16. It would be infinite in a low region, and its
/// products with 0 no numbers, so that they run in float32.
pub(super) fn note_wide(body: &mut Body, outer: &HashSet<String>) {
    let mut wide = outer.clone();
    let beyond = |x: &Tensor| x.dtype().is_float() && x.to_f64().iter().any(|n| n.is_finite() && n.abs() > BEYOND);
    wide.extend(body.constants.iter().filter(|(_, item)| beyond(&item.x)).map(|(name, _)| name.clone()));
    for step in &mut body.steps {
        step.wide = step.inputs.iter().any(|name| wide.contains(name));
        step.bodies_mut().for_each(|inner| note_wide(inner, &wide));
    }
}

/// Makes cells of the nodes with weights, and returns all parameters that a node reads, with their paths.
pub(super) fn arrange(body: &mut Body, all: Vec<Weight>) -> Result<Weights> {
    let mut arranged = Arranged { all, ..Arranged::default() };
    arranged.cells(body, &Scope::default(), &[])?;
    arranged.place(body, &mut HashMap::new(), &mut HashSet::new());
    Ok(arranged.weights)
}

#[derive(Default)]
struct Arranged {
    all: Vec<Weight>,
    weights: Weights,
    paths: HashSet<String>,
    /// The first cell that has a parameter.
    holder: HashMap<usize, (usize, usize)>,
    read: HashSet<usize>,
}

impl Arranged {
    fn cells(&mut self, body: &mut Body, outer: &Scope, given: &[(String, usize)]) -> Result<()> {
        let mut scope = outer.clone();
        body.inputs.iter().chain(body.constants.iter().map(|(name, _)| name)).for_each(|name| _ = scope.0.remove(name));
        for (name, place) in &body.params {
            if let Place::Own(id) = place {
                scope.0.insert(name.clone(), *id);
            }
        }
        scope.0.extend(given.iter().cloned());
        for step in &mut body.steps {
            let ids: Vec<Option<usize>> = step.inputs.iter().map(|name| scope.0.get(name).copied()).collect();
            self.read.extend(ids.iter().flatten());
            self.cell(step, &ids)?;
            let is_function = matches!(step.action, Action::Function(_));
            let names = step.inputs.clone();
            for inner in step.bodies_mut() {
                if is_function {
                    let pairs = inner.inputs.iter().zip(&names);
                    let given: Vec<_> =
                        pairs.filter_map(|(inner, name)| Some((inner.clone(), *scope.0.get(name)?))).collect();
                    self.cells(inner, &Scope::default(), &given)?;
                } else {
                    self.cells(inner, &scope, &[])?;
                }
            }
            step.outputs.iter().for_each(|name| _ = scope.0.remove(name));
        }
        self.read.extend(body.outputs.iter().filter_map(|name| scope.0.get(name)));
        Ok(())
    }

    /// Makes a cell of a node that reads parameters as its weights.
    fn cell(&mut self, step: &mut Step, ids: &[Option<usize>]) -> Result<()> {
        let slots = weights_of(&step.op).iter().filter_map(|index| Some((*index, (*ids.get(*index)?)?)));
        let slots: Vec<(usize, usize)> = slots.collect();
        let Some((_, first)) = slots.first() else { return Ok(()) };
        let Some(kind) = kind(&step.op, &self.all[*first].item.x) else { return Ok(()) };
        let path = self.path(step, &slots);
        let mut named = Named::default();
        for (index, id) in &slots {
            if step.op == "BatchNormalization" && *index > 2 && self.all[*id].param.is_trained() {
                self.all[*id].param = Param::buffer(self.all[*id].item.x.clone());
            }
            let name = &self.all[*id].name;
            let within = name.strip_prefix(&path[..]).and_then(|rest| rest.strip_prefix('.'));
            named.0.push((within.unwrap_or(name).to_string(), self.all[*id].param.clone()));
        }
        let number = self.weights.cells.len();
        for (place, (_, id)) in slots.iter().enumerate() {
            self.holder.entry(*id).or_insert((number, place));
        }
        let elems = slots.iter().map(|(_, id)| self.all[*id].item.elem).collect();
        let cell = cell_of(kind, named).ok_or_else(|| Error::value(format!("there is no cell of the kind {kind}")))?;
        self.weights.cells.push((path, cell));
        self.weights.cell_elems.push(elems);
        step.cell = Some((number, slots.iter().map(|(index, _)| *index).collect()));
        Ok(())
    }

    /// Returns a path that no other cell has: that of its parameters, of its scope, or its name.
    fn path(&mut self, step: &Step, slots: &[(usize, usize)]) -> String {
        let of_params = slots.iter().find_map(|(_, id)| self.all[*id].name.rsplit_once('.').map(|(path, _)| path));
        let (scope, last) = place_of(step);
        let path = match of_params {
            Some(path) if !path.is_empty() => path.to_string(),
            _ if !scope.is_empty() => scope.clone(),
            _ => last.clone(),
        };
        let longer = if scope.is_empty() { last } else { format!("{scope}.{last}") };
        let numbered = (2..).map(|number| format!("{longer}_{number}"));
        let mut candidates = [path, longer.clone()].into_iter().chain(numbered);
        let path = candidates.find(|path| !self.paths.contains(path)).expect("numbers do not end");
        self.paths.insert(path.clone());
        path
    }

    /// Gives every parameter its place, and drops those that nothing reads.
    fn place(&mut self, body: &mut Body, own: &mut HashMap<usize, usize>, names: &mut HashSet<String>) {
        let params = std::mem::take(&mut body.params);
        for (name, place) in params {
            let Place::Own(id) = place else { continue };
            if !self.read.contains(&id) {
                continue;
            }
            let place = match self.holder.get(&id) {
                Some((cell, index)) => Place::Cell(*cell, *index),
                None => {
                    let weights = &mut self.weights;
                    let index = *own.entry(id).or_insert_with(|| {
                        let numbered = (2..).map(|number| format!("{name}_{number}"));
                        let unique = std::iter::once(name.clone()).chain(numbered);
                        let unique = unique.into_iter().find(|name| !names.contains(name)).expect("numbers do not end");
                        names.insert(unique.clone());
                        weights.own.0.push((unique, self.all[id].param.clone()));
                        weights.elems.push(self.all[id].item.elem);
                        weights.elems.len() - 1
                    });
                    Place::Own(index)
                }
            };
            body.params.push((name, place));
        }
        let mut steps = std::mem::take(&mut body.steps);
        steps.iter_mut().flat_map(Step::bodies_mut).for_each(|inner| self.place(inner, own, names));
        body.steps = steps;
    }
}

/// Returns the kind of the cell of an op with this weight.
fn kind(op: &str, weight: &Tensor) -> Option<&'static str> {
    Some(match (op, weight.rank()) {
        ("MatMul" | "Gemm", _) => "Dense",
        ("Conv", 3) => "Conv1d",
        ("Conv", 4) => "Conv2d",
        ("Conv", 5) => "Conv3d",
        ("ConvTranspose", 3) => "Conv1dTranspose",
        ("ConvTranspose", 4) => "Conv2dTranspose",
        ("ConvTranspose", 5) => "Conv3dTranspose",
        ("BatchNormalization", _) => "BatchNorm2d",
        ("LayerNormalization", _) => "LayerNorm",
        ("GroupNormalization", _) => "GroupNorm",
        ("InstanceNormalization", _) => "InstanceNorm2d",
        ("RMSNormalization", _) => "RmsNorm",
        ("Gather", 2) => "Embedding",
        ("PRelu", _) => "PReLU",
        ("LSTM", _) => "LSTM",
        ("GRU", _) => "GRU",
        ("RNN", _) => "RNN",
        _ => return None,
    })
}

/// Returns the path of a node's scope and its own name: `/l/l.0/q/MatMul` is `MatMul` in `l.0.q`.
fn place_of(step: &Step) -> (String, String) {
    let clean = |text: &str| text.trim_matches('.').to_string();
    let mut parts: Vec<String> = Vec::new();
    let mut segments: Vec<&str> = step.name.split('/').filter(|segment| !segment.is_empty()).collect();
    let last = segments.pop().map_or_else(|| step.label.clone(), str::to_string);
    for segment in segments {
        // torch repeats the name of a list before the index: `/l/l.0`.
        match parts.last() {
            Some(before) if segment.strip_prefix(&before[..]).is_some_and(|rest| rest.starts_with('.')) => {
                parts.pop();
            }
            _ => {}
        }
        parts.push(clean(segment));
    }
    let scope = if step.scope.is_empty() { parts.join(".") } else { clean(&step.scope) };
    (scope, if last.is_empty() { step.op.clone() } else { last })
}
