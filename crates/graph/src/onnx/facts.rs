//! Facts about the numbers of each value, followed from constants, integers and inputs through the nodes in one pass (two
//! where a body hands its results to its next round).

use std::collections::HashMap;

use super::{
    fact::{Count, Fact, One, least},
    numbers::{Limits, Tally, Unfit},
    schema::Kind,
    tensor::Elem,
    types::edges,
    values::{Origin, Placed, Values},
};
use precast::{error::Result, policy::GraphList};

/// The largest number of a gate, such as the 6 of a hard swish before it is divided.
const FEW: f32 = 16.0;

/// The largest share of 1 that is small.
const SMALL: f64 = 0.01;

/// The largest share of a sum that is a step: averages with a decay of 0.98 lose two digits of a bfloat16.
const STEP: f64 = 0.021;

/// The least number of terms that is many: as large are the numbers whose squares are beyond float16.
pub(super) const MANY: f64 = 256.0;

/// The most coordinates of a place.
const COORDINATES: usize = 8;

/// The number of pixels of a picture of 256 x 256, beyond float16.
const AREA: f64 = MANY * MANY;

/// The facts of all values.
pub(super) struct Facts<'a> {
    values: &'a Values<'a>,
    elems: &'a [Elem],
    pub constants: HashMap<usize, Tally>,
    /// The list of the op of each node, which says how it moves its numbers.
    pub moves: &'a [Option<GraphList>],
    pub limits: Limits,
    of: Vec<Option<Fact>>,
    /// For each value that a node with bodies hands on, the values that it comes from.
    pub inside: HashMap<usize, Vec<usize>>,
}

impl<'a> Facts<'a> {
    pub fn of(
        values: &'a Values<'a>,
        elems: &'a [Elem],
        constants: HashMap<usize, Tally>,
        moves: &'a [Option<GraphList>],
        limits: Limits,
    ) -> Result<Self> {
        let mut facts = Facts { values, elems, constants, moves, limits, of: Vec::new(), inside: insides(values) };
        let known = (0..values.values.len()).map(|value| facts.given(value).map(|fact| facts.typed(value, fact)));
        let known: Vec<Option<Fact>> = known.collect();
        let rounds = if facts.inside.is_empty() { 1 } else { 2 };
        for _ in 0..rounds {
            let before = std::mem::replace(&mut facts.of, known.clone());
            // The nodes whose bodies are being read.
            let mut open: Vec<usize> = Vec::new();
            for (node, placed) in values.nodes.iter().enumerate() {
                while let Some(control) = open.pop_if(|control| !is_inside(values, placed.scope, *control)) {
                    facts.hand_on(control, &before, false);
                }
                if !placed.bodies.is_empty() {
                    facts.hand_on(node, &before, true);
                    open.push(node);
                    continue;
                }
                for (place, &output) in placed.outputs.iter().enumerate() {
                    let Some(output) = output else { continue };
                    let fact = facts.made(node, placed, place, &before)?;
                    facts.of[output] = Some(facts.typed(output, fact));
                }
            }
            while let Some(control) = open.pop() {
                facts.hand_on(control, &before, false);
            }
        }
        Ok(facts)
    }

    /// Sets what holds for the values that a node with bodies hands into them, or out of them. The first round does not
    /// know what a body gives to the next one.
    fn hand_on(&mut self, control: usize, before: &[Option<Fact>], into: bool) {
        for edge in edges(self.values, &self.values.nodes[control]) {
            let Some(to) = (if into { edge.body_in } else { edge.outside_out }) else { continue };
            let known = |&from: &usize| self.of[from].or(before.get(from).copied().flatten());
            let fact = self.inside[&to].iter().filter_map(known).reduce(Fact::or).unwrap_or(Fact::NOTHING);
            self.of[to] = Some(self.typed(to, Fact { constant: false, ..fact }));
        }
    }

    pub fn fact(&self, value: usize) -> Fact {
        self.of[value].unwrap_or(Fact::NOTHING)
    }

