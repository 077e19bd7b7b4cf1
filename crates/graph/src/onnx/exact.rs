//! Numbers that must be exact: indices, lengths and conditions, the positions behind angles, and what is left to 1.

use std::collections::HashSet;

use super::{
    fact::{Fact, One},
    facts::Facts,
    keep::{Carried, Keep, Kept, Then},
    schema::Kind,
    tensor::Elem,
    values::{Origin, Placed, Values},
};
use precast::policy::GraphList;

/// Steps of which any chain of nodes in 16 bits keeps the sum.
const FEW_STEPS: u32 = 16;

impl Keep<'_> {
    /// Keeps the nodes that lead to an index, a length or a condition. A product of numbers that are not integers stops the
    /// search.
    pub fn exact(&mut self) {
        // The value to look at, and the node for whose sake.
        let mut pending: Vec<(usize, usize)> = Vec::new();
        let mut entered = vec![false; self.values.values.len()];
        for (index, placed) in self.values.nodes.iter().enumerate() {
            pending.extend(roots(self.values, placed, self.elems).into_iter().map(|value| (value, index)));
        }
        while let Some((value, root)) = pending.pop() {
            if std::mem::replace(&mut entered[value], true) {
                continue;
            }
            if let Some(sources) = self.facts.inside.get(&value) {
                self.carried.insert(value, Carried::Exact);
                pending.extend(sources.iter().map(|&from| (from, root)));
            }
            let Origin::Node { node } = self.values.values[value].origin else { continue };
            let placed = &self.values.nodes[node];
            let is_product = self.facts.moves[node] == Some(GraphList::Allow);
            if is_product && !self.facts.fact(value).whole || placed.schema.is_none() || !placed.bodies.is_empty() {
                continue;
            }
            // A shape does not depend on numbers.
            if ["Shape", "Size"].contains(&placed.op()) {
                continue;
            }
            if placed.inputs.iter().chain(&placed.outputs).flatten().any(|&value| self.elems[value] == Elem::F32) {
                let of = &self.values.nodes[root].node;
                let because = format!("leads to {}", aim(of.label(), &of.op));
                self.nodes.entry(node).or_insert(Kept { because, then: Then::Free });
            }
            pending.extend(placed.inputs.iter().flatten().map(|&value| (value, root)));
        }
    }

    /// Keeps the nodes between positions or times and an angle or a remainder, of which 16 bits hold a few digits before
    /// the point.
    pub fn angles(&mut self) {
        let mut entered = vec![false; self.values.values.len()];
        for (index, placed) in self.values.nodes.iter().enumerate() {
            let read = || placed.inputs.iter().flatten().copied();
            let makes = match placed.op() {
                "Sin" | "Cos" | "Tan" => "angles",
                "Mod" => "remainders",
                "Sub" if self.is_fraction(placed) => "remainders",
                _ => continue,
            };
            let is_position = |value: usize| self.facts.fact(value).raw;
            if makes == "remainders" && read().all(is_position) || makes == "angles" && read().any(is_position) {
                self.node(index, Then::Free, || format!("makes {makes} of positions or times"));
            }
            let because = || format!("makes the {makes} of {}", placed.node.label());
            self.behind(read().collect(), &mut entered, &|fact| fact.raw, &because);
        }
    }

    /// Returns whether a difference is that of numbers and the same numbers rounded.
    fn is_fraction(&self, placed: &Placed<'_>) -> bool {
        let [Some(a), Some(b)] = placed.inputs[..] else { return false };
        let is_rounded = |value: usize, of: usize| match self.values.values[value].origin {
            Origin::Node { node } => {
                let maker = &self.values.nodes[node];
                ["Ceil", "Floor", "Round"].contains(&maker.op()) && maker.inputs.first() == Some(&Some(of))
            }
            _ => false,
        };
        is_rounded(a, b) || is_rounded(b, a)
    }

    /// Keeps the nodes that lead to some values, as far back as a fact holds. Values that were entered are left out.
    pub fn behind(
        &mut self,
        pending: Vec<usize>,
        entered: &mut [bool],
        follow: &dyn Fn(&Fact) -> bool,
        because: &dyn Fn() -> String,
    ) {
        let mut enters = |keep: &Self, value: usize| {
            follow(&keep.facts.fact(value)) && !std::mem::replace(&mut entered[value], true)
        };
        self.walk(pending, &mut enters, &|_, _| true, because);
    }

    /// Keeps the nodes that make the values which it enters, and follows the inputs of those that it goes through.
    pub fn walk(
        &mut self,
        mut pending: Vec<usize>,
        enters: &mut dyn FnMut(&Self, usize) -> bool,
        goes_through: &dyn Fn(&Self, usize) -> bool,
        because: &dyn Fn() -> String,
    ) {
        while let Some(value) = pending.pop() {
            if !enters(self, value) {
                continue;
            }
            if let Some(sources) = self.facts.inside.get(&value) {
                self.carried.entry(value).or_insert(Carried::Exact);
                pending.extend(sources);
            }
            let Origin::Node { node } = self.values.values[value].origin else { continue };
            self.node(node, Then::Free, because);
            if goes_through(self, node) {
                pending.extend(self.values.nodes[node].inputs.iter().flatten());
            }
        }
    }

    /// Keeps what makes numbers near 1 and what is left to it, up to where a small error becomes a large one: `p / (1 - p)`,
    /// `log(1 - p)`, `atanh(p)`.
    pub fn complements(&mut self) {
        let mut entered = vec![false; self.values.values.len()];
        for (index, placed) in self.values.nodes.iter().enumerate() {
            let read = |place: usize| placed.input(place);
            let one = |value: usize| self.facts.fact(value).one;
            let left = |place: usize| read(place).filter(|&value| one(value) == Some(One::Complement));
            let near = || read(0).filter(|&value| one(value).is_some());
            let is_constant = |place: usize| read(place).is_some_and(|value| self.facts.fact(value).constant);
            let found = match (placed.op(), self.divisor(placed)) {
                ("Acos" | "Asin" | "Atanh" | "CumProd" | "Log" | "ReduceProd", _) => near(),
                // A high power makes a small error a large one.
                ("Pow", _) if read(1).is_some_and(|value| is_high(&self.facts.fact(value))) => near(),
                ("Div", _) => left(1).or(left(0).filter(|_| !is_constant(1))),
                (_, Some(place)) => left(place),
                _ => None,
            };
            let Some(value) = found else { continue };
            let because = || format!("leads to what is left to 1, which {} reads", placed.node.label());
            self.node(index, Then::Free, || "reads what is left to 1".into());
            self.behind(vec![value], &mut entered, &|fact| fact.one.is_some(), &because);
        }
    }

    /// Keeps functions that end in 0 up to the division or logarithm that reads them: `x / softplus(h)`, `1 / sigmoid(h)`.
    pub fn vanishing(&mut self) {
        for (index, placed) in self.values.nodes.iter().enumerate() {
            let divisor = self.divisor(placed).and_then(|place| placed.input(place));
            let Some(mut value) = divisor else { continue };
            let mut way = vec![index];
            while let Origin::Node { node } = self.values.values[value].origin {
                way.push(node);
                let maker = &self.values.nodes[node];
                let mut moving =
                    maker.inputs.iter().flatten().copied().filter(|&value| !self.facts.fact(value).constant);
                match (maker.op(), moving.next(), moving.next()) {
                    ("Mul" | "Div" | "Sqrt" | "Pow", Some(from), None) => value = from,
                    ("Sigmoid" | "Softplus", ..) => {
                        let because =
                            format!("leads to a division by numbers that end in 0, those of {}", maker.node.label());
                        way.iter().for_each(|&node| self.node(node, Then::Free, || because.clone()));
                        break;
                    }
                    (_, Some(from), None) if self.facts.moves[node] == Some(GraphList::Clear) => value = from,
                    _ => break,
                }
            }
        }
    }

    /// Keeps sums with a term so large that others lose their digits, in front of a softmax, which sees differences alone:
    /// a finite mask that covers a whole row.
    pub fn shifts(&mut self) {
        let mut entered = vec![false; self.values.values.len()];
        for (index, placed) in self.values.nodes.iter().enumerate() {
            let inputs = || placed.inputs.iter().flatten();
            let offset = |value: &usize| {
                self.facts.constants.get(value).is_some_and(|known| known.is_offset(&self.facts.limits))
            };
            let is_moving = |value: &usize| !self.facts.fact(*value).constant;
            if ["Add", "Sub"].contains(&placed.op()) && inputs().any(offset) && inputs().any(is_moving) {
                self.node(index, Then::Denied, || "adds a number that hides the digits of others".into());
            }
            let read = placed.input(0);
            let Some(value) = read.filter(|_| ["LogSoftmax", "Softmax"].contains(&placed.op())) else {
                continue;
            };
            if self.facts.fact(value).shifted {
                let because = || format!("adds a term that hides the digits which {} reads", placed.node.label());
                self.node(index, Then::Free, because);
                self.behind(vec![value], &mut entered, &|fact| fact.shifted, &because);
            }
        }
    }

    /// Keeps long chains of small steps, of which each would be rounded.
    pub fn steps(&mut self) {
        let mut entered = vec![false; self.values.values.len()];
        for value in (0..self.values.values.len()).filter(|&value| self.facts.fact(value).steps > FEW_STEPS) {
            self.behind(vec![value], &mut entered, &|fact| fact.steps > 0, &|| {
                "adds small steps one after the other".into()
            });
        }
    }

    /// Keeps ops that runtimes compute by their function, which in early opsets has no bfloat16: it chooses by `Where`. Keeps
    /// batch norms of products, and what makes the numbers of a layer norm that is written out: onnxruntime makes one op of
    /// each, and then reads two dtypes as one.
    pub fn functions(&mut self) {
        let opset = self.values.model.opset();
        // From here on, ONNX has the op.
        if opset >= 17 {
            self.layer_norms();
        }
        for (index, placed) in self.values.nodes.iter().enumerate() {
            let from = match placed.op() {
                "BatchNormalization" => {
                    let x = placed.input(0).map(|value| self.facts.source(value));
                    let maker = x.map(|value| self.values.values[value].origin);
                    if let Some(Origin::Node { node }) = maker
                        && self.values.nodes[node].op() == "MatMul"
                    {
                        self.node(index, Then::Free, || "is joined with the product before it, in one dtype".into());
                    }
                    continue;
                }
                "Clip" => 16,
                "NegativeLogLikelihoodLoss" | "SoftmaxCrossEntropyLoss" => 19,
                _ => continue,
            };
            if opset < from && self.facts.limits.dtype() == "bfloat16" {
                self.node(index, Then::Free, || format!("has bfloat16 in runtimes from opset {from} on"));
            }
        }
    }

    /// Keeps the makers of numbers that a layer norm reads which is written out: less their mean, squared, and divided, with a
    /// scale and a bias.
    fn layer_norms(&mut self) {
        let values = self.values;
        let made_by = |value: usize, op: &str| match values.values[value].origin {
            Origin::Node { node } => Some(&values.nodes[node]).filter(|placed| placed.op() == op),
            _ => None,
        };
        let of = |op: &'static str| values.nodes.iter().filter(move |placed| placed.op() == op);
        let inputs = |placed: &Placed<'_>| placed.inputs.iter().flatten().copied().collect::<Vec<_>>();
        let squared: HashSet<usize> = of("Pow").filter_map(|placed| placed.input(0)).collect();
        let scaled = of("Add").flat_map(inputs).filter_map(|value| made_by(value, "Mul")).flat_map(inputs);
        let divided = scaled.filter_map(|value| made_by(value, "Div")?.input(0));
        let differences: Vec<usize> = divided.filter(|value| squared.contains(value)).collect();
        for placed in differences.into_iter().filter_map(|value| made_by(value, "Sub")) {
            let &[Some(x), Some(mean)] = &placed.inputs[..] else { continue };
            let is_mean = made_by(mean, "ReduceMean").is_some_and(|mean| mean.input(0) == Some(x));
            if let (true, Origin::Node { node }) = (is_mean, values.values[x].origin) {
                self.node(node, Then::Free, || "is read by a layer norm that is written out, in one dtype".into());
            }
        }
    }

    /// Returns the place of the input that a node divides by, or takes the logarithm of.
    fn divisor(&self, placed: &Placed<'_>) -> Option<usize> {
        let exponent = || placed.input(1);
        match placed.op() {
            "Div" => Some(1),
            "Log" | "Reciprocal" => Some(0),
            "Pow" => self.facts.constants.get(&exponent()?).filter(|known| known.negative).map(|_| 0),
            _ => None,
        }
    }
}

