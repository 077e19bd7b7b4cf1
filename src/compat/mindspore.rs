//! Mixed precision in the form of MindSpore's `mindspore.amp`.

use crate::{
    Autocast, Child, DType, Level, Policy,
    autocast::Wrapped,
    cell::AsCell,
    error::{Error, Result},
    plan::Applied,
    policy::{Lists, check_low},
};

/// Wraps a network by a level with the default lists: plans and applies in one call.
///
/// The level may be given by name. The dtype is checked before the level, and both before anything is changed.
///
/// # Errors
/// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16 (also for O0),
/// [`ErrorKind::Level`](crate::ErrorKind::Level) for an unknown level.
///
/// ```
/// use precast::prelude::*;
/// let mut net = Child::new(Dense::new(4, 2, &mut Rng::seed(1)));
/// auto_mixed_precision(&mut net, "O2", DType::Bf16)?;
/// let y = net.call(&Tensor::ones(&[1, 4], DType::F32))?;
/// assert_eq!(y.dtype(), DType::F32);
/// let error = auto_mixed_precision(&mut net, "O4", DType::F16).unwrap_err();
/// assert!(error.to_string().contains("allowed: O0, O1, O2, O3, auto"));
/// # Ok::<(), precast::Error>(())
/// ```
pub fn auto_mixed_precision<C, L>(net: &mut Child<C>, level: L, dtype: DType) -> Result<Applied>
where
    C: ?Sized + AsCell,
    L: TryInto<Level>,
    Error: From<L::Error>,
{
    Policy::new(level, dtype)?.apply(net)
}

/// Wraps a function, as level auto wraps a network: while it runs, every op is treated by the pack's op lists.
///
/// Inner regions take precedence: a cell with an adapter or a `to_float`, and an inner function that is wrapped
/// separately. For a region with more options use [`Autocast::wrap`].
///
/// # Errors
/// Those of [`Autocast::new`] and [`Autocast::enter`]; the dtype is checked first.
///
/// ```
/// use precast::{policy::Pack, prelude::*, compat::mindspore::auto_mixed_precision_fn};
/// let x = Tensor::ones(&[2, 4], DType::F32);
/// let attention = |q: &Tensor, k: &Tensor, v: &Tensor| q.matmul(&k.t()?)?.softmax(-1)?.matmul(v);
/// let attention = auto_mixed_precision_fn(attention, "mindspore-2.4", DType::F16)?;
/// assert_eq!(attention.call((&x, &x, &x))?.dtype(), DType::F16); // the products ran in f16, the softmax in f32
/// let scores = auto_mixed_precision_fn(|x: &Tensor| x.log_softmax(-1), Pack::DEFAULT, DType::F16)?;
/// assert_eq!(scores.call((&x,))?.dtype(), DType::F32);
/// # Ok::<(), precast::Error>(())
/// ```
pub fn auto_mixed_precision_fn<F>(f: F, pack: &str, dtype: DType) -> Result<Wrapped<F>> {
    check_low(dtype)?;
    Autocast::new(pack)?.dtype(dtype).wrap(f)
}

/// User-defined lists for a level, in place of a pack's.
#[derive(Clone, Debug, PartialEq)]
pub enum CustomLists {
    /// Only these cells and ops run low, and they return f32, as at O1.
    White(Lists),
    /// Everything runs low except these cells and ops, as at O2.
    Black(Lists),
}

/// Wraps a network by a user-defined white or black list. Having both is not possible.
///
/// # Errors
/// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16,
/// [`ErrorKind::List`](crate::ErrorKind::List) for an entry that stays f32 in a white list or runs low in a black one, and
/// for a kind that neither the network nor the library has.
///
/// ```
/// use precast::{prelude::*, compat::mindspore::{CustomLists, custom_mixed_precision}};
/// let mut net = Child::new(Dense::new(4, 2, &mut Rng::seed(1)));
/// let applied = custom_mixed_precision(&mut net, CustomLists::White(Lists::new().low("Dense")), DType::F16)?;
/// assert_eq!(applied.changed, 1);
/// applied.undo(&mut net)?;
/// # Ok::<(), precast::Error>(())
/// ```
pub fn custom_mixed_precision<C: ?Sized + AsCell>(
    net: &mut Child<C>,
    custom: CustomLists,
    dtype: DType,
) -> Result<Applied> {
    let (level, lists) = match custom {
        CustomLists::White(lists) => (Level::O1, lists),
        CustomLists::Black(lists) => (Level::O2, lists),
    };
    Policy::with_lists(level, dtype, lists)?.apply(net)
}
