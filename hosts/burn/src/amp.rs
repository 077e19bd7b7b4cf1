//! The wrapper of modules whose precision may differ from that of their surroundings.

use burn::{
    module::{
        Content, Devices, DisplaySettings, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
    },
    tensor::{Device, FloatDType},
};
use precast_policy::DType;

use crate::{
    castable::Castable,
    forward::Forward,
    walk::{self, Border},
};

/// A module, and the casts of what enters and leaves it, as a plan determines them. Without a plan it casts nothing.
///
/// The network itself is wrapped, and so is every field whose module runs in another precision than its surroundings:
/// at level O2 the norms, at level O1 the layers that multiply. Applying a plan names the fields that lack it. Paths,
/// records and optimizers have the module inside, as if the wrapper were not there.
#[derive(Clone, Debug)]
pub struct Amp<M> {
    inner: M,
    border: Option<Border>,
    to_float: Option<DType>,
}

impl<M> Amp<M> {
    /// Wraps a module.
    pub fn new(inner: M) -> Self {
        Amp { inner, border: None, to_float: None }
    }

    /// Requests a dtype for the module in code, as torch's `custom_fwd` and MindSpore's `to_float` do: f32, f16 or
    /// bf16. It overrides the level of a policy; a rule that names the path overrides it. Any other dtype is ignored.
    pub fn to_float(mut self, dtype: DType) -> Self {
        self.to_float = dtype.is_castable().then_some(dtype);
        self
    }

    /// Calls the module: casts the input, calls `f`, casts the output.
    ///
    /// ```
    /// use burn::{nn::LayerNormConfig, tensor::{Device, Tensor}};
    /// use precast_burn::Amp;
    /// let device = Device::default();
    /// let norm = Amp::new(LayerNormConfig::new(4).init(&device));
    /// let y = norm.with(Tensor::<2>::ones([2, 4], &device), |norm, x| norm.forward(x));
    /// assert_eq!(y.dims(), [2, 4]);
    /// ```
    pub fn with<I: Castable, O: Castable>(&self, input: I, f: impl FnOnce(&M, I) -> O) -> O {
        match self.border {
            None => f(&self.inner, input),
            Some(Border { inward, outward }) => f(&self.inner, input.cast_to(inward)).cast_to(outward),
        }
    }

    /// Calls the module by its own [`forward`](Forward::forward), between the casts.
    pub fn forward<I: Castable>(&self, input: I) -> M::Output
    where
        M: Forward<I>,
        M::Output: Castable,
    {
        self.with(input, |module, input| module.forward(input))
    }

    /// Returns the module inside. A call of it casts nothing.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Returns the module inside, to change its fields.
    pub fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }

    /// Returns the module inside, and drops the casts at its border. Its weights are still read in their planned dtypes:
    /// [undo](crate::Applied::undo) the plan first, or [`materialize`](Module::materialize).
    pub fn into_inner(self) -> M {
        self.inner
    }

    /// Returns the dtype of the inputs that the module gets, and that of the outputs it returns; `None` where nothing
    /// is cast.
    pub fn casts(&self) -> Option<(FloatDType, FloatDType)> {
        self.border.map(|Border { inward, outward }| (inward, outward))
    }

    fn map_inner<N>(self, f: impl FnOnce(M) -> N) -> Amp<N> {
        Amp { inner: f(self.inner), border: self.border, to_float: self.to_float }
    }
}

impl<M> From<M> for Amp<M> {
    fn from(inner: M) -> Self {
        Amp::new(inner)
    }
}

impl<I: Castable, M: Forward<I, Output: Castable>> Forward<I> for Amp<M> {
    type Output = M::Output;

    fn forward(&self, input: I) -> M::Output {
        Amp::forward(self, input)
    }
}

impl<M: Module> Module for Amp<M> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.inner.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        self.map_inner(|inner| inner.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.map_inner(|inner| inner.to_device(device))
    }

    fn train(self) -> Self {
        self.map_inner(M::train)
    }

    fn valid(&self) -> Self {
        Amp { inner: self.inner.valid(), border: self.border, to_float: self.to_float }
    }

    /// Stores each weight in the dtype in which it is read. The casts at the border stay.
    ///
    /// # Panics
    /// When a weight has grown to a number that would be infinite there; the message names it.
    fn materialize(self) -> Self {
        crate::apply::check_read(&self).unwrap_or_else(|error| panic!("{error}"));
        self.map_inner(M::materialize)
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        walk::meet_wrapper(self.border, self.to_float);
        self.inner.visit(visitor);
    }

    fn map<P: ModuleMapper>(self, mapper: &mut P) -> Self {
        let border = walk::border_here().unwrap_or(self.border);
        Amp { border, ..self.map_inner(|inner| inner.map(mapper)) }
    }
}

impl<M: ModuleDisplayDefault> ModuleDisplayDefault for Amp<M> {
    fn content(&self, content: Content) -> Option<Content> {
        self.inner.content(content)
    }

    fn num_params(&self) -> usize {
        self.inner.num_params()
    }
}

impl<M: ModuleDisplay> ModuleDisplay for Amp<M> {
    fn format(&self, settings: DisplaySettings) -> String {
        self.inner.format(settings)
    }

    fn custom_settings(&self) -> Option<DisplaySettings> {
        self.inner.custom_settings()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        self.inner.custom_content(content)
    }
}

impl<M: ModuleDisplay> std::fmt::Display for Amp<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.format(DisplaySettings::new()))
    }
}