fn is_high(exponent: &Fact) -> bool {
    exponent.constant && exponent.size.0 >= 16.0
}

/// Returns the nodes whose coordinates, boxes or indices come from a low product, with the product and a word for what they read.
pub(super) fn places(
    facts: &Facts<'_>,
    values: &Values<'_>,
    is_low: &dyn Fn(usize) -> bool,
) -> Vec<(usize, usize, &'static str)> {
    let mut found = Vec::new();
    let mut entered = vec![false; values.values.len()];
    for (index, placed) in values.nodes.iter().enumerate() {
        let (what, place) = match placed.op() {
            "GridSample" => ("coordinates", 1),
            "NonMaxSuppression" => ("boxes", 0),
            "MaxRoiPool" | "RoiAlign" => ("boxes", 1),
            "Gather" | "GatherElements" | "GatherND" => ("indices", 1),
            _ => continue,
        };
        let mut pending: Vec<usize> = placed.input(place).into_iter().collect();
        while let Some(value) = pending.pop() {
            if std::mem::replace(&mut entered[value], true) {
                continue;
            }
            pending.extend(facts.inside.get(&value).into_iter().flatten());
            let Origin::Node { node } = values.values[value].origin else { continue };
            let maker = &values.nodes[node];
            match maker.op() {
                // A choice is as good as the numbers that it compares, and a shape does not depend on numbers.
                "ArgMax" | "ArgMin" | "NonMaxSuppression" | "NonZero" | "Shape" | "Size" | "TopK" => {}
                _ if facts.moves[node] == Some(GraphList::Allow) && !facts.fact(value).whole => {
                    if is_low(value) {
                        found.push((index, node, what));
                        break;
                    }
                }
                _ => pending.extend(maker.inputs.iter().flatten()),
            }
        }
    }
    found
}

