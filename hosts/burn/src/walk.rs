//! The walk through a network. `Module::visit` and `Module::map` of a wrapper have no argument that carries its own
//! path, so the walk leaves it in a thread-local.

use std::{cell::RefCell, collections::BTreeMap};

use burn::tensor::FloatDType;
use precast_policy::DType;

/// The casts of [`Amp`](crate::Amp) at the border of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Border {
    pub inward: FloatDType,
    pub outward: FloatDType,
}

/// Everything that a plan sets in a network, by path. Where a path is missing, nothing is cast.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    /// By the path of a module in an [`Amp`](crate::Amp).
    pub borders: BTreeMap<String, Border>,
    /// By the path of a parameter.
    pub weights: BTreeMap<String, FloatDType>,
}

/// The wrappers and cast weights that a walk met, by path, with their settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    pub wrappers: BTreeMap<String, Option<Border>>,
    /// Dtypes that code requests.
    pub to_float: BTreeMap<String, DType>,
    pub weights: BTreeMap<String, Option<FloatDType>>,
}

#[derive(Default)]
struct Walk {
    path: Vec<String>,
    /// Set by these, where the walk changes the network.
    settings: Option<Settings>,
    met: Met,
}

thread_local! {
    static WALK: RefCell<Option<Walk>> = const { RefCell::new(None) };
}

/// Ends the walk, also on a panic of a module.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        WALK.set(None);
    }
}

/// Walks through a network by `through`, which calls [`enter`] and [`exit`]. Returns its result and what it met.
pub(crate) fn walk<R>(settings: Option<Settings>, through: impl FnOnce() -> R) -> (R, Met) {
    WALK.set(Some(Walk { settings, ..Walk::default() }));
    let _ends = Ends;
    let result = through();
    (result, WALK.take().map(|walk| walk.met).unwrap_or_default())
}

pub(crate) fn enter(name: &str) {
    WALK.with_borrow_mut(|walk| walk.iter_mut().for_each(|walk| walk.path.push(name.to_string())));
}

pub(crate) fn exit() {
    WALK.with_borrow_mut(|walk| walk.iter_mut().for_each(|walk| drop(walk.path.pop())));
}

/// Returns the path of the module that the walk is in; `None` outside of a walk.
pub(crate) fn here() -> Option<String> {
    WALK.with_borrow(|walk| walk.as_ref().map(|walk| walk.path.join(".")))
}

/// Notes a wrapper.
pub(crate) fn meet_wrapper(border: Option<Border>, to_float: Option<DType>) {
    WALK.with_borrow_mut(|walk| {
        let Some(walk) = walk else { return };
        let path = walk.path.join(".");
        walk.met.to_float.extend(to_float.map(|dtype| (path.clone(), dtype)));
        walk.met.wrappers.insert(path, border);
    });
}

/// Notes a cast of a weight. The innermost name is that of the cast itself.
pub(crate) fn meet_weight(dtype: Option<FloatDType>) {
    WALK.with_borrow_mut(|walk| {
        let Some(walk) = walk else { return };
        let (_, path) = walk.path.split_last().unzip();
        walk.met.weights.insert(path.unwrap_or_default().join("."), dtype);
    });
}

/// Returns what a wrapper is set to; `None` where the walk changes nothing.
pub(crate) fn border_here() -> Option<Option<Border>> {
    WALK.with_borrow(|walk| {
        let walk = walk.as_ref()?;
        Some(walk.settings.as_ref()?.borders.get(&walk.path.join(".")).copied())
    })
}

/// Returns what the cast of a weight is set to; `None` where the walk changes nothing.
pub(crate) fn weight_here() -> Option<Option<FloatDType>> {
    WALK.with_borrow(|walk| {
        let walk = walk.as_ref()?;
        let (_, path) = walk.path.split_last()?;
        Some(walk.settings.as_ref()?.weights.get(&path.join(".")).copied())
    })
}