    /// Returns the fact of an input of a node.
    pub fn input(&self, placed: &Placed<'_>, place: usize) -> Option<Fact> {
        placed.input(place).map(|value| self.fact(value))
    }

    fn get(&self, value: usize, before: &[Option<Fact>]) -> Fact {
        self.of[value].or(before.get(value).copied().flatten()).unwrap_or(Fact::NOTHING)
    }

    /// Returns what holds for a value that no node makes, and no body hands on.
    fn given(&self, value: usize) -> Option<Fact> {
        let of = &self.values.values[value];
        match of.origin {
            Origin::Node { .. } => None,
            Origin::Input if of.initialiser.is_none() => {
                let raw = of.scope == 0;
                (raw || !self.inside.contains_key(&value)).then_some(Fact { raw, ..Fact::NOTHING })
            }
            _ => Some(self.constant(value)),
        }
    }

    fn constant(&self, value: usize) -> Fact {
        let known = self.constants.get(&value);
        let count = known.filter(|known| known.is_one()).and_then(|known| match f64::from(known.largest) {
            MANY.. => Some(Count::Terms),
            least if least * MANY <= 1.0 => Some(Count::Share),
            _ => None,
        });
        Fact {
            size: known.map_or((1.0, 1.0), |known| known.size(&self.limits)),
            by: known.map(|_| value),
            unfit: known
                .and_then(|known| known.unfit(&self.limits))
                .filter(|_| self.elems[value] == Elem::F32)
                .map(|_| value),
            constant: true,
            whole: known.is_some_and(|known| known.whole),
            bounded: known.is_some_and(|known| known.largest <= FEW),
            raw: true,
            count,
            ..Fact::NOTHING
        }
    }

    fn typed(&self, value: usize, fact: Fact) -> Fact {
        let elem = self.elems[value];
        match elem.is_int() || elem == Elem::BOOL {
            true => Fact { whole: true, bounded: elem == Elem::BOOL, raw: true, ..fact },
            false => fact,
        }
    }

    /// Returns the fact of an output of a node.
    fn made(&self, index: usize, placed: &Placed<'_>, place: usize, before: &[Option<Fact>]) -> Result<Fact> {
        let op = &placed.node.op[..];
        let Some(schema) = placed.schema.filter(|_| placed.node.domain.is_empty()) else { return Ok(Fact::NOTHING) };
        let known = placed.outputs[place].filter(|output| self.constants.contains_key(output));
        if known.is_some() || op == "Constant" || op == "ConstantOfShape" {
            return Ok(placed.outputs[place].map_or(Fact::NOTHING, |output| self.constant(output)));
        }
        let is_own =
            |place| schema.input(place).is_some_and(|port| schema.own().map(Kind::Variable) == Some(port.kind));
        let own = placed.inputs.iter().enumerate().filter(|(place, _)| is_own(*place));
        let mut unfit = own.filter_map(|(_, value)| self.get((*value)?, before).unfit).find(|&unfit| {
            let large = self.is_large(unfit);
            let moves =
                self.moves[index] == Some(GraphList::Clear) && !["Clip", "Sign", "ArgMax", "ArgMin"].contains(&op);
            // The product of a large number may be small again.
            moves || large && ["Add", "Sub", "Neg", "Sum"].contains(&op)
        });
        if let ("DequantizeLinear", &[_, Some(scale), ..]) = (op, &placed.inputs[..]) {
            let scale = self.get(scale, before);
            let (least, most) = dequantized(&scale);
            unfit = scale.unfit.filter(|_| self.limits.is_below(least) || self.limits.is_beyond(most));
        }
        match place == 0 || op == "Split" {
            true => {
                let mut fact = Fact { unfit, ..self.computed(index, placed, before)? };
                if self.is_area(placed, before) {
                    fact.size.1 = fact.size.1.max(AREA);
                }
                Ok(fact)
            }
            false => Ok(Fact { unfit, ..Fact::NOTHING }),
        }
    }

