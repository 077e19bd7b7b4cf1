//! Regions of code in which every op runs in the dtype that a pack's op lists give it.
//!
//! ```
//! use precast::{observe::collect_op_stats, precision, prelude::*};
//!
//! # let (x, w) = (Tensor::ones(&[2, 4], DType::F32), Tensor::ones(&[4, 3], DType::F32));
//! # let net = Child::new(Dense::new(4, 3, &mut Rng::seed(1)));
//! let region = Autocast::new("torch-2.15-cuda")?.dtype(DType::Bf16).full(["addmm"]);
//! let y = autocast(&region, || x.matmul(&w)?.relu()?.softmax(-1))?; // in bf16, bf16 and f32
//! # assert_eq!(y.dtype(), DType::F32);
//! {
//!     let _region = region.enter()?; // or by a guard
//!     let z = x.matmul(&w)?;
//! #   assert_eq!(z.dtype(), DType::Bf16);
//! }
//! let sure = x.softmax_as(-1, DType::F32)?; // the requested dtype, in every region
//! let carried = precision::carry(); // threads inherit no region: carry it over
//! std::thread::scope(|threads| threads.spawn(|| carried.run(|| x.matmul(&w))).join());
//! let (y, stats) = collect_op_stats(|| autocast(&region, || net.call(&x)))?;
//! println!("{stats}"); // calls of each op by dtype
//! # assert_eq!((y.dtype(), stats.calls(Op::Linear).bf16), (DType::Bf16, 1));
//! # Ok::<(), precast::Error>(())
//! ```

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use crate::{
    DType, Op,
    cost::{self, Speeds},
    error::{Error, Result},
    policy::{Entry, Lists, Origin, Pack, check_low},
    precision::{self, AutocastState, Frame, OpRules, Scope, Treatment},
};

/// A region to be entered: the pack whose op lists apply, the low dtype, and any changes to the lists.
///
/// It is a plain value: it can be stored, cloned and entered any number of times, also inside itself, and holds no
/// state of a run.
///
/// Everything is checked on entry, even if the region is disabled: a wrong name is an error also in a region that casts
/// nothing.
///
/// ```
/// use precast::prelude::*;
/// let (a, b) = (Tensor::ones(&[2, 3], DType::F32), Tensor::ones(&[3, 2], DType::F32));
/// let sum = autocast(Autocast::new("torch-2.15-cpu")?.dtype(DType::F16), || {
///     let product = a.matmul(&b)?; // on torch's list of low ops
///     assert_eq!(product.dtype(), DType::F16);
///     autocast(Autocast::new("torch-2.15-cpu")?.enabled(false), || {
///         assert_eq!(a.matmul(&b)?.dtype(), DType::F32);
///         Ok(())
///     })?;
///     product.sum_all()
/// })?;
/// assert_eq!(sum.item()?, 12.0);
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a region does nothing until it is entered"]
#[doc(alias = "amp")]
pub struct Autocast {
    pack: Arc<Pack>,
    op_level: Option<String>,
    dtype: Option<DType>,
    enabled: bool,
    cache: Option<bool>,
    promote: bool,
    low: Vec<String>,
    full: Vec<String>,
    /// The rules, once resolved, for f16 and for bf16.
    rules: [OnceLock<Arc<OpRules>>; 2],
}

/// Runs `f` in a region, which is left when `f` returns, fails or panics.
///
/// A backward pass runs in the dtypes of its forward pass, whatever region surrounds it. Cells wrapped by a policy and
/// cells with `to_float` keep their own precision inside the region.
///
/// # Errors
/// As [`Autocast::enter`], before `f` runs; then those of `f`.
///
/// ```
/// use precast::prelude::*;
/// let x = Tensor::ones(&[2, 2], DType::F32);
/// assert_eq!(autocast(DType::Bf16, || x.matmul(&x))?.dtype(), DType::Bf16); // by the lists of `precast-1`
/// let region = Autocast::new("paddle-3.3")?.op_level("O2").dtype(DType::Bf16).low(["elementwise_add"]);
/// assert_eq!(autocast(&region, || x.add(&x))?.dtype(), DType::Bf16);
/// # Ok::<(), precast::Error>(())
/// ```
pub fn autocast<R>(region: impl AsRegion, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let _region = region.enter_region()?;
    f()
}

