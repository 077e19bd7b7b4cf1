//! The nodes that stay f32 for what they compute. [Facts](super::fact::Fact) about values are followed from constants,
//! integers and inputs; a node is kept where a fact meets a reader that needs what the low dtype does not hold.
//!
//! | fact | made by | followed through | kept |
//! | --- | --- | --- | --- |
//! | unfit constant | a number out of range; as a divisor, one that becomes 0 | moves; sums, if large | its readers |
//! | size beyond a sixteenth of the range | factors, divisors, powers, scales | arithmetic, products | makers, and products that read it |
//! | size below the range | the same | the same | all up to the reader that makes it larger |
//! | floor below the range | bounds, constant terms, terms below the range | moves, sums, factors, roots | all up to the division |
//! | ceiling beyond the range | the reciprocal of a floor | the same | all up to the factor or logarithm that reads it |
//! | integer (`whole`) | integers, rounding | arithmetic, products | all behind an index, a length, a condition |
//! | near 1, complement (`one`) | sigmoid, tanh, exp, `1 - 1e-4 * x`; `1 - x` of these | moves, squares, small terms | all up to the division, logarithm, high power |
//! | position, time (`raw`) | inputs, integers, constants, running sums | arithmetic, products | all up to an angle, a remainder |
//! | square, product of activations | products | terms, factors | all up to the sum, the mean by weights, the root, the ratio, a factor below 1/64, a mask of a comparison |
//! | count, its share (`count`) | integers, sums, constants from 256 on | moves, bounds, reciprocals | products that add or count, up to the division by it |
//! | lost digits (`shifted`) | sums with a whole row of 1024 or more | moves, terms | all up to the softmax |
//! | small steps (`steps`) | sums with a factor of 0.02 or less | moves, terms | the sums, from 17 on |
//! | mean of squares, square of a mean | sums, products with weights of one sign, or of known places | moves, constant factors | all up to their difference |
//! | sum of squares, product of the same numbers or another square | sums, products | terms, constant factors | all up to their difference |
//! | offset | constants of which all hide digits | - | the sum |
//! | end in 0 | sigmoid, softplus | moves, constant factors, roots | all up to the division, logarithm |
//! | sum of many | states that a body adds to or multiplies; scattering | | the state, its gates; the scattering |
//! | function without the dtype | ops that runtimes compute by other ops, or join with the product before them | | the op |
//!
//! A product of other numbers ends a search: nobody expects exact numbers from it.

use std::collections::{HashMap, HashSet};

use super::{
    fact::Fact,
    facts::Facts,
    numbers::Unfit,
    tensor::Elem,
    values::{Origin, Placed, Values},
};
use precast::policy::GraphList;

/// The reason for a node to stay f32.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    pub because: String,
    pub then: Then,
}

/// The effect of a kept node on those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// They are decided as if it was on no list.
    Free,
    /// They are decided by its list.
    Listed,
    /// They stay f32 up to the next product, as after a denied node.
    Denied,
    /// The same, and a rule must not run it low: a finite number would become infinite.
    Infinite,
}

/// The treatment of a value that a node with bodies carries in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    Exact,
    /// A running sum, which is denied as sums are.
    Sum,
}

/// Nodes that stay f32, and values that bodies carry in f32.
pub(super) struct Keep<'a> {
    pub facts: &'a Facts<'a>,
    pub values: &'a Values<'a>,
    pub elems: &'a [Elem],
    /// The list of each node.
    lists: &'a [Option<GraphList>],
    pub nodes: HashMap<usize, Kept>,
    pub carried: HashMap<usize, Carried>,
    /// Values that were followed back.
    behind: HashSet<(usize, bool)>,
}