    /// Returns whether a node multiplies lengths, or adds integers that are not known: a picture has that many pixels.
    fn is_area(&self, placed: &Placed<'_>, before: &[Option<Fact>]) -> bool {
        let moving = || placed.inputs.iter().flatten().filter(|value| !self.get(**value, before).constant);
        let is_int = placed.output(0).is_some_and(|output| self.elems[output].is_int());
        let are_counts = || moving().all(|value| self.get(*value, before).count() == Some(Count::Terms));
        (is_int || placed.op() == "Mul" && are_counts())
            && match placed.op() {
                "Size" => true,
                "Mul" => moving().count() == 2,
                "ReduceProd" | "ReduceSum" => moving().next().is_some(),
                _ => false,
            }
    }

    /// Returns whether a constant that does not fit is too large.
    pub fn is_large(&self, constant: usize) -> bool {
        matches!(self.constants[&constant].unfit(&self.limits), Some(Unfit::Beyond(_)))
    }

    /// Returns the fact of the first output of a node, but for constants that do not fit.
    fn computed(&self, index: usize, placed: &Placed<'_>, before: &[Option<Fact>]) -> Result<Fact> {
        let op = &placed.node.op[..];
        let input = |place: usize| Some(self.get(placed.input(place)?, before));
        let all = || placed.inputs.iter().flatten().map(|&value| self.get(value, before));
        let (a, b) = (input(0).unwrap_or(Fact::NOTHING), input(1).unwrap_or(Fact::NOTHING));
        let both = a.or(b);
        let sized = |least: f64, most: f64| Fact {
            size: (least, most),
            by: both.by,
            constant: both.constant,
            whole: both.whole,
            raw: both.raw,
            ..Fact::NOTHING
        };
        Ok(match op {
            "Add" | "Sub" | "Sum" | "Mean" => self.sum(all().collect(), op),
            "Mul" => {
                // A factor that is large for a part of the numbers, where the other one is not 0, makes a mask.
                let is_mask = a.bounded && a.whole || b.bounded && b.whole || self.is_one_minus(placed);
                let large = |fact: &Fact| self.limits.may_overflow(fact.size.1);
                let size = match is_mask && (large(&a) || large(&b)) {
                    true => (1.0, 1.0),
                    false => (a.size.0 * b.size.0, a.size.1 * b.size.1),
                };
                // A factor other than a constant or a gate takes a ceiling back: it is as small as what was divided by.
                let scales = |fact: &Fact| fact.constant || fact.bounded && fact.ceiling.is_none();
                let ceiling = match (scales(&a), scales(&b)) {
                    (false, true) => a.ceiling.map(|most| most * b.size.1),
                    (true, false) => b.ceiling.map(|most| most * a.size.1),
                    _ => None,
                };
                let floor = a.floor.or(b.floor).filter(|_| a.ceiling.or(b.ceiling).is_none());
                let floor = floor.map(|_| a.floor.unwrap_or(a.size.0) * b.floor.unwrap_or(b.size.0));
                let is_one = |fact: &Fact| fact.constant && 0.99 <= fact.size.0 && fact.size.1 <= 1.01;
                let one = match (a.one, b.one) {
                    (Some(One::Near), Some(One::Near)) => Some(One::Near),
                    _ if is_one(&a) || is_one(&b) => both.one,
                    _ => both.one.filter(|one| *one == One::Complement),
                };
                let moving = if a.constant { b } else { a };
                let (count, steps) = match a.constant != b.constant && both.count.is_none() {
                    true => (moving.count, moving.steps),
                    false => (None, 0),
                };
                let bounded = a.bounded && b.bounded;
                Fact { floor: small(floor), ceiling, bounded, one, count, steps, ..sized(size.0, size.1) }
            }
            "Div" => {
                // Of numbers of different sizes, a constant is known to have the least ones.
                let size = (a.size.0 / b.size.1, a.size.1 / if b.constant { b.size.0 } else { b.size.1 });
                let floor = a.floor.filter(|_| b.floor.is_none()).map(|floor| floor / b.size.1);
                let by = if a.constant && b.floor.is_some() { b.by } else { both.by };
                let bounded = a.bounded && b.constant && b.size.0 >= 1.0;
                let ceiling = match (a.constant, b.constant) {
                    (true, false) => b.floor.map(|floor| a.size.1 / floor),
                    (_, true) => a.ceiling.map(|most| most / b.size.1),
                    _ => None,
                };
                let one = a.one.filter(|_| a.is_complement() && b.constant);
                let count = if a.constant { inverse(b.count()) } else { a.count.filter(|_| b.count().is_none()) };
                Fact { floor: small(floor), ceiling, by, whole: false, bounded, one, count, ..sized(size.0, size.1) }
            }
            "Sqrt" => Fact {
                constant: a.constant,
                floor: a.floor.map(f64::sqrt),
                ceiling: a.ceiling.map(f64::sqrt),
                bounded: a.bounded,
                whole: false,
                one: a.one,
                ..sized(a.size.0.sqrt(), a.size.1.sqrt())
            },
            "Reciprocal" => power(a, -1.0),
            "Pow" if b.constant && b.size.0 == b.size.1 => {
                Fact { raw: both.raw, constant: both.constant, ..power(a, exponent_sign(self, b) * b.size.1) }
            }
            "Clip" => {
                let least = self.bound(placed, before)?;
                let floor = least.map(|(bound, _)| bound).or(a.floor);
                let by = least.and_then(|(_, by)| by).or(a.by);
                let most = input(2).is_some_and(|most| most.constant && most.bounded);
                let most = most || self.attribute(placed, "max")?.is_some_and(|most| most <= FEW);
                let size = if most { (a.size.0.min(1.0), a.size.1.min(FEW.into())) } else { a.size };
                Fact { size, floor: small(floor), by, bounded: a.bounded || most, ..a }
            }
            "Max" => {
                let bound = all().filter_map(|fact| self.bound_of(&fact)).reduce(f64::max);
                let moving = all().filter(|fact| !fact.constant).reduce(Fact::or).unwrap_or(a);
                let by = all().find_map(|fact| fact.by.filter(|_| fact.constant)).or(moving.by);
                Fact {
                    floor: small(bound.or(moving.floor)),
                    by,
                    raw: all().reduce(Fact::or).is_some_and(|all| all.raw),
                    ..moving
                }
            }
            "Where" => {
                let c = input(2).unwrap_or(Fact::NOTHING);
                let (all, bound) = (b.or(c), self.bound_of(&b).or(self.bound_of(&c)));
                match (b.constant, c.constant) {
                    (true, false) | (false, true) => {
                        let (known, moving) = if b.constant { (b, c) } else { (c, b) };
                        let (by, floor) = (known.by.or(moving.by), small(least(bound, moving.floor)));
                        Fact { floor, by, raw: all.raw, whole: all.whole, bounded: all.bounded, ..moving }
                    }
                    _ => all,
                }
            }
            "Pow" => Fact { raw: both.raw, constant: both.constant, ..Fact::NOTHING },
            // Numbers far from 1 outweigh those that are left to it.
            "ReduceMean" => Fact { one: None, ..a },
            "CumSum" => Fact { raw: true, bounded: false, count: Some(Count::Terms), ..a },
            "ReduceSum" => Fact { bounded: false, count: Some(Count::Terms), ..a },
            "ReduceL1" => Fact { raw: false, whole: false, bounded: false, count: Some(Count::Terms), ..a },
            "AveragePool" | "GlobalAveragePool" | "ReduceL2" => {
                Fact { raw: false, whole: false, bounded: false, one: None, ..a }
            }
            "LeakyRelu" | "PRelu" | "Elu" | "Celu" => {
                let slope = self.attribute(placed, "alpha")?.map_or(1.0, f64::from).max(if op == "PRelu" {
                    b.size.1
                } else {
                    0.0
                });
                let most = a.size.1 * slope.max(1.0);
                Fact { raw: false, whole: false, bounded: false, size: (a.size.0, most), by: both.by, ..a }
            }
            "Floor" | "Ceil" | "Round" => Fact { whole: true, ..a },
            "Sign" => Fact { whole: true, bounded: true, raw: a.raw, ..Fact::NOTHING },
            "Cast" | "CastLike" => a,
            "DequantizeLinear" => {
                let (least, most) = dequantized(&b);
                Fact { constant: false, whole: false, raw: false, ..sized(least, most) }
            }
            // The variance is that of its numbers, whatever their size.
            "BatchNormalization" if b.constant => {
                Fact { constant: false, whole: false, by: b.by, size: b.size, ..Fact::NOTHING }
            }
            "GroupNormalization" | "InstanceNormalization" | "LayerNormalization" | "RMSNormalization" => {
                self.product(Fact { constant: false, ..b }, Fact::NOTHING, false, false)
            }
            "Range" => Fact { whole: all().all(|fact| fact.whole), raw: true, ..Fact::NOTHING },
            "Exp" => Fact { raw: a.raw, constant: a.constant, one: near(&a), ..Fact::NOTHING },
            "Log" => Fact { raw: a.raw, constant: a.constant, ..Fact::NOTHING },
            "Sin" | "Cos" | "Sigmoid" | "HardSigmoid" | "Softmax" | "Tanh" | "Erf" | "Softsign" => {
                Fact { bounded: true, one: near(&a), ..Fact::NOTHING }
            }
            "Hardmax" => Fact { bounded: true, ..Fact::NOTHING },
            "Mod" => Fact { raw: both.raw, whole: both.whole, ..Fact::NOTHING },
            "Gemm" => {
                let factor = self.attribute(placed, "alpha")?.map_or(1.0, |factor| f64::from(factor.abs()));
                let whole = factor == 1.0 && all().all(|fact| fact.whole);
                let made = self.product(a, b, whole, a.raw && b.raw && self.is_of_few(placed));
                let added = self.attribute(placed, "beta")?.map_or(0.0, |factor| f64::from(factor.abs()));
                let added = input(2).map_or(0.0, |fact| fact.size.1 * added);
                Fact { size: (made.size.0 * factor, (made.size.1 * factor).max(added)), ..made }
            }
            "Einsum" | "MatMul" => {
                let raw = all().all(|fact| fact.raw) && self.is_of_few(placed) || self.runs(&a) || self.runs(&b);
                let count = (self.adds_up(&a) || self.adds_up(&b)).then_some(Count::Terms);
                Fact { count, ..self.product(a, b, all().all(|fact| fact.whole), raw) }
            }
            "Conv" => self.product(a, b, false, a.raw && b.raw && self.is_of_few(placed)),
            _ if self.moves[index] == Some(GraphList::Allow) => self.product(a, b, false, false),
            "Relu" | "MaxPool" | "GlobalMaxPool" | "Resize" | "Upsample" | "Shrink" | "Min" => {
                let moving = all().filter(|fact| !fact.constant).reduce(Fact::or).unwrap_or(a);
                let bound =
                    all().filter(|_| op == "Min").find_map(|fact| Some((self.negative_bound_of(&fact)?, fact.by)));
                Fact {
                    floor: small(bound.map(|(bound, _)| bound).or(moving.floor)),
                    by: bound.and_then(|(_, by)| by).or(moving.by),
                    raw: ["Min", "Resize", "Upsample"].contains(&op) && all().all(|fact| fact.raw),
                    constant: false,
                    ..moving
                }
            }
            "Concat" | "ScatterElements" | "ScatterND" | "Scatter" => all().reduce(Fact::or).unwrap_or(a),
            _ if self.moves[index] == Some(GraphList::Clear) => a,
            _ => Fact::NOTHING,
        })
    }