/// A region that [`autocast`](autocast()) can enter: an [`Autocast`], or a low dtype, for the lists of `precast-1`.
pub trait AsRegion {
    /// Enters the region on this thread until the guard is dropped.
    ///
    /// # Errors
    /// As [`Autocast::enter`].
    fn enter_region(&self) -> Result<Scope>;
}

impl AsRegion for Autocast {
    fn enter_region(&self) -> Result<Scope> {
        self.enter()
    }
}

impl AsRegion for DType {
    fn enter_region(&self) -> Result<Scope> {
        Autocast::new("precast-1")?.dtype(*self).enter()
    }
}

impl<T: AsRegion + ?Sized> AsRegion for &T {
    fn enter_region(&self) -> Result<Scope> {
        (**self).enter_region()
    }
}

impl Autocast {
    /// Creates a region that uses the lists of a pack included in the library.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no pack has that name;
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) when it has no lists for regions of code, such as `mindspore-2.3`.
    pub fn new(pack: &str) -> Result<Self> {
        let pack = Pack::shared(pack)?;
        pack.region(None)?;
        Ok(Autocast {
            pack,
            op_level: None,
            dtype: None,
            enabled: true,
            cache: None,
            promote: true,
            low: Vec::new(),
            full: Vec::new(),
            rules: Default::default(),
        })
    }

    /// Sets the low dtype: f16 or bf16.
    ///
    /// Default: that of the surrounding region. Without one, or if the pack does not support that dtype, the pack's
    /// first.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Selects one of the pack's op lists, for packs that have several: `O1`, `O2` or `OD` of Paddle, which calls it
    /// the level. `O0` casts nothing. Default: the pack's first.
    ///
    /// Not to be confused with the [`Level`](crate::Level) of a network, which selects the cells to be lowered.
    pub fn op_level(mut self, op_level: impl Into<String>) -> Self {
        self.op_level = Some(op_level.into());
        self.changed()
    }

    /// Sets whether the region casts anything. A disabled region hides those around it. Default: true.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Sets whether a parameter is cast once and its low copy reused until the parameter changes. Default: as in the
    /// surrounding region; true outside of any.
    ///
    /// The copies belong to the parameter's value, one per dtype. An update inside the region takes effect, regions of
    /// different dtypes do not interfere, and each use has its own node on the tape, so the gradients of several uses
    /// are added in f32. A copy of 1 MiB or more that a training step reads once is not kept: the backward pass makes it
    /// again. The cache trades memory for the copies against the time of the casts; results are the same.
    pub fn cache(mut self, cache: bool) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Sets whether ops on no list consider the dtypes of their inputs (Paddle's O2, where that is the default).
    /// Otherwise they run low.
    pub fn use_promote(mut self, promote: bool) -> Self {
        self.promote = promote;
        self.changed()
    }

    /// Adds ops that run low in this region, whatever the pack says. Names are those of the pack's system, or of any.
    pub fn low<S: Into<String>>(mut self, ops: impl IntoIterator<Item = S>) -> Self {
        self.low.extend(ops.into_iter().map(Into::into));
        self.changed()
    }

    /// Adds ops that run in f32 in this region, whatever the pack says. Names are those of the pack's system, or of
    /// any.
    pub fn full<S: Into<String>>(mut self, ops: impl IntoIterator<Item = S>) -> Self {
        self.full.extend(ops.into_iter().map(Into::into));
        self.changed()
    }

    fn changed(mut self) -> Self {
        self.rules = Default::default();
        self
    }

    /// Enters the region on this thread until the guard is dropped. Guards may be dropped in any order: leaving a
    /// region also leaves those inside it.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the low dtype is not f16 or bf16, or the pack does not
    /// support it; [`ErrorKind::Level`](crate::ErrorKind::Level) for a level that the pack does not have, or for
    /// promotion switched off in a level without that switch; [`ErrorKind::List`](crate::ErrorKind::List) for an op
    /// that is in no catalogue or on both custom lists. The region is then not entered.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let x = Tensor::ones(&[2, 2], DType::F32);
    /// let region = Autocast::new("torch-2.15-cuda")?.enter()?;
    /// assert_eq!(x.matmul(&x)?.dtype(), DType::F16);
    /// drop(region);
    /// assert_eq!(x.matmul(&x)?.dtype(), DType::F32);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn enter(&self) -> Result<Scope> {
        let around = precision::region();
        let inherited = around.map(|region| region.dtype).filter(|dtype| self.pack.dtypes.contains(dtype));
        let dtype = self.dtype.or(inherited).unwrap_or(self.pack.dtypes[0]);
        check_low(dtype)?;
        let prepared = &self.rules[usize::from(dtype == DType::Bf16)];
        let rules = match prepared.get() {
            Some(rules) => rules.clone(),
            None => {
                let rules = Arc::new(self.rules(dtype)?);
                prepared.get_or_init(|| rules).clone()
            }
        };
        let enabled = self.enabled && self.op_level.as_deref() != Some("O0");
        let cache = self.cache.or(around.map(|region| region.cache)).unwrap_or(true);
        let frame = if enabled { Frame::Lists(rules) } else { Frame::Off };
        Ok(precast_tensor::context::enter_region(frame, AutocastState { enabled, dtype, cache }))
    }

    /// Returns the op rules of the region for the low dtype `dtype`.
    ///
    /// # Errors
    /// As [`enter`](Autocast::enter).
    pub fn rules(&self, dtype: DType) -> Result<OpRules> {
        check_low(dtype)?;
        self.pack.check_dtype(dtype)?;
        let mut lists = self.pack.region(self.op_level.as_deref().filter(|op_level| *op_level != "O0"))?.clone();
        if !self.promote {
            lists.unlisted = lists.unlisted_unpromoted.ok_or_else(|| {
                Error::level(format!("`use_promote` is a switch of Paddle's level O2; {} does not know it", lists.name))
            })?;
        }
        let (low, full) = (self.ops(&self.low)?, self.ops(&self.full)?);
        if let Some(op) = low.iter().find(|op| full.contains(op)) {
            return Err(Error::list(format!("{op} is on the custom low list and on the custom full list")));
        }
        let put = |lists: &mut Lists, ops: &[Op], treatment| {
            ops.iter().for_each(|op| _ = lists.put_op(*op, Entry::new(treatment, Origin::Code)));
        };
        put(&mut lists, &low, Treatment::Low);
        put(&mut lists, &full, Treatment::Full);
        Ok(lists.rules(dtype))
    }

    /// Wraps a function so that it always runs in this region, whatever surrounds its call.
    ///
    /// # Errors
    /// As [`enter`](Autocast::enter): the region is checked here, not at the first call.
    ///
    /// ```
    /// use precast::prelude::*;
    /// let product = |a: &Tensor, b: &Tensor| a.matmul(b);
    /// let product = Autocast::new("torch-2.15-cpu")?.wrap(product)?;
    /// let x = Tensor::ones(&[2, 2], DType::F32);
    /// assert_eq!(product.call((&x, &x))?.dtype(), DType::Bf16);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn wrap<F>(self, f: F) -> Result<Wrapped<F>> {
        drop(self.enter()?);
        Ok(Wrapped { region: self, f })
    }

    fn ops(&self, names: &[String]) -> Result<Vec<Op>> {
        let found: Vec<Vec<Op>> = names.iter().map(|name| self.pack.op(name)).collect::<Result<_>>()?;
        Ok(found.concat())
    }
}

