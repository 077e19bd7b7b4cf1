//! One update of one parameter, in the dtype of its arithmetic.

use half::{bf16, f16};

use super::{
    rule::{Number, Rule, Step, Whole},
    state::{Average, Layout, Memory},
};
use crate::{
    DType, Param,
    kernels::{
        float::Float,
        memory::Pooled,
        update::{
            Count, Gradient, Kahan, MOMENTS, Moment, Multiplied, Pass, Place, Rounded, Stochastic, Storage, Stream,
            Values, Wide, WithMaster, eight_bit::Blocks, load_all,
        },
    },
    tensor::{Array, Factors, Rounding, Stored},
};

/// One update of one parameter.
pub(super) struct One<'a, R> {
    pub rule: &'a R,
    pub step: Step,
    pub path: &'a str,
    pub param: &'a Param,
    pub shape: Vec<usize>,
    pub layout: &'a Layout,
    /// `true` when lost updates are counted.
    pub count: bool,
}

impl<R: Rule> One<'_, R> {
    pub fn update(&self, grad: &Array, factors: Factors, memory: &mut Memory) -> Count {
        let rounding = self.param.rounding();
        self.param.rewrite(|value, master| {
            let old = value.renew();
            let old_value = old.as_ref();
            let [unscale, clip] = [factors.unscale, factors.clip as f32];
            let grad: &dyn Gradient<f32> = match grad {
                Array::F32(_) => &multiplied::<f32>(grad, [unscale, clip]),
                Array::F16(_) => &multiplied::<f16>(grad, [unscale, clip]),
                Array::Bf16(_) => &multiplied::<bf16>(grad, [unscale, clip]),
                _ => {
                    let grad = multiplied::<f64>(grad, [unscale.into(), factors.clip]);
                    return self.run(&mut Wide(place::<f64>(old_value, value)), &grad, memory);
                }
            };
            if let Some(master) = master {
                let old = master.renew();
                let master = place(old.as_ref(), master);
                return match value.dtype() {
                    DType::F16 => {
                        self.run(&mut WithMaster { value: place::<f16>(old_value, value), master }, grad, memory)
                    }
                    _ => self.run(&mut WithMaster { value: place::<bf16>(old_value, value), master }, grad, memory),
                };
            }
            match (value.dtype(), rounding) {
                (DType::F32, _) => self.run(&mut Wide(place::<f32>(old_value, value)), grad, memory),
                (DType::F16, _) => self.run(&mut Rounded(place::<f16>(old_value, value)), grad, memory),
                (_, Rounding::Nearest) => self.run(&mut Rounded(place::<bf16>(old_value, value)), grad, memory),
                (_, Rounding::Stochastic { seed }) => {
                    let stream = Stream::new(seed, self.path, self.step.count);
                    self.run(&mut Stochastic { value: place(old_value, value), stream }, grad, memory)
                }
                (_, Rounding::Kahan) => {
                    let mut rest = memory.compensation.take().expect("the layout has one");
                    let old_rest = rest.renew();
                    let compensation = place(old_rest.as_ref(), &mut rest);
                    let value = place(old_value, value);
                    let count = self.run(&mut Kahan { value, compensation }, grad, memory);
                    memory.compensation = Some(rest);
                    count
                }
            }
        })
    }

    /// Runs the update in the dtype of the arithmetic.
    fn run<N: Number>(&self, storage: &mut dyn Storage<N>, grad: &dyn Gradient<N>, memory: &mut Memory) -> Count {
        let (rule, shape) = (self.rule, &self.shape[..]);
        let len = if R::LOOKS { storage.len() } else { 0 };
        let mut value_space = Pooled::uninit(if storage.is_wide() { 0 } else { len });
        let mut grad_space = Pooled::uninit(len);
        let whole_grad;
        let (known, grad): (_, &dyn Gradient<N>) = if R::LOOKS {
            whole_grad = Multiplied { grad: grad.products(&mut grad_space), factors: [N::one(); 2] };
            let kept = memory.kept.iter_mut().filter_map(Average::full).collect();
            let whole = Whole { shape, value: load_all(storage, &mut value_space), grad: whole_grad.grad, kept };
            (rule.prepare(&self.step, whole), &whole_grad)
        } else {
            (rule.prepare(&self.step, Whole { shape, value: &[], grad: &[], kept: vec![] }), grad)
        };
        let moments = memory.kept.iter_mut().zip(&self.layout.kept).filter(|(_, (kept, _))| kept.shape == shape);
        let moments = moments.map(|(average, _)| average.moment()).collect();
        let formula = |start, value: &mut Values<'_, N>, grad: Multiplied<'_, N>, moments: [&mut [N]; MOMENTS]| {
            R::apply(&known, start, value, grad, moments);
        };
        Pass { storage, grad, moments, count: self.count }.run(&formula)
    }
}

impl Average {
    /// Returns the numbers of an average that is not in 8 bits.
    fn full<N: Number>(&mut self) -> Option<&mut [N]> {
        match self {
            Average::Full(array) => array.slice_mut::<N>(),
            Average::Blocks { .. } => None,
        }
    }

    fn moment<N: Number>(&mut self) -> Moment<'_, N> {
        match self {
            Average::Full(array) => Moment::Full(array.slice_mut().expect("made in this dtype")),
            Average::Blocks { codes, largest, map } => Moment::Blocks(Blocks { codes, largest, map }),
        }
    }
}

fn multiplied<G: Float + Stored>(grad: &Array, factors: [G::Wide; 2]) -> Multiplied<'_, G> {
    Multiplied { grad: grad.slice::<G>().expect("of this dtype and contiguous"), factors }
}

fn place<'a, T: Stored>(old: Option<&'a Array>, new: &'a mut Array) -> Place<'a, T> {
    let slice = |old: &'a Array| old.slice::<T>().expect("of one dtype and contiguous");
    Place::new(old.map(slice), new.slice_mut::<T>().expect("of this dtype and contiguous"))
}