    fn sum(&self, terms: Vec<Fact>, op: &str) -> Fact {
        let all = terms.iter().copied().reduce(Fact::or).unwrap_or(Fact::NOTHING);
        let size = terms.iter().fold((0f64, 0f64), |size, fact| (size.0.max(fact.size.0), size.1.max(fact.size.1)));
        // A constant term is the least of numbers that are 0 or more, or with its sign the largest of those that are less. In
        // differences and with a sign, it is one if it is small, or else takes 0 to other numbers.
        let known = |fact: &Fact| self.constants.get(&fact.by?);
        let signed = |fact: &Fact| known(fact).filter(|known| fact.constant && known.is_uniform());
        let is_bound = |known: &&Tally, place: usize| f64::from(known.largest) <= SMALL || known.negative && place == 1;
        let bound = |(place, fact): (usize, &Fact)| match self.bound_of(fact).filter(|_| op != "Sub") {
            Some(bound) => Some((bound, fact.by)),
            None => Some((signed(fact).filter(|known| is_bound(known, place))?.largest.into(), fact.by)),
        };
        let term = terms.iter().enumerate().filter(|_| !all.constant).find_map(bound);
        // A term below the range keeps others from 0, as a mask times a small number.
        let is_guard = |fact: &&Fact| op != "Sub" && !fact.constant && self.limits.may_vanish(fact.size.1);
        let guard = terms.iter().filter(is_guard).map(|fact| fact.size.1).reduce(f64::min);
        let guard = guard.filter(|_| !self.limits.may_vanish(size.1));
        let moving = terms.iter().fold(guard, |floor, fact| least(floor, fact.floor));
        let by = term.and_then(|(_, by)| by).or(all.by);
        let one = one_of(&terms);
        let is_hiding = |fact: &Fact| fact.constant && known(fact).is_some_and(|known| known.hides);
        let is_step = |fact: &Fact| fact.size.1 <= STEP * size.1 && known(fact).is_some_and(Tally::is_uniform);
        let small_terms: Vec<&Fact> = terms.iter().filter(|fact| !fact.constant && is_step(fact)).collect();
        // An average of decay 0.98 and rate 0.02 has the size of its numbers.
        let size = small_terms.iter().fold(size, |size, fact| (size.0 + fact.size.0, size.1 + fact.size.1));
        Fact {
            size,
            floor: small(term.map(|(bound, _)| bound).or(moving)),
            ceiling: all.ceiling,
            by,
            one,
            count: terms
                .iter()
                .filter(|fact| !fact.constant || all.constant)
                .copied()
                .reduce(Fact::or)
                .and_then(|of| of.count),
            shifted: all.shifted || !all.constant && terms.iter().any(is_hiding),
            steps: all.steps + small_terms.len() as u32,
            ..all
        }
    }