fn aim(label: &str, op: &str) -> String {
    match op {
        "Cast" => format!("an integer ({label})"),
        "If" | "Loop" => format!("a condition ({label})"),
        "ArgMax" | "ArgMin" | "NonMaxSuppression" | "TopK" => format!("a choice by comparison ({label})"),
        "AffineGrid" | "DeformConv" | "GridSample" | "MaxRoiPool" | "RoiAlign" => {
            format!("places in an image ({label})")
        }
        _ => format!("a length ({label})"),
    }
}

/// Returns the values that must be exact for a node: inputs that become indices or places, and the condition that the body of a loop gives.
pub(super) fn roots(values: &Values<'_>, placed: &Placed<'_>, elems: &[Elem]) -> Vec<usize> {
    let input = |place: usize| placed.input(place);
    match placed.op() {
        "Cast" if placed.outputs.iter().flatten().any(|&output| elems[output].is_int()) => {
            input(0).into_iter().collect()
        }
        "AffineGrid" | "ArgMax" | "ArgMin" | "If" | "NonZero" | "TopK" | "Unique" => input(0).into_iter().collect(),
        "Compress" | "GridSample" | "MaxRoiPool" | "RoiAlign" => input(1).into_iter().collect(),
        "DeformConv" => input(2).into_iter().collect(),
        "NonMaxSuppression" => input(0).into_iter().chain(input(1)).collect(),
        "Loop" => {
            let next = placed.bodies.first().and_then(|(_, body)| values.scopes[*body].outputs.first().copied());
            input(1).into_iter().chain(next).collect()
        }
        "Range" => placed.inputs.iter().flatten().copied().collect(),
        "Resize" | "Upsample" => {
            let fixed = |(place, value): (usize, &Option<usize>)| {
                let port = placed.schema?.input(place)?;
                value.filter(|_| port.kind == Kind::Float32)
            };
            placed.inputs.iter().enumerate().filter_map(fixed).collect()
        }
        _ => Vec::new(),
    }
}
