//! The facts of one value, and what holds for numbers that have one of two.

/// The facts of a value. Where nothing is known, numbers are taken to be near 1, as activations are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fact {
    /// Least and largest magnitudes that factors and divisors give to the numbers.
    pub size: (f64, f64),
    /// A magnitude below 1 that a bound or a constant term keeps numbers from falling below.
    pub floor: Option<f64>,
    /// A magnitude that the reciprocal of such numbers may reach.
    pub ceiling: Option<f64>,
    /// The constant that gives size, floor or ceiling.
    pub by: Option<usize>,
    /// A constant that the low dtype does not hold, which an op moved or added without making it smaller.
    pub unfit: Option<usize>,
    /// `true` when nothing but constants is behind it.
    pub constant: bool,
    /// `true` for integers.
    pub whole: bool,
    /// `true` when no number is above a few, as those of gates and masks.
    pub bounded: bool,
    /// `true` for positions and times: inputs, integers, constants and running sums, and what arithmetic makes of them, also
    /// with other numbers.
    pub raw: bool,
    /// The relation of computed numbers to 1.
    pub one: Option<One>,
    /// The relation to a number of terms.
    pub count: Option<Count>,
    /// `true` for sums with a constant so large in a whole row that the digits of the others are lost.
    pub shifted: bool,
    /// The number of small terms that were added one after the other.
    pub steps: u32,
}

/// A relation of numbers to a number of terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// They are counts, lengths or sums, by which another sum is divided.
    Terms,
    /// They are reciprocals of these.
    Share,
}

/// A relation of computed numbers to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum One {
    /// They may be near 1, as probabilities are.
    Near,
    /// They are what is left to 1, and have the errors of numbers near it.
    Complement,
}

impl Fact {
    pub const NOTHING: Fact = Fact {
        size: (1.0, 1.0),
        floor: None,
        ceiling: None,
        by: None,
        unfit: None,
        constant: false,
        whole: false,
        bounded: false,
        raw: false,
        one: None,
        count: None,
        shifted: false,
        steps: 0,
    };

    /// Returns the constant that gives numbers another size than 1, or a bound.
    pub fn named(&self) -> Option<usize> {
        self.by.filter(|_| self.size != (1.0, 1.0) || self.floor.is_some() || self.ceiling.is_some())
    }

    /// Returns what holds for numbers of which each has one of two facts.
    pub fn or(self, other: Fact) -> Fact {
        Fact {
            size: (self.size.0.min(other.size.0), self.size.1.max(other.size.1)),
            floor: least(self.floor, other.floor),
            ceiling: most(self.ceiling, other.ceiling),
            by: self.named().or(other.named()).or(self.by).or(other.by),
            unfit: self.unfit.or(other.unfit),
            constant: self.constant && other.constant,
            whole: self.whole && other.whole,
            bounded: self.bounded && other.bounded,
            raw: self.raw && other.raw || self.is_position() || other.is_position(),
            one: self.one.filter(|one| other.one.is_none_or(|_| *one == One::Complement)).or(other.one),
            count: self.count.filter(|_| self.count == other.count),
            shifted: self.shifted || other.shifted,
            steps: self.steps.max(other.steps),
        }
    }

    fn is_position(&self) -> bool {
        self.raw && !self.constant
    }

    /// Returns the relation to a number of terms. Integers other than truths count.
    pub fn count(&self) -> Option<Count> {
        self.count.or((self.whole && !self.constant && !self.bounded).then_some(Count::Terms))
    }

    /// Returns whether numbers are what is left to 1.
    pub fn is_complement(&self) -> bool {
        self.one == Some(One::Complement)
    }
}

pub(super) fn least(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::min)
}

fn most(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}