    /// Returns the least number of a constant that is a bound: a positive one, or positive ones of which all are small.
    fn bound_of(&self, fact: &Fact) -> Option<f64> {
        let known = fact.by.and_then(|by| self.constants.get(&by));
        let least = known.map_or(Some(fact.size.1), Tally::bound);
        least.filter(|_| fact.constant)
    }

    /// Returns whether a product gives positions or coordinates their frequencies. One of an input that adds many terms is a
    /// layer.
    fn is_of_few(&self, placed: &Placed<'_>) -> bool {
        let source = placed.input(0).map(|value| self.values.values[self.source(value)].origin);
        source != Some(Origin::Input) || self.values.terms(placed).is_none_or(|terms| terms <= COORDINATES)
    }

    /// Returns the tally of a constant, if its numbers are known.
    fn tally(&self, fact: &Fact) -> Option<&Tally> {
        self.constants.get(&fact.by.filter(|_| fact.constant)?)
    }

    /// Returns whether a constant makes running sums in a product: a triangle of ones.
    fn runs(&self, fact: &Fact) -> bool {
        self.tally(fact).is_some_and(Tally::is_triangle)
    }

    /// Returns whether a constant makes sums in a product: ones.
    fn adds_up(&self, fact: &Fact) -> bool {
        self.tally(fact).is_some_and(|known| known.is_one() && known.largest == 1.0 && known.count > 1)
    }