impl<'a> Keep<'a> {
    /// Finds what stays f32 for the facts about values.
    pub fn of(facts: &'a Facts<'a>, values: &'a Values<'a>, elems: &'a [Elem], lists: &'a [Option<GraphList>]) -> Self {
        let (nodes, carried, behind) = (HashMap::new(), HashMap::new(), HashSet::new());
        let mut keep = Keep { facts, values, elems, lists, nodes, carried, behind };
        keep.sizes();
        keep.constants();
        keep.exact();
        keep.angles();
        keep.complements();
        keep.vanishing();
        keep.functions();
        keep.variances();
        keep.distances();
        keep.squares();
        keep.shifts();
        keep.steps();
        keep.sums();
        keep
    }

    /// Keeps a node for a fact, unless it is kept or denied anyway.
    pub fn node(&mut self, node: usize, then: Then, because: impl FnOnce() -> String) {
        let placed = &self.values.nodes[node];
        let is_float =
            placed.inputs.iter().chain(&placed.outputs).flatten().any(|&value| self.elems[value] == Elem::F32);
        let is_free = self.lists[node] != Some(GraphList::Deny) && placed.node.op != "Constant";
        if is_float && is_free && placed.schema.is_some() && placed.bodies.is_empty() {
            self.nodes.entry(node).or_insert_with(|| Kept { because: because(), then });
        }
    }

    /// Keeps the nodes that read constants out of range, or make or need numbers out of range.
    fn sizes(&mut self) {
        for (index, placed) in self.values.nodes.iter().enumerate() {
            let Some(schema) = placed.schema.filter(|_| placed.bodies.is_empty()) else { continue };
            let own = placed
                .inputs
                .iter()
                .enumerate()
                .filter(|(place, _)| schema.input(*place).is_some_and(|p| schema.is_own(p)));
            if let Some(unfit) = own.filter_map(|(_, value)| self.facts.fact((*value)?).unfit).next() {
                let because = self.unfit(unfit);
                let then = if self.facts.is_large(unfit) { Then::Infinite } else { Then::Free };
                // Also a node on the deny list: it says why.
                self.nodes.entry(index).or_insert(Kept { because, then });
            }
            self.size(index, placed);
            self.division(index, placed);
            self.constant_divisor(index, placed);
        }
    }

    /// Keeps powers of constants, such as `16 ^ 0.5`. They are no reason to keep what reads them.
    fn constants(&mut self) {
        let limits = self.facts.limits;
        for (index, placed) in self.values.nodes.iter().enumerate().filter(|(_, placed)| placed.op() == "Pow") {
            let made = placed.output(0).map(|output| self.facts.fact(output));
            let is_usual = |fact: &Fact| !limits.may_overflow(fact.size.1) && !limits.may_vanish(fact.size.0);
            let is_one = |place| self.facts.input(placed, place).is_some_and(|fact| fact.size.0 == fact.size.1);
            if made.is_some_and(|made| made.constant && is_usual(&made)) && is_one(0) && is_one(1) {
                self.nodes.entry(index).or_insert(Kept { because: "computes a constant".into(), then: Then::Free });
            }
        }
    }

    /// Keeps a node that divides by a constant of which a number would become 0.
    fn constant_divisor(&mut self, index: usize, placed: &Placed<'_>) {
        let place = match placed.op() {
            "Div" => 1,
            "Reciprocal" => 0,
            _ => return,
        };
        let Some(by) = self.facts.input(placed, place).filter(|fact| fact.constant).and_then(|fact| fact.by) else {
            return;
        };
        let known = &self.facts.constants[&by];
        if known.vanishes(&self.facts.limits) {
            let limits = &self.facts.limits;
            let name = format!("divides by numbers of `{}`, which", self.values.values[by].name);
            let because = limits.reason(&name, &Unfit::Below(known.smallest));
            self.node(index, Then::Denied, || because);
        }
    }

