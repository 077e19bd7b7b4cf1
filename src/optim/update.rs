//! One update of one parameter, in the dtype of its arithmetic.

use half::{bf16, f16};
use precast_kernels::{
    Array, Renewed, Stored,
    float::Float,
    memory::Pooled,
    update::{
        Count, Gradient, Kahan, MOMENTS, Moment, Multiplied, Pass, Place, Rounded, Stochastic, Storage, Stream, Values,
        Wide, WithMaster, eight_bit::Blocks, load_all,
    },
};
use precast_tensor::{Factors, Rounding, internals::ParamInternals as _};

use super::{
    rule::{Number, Rule, Step, Whole},
    state::{Average, Layout, Memory},
};
use crate::{DType, Param};

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
            let (mut value, mut master) = (value.renewed(), master.map(Array::renewed));
            let count = self.write(grad, factors, (&mut value, master.as_mut(), rounding), memory);
            value.done();
            master.into_iter().for_each(Renewed::done);
            count
        })
    }

    fn write(
        &self,
        grad: &Array,
        factors: Factors,
        (value, master, rounding): (&mut Renewed<'_>, Option<&mut Renewed<'_>>, Rounding),
        Memory { kept, compensation, .. }: &mut Memory,
    ) -> Count {
        let dtype = value.parts().1.dtype();
        let [unscale, clip] = [factors.unscale, factors.clip as f32];
        let grad: &dyn Gradient<f32> = match grad {
            Array::F32(_) => &multiplied::<f32>(grad, [unscale, clip]),
            Array::F16(_) => &multiplied::<f16>(grad, [unscale, clip]),
            Array::Bf16(_) => &multiplied::<bf16>(grad, [unscale, clip]),
            _ => {
                let grad = multiplied::<f64>(grad, [unscale.into(), factors.clip]);
                return self.run(&mut Wide(place::<f64>(value)), &grad, kept);
            }
        };
        if let Some(master) = master {
            let master = place(master);
            return match dtype {
                DType::F16 => self.run(&mut WithMaster { value: place::<f16>(value), master }, grad, kept),
                _ => self.run(&mut WithMaster { value: place::<bf16>(value), master }, grad, kept),
            };
        }
        match (dtype, rounding) {
            (DType::F32, _) => self.run(&mut Wide(place::<f32>(value)), grad, kept),
            (DType::F16, _) => self.run(&mut Rounded(place::<f16>(value)), grad, kept),
            (_, Rounding::Nearest) => self.run(&mut Rounded(place::<bf16>(value)), grad, kept),
            (_, Rounding::Stochastic { seed }) => {
                let stream = Stream::new(seed, self.path, self.step.count);
                self.run(&mut Stochastic { value: place(value), stream }, grad, kept)
            }
            (_, Rounding::Kahan) => {
                let mut rest = compensation.as_mut().expect("the layout has one").renewed();
                let count = self.run(&mut Kahan { value: place(value), compensation: place(&mut rest) }, grad, kept);
                rest.done();
                count
            }
        }
    }

    /// Runs the update in the dtype of the arithmetic.
    fn run<N: Number>(&self, storage: &mut dyn Storage<N>, grad: &dyn Gradient<N>, kept: &mut [Average]) -> Count {
        let (rule, shape) = (self.rule, &self.shape[..]);
        let len = if R::LOOKS { storage.len() } else { 0 };
        let mut value_space = Pooled::uninit(if storage.is_wide() { 0 } else { len });
        let mut grad_space = Pooled::uninit(len);
        let whole_grad;
        let (known, grad): (_, &dyn Gradient<N>) = if R::LOOKS {
            whole_grad = Multiplied { grad: grad.products(&mut grad_space), factors: [N::one(); 2] };
            let averages = kept.iter_mut().filter_map(Average::full).collect();
            let whole =
                Whole { shape, value: load_all(storage, &mut value_space), grad: whole_grad.grad, kept: averages };
            (rule.prepare(&self.step, whole), &whole_grad)
        } else {
            (rule.prepare(&self.step, Whole { shape, value: &[], grad: &[], kept: vec![] }), grad)
        };
        let moments = kept.iter_mut().zip(&self.layout.kept).filter(|(_, (kept, _))| kept.shape == shape);
        let moments = moments.map(|(average, _)| average.moment()).collect();
        let formula = |start, value: &mut Values<'_, N>, grad: Multiplied<'_, N>, moments: [&mut [N]; MOMENTS]| {
            R::apply(&known, start, value, grad, moments);
        };
        Pass { storage, grad, moments, count: self.count, update: self.step.count }.run(&formula)
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

fn place<'a, T: Stored>(renewed: &'a mut Renewed<'_>) -> Place<'a, T> {
    let (old, new) = renewed.parts();
    let slice = |old: &'a Array| old.slice::<T>().expect("of one dtype and contiguous");
    Place::new(old.map(slice), new.slice_mut::<T>().expect("of this dtype and contiguous"))
}

#[cfg(test)]
mod tests {
    use precast_tensor::internals::TensorInternals as _;

    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::{Child, Tensor, optim::SgdOptions, optim::rule::Kept, prelude::Decorate, storage::decorate};

    /// An update that panics in a kernel, since an average has another length than the parameter.
    #[test]
    fn a_panic_in_an_update_leaves_the_parameter_as_it_was() {
        let bf16 = || Decorate::new(DType::Bf16);
        let storages = [
            None,
            Some(bf16()),
            Some(bf16().masters(false)),
            Some(bf16().stochastic_rounding(3)),
            Some(bf16().kahan()),
        ];
        for (storage, is_shared) in storages.iter().flat_map(|storage| [(storage, false), (storage, true)]) {
            let net = Child::new(crate::layers::Dense::new(4, 4, &mut crate::layers::Rng::seed(1)));
            storage.as_ref().map_or(Ok(()), |storage| decorate(&net, storage.clone()).map(drop)).unwrap();
            let param = &net.named_params()[0].1;
            let master = || param.master().map(|master| master.to_f64());
            let before = (param.value().to_f64(), master(), param.dtype());
            let readers = is_shared.then(|| (param.value(), param.master()));
            let compensation = (param.rounding() == Rounding::Kahan).then(|| vec![4, 4]);
            let kept = vec![(Kept::new("velocity", &[4, 4]), false)];
            let layout = Layout { wide: DType::F32, kept, compensation: compensation.clone() };
            let mut memory = Memory::new(&layout);
            memory.kept = vec![Average::Full(Tensor::zeros(&[3], DType::F32).array().clone())];
            let rests = is_shared.then(|| memory.compensation.clone());
            let rule = &SgdOptions::default();
            let step = Step { count: 1, lr: 0.1, weight_decay: 0.0 };
            let one = One { rule, step, path: "weight", param, shape: vec![4, 4], layout: &layout, count: false };
            let grad = Tensor::ones(&[4, 4], DType::F32);
            let update = || one.update(grad.array(), Factors::default(), &mut memory);
            assert!(catch_unwind(AssertUnwindSafe(update)).is_err());
            assert_eq!((param.value().to_f64(), master(), param.dtype()), before, "{storage:?}, shared: {is_shared}");
            assert_eq!(param.shape(), [4, 4]);
            let rest = memory.compensation.as_ref().map(|rest| Tensor::from_array(rest.clone()).to_f64());
            assert_eq!(rest, compensation.map(|_| vec![0.0; 16]));
            drop((readers, rests));
        }
    }
}