    /// Returns the fact of a product. Weights make large numbers no larger and small ones no smaller: sums of products of
    /// usual weights have the size of what they read.
    fn product(&self, a: Fact, b: Fact, whole: bool, raw: bool) -> Fact {
        let limits = &self.limits;
        let is_large =
            |fact: Fact, size| if fact.constant { limits.is_beyond(size) } else { limits.may_overflow(size) };
        let is_small = |fact: Fact, size| if fact.constant { limits.is_below(size) } else { limits.may_vanish(size) };
        let size = |x: f64, y: f64| match x * y {
            size if is_large(a, x) || is_large(b, y) => size.min(x.max(y)),
            size if is_small(a, x) || is_small(b, y) => size.max(x.min(y)),
            _ => 1.0,
        };
        // Two small factors of activations.
        let tiny = |x: f64, y: f64| !a.constant && !b.constant && x < 1.0 && y < 1.0 && limits.may_vanish(x * y);
        let size = |x: f64, y: f64| if tiny(x, y) { x * y } else { size(x, y) };
        let size = (size(a.size.0, b.size.0), size(a.size.1, b.size.1));
        let both = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a * b);
        let (floor, ceiling) = (small(both(a.floor, b.floor)), both(a.ceiling, b.ceiling));
        let is_named = size != (1.0, 1.0) || floor.is_some() || ceiling.is_some();
        let by = a.named().filter(|_| !a.constant).or(b.named()).filter(|_| is_named);
        Fact { size, floor, ceiling, by, whole, raw, ..Fact::NOTHING }
    }

    /// Returns the lower bound of a `Clip`, or the upper one of numbers below 0, and the constant that gives it.
    fn bound(&self, placed: &Placed<'_>, before: &[Option<Fact>]) -> Result<Option<(f64, Option<usize>)>> {
        let fact = |place: usize| Some(self.get(placed.input(place)?, before));
        let named = |bound: Option<f64>, fact: Fact| Some((bound?, fact.by));
        let least = fact(1).and_then(|fact| named(self.bound_of(&fact), fact));
        let most = fact(2).and_then(|fact| named(self.negative_bound_of(&fact), fact));
        let (low, high) = (self.attribute(placed, "min")?, self.attribute(placed, "max")?);
        let attribute = low.filter(|low| *low > 0.0).or(high.map(|high| -high).filter(|high| *high > 0.0));
        Ok(least.or(most).or(attribute.map(|bound| (bound.into(), None))))
    }

    /// Returns the magnitude of a constant that is an upper bound of numbers below 0.
    fn negative_bound_of(&self, fact: &Fact) -> Option<f64> {
        let known = self.tally(fact)?;
        Some(known.largest.into()).filter(|_| known.negative && known.is_uniform())
    }

    fn attribute(&self, placed: &Placed<'_>, name: &str) -> Result<Option<f32>> {
        let numbers = self.values.model.float_numbers(placed.node, name)?;
        Ok(numbers.and_then(|numbers| numbers.last().copied()))
    }

    /// Returns whether a factor of a product is 1 minus something, which is how masks are inverted.
    fn is_one_minus(&self, placed: &Placed<'_>) -> bool {
        placed.inputs.iter().flatten().any(|&value| {
            let Origin::Node { node } = self.values.values[value].origin else { return false };
            let maker = &self.values.nodes[node];
            let is_one = |place| self.input(maker, place).is_some_and(|fact| fact.constant && fact.size == (1.0, 1.0));
            maker.node.op == "Sub" && (is_one(0) || is_one(1))
        })
    }

    /// Returns the value that a chain of nodes moved or gave another sign.
    pub fn source(&self, mut value: usize) -> usize {
        while let Origin::Node { node } = self.values.values[value].origin {
            let placed = &self.values.nodes[node];
            let moved = ["Abs", "Expand", "Flatten", "Identity", "Neg", "Reshape", "Squeeze", "Transpose", "Unsqueeze"];
            match placed.inputs.first() {
                Some(Some(from)) if moved.contains(&&placed.node.op[..]) && placed.node.domain.is_empty() => {
                    value = *from
                }
                _ => break,
            }
        }
        value
    }
}