    fn unfit(&self, constant: usize) -> String {
        let of = &self.values.values[constant];
        let kind = if of.initialiser.is_some() { "initialiser" } else { "constant" };
        let limits = &self.facts.limits;
        let unfit = self.facts.constants[&constant].unfit(limits).unwrap_or(Unfit::Beyond(f32::INFINITY));
        limits.reason(&format!("{kind} `{}`", of.name), &unfit)
    }

    /// Returns words for the constant behind a fact.
    fn by(&self, fact: &Fact) -> String {
        fact.by.map_or(String::new(), |value| format!(", by `{}`", self.values.values[value].name))
    }

    /// Keeps a node whose results are too large, that multiplies such numbers, or that makes too small ones larger.
    fn size(&mut self, index: usize, placed: &Placed<'_>) {
        let Some(output) = placed.output(0).filter(|&output| self.elems[output] == Elem::F32) else {
            return;
        };
        let limits = self.facts.limits;
        let made = self.facts.fact(output);
        let facts = self.facts;
        let reads = placed.inputs.iter().flatten().map(|&value| (value, facts.fact(value)));
        let words = |what: &str, fact: &Fact, keep: &Self| {
            let place = if limits.is_beyond(fact.size.1) { "beyond" } else { "near the end of" };
            let (size, by, dtype) = (fact.size.1, keep.by(fact), limits.dtype());
            format!("{what} numbers of about {size:.0e}{by}, {place} the range of {dtype}")
        };
        if limits.may_overflow(made.size.1) {
            let because = words("makes", &made, self);
            self.node(index, Then::Denied, || because);
        }
        let is_product = self.facts.moves[index] == Some(GraphList::Allow);
        if let Some((_, fact)) =
            reads.clone().find(|(_, fact)| is_product && !fact.constant && limits.may_overflow(fact.size.1))
        {
            let because = words("reads", &fact, self);
            return self.node(index, Then::Free, || because);
        }
        let larger = is_product || ["Div", "Mul", "Pow", "Reciprocal", "Sqrt"].contains(&&placed.node.op[..]);
        if !larger || limits.may_vanish(made.size.0) {
            return;
        }
        // Of two branches, one may be small.
        let small = |fact: &Fact| !fact.constant && limits.may_vanish(fact.size.0);
        for (value, fact) in reads.filter(|(_, fact)| small(fact)) {
            let place = if limits.is_below(fact.size.0) { "below" } else { "near the end of" };
            let because = format!(
                "numbers of about {:.0e}{} become larger again, and are {place} the range of {}",
                fact.size.0,
                self.by(&fact),
                limits.dtype()
            );
            self.node(index, Then::Free, || because.clone());
            self.back(value, &because, &small, None);
        }
    }

    /// Keeps what leads to a division by numbers that may come near 0.
    fn division(&mut self, index: usize, placed: &Placed<'_>) {
        let limits = self.facts.limits;
        let out = |fact: &Fact| {
            fact.floor.is_some_and(|floor| limits.is_below(floor))
                || fact.ceiling.is_some_and(|most| limits.is_beyond(most))
        };
        // Activations divided by such a number may be out of range, as those divided by a constant.
        let is_small = |fact: &Fact| {
            let inverts = ["Div", "Reciprocal", "Pow"].contains(&&placed.node.op[..]);
            inverts && fact.floor.is_some_and(|floor| limits.may_overflow(1.0 / floor))
        };
        let places: &[usize] = match &placed.node.op[..] {
            "Div" => &[1],
            "Log" | "Reciprocal" | "Pow" => &[0],
            "Mul" => &[0, 1],
            _ => return,
        };
        let made = placed.output(0).map(|output| self.facts.fact(output));
        for value in places.iter().filter_map(|&place| placed.input(place)) {
            let fact = self.facts.fact(value);
            let divides = match &placed.node.op[..] {
                "Mul" => fact.ceiling.is_some(),
                "Pow" => made.is_some_and(|made| made.ceiling.is_some()),
                "Log" => fact.floor.or(fact.ceiling).is_some(),
                _ => fact.floor.is_some(),
            };
            if !divides {
                continue;
            }
            let least = fact.floor.or(fact.ceiling.map(|most| 1.0 / most)).unwrap_or(1.0);
            let because = format!("leads to a division by numbers down to {:e}{}", least as f32, self.by(&fact));
            if out(&fact) || is_small(&fact) || made.as_ref().is_some_and(out) {
                self.node(index, Then::Free, || because.clone());
            }
            let on_the_way = |fact: &Fact| fact.floor.is_some() || fact.ceiling.is_some();
            self.back(value, &because, &on_the_way, Some(&out));
        }
    }

