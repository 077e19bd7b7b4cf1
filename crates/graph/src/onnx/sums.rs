//! Sums that 16 bits do not hold: those of squares, those by scattering, and those that a loop carries, with its products.

use std::collections::{HashMap, HashSet};

use super::{
    fact::{Count, One},
    facts::MANY,
    import::numbers,
    keep::{Carried, Keep, Then},
    tensor::Elem,
    types::edges,
    values::{Origin, Placed},
};
use precast::policy::GraphList;

/// Rounds of a loop that adds few terms.
const FEW: f64 = 16.0;

/// Factors below make squares of numbers beyond 255 small enough for a function to tell them apart.
const SHRINKS: f64 = 1.0 / 64.0;

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
    /// A reader leads to a division by a number of terms, or divides by it.
    share: bool,
}

impl Way {
    /// The way of a value before its readers are known.
    const OPEN: Way = Way { any: false, all: true, root: false, share: false };

    /// Returns the way of a value that has both.
    fn and(self, other: Way) -> Way {
        Way {
            any: self.any || other.any,
            all: self.all && other.all,
            root: self.root || other.root,
            share: self.share || other.share,
        }
    }
}

impl Keep<'_> {
    /// Keeps squares, and products of two activations, that go into a sum or a root: squares of numbers above 255 are
    /// beyond float16, also where the root is in range. Keeps products that add many terms, up to the division by their
    /// number.
    pub fn squares(&mut self) {
        let into = self.ways();
        let values = self.values;
        let is_f16 = self.is_f16();
        let inside = &self.facts.inside;
        let mut squares = vec![false; values.values.len()];
        let mut sums = vec![false; values.values.len()];
        for (index, placed) in values.nodes.iter().enumerate() {
            let Some(output) = placed.output(0) else { continue };
            let Way { any, all, root, share } = into[output];
            let op = placed.op();
            let reads = |held: &[bool]| placed.inputs.iter().flatten().any(|&value| holds(inside, held, value, DEPTH));
            let is_sum = is_f16 && share && self.adds(placed)
                || reads(&sums) && (share && self.is_step(index) || self.divided(placed).is_some());
            if is_sum {
                sums[output] = share;
                self.node(index, Then::Listed, || "adds up what is divided by the number of terms".into());
            }
            let is_sink = self.is_sink(placed) || self.shrinks(placed) || self.is_ratio(index) || self.chooses(placed);
            let because = if self.is_square(placed) && (op == "Mul" && any || root) {
                "makes squares that are added up, or that a root or a factor makes small"
            } else if op == "Mul" && all && self.are_activations(placed) {
                "makes products that are only added up, or that a root or a factor makes small"
            } else if reads(&squares) && (is_sink || any && self.passes(index) || root && is_product(op)) {
                "reads squares"
            } else {
                continue;
            };
            // The mean of squares is as large as they are, up to its root.
            squares[output] = !is_sink || root && !is_root(op);
            self.node(index, Then::Listed, || because.into());
        }
        let handed = inside.keys().filter(|value| holds(inside, &squares, **value, DEPTH));
        for value in handed.copied().collect::<Vec<_>>() {
            self.carried.entry(value).or_insert(Carried::Exact);
        }
    }

    /// Keeps the means of a variance that products with weights make, `E[x²] - E[x]²`: most digits of the two are equal.
    pub fn variances(&mut self) {
        let values = self.values;
        for (index, placed) in
            values.nodes.iter().enumerate().filter(|(_, placed)| ["Add", "Sub"].contains(&placed.op()))
        {
            let [Some(a), Some(b)] = placed.inputs[..] else { continue };
            for (squares, square) in [(a, b), (b, a)] {
                let (Some(mean), Some(square)) = (self.maker(squares), self.maker(square)) else { continue };
                let products = self.factors(square);
                let of_squares = |&value: &usize| self.maker(value).is_some_and(|node| !self.factors(node).is_empty());
                let is_mean = |node: usize| {
                    let op = values.nodes[node].op();
                    (is_product(op) || op == "AveragePool") && self.is_sink(&values.nodes[node])
                };
                let means: Vec<usize> = products.into_iter().filter_map(|value| self.maker(value)).collect();
                // Of known numbers, as the places of a soft argmax, the squares are constants.
                let weights = |node: usize| {
                    values.nodes[node].inputs.iter().flatten().find_map(|&value| {
                        Some(self.facts.source(value)).filter(|&value| !self.facts.fact(value).constant)
                    })
                };
                let is_known = means.iter().all(|&node| {
                    is_product(values.nodes[node].op()) && weights(node).is_some() && weights(node) == weights(mean)
                });
                let is_variance = self.is_sink(&values.nodes[mean])
                    && (values.nodes[mean].inputs.iter().flatten().any(of_squares) || is_known && !means.is_empty())
                    && means.iter().any(|&node| is_mean(node));
                if is_variance {
                    for node in means.into_iter().chain([mean, square, index]) {
                        self.node(node, Then::Denied, || "makes a variance of means".into());
                    }
                }
            }
        }
    }

    /// Keeps distances that squares and products make, `a² + b² - 2ab`, and differences of squares: most digits of near points are
    /// equal.
    pub fn distances(&mut self) {
        for (index, placed) in self.values.nodes.iter().enumerate() {
            let terms = self.summed(index, placed);
            let sides = |node: &usize| -> Vec<usize> {
                let inputs = self.values.nodes[*node].inputs.iter().take(2).flatten();
                inputs.map(|&value| self.facts.source(value)).collect()
            };
            let squares: HashMap<usize, usize> =
                terms.iter().filter_map(|&node| Some((self.squared(node)?, node))).collect();
            let is_both = |node: &&usize| {
                let of = sides(node);
                let known = of.iter().filter(|value| squares.contains_key(value)).count();
                // A product with weights may be of points that are known, whose squares are constants.
                let op = self.values.nodes[**node].op();
                self.squared(**node).is_none()
                    && of.len() == 2
                    && (op == "Mul" && known == 2 || is_product(op) && known > 0)
            };
            let products: Vec<usize> = terms.iter().filter(is_both).copied().collect();
            // `a² - b²` of near numbers.
            let is_difference = placed.op() == "Sub" && terms.len() == 2 && squares.len() == 2;
            if is_difference || !products.is_empty() {
                for node in products.into_iter().chain(squares.into_values()).chain([index]) {
                    self.node(node, Then::Denied, || "makes a distance of squares and products".into());
                }
            }
        }
    }

    /// Returns the nodes that make the terms of a sum of sums, behind constant factors.
    fn summed(&self, index: usize, placed: &Placed<'_>) -> Vec<usize> {
        let is_sum = |node: usize| ["Add", "Sub", "Sum"].contains(&self.values.nodes[node].op());
        let (mut pending, mut terms) = (if is_sum(index) { vec![placed] } else { Vec::new() }, Vec::new());
        while let Some(sum) = pending.pop().filter(|_| terms.len() < 8) {
            for node in sum.inputs.iter().flatten().filter_map(|&value| self.maker(value)) {
                if is_sum(node) { pending.push(&self.values.nodes[node]) } else { terms.push(node) }
            }
        }
        terms
    }

    /// Returns the value of which a node makes squares, or adds up squares.
    fn squared(&self, node: usize) -> Option<usize> {
        let placed = &self.values.nodes[node];
        let of = placed.input(0)?;
        match placed.op() {
            "ReduceSumSquare" | "ReduceL2" => Some(self.facts.source(of)),
            "ReduceSum" | "ReduceMean" => self.maker(of).and_then(|of| self.squared(of)),
            "Pow" => {
                let two = self.facts.input(placed, 1).filter(|by| by.constant && by.size == (2.0, 2.0));
                // The square of a length.
                let root = self.maker(of).filter(|&of| self.values.nodes[of].op() == "ReduceL2");
                two.map(|_| root.and_then(|root| self.squared(root)).unwrap_or(self.facts.source(of)))
            }
            "Mul" | "Einsum" if self.is_square(placed) => Some(self.facts.source(of)),
            _ => None,
        }
    }

    /// Returns the node that computes a value, in front of those that move it, or multiply it by a constant.
    fn maker(&self, mut value: usize) -> Option<usize> {
        loop {
            let Origin::Node { node } = self.values.values[value].origin else { return None };
            let mut moving =
                self.values.nodes[node].inputs.iter().flatten().filter(|of| !self.facts.fact(**of).constant);
            match (self.values.nodes[node].op(), moving.next(), moving.next()) {
                ("Add" | "Sub" | "Sum" | "Mean", ..) => return Some(node),
                (_, Some(&from), None) if self.is_step(node) => value = from,
                _ => return Some(node),
            }
        }
    }

    /// Returns the factors of a square, or of a product of two activations; none for another node.
    fn factors(&self, node: usize) -> Vec<usize> {
        let placed = &self.values.nodes[node];
        match (placed.op(), &placed.inputs[..]) {
            ("Mul", &[Some(a), Some(b)]) if [a, b].iter().all(|value| !self.facts.fact(*value).constant) => vec![a, b],
            ("Pow", &[Some(a), _]) => vec![a],
            _ => Vec::new(),
        }
    }

    /// Returns the way of each value, in a second round that of what bodies hand on as well.
    fn ways(&self) -> Vec<Way> {
        let ways = self.ways_from(&[]);
        if self.facts.inside.is_empty() { ways } else { self.ways_from(&ways) }
    }

    fn ways_from(&self, before: &[Way]) -> Vec<Way> {
        let values = self.values;
        let mut into: Vec<Option<Way>> = vec![None; values.values.len()];
        for &output in values.scopes.iter().flat_map(|scope| &scope.outputs) {
            into[output] = Some(Way::default());
        }
        for (from, of) in before
            .iter()
            .enumerate()
            .flat_map(|(to, of)| self.facts.inside.get(&to).into_iter().flatten().map(move |&from| (from, *of)))
        {
            into[from] = Some(into[from].filter(|known| known.any).unwrap_or(Way::OPEN).and(of));
        }
        for (index, placed) in values.nodes.iter().enumerate().rev() {
            let made = placed.output(0).and_then(|output| into[output]).unwrap_or_default();
            let op = placed.op();
            let of = match self.is_sink(placed) {
                // A product with weights makes a mean of squares, but most often is a layer.
                true => Way { any: true, all: SINKS.contains(&op), root: is_root(op) || made.root, share: false },
                false if self.shrinks(placed) || self.chooses(placed) => {
                    Way { any: true, all: true, root: true, share: false }
                }
                // The ratio of squares is small.
                false if self.is_ratio(index) => Way { any: true, ..Way::default() },
                false if self.is_step(index) => made,
                false if self.passes(index) && self.is_masked(placed) => made,
                // A cube goes into a layer as well.
                false if self.passes(index) => Way { any: made.root || made.all, all: made.root && made.all, ..made },
                false if is_product(op) => Way { any: made.root, all: false, root: made.root, share: false },
                false => Way::default(),
            };
            let share = self.is_step(index) && made.share;
            let divided = self.divided(placed);
            for (place, &value) in placed.inputs.iter().enumerate() {
                let Some(value) = value else { continue };
                let share = share || divided.is_some() && (divided == Some(place) || op == "Div");
                // A numerator has no other way.
                let all = of.all || of.any && place == 0 && self.is_ratio(index);
                into[value] = Some(into[value].unwrap_or(Way::OPEN).and(Way { all, share, ..of }));
            }
        }
        into.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Returns whether a node is a sum, a root, or a product with weights that are no less than 0, which is a sum.
    fn is_sink(&self, placed: &Placed<'_>) -> bool {
        let is_weight = |value: &usize| self.facts.constants.get(value).is_some_and(|known| !known.negative);
        match placed.op() {
            "Conv" | "Gemm" | "MatMul" => placed.inputs.iter().take(2).flatten().any(is_weight),
            "Einsum" => self.only_adds(placed),
            "LogSoftmax" | "Softmax" => self.is_f16(),
            op => SINKS.contains(&op),
        }
    }

    /// Returns whether a product adds up many terms: of activations, or with weights that are no less than 0 and do not
    /// take a mean, as those of layers and blurs do.
    fn adds(&self, placed: &Placed<'_>) -> bool {
        let is_many = |value: usize| {
            let by = self.facts.fact(value).by?;
            let known = self.facts.constants.get(&by).filter(|known| !known.negative)?;
            let axes = self.values.tensor(by).map(|tensor| tensor.dims.iter().copied().max());
            let terms = self.values.terms(placed).or(axes.flatten()).map_or(known.count as f64, |terms| terms as f64);
            Some(known.sum / known.count as f64 * terms >= FEW)
        };
        let operands = || placed.inputs.iter().take(2).flatten();
        is_product(placed.op())
            && operands().all(|&value| !self.facts.fact(value).constant || is_many(value).unwrap_or(false))
    }

    /// Returns the place of the input that a node divides by a number of terms.
    fn divided(&self, placed: &Placed<'_>) -> Option<usize> {
        let is = |place: usize, count| self.facts.input(placed, place).is_some_and(|fact| fact.count() == Some(count));
        match placed.op() {
            "Div" if is(1, Count::Terms) => Some(0),
            "Mul" if is(1, Count::Share) => Some(0),
            "Mul" if is(0, Count::Share) => Some(1),
            _ => None,
        }
    }

    /// Returns whether a node moves or adds numbers, or multiplies them by a constant.
    fn is_step(&self, index: usize) -> bool {
        let placed = &self.values.nodes[index];
        let constant = || placed.inputs.iter().flatten().any(|&value| self.facts.fact(value).constant);
        match placed.op() {
            "Add" | "Sub" | "Sum" | "Mean" => true,
            "Mul" | "Div" => constant(),
            "" => false,
            _ => self.facts.moves[index] == Some(GraphList::Clear),
        }
    }

    /// Returns whether squares of a few hundred are out of range.
    fn is_f16(&self) -> bool {
        self.facts.limits.is_beyond(MANY * MANY)
    }

    /// Returns whether squares go through a node: a step, or a factor, as a mask or weight.
    fn passes(&self, index: usize) -> bool {
        self.is_step(index) || self.values.nodes[index].op() == "Mul"
    }

    /// Returns whether a node divides by numbers that are not constant.
    fn is_ratio(&self, index: usize) -> bool {
        match self.values.nodes[index].op() {
            "Div" => self.is_f16() && !self.is_step(index),
            op => self.is_f16() && op == "Reciprocal",
        }
    }

    /// Returns whether a factor is a mask, a gate or an input.
    fn is_masked(&self, placed: &Placed<'_>) -> bool {
        placed.inputs.iter().flatten().any(|&value| {
            let fact = self.facts.fact(value);
            let source = &self.values.values[self.facts.source(value)];
            fact.bounded || fact.whole || source.scope == 0 && source.origin == Origin::Input
        })
    }

    /// Returns whether a node multiplies by a small constant, or divides by a large one.
    fn shrinks(&self, placed: &Placed<'_>) -> bool {
        let constant = |place| self.facts.input(placed, place).filter(|fact| fact.constant && self.is_f16());
        match placed.op() {
            "Mul" => constant(0).or(constant(1)).is_some_and(|fact| fact.size.1 < SHRINKS),
            "Div" => constant(1).is_some_and(|fact| fact.size.1 > 1.0 / SHRINKS),
            _ => false,
        }
    }

    /// Returns whether a node multiplies by zeros and ones of a comparison of floats, as a Huber loss does: squares beyond the
    /// range are not chosen, and infinity times 0 is NaN.
    fn chooses(&self, placed: &Placed<'_>) -> bool {
        let is_compared = |&value: &usize| {
            let mut value = self.facts.source(value);
            while let Origin::Node { node } = self.values.values[value].origin {
                let maker = &self.values.nodes[node];
                let from = match maker.op() {
                    "Cast" | "CastLike" | "Not" => maker.input(0),
                    // 1 less a mask.
                    "Sub" if self.facts.input(maker, 0).is_some_and(|fact| fact.constant) => maker.input(1),
                    "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" => {
                        return maker.input(0).is_some_and(|value| self.elems[value] == Elem::F32);
                    }
                    _ => return false,
                };
                match from {
                    Some(from) => value = self.facts.source(from),
                    None => return false,
                }
            }
            false
        };
        placed.op() == "Mul" && self.is_f16() && placed.inputs.iter().flatten().any(is_compared)
    }

    /// Returns whether a product has one value as both operands.
    fn is_square(&self, placed: &Placed<'_>) -> bool {
        match (placed.op(), &placed.inputs[..]) {
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

    /// Keeps sums by scattering, and states of `Loop` and `Scan` that their bodies add to or multiply.
    pub fn sums(&mut self) {
        let values = self.values;
        let mut entered = vec![false; values.values.len()];
        for (index, placed) in values.nodes.iter().enumerate() {
            if ["ScatterElements", "ScatterND"].contains(&placed.op()) {
                let reduction = values.model.text(placed.node, "reduction").ok().flatten();
                if matches!(reduction.as_deref(), Some("add" | "mul")) {
                    self.node(index, Then::Denied, || "adds by scattering".into());
                }
            }
            if self.only_adds(placed) {
                self.node(index, Then::Denied, || "only adds".into());
            }
            for edge in edges(values, placed).into_iter().filter(|edge| edge.carried) {
                let (Some(from), Some(to)) = (edge.body_in, edge.body_out) else { continue };
                // A few terms are few, and a few factors may be many.
                let grows = self.facts.fact(to).size.1 > 2.0 * self.facts.fact(from).size.1;
                if self.elems[from] == Elem::F32 && (grows || !self.is_short(placed)) {
                    self.state(from, to, edge.outside_out, &mut entered);
                }
            }
        }
    }

    /// Keeps a state whose next value is a sum or a product of it. `entered` has the gates that were followed.
    fn state(&mut self, from: usize, to: usize, out: Option<usize>, entered: &mut [bool]) {
        let (values, moves) = (self.values, self.facts.moves);
        let op = |node: usize| values.nodes[node].op();
        let states = [Some(from), out].into_iter().flatten();
        let sum = self.course(from, to, Through::Sums).nodes;
        let adds = |&node: &usize| ["Add", "Sub", "Sum", "Mean", "Gemm"].contains(&op(node));
        if sum.iter().any(adds) {
            self.carried.extend(states.map(|value| (value, Carried::Sum)));
            for node in sum.into_iter().filter(adds) {
                self.node(node, Then::Free, || "adds to a running sum".into());
            }
            return;
        }
        let courses = [Through::Factors, Through::Products].map(|through| self.course(from, to, through));
        let computes = |course: &Course| course.nodes.iter().any(|&node| moves[node] != Some(GraphList::Clear));
        let Some(course) = courses.into_iter().find(computes) else { return };
        self.carried.extend(states.map(|value| (value, Carried::Exact)));
        let because = || "makes the next value of a state".into();
        for node in course.nodes {
            self.node(node, Then::Free, because);
            let is_factor = ["Mul", "Div"].contains(&op(node)) || is_product(op(node));
            for &value in values.nodes[node].inputs.iter().flatten().filter(|value| !course.values.contains(value)) {
                if is_factor {
                    self.makers(value, &because);
                }
                if is_factor || self.facts.fact(value).one == Some(One::Complement) {
                    self.behind(vec![value], entered, &|fact| fact.one.is_some(), &because);
                }
            }
        }
    }

    /// Keeps the values that a node with bodies carries, and the nodes in its bodies that make them.
    pub fn carry(&mut self, placed: &Placed<'_>) {
        for edge in edges(self.values, placed) {
            let carried = [edge.body_in, edge.outside_out].into_iter().flatten();
            carried.for_each(|value| _ = self.carried.entry(value).or_insert(Carried::Exact));
            if let Some(made) = edge.body_out {
                self.makers(made, &|| format!("makes what {} carries", placed.node.label()));
            }
        }
    }

    /// Keeps the node that makes a value, and what moves it and hands it on.
    pub fn makers(&mut self, value: usize, because: &dyn Fn() -> String) {
        let mut entered = HashSet::new();
        let mut enters = |keep: &Self, value: usize| keep.elems[value] == Elem::F32 && entered.insert(value);
        let moves = |keep: &Self, node: usize| keep.facts.moves[node] == Some(GraphList::Clear);
        self.walk(vec![value], &mut enters, &moves, because);
    }

    /// Returns whether a node is an `Einsum` of one operand that adds along an axis.
    fn only_adds(&self, placed: &Placed<'_>) -> bool {
        if placed.op() != "Einsum" || placed.inputs.len() != 1 {
            return false;
        }
        let equation = self.values.model.text(placed.node, "equation").ok().flatten().unwrap_or_default();
        // Without an arrow, indices that are met once are those of the result.
        match equation.split_once("->") {
            Some((of, to)) => of.chars().any(|index| index.is_alphabetic() && !to.contains(index)),
            None => equation.chars().any(|index| index.is_alphabetic() && equation.matches(index).count() > 1),
        }
    }

    /// Returns whether a loop has a few rounds: so many terms are added in 16 bits by any chain of nodes.
    fn is_short(&self, placed: &Placed<'_>) -> bool {
        let count = placed.input(0).filter(|_| placed.op() == "Loop");
        let count = count.and_then(|value| numbers(self.values.model, self.values.tensor(value)?).ok());
        count.is_some_and(|count| count.to_f64().first().is_some_and(|count| *count <= FEW))
    }

    /// Returns the way from a state to its next value, which is empty where there is none.
    fn course(&self, from: usize, to: usize, through: Through) -> Course {
        let (mut pending, mut entered) = (vec![to], HashSet::new());
        // For each value, those made of it, and the nodes that make them.
        let mut made: HashMap<usize, Vec<(usize, Option<usize>)>> = HashMap::new();
        while let Some(value) = pending.pop() {
            if value == from || !entered.insert(value) {
                continue;
            }
            let handed = self.facts.inside.get(&value).into_iter().flatten().map(|&source| (source, None));
            let computed = match self.values.values[value].origin {
                Origin::Node { node } => self.terms(node, through).into_iter().map(|of| (of, Some(node))).collect(),
                _ => Vec::new(),
            };
            for (source, node) in handed.chain(computed).filter(|(source, _)| self.elems[*source] == Elem::F32) {
                made.entry(source).or_default().push((value, node));
                pending.push(source);
            }
        }
        let (mut pending, mut way) = (vec![from], Course::default());
        while let Some(value) = pending.pop() {
            way.values.insert(value);
            for (next, node) in made.remove(&value).into_iter().flatten() {
                way.nodes.extend(node);
                pending.push(next);
            }
        }
        way
    }

    /// Returns the inputs of which the result of a node is a sum or a multiple.
    fn terms(&self, node: usize, through: Through) -> Vec<usize> {
        let placed = &self.values.nodes[node];
        let inputs = || placed.inputs.iter().flatten().copied();
        let is_scaled = || inputs().any(|value| self.facts.fact(value).constant);
        match placed.op() {
            "Add" | "Sub" | "Sum" | "Mean" => inputs().collect(),
            "Mul" | "Div" if through != Through::Sums || is_scaled() => inputs().collect(),
            "Gemm" if through != Through::Products => placed.input(2).into_iter().collect(),
            // A layer forgets.
            "Celu" | "Elu" | "LeakyRelu" | "PRelu" | "Relu" | "Selu" => match through {
                Through::Sums => placed.input(0).into_iter().collect(),
                Through::Factors | Through::Products => Vec::new(),
            },
            "Pow" | "Reciprocal" | "Sqrt" => placed.input(0).into_iter().collect(),
            op if through == Through::Products && is_product(op) => inputs().collect(),
            _ if self.facts.moves[node] == Some(GraphList::Clear) => inputs().collect(),
            _ => Vec::new(),
        }
    }
}

/// The nodes and values between a state and its next value.
#[derive(Default)]
struct Course {
    nodes: Vec<usize>,
    values: HashSet<usize>,
}

/// The arithmetic through which a state is followed to its next value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Through {
    /// Sums, and constant factors.
    Sums,
    /// Sums, and all factors, as those of gates.
    Factors,
    /// Sums, factors and products of matrices.
    Products,
}

/// Depth of bodies in bodies through which a value is followed.
const DEPTH: usize = 4;

/// Returns whether a value is held, or one that bodies hand on as it.
fn holds(inside: &HashMap<usize, Vec<usize>>, held: &[bool], value: usize, depth: usize) -> bool {
    let handed = || inside.get(&value).into_iter().flatten();
    held[value] || depth > 0 && handed().any(|&from| holds(inside, held, from, depth - 1))
}

fn is_product(op: &str) -> bool {
    ["Conv", "Einsum", "Gemm", "MatMul"].contains(&op)
}

fn is_root(op: &str) -> bool {
    ["Pow", "Sqrt"].contains(&op)
}