/// Returns the relation to 1 of a function of numbers that ends in 1.
fn near(of: &Fact) -> Option<One> {
    (!of.constant).then_some(One::Near)
}

/// Returns the relation to 1 of a sum: of numbers near 1 and 1 with the other sign, of what is left to 1 and constants, of
/// either and small constants, or of small numbers and 1.
fn one_of(terms: &[Fact]) -> Option<One> {
    let (constants, moving): (Vec<&Fact>, Vec<&Fact>) = terms.iter().partition(|fact| fact.constant);
    let [of] = moving[..] else { return None };
    let sized = |least: f64, most: f64| constants.iter().all(|fact| least <= fact.size.0 && fact.size.1 <= most);
    match of.one {
        None => (of.size.1 <= SMALL && sized(0.99, 1.01)).then_some(One::Near),
        Some(One::Near) if sized(0.99, 1.01) => Some(One::Complement),
        Some(near) => sized(0.0, SMALL).then_some(near),
    }
}

/// Returns the sign of a constant exponent.
fn exponent_sign(facts: &Facts<'_>, exponent: Fact) -> f64 {
    let known = exponent.by.and_then(|value| facts.constants.get(&value));
    if known.is_some_and(|known| known.negative) { -1.0 } else { 1.0 }
}

fn small(floor: Option<f64>) -> Option<f64> {
    floor.filter(|floor| *floor > 0.0 && *floor < 1.0)
}