    /// Follows a value back through values of which a fact holds, and keeps the nodes that read or make one of which
    /// another holds. Each value is followed once for each of the two searches.
    fn back(
        &mut self,
        value: usize,
        because: &str,
        follow: &dyn Fn(&Fact) -> bool,
        keep: Option<&dyn Fn(&Fact) -> bool>,
    ) {
        let is_kept = |fact: &Fact| follow(fact) && keep.is_none_or(|keep| keep(fact));
        let mut pending = vec![value];
        while let Some(value) = pending.pop() {
            let fact = self.facts.fact(value);
            if !follow(&fact) || !self.behind.insert((value, keep.is_some())) {
                continue;
            }
            if let Some(sources) = self.facts.inside.get(&value) {
                if is_kept(&fact) {
                    self.carried.entry(value).or_insert(Carried::Exact);
                }
                pending.extend(sources);
            }
            let Origin::Node { node } = self.values.values[value].origin else { continue };
            let inputs = &self.values.nodes[node].inputs;
            if is_kept(&fact) || inputs.iter().flatten().any(|&value| is_kept(&self.facts.fact(value))) {
                self.node(node, Then::Free, || because.to_string());
            }
            pending.extend(inputs.iter().flatten());
        }
    }
}

/// Finds the nodes and values up to the next product after some nodes.
pub(super) fn after(
    values: &Values<'_>,
    inside: &HashMap<usize, Vec<usize>>,
    lists: &[Option<GraphList>],
    mut reached: HashSet<usize>,
) -> (HashSet<usize>, HashSet<usize>) {
    let outputs = |node: &usize| values.nodes[*node].outputs.iter().flatten().copied().collect::<Vec<_>>();
    let mut met: HashSet<usize> = reached.iter().flat_map(outputs).collect();
    let mut before = 0;
    while met.len() > before {
        before = met.len();
        for (index, placed) in values.nodes.iter().enumerate() {
            let reads = placed.inputs.iter().flatten().any(|value| met.contains(value));
            if reads && placed.bodies.is_empty() && lists[index].is_some_and(|list| list != GraphList::Allow) {
                reached.insert(index);
                met.extend(outputs(&index));
            }
        }
        let through = |(to, from): (&usize, &Vec<usize>)| from.iter().any(|from| met.contains(from)).then_some(*to);
        met.extend(inside.iter().filter_map(through).collect::<Vec<_>>());
    }
    (reached, met)
}

/// Finds the nodes whose numbers may be too large.
pub(super) fn large(kept: &HashMap<usize, Kept>) -> HashSet<usize> {
    let is_large = |why: &Kept| matches!(why.then, Then::Denied | Then::Infinite);
    kept.iter().filter(|(_, why)| is_large(why)).map(|(&node, _)| node).collect()
}

/// Finds the products that add more terms than a number, as their weights say.
pub(super) fn deep(values: &Values<'_>, most: usize) -> HashMap<usize, Kept> {
    let kept = |(index, placed): (usize, &Placed<'_>)| {
        let terms = values.terms(placed).filter(|&terms| terms > most)?;
        let because = format!("adds {terms} products, and at most {most} may be");
        Some((index, Kept { because, then: Then::Free }))
    };
    values.nodes.iter().enumerate().filter_map(kept).collect()
}
