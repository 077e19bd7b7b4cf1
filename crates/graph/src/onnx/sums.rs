//! Sums that 16 bits do not hold: those of squares, those by scattering, and those that a loop carries.

use super::{
    import::numbers,
    keep::{Carried, Keep, Then},
    tensor::Elem,
    types::edges,
    values::{Origin, Placed},
};
use precast::policy::GraphList;

/// Rounds of a loop that adds few terms.
const FEW: f64 = 16.0;

/// Sums and roots, which make squares small again.
const SINKS: [&str; 10] = [
    "AveragePool",
    "CumSum",
    "GlobalAveragePool",
    "Log",
    "Pow",
    "ReduceL1",
    "ReduceLogSum",
    "ReduceMean",
    "ReduceSum",
    "Sqrt",
];

/// The way of a value to sums and roots.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// A reader leads to one.
    any: bool,
    /// All readers do.
    all: bool,
    /// A reader leads to a root.
    root: bool,
}

impl Keep<'_> {
    /// Keeps squares, and products of two activations, that go into a sum or a root: squares of numbers above 255 are
    /// beyond float16, also where the root is in range.
    pub fn squares(&mut self) {
        let into = self.ways();
        let values = self.values;
        let mut squares = vec![false; values.values.len()];
        for (index, placed) in values.nodes.iter().enumerate() {
            let Some(output) = placed.outputs.first().copied().flatten() else { continue };
            let Way { any, all, root } = into[output];
            let op = own(placed);
            let because = if self.is_square(placed) && (op == "Mul" && any || root) {
                "makes squares that are added up or go into a root"
            } else if op == "Mul" && all && self.are_activations(placed) {
                "makes products that are only added up or go into a root"
            } else if placed.inputs.iter().flatten().any(|&value| squares[value])
                && (self.is_sink(placed) || any && self.is_step(index))
            {
                "reads squares"
            } else {
                continue;
            };
            squares[output] = !self.is_sink(placed);
            self.node(index, Then::Listed, || because.into());
        }
    }

    /// Returns the way of each value.
    fn ways(&self) -> Vec<Way> {
        let values = self.values;
        let mut into: Vec<Option<Way>> = vec![None; values.values.len()];
        let nowhere = |into: &mut Vec<Option<Way>>, value: usize| {
            into[value] = Some(Way { all: false, ..into[value].unwrap_or_default() });
        };
        for &output in values.scopes.iter().flat_map(|scope| &scope.outputs) {
            nowhere(&mut into, output);
        }
        for (index, placed) in values.nodes.iter().enumerate().rev() {
            let made = placed.outputs.first().copied().flatten().and_then(|output| into[output]).unwrap_or_default();
            let op = own(placed);
            let of = match self.is_sink(placed) {
                // A product with weights makes a mean of squares, but most often is a layer.
                true => Way { any: true, all: SINKS.contains(&op), root: ["Pow", "Sqrt"].contains(&op) },
                false if self.is_step(index) => made,
                false => Way::default(),
            };
            for &value in placed.inputs.iter().flatten() {
                let known = into[value].unwrap_or(Way { all: true, ..Way::default() });
                into[value] =
                    Some(Way { any: known.any || of.any, all: known.all && of.all, root: known.root || of.root });
            }
        }
        into.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Returns whether a node is a sum, a root, or a product with weights that are no less than 0, which is a sum.
    fn is_sink(&self, placed: &Placed<'_>) -> bool {
        let is_weight = |value: &usize| self.facts.constants.get(value).is_some_and(|known| !known.negative);
        match own(placed) {
            "Conv" | "Gemm" | "MatMul" => placed.inputs.iter().take(2).flatten().any(is_weight),
            op => SINKS.contains(&op),
        }
    }

    /// Returns whether a node moves or adds numbers, or multiplies them by a constant.
    fn is_step(&self, index: usize) -> bool {
        let placed = &self.values.nodes[index];
        let constant = || placed.inputs.iter().flatten().any(|&value| self.facts.fact(value).constant);
        match own(placed) {
            "Add" | "Sub" | "Sum" | "Mean" => true,
            "Mul" | "Div" => constant(),
            "" => false,
            _ => self.facts.moves[index] == Some(GraphList::Clear),
        }
    }

    /// Returns whether a product has one value as both operands.
    fn is_square(&self, placed: &Placed<'_>) -> bool {
        match (own(placed), &placed.inputs[..]) {
            ("Mul" | "MatMul" | "Einsum", &[Some(a), Some(b)]) => {
                self.facts.source(a) == self.facts.source(b) && !self.facts.fact(a).constant
            }
            _ => false,
        }
    }

    /// Returns whether neither factor is a constant, a mask or a gate.
    fn are_activations(&self, placed: &Placed<'_>) -> bool {
        placed.inputs.iter().flatten().all(|&value| {
            let fact = self.facts.fact(value);
            !fact.constant && !fact.bounded && !fact.whole
        })
    }

    /// Keeps sums by scattering, and states of `Loop` and `Scan` that their bodies add to.
    pub fn sums(&mut self) {
        let values = self.values;
        for (index, placed) in values.nodes.iter().enumerate() {
            if ["ScatterElements", "ScatterND"].contains(&own(placed)) {
                let reduction = values.model.text(placed.node, "reduction").ok().flatten();
                if matches!(reduction.as_deref(), Some("add" | "mul")) {
                    self.node(index, Then::Denied, || "adds by scattering".into());
                }
            }
            if self.is_short(placed) {
                continue;
            }
            for edge in edges(values, placed).into_iter().filter(|edge| edge.carried) {
                let (Some(from), Some(to)) = (edge.body_in, edge.body_out) else { continue };
                let Some(products) = self.adds(from, to).filter(|_| self.elems[from] == Elem::F32) else { continue };
                let states = [Some(from), edge.outside_out].into_iter().flatten();
                self.carried.extend(states.map(|value| (value, Carried::Sum)));
                for product in products {
                    self.node(product, Then::Free, || "adds to a running sum".into());
                }
            }
        }
    }

    /// Returns whether a loop has a few rounds: so many terms are added in 16 bits by any chain of nodes.
    fn is_short(&self, placed: &Placed<'_>) -> bool {
        let count = placed.inputs.first().copied().flatten().filter(|_| own(placed) == "Loop");
        let count = count.and_then(|value| numbers(self.values.model, self.values.tensor(value)?).ok());
        count.is_some_and(|count| count.to_f64().first().is_some_and(|count| *count <= FEW))
    }

    /// Returns the products that add their last operand, if a value is the sum of another one and something.
    fn adds(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let (mut pending, mut products) = (vec![(to, false)], Vec::new());
        let mut entered = std::collections::HashSet::new();
        while let Some((value, added)) = pending.pop() {
            if value == from && added {
                return Some(products);
            }
            if !entered.insert((value, added)) {
                continue;
            }
            let sources = self.facts.inside.get(&value).filter(|_| value != from);
            pending.extend(sources.into_iter().flatten().map(|&source| (source, added)));
            let Origin::Node { node } = self.values.values[value].origin else { continue };
            let placed = &self.values.nodes[node];
            let inputs = || placed.inputs.iter().flatten().copied();
            let terms = match own(placed) {
                "Add" | "Sub" | "Sum" | "Mean" => inputs().map(|term| (term, true)).collect(),
                "Gemm" => {
                    products.push(node);
                    placed.inputs.get(2).copied().flatten().map(|term| (term, true)).into_iter().collect()
                }
                "Mul" | "Div" if inputs().any(|value| self.facts.fact(value).constant) => {
                    inputs().map(|factor| (factor, added)).collect()
                }
                _ if self.facts.moves[node] == Some(GraphList::Clear) => {
                    inputs().map(|moved| (moved, added)).collect::<Vec<_>>()
                }
                _ => continue,
            };
            pending.extend(terms);
        }
        None
    }
}

/// Returns the op of a node of the default domain; an empty text for another one.
fn own<'a>(placed: &Placed<'a>) -> &'a str {
    if placed.node.domain.is_empty() { &placed.node.op } else { "" }
}