/// A function that runs in its own region; see [`Autocast::wrap`].
#[derive(Clone)]
pub struct Wrapped<F> {
    region: Autocast,
    f: F,
}

impl<F> fmt::Debug for Wrapped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapped").field("region", &self.region).finish_non_exhaustive()
    }
}

impl<F> Wrapped<F> {
    /// Calls the function in its region. The arguments are a tuple: `f.call((&x,))`, `f.call((&x, &y))`.
    ///
    /// # Errors
    /// Those of the function.
    pub fn call<A, R>(&self, arguments: A) -> Result<R>
    where
        F: Function<A, Output = Result<R>>,
    {
        autocast(&self.region, || self.f.apply(arguments))
    }
}

/// A function of one to six arguments, passed as a tuple. Implemented for every such `Fn`.
pub trait Function<Arguments> {
    /// The return type.
    type Output;
    /// Calls the function.
    fn apply(&self, arguments: Arguments) -> Self::Output;
}

macro_rules! function_of {
    ($($argument:ident),*) => {
        impl<F: Fn($($argument),*) -> R, R, $($argument),*> Function<($($argument,)*)> for F {
            type Output = R;
            #[allow(non_snake_case, reason = "an argument is named as its type")]
            fn apply(&self, ($($argument,)*): ($($argument,)*)) -> R {
                self($($argument),*)
            }
        }
    };
}
function_of!(A);
function_of!(A, B);
function_of!(A, B, C);
function_of!(A, B, C, D);
function_of!(A, B, C, D, E);
function_of!(A, B, C, D, E, G);