fn power(of: Fact, exponent: f64) -> Fact {
    let raised = |x: f64| x.powf(exponent);
    let (least, most) = (raised(of.size.0), raised(of.size.1));
    let (floor, ceiling) = (of.floor.map(raised), of.ceiling.map(raised));
    let ends = if exponent < 0.0 { (most, least, ceiling, floor) } else { (least, most, floor, ceiling) };
    let count = if exponent == -1.0 { inverse(of.count()) } else { None };
    Fact { size: (ends.0, ends.1), floor: small(ends.2), ceiling: ends.3, whole: false, count, ..of }
}

/// Returns the relation of reciprocals to a number of terms.
fn inverse(of: Option<Count>) -> Option<Count> {
    of.map(|of| if of == Count::Terms { Count::Share } else { Count::Terms })
}

/// Returns the size of integers with a scale: most of 8 bits are a sixteenth of the largest or more.
fn dequantized(scale: &Fact) -> (f64, f64) {
    (8.0 * scale.size.0, 127.0 * scale.size.1)
}

/// Returns whether a scope is in a body of a node.
fn is_inside(values: &Values<'_>, mut scope: usize, control: usize) -> bool {
    while let Some(owner) = values.scopes[scope].owner {
        if owner == control {
            return true;
        }
        scope = values.nodes[owner].scope;
    }
    false
}

/// Returns, for each value that a node with bodies hands on, the values that it comes from.
fn insides(values: &Values<'_>) -> HashMap<usize, Vec<usize>> {
    let mut inside: HashMap<usize, Vec<usize>> = HashMap::new();
    for placed in values.nodes.iter().filter(|placed| !placed.bodies.is_empty()) {
        for edge in edges(values, placed) {
            for to in [edge.body_in, edge.outside_out].into_iter().flatten() {
                let from = [edge.outside_in, edge.body_out].into_iter().flatten().filter(|&from| from != to);
                inside.entry(to).or_default().extend(from);
            }
        }
    }
    inside
}
