//! Weights that are stored in one dtype and read in another: a reparameterization of burn's.

use std::{cell::RefCell, sync::Arc};

use burn::{
    module::{
        Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param,
        Reparameterization, Reparameterizer,
    },
    tensor::{Device, FloatDType, Tensor},
};

use crate::walk::{self, Settings};

thread_local! {
    static LAST_READ: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
    /// Paths of the parameters that were read, in order, while a recording marks them.
    static MARKED: RefCell<Option<Vec<Arc<str>>>> = const { RefCell::new(None) };
}

/// Returns the path of the weight that was cast last on this thread since the previous call.
pub(crate) fn last_read() -> Option<Arc<str>> {
    LAST_READ.take()
}

/// Runs `f`, in which each parameter that has a [`CastOnRead`] is marked where it is read: by an op that reverses no axis,
/// which no other code has a reason to call. Returns the paths of their modules, one for each mark, in order.
pub(crate) fn marked<R>(f: impl FnOnce() -> R) -> (R, Vec<Arc<str>>) {
    MARKED.set(Some(Vec::new()));
    let result = f();
    (result, MARKED.take().unwrap_or_default())
}

/// Casts a parameter where the forward pass reads it, on the tape. Visitors, optimizers and records have the parameter
/// as it is stored, and its gradient arrives in that dtype.
#[derive(Clone, Debug)]
pub(crate) struct CastOnRead {
    /// Path of the parameter, for messages.
    path: Arc<str>,
    /// `None` reads the parameter as it is stored.
    dtype: Option<FloatDType>,
}

impl Reparameterization for CastOnRead {
    const NAME: &'static str = "precast";

    fn apply<const D: usize>(&self, base: Tensor<D>) -> Tensor<D> {
        LAST_READ.set(Some(self.path.clone()));
        let base = MARKED.with_borrow_mut(|marked| match marked {
            None => base,
            Some(marked) => {
                marked.push(self.path.rsplit_once('.').map_or("", |(module, _)| module).into());
                base.flip::<0>([] as [usize; 0])
            }
        });
        match self.dtype {
            Some(dtype) if base.dtype() != dtype.into() => base.cast(dtype),
            _ => base,
        }
    }
}

impl Module for CastOnRead {
    fn collect_devices(&self, devices: Devices) -> Devices {
        devices
    }

    fn fork(self, _: &Device) -> Self {
        self
    }

    fn to_device(self, _: &Device) -> Self {
        self
    }

    fn train(self) -> Self {
        self
    }

    fn valid(&self) -> Self {
        self.clone()
    }

    fn materialize(self) -> Self {
        self
    }

    fn visit<V: ModuleVisitor>(&self, _: &mut V) {
        walk::meet_weight(self.dtype);
    }

    fn map<M: ModuleMapper>(self, _: &mut M) -> Self {
        CastOnRead { dtype: walk::weight_here().unwrap_or(self.dtype), path: self.path }
    }
}

impl ModuleDisplayDefault for CastOnRead {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_debug_attribute("dtype", &self.dtype).optional()
    }
}

impl ModuleDisplay for CastOnRead {}

/// Attaches casts to the parameters of settings; without settings, one that does nothing to each parameter, so that a
/// recording can [mark](marked) it.
pub(crate) struct Attach<'a>(pub Option<&'a Settings>);

impl Reparameterizer for Attach<'_> {
    type Reparam = CastOnRead;

    fn reparameterize<const D: usize>(
        &mut self,
        path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<CastOnRead>) {
        let dtype = self.0.map(|settings| settings.weights.get(path).copied());
        let attached = !matches!(dtype, Some(None));
        (param, attached.then(|| CastOnRead { path: path.into(), dtype: dtype.flatten() }))
    }
}