/// Returns whether the innermost region of this thread casts anything: torch's `is_autocast_enabled`.
///
/// ```
/// use precast::{autocast, prelude::*};
/// assert!(!autocast::is_enabled() && autocast::dtype().is_none());
/// let region = Autocast::new("torch-2.15-cpu")?.dtype(DType::F16);
/// autocast::autocast(region, || {
///     assert!(autocast::is_enabled());
///     assert_eq!(autocast::dtype(), Some(DType::F16));
///     Ok(())
/// })?;
/// # Ok::<(), precast::Error>(())
/// ```
pub fn is_enabled() -> bool {
    precision::region().is_some_and(|region| region.enabled)
}

/// Returns the low dtype of the innermost region of this thread, even if it is disabled; `None` outside of any region.
/// torch's `get_autocast_dtype`.
pub fn dtype() -> Option<DType> {
    precision::region().map(|region| region.dtype)
}

/// Support for a low dtype: whether regions can use it, and whether it is as fast as f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Support {
    /// `true` when ops run in it: f16 and bf16 everywhere. Paddle's `amp.is_float16_supported` and
    /// `is_bfloat16_supported`.
    pub supported: bool,
    /// `true` when a matrix product in it takes no longer than in f32.
    pub fast: bool,
    /// The basis of `fast`.
    pub evidence: Evidence,
}

/// The source of knowledge about the speed of a dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// The stored [`Speeds`] of this machine, measured once.
    Measured,
    /// Properties of the processor; no speeds were measured here. A dtype is fast where the kernels widen it in vector
    /// registers, and slow where they convert element by element.
    Processor,
}

/// Returns the support for a low dtype on this machine. Nothing is measured here: measured speeds are used if
/// [`Speeds::here`] has stored some.
///
/// ```
/// use precast::{DType, autocast};
/// assert!(autocast::support(DType::Bf16).supported);
/// assert!(!autocast::support(DType::I64).supported);
/// ```
pub fn support(dtype: DType) -> Support {
    Support::with(dtype, Speeds::known().as_ref())
}

impl Support {
    /// Decides by these speeds, or, without any, by the features of the processor.
    pub fn with(dtype: DType, speeds: Option<&Speeds>) -> Self {
        /// Rates within this factor count as equal: measurements are no more precise.
        const NOISE: f64 = 1.05;
        let supported = dtype.is_low();
        let (fast, evidence) = match speeds {
            Some(speeds) => {
                let nanos = |dtype| speeds.of(dtype).product.multiply_add;
                (nanos(dtype) <= NOISE * nanos(DType::F32), Evidence::Measured)
            }
            None => (cost::has_vectors(), Evidence::Processor),
        };
        Support { supported, fast: supported && fast, evidence }
    }
}

impl fmt::Debug for Autocast {
    /// Shows the requested settings, without the pack's lists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Autocast { pack, op_level, dtype, enabled, cache, promote, low, full, rules: _ } = self;
        let mut shown = f.debug_struct("Autocast");
        shown.field("pack", &pack.name).field("op_level", op_level).field("dtype", dtype).field("enabled", enabled);
        shown.field("cache", cache).field("promote", promote).field("low", low).field("full", full).finish()
    }
}
