//! Regions of code in which every op runs by the lists of a pack.
//!
//! ```
//! use precast::{observe::collect_op_stats, precision, prelude::*};
//!
//! # let (x, w) = (Tensor::ones(&[2, 4], DType::F32), Tensor::ones(&[4, 3], DType::F32));
//! # let net = Child::new(Dense::new(4, 3, &mut Rng::seed(1)));
//! let region = Autocast::new("torch-2.15-cuda")?.dtype(DType::Bf16).black(["addmm"]);
//! let y = autocast(&region, || x.matmul(&w)?.relu()?.softmax(-1))?; // in bf16, bf16 and f32
//! # assert_eq!(y.dtype(), DType::F32);
//! {
//!     let _region = region.enter()?; // or by a guard
//!     let z = x.matmul(&w)?;
//! #   assert_eq!(z.dtype(), DType::Bf16);
//! }
//! let sure = x.softmax_as(-1, DType::F32)?; // the caller's word, in every region
//! let carried = precision::carry(); // threads inherit no region, it is carried there
//! std::thread::scope(|threads| threads.spawn(|| carried.run(|| x.matmul(&w))).join());
//! let (y, stats) = collect_op_stats(|| autocast(&region, || net.call(&x)))?;
//! println!("{stats}"); // calls of each op by dtype
//! # assert_eq!((y.dtype(), stats.calls(Op::Linear).bf16), (DType::Bf16, 1));
//! # Ok::<(), precast::Error>(())
//! ```

use std::{
    borrow::Borrow,
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

/// A region to be entered: whose lists, in which low dtype, with which changes. A value: it can be kept, cloned and entered
/// any number of times, also inside itself; nothing of a run is stored in it.
///
/// Everything is checked when it is entered, also when it is switched off: a wrong name is an error even in a region that
/// casts nothing.
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
pub struct Autocast {
    pack: Arc<Pack>,
    op_level: Option<String>,
    dtype: Option<DType>,
    enabled: bool,
    cache: Option<bool>,
    promote: bool,
    white: Vec<String>,
    black: Vec<String>,
    /// The rules once they are known, for f16 and for bf16.
    rules: [OnceLock<Arc<OpRules>>; 2],
}

/// Runs `f` in a region. The region is left when `f` returns, fails or panics.
///
/// A backward pass runs in the dtypes of its forward pass, whatever region surrounds it. Cells that a policy has wrapped
/// and cells with `to_float` keep their own precision inside.
///
/// # Errors
/// As [`Autocast::enter`], before `f` runs; then those of `f`.
///
/// ```
/// use precast::prelude::*;
/// let x = Tensor::ones(&[2, 2], DType::F32);
/// let region = Autocast::new("paddle-3.3")?.op_level("O2").dtype(DType::Bf16).white(["elementwise_add"]);
/// assert_eq!(autocast(&region, || x.add(&x))?.dtype(), DType::Bf16);
/// # Ok::<(), precast::Error>(())
/// ```
pub fn autocast<R>(region: impl Borrow<Autocast>, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let _region = region.borrow().enter()?;
    f()
}

impl Autocast {
    /// A region under the lists of a pack that comes with the library.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) when no pack has that name;
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) when it has no lists for regions of code, as `mindspore-2.3`.
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
            white: Vec::new(),
            black: Vec::new(),
            rules: Default::default(),
        })
    }

    /// The low dtype: f16 or bf16. A region that names none takes that of the region around it; if there is none, or the pack is
    /// not made for it, the pack's first.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Which of the pack's op lists, for packs that have several: `O1`, `O2` or `OD` of Paddle's, which calls it the level.
    /// `O0` casts nothing. The pack's first unless it is named. The [`Level`](crate::Level) of a network is another thing: it
    /// says which cells are lowered.
    pub fn op_level(mut self, op_level: impl Into<String>) -> Self {
        self.op_level = Some(op_level.into());
        self.changed()
    }

    /// Whether the region casts anything. A region that does not hides those around it.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Whether a parameter is cast once and its low copy is used until the parameter changes. As around the region unless
    /// it is set, and on outside of any.
    ///
    /// The copies belong to the parameter's value, one for each dtype: an update inside the region is seen, regions of
    /// different dtypes do not disturb each other, and each use has a place of its own on the tape, so gradients of several
    /// uses are added in f32. The cache costs memory for the copies and saves time for the casts; results are the same.
    pub fn cache(mut self, cache: bool) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Whether ops on no list look at their inputs (Paddle's O2, where it is on unless switched off). Without it they run
    /// low.
    pub fn use_promote(mut self, promote: bool) -> Self {
        self.promote = promote;
        self.changed()
    }

    /// Ops that run low here, whatever the pack says; by the names of the pack's system, or of any.
    pub fn white<S: Into<String>>(mut self, ops: impl IntoIterator<Item = S>) -> Self {
        self.white.extend(ops.into_iter().map(Into::into));
        self.changed()
    }

    /// Ops that run in f32 here, whatever the pack says; by the names of the pack's system, or of any.
    pub fn black<S: Into<String>>(mut self, ops: impl IntoIterator<Item = S>) -> Self {
        self.black.extend(ops.into_iter().map(Into::into));
        self.changed()
    }

    fn changed(mut self) -> Self {
        self.rules = Default::default();
        self
    }

    /// Enters the region on this thread until the guard is dropped. Guards may be dropped in any order: leaving a region
    /// leaves those inside it.
    ///
    /// # Errors
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when the low dtype is not f16 or bf16, or the pack is not made for it;
    /// [`ErrorKind::Level`](crate::ErrorKind::Level) for a level that the pack does not have, or without promotion one that
    /// does not know the switch; [`ErrorKind::List`](crate::ErrorKind::List) for an op that is in no catalogue or on both
    /// custom lists. The region is then not entered.
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
        Ok(precision::enter_region(frame, AutocastState { enabled, dtype, cache }))
    }

    /// What the region does with ops when its low dtype is `dtype`.
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
        let (white, black) = (self.ops(&self.white)?, self.ops(&self.black)?);
        if let Some(op) = white.iter().find(|op| black.contains(op)) {
            return Err(Error::list(format!("{op} is on the custom white and on the custom black list")));
        }
        let put = |lists: &mut Lists, ops: &[Op], treatment| {
            ops.iter().for_each(|op| _ = lists.put_op(*op, Entry::new(treatment, Origin::Code)));
        };
        put(&mut lists, &white, Treatment::Low);
        put(&mut lists, &black, Treatment::Full);
        Ok(lists.rules(dtype))
    }

    /// A function that always runs in this region, whatever surrounds its call.
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

/// A function that runs in a region of its own; see [`Autocast::wrap`].
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

/// A function of one to six arguments, which are given as a tuple; every `Fn` is one.
pub trait Function<Arguments> {
    /// What it returns.
    type Output;
    /// Calls it.
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

/// Whether the innermost region of this thread casts anything: torch's `is_autocast_enabled`.
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

/// The low dtype of the innermost region of this thread, also of one that is switched off; `None` outside of any. torch's
/// `get_autocast_dtype`.
pub fn dtype() -> Option<DType> {
    precision::region().map(|region| region.dtype)
}

/// Whether regions can run in a low dtype, and whether that takes longer than f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Support {
    /// Whether ops run in it: f16 and bf16 everywhere. Paddle's `amp.is_float16_supported` and `is_bfloat16_supported`.
    pub supported: bool,
    /// Whether a matrix product in it takes no longer than in f32.
    pub fast: bool,
    /// What that rests on.
    pub evidence: Evidence,
}

/// What is known of the speed of a dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// The [`Speeds`] of this machine that were measured once and kept.
    Measured,
    /// No speeds were measured here. It is fast where the kernels widen it in vector registers, and slow where they convert
    /// element by element.
    Processor,
}

/// What is known of a low dtype on this machine. Nothing is measured here: measured speeds count where
/// [`Speeds::here`] has kept some.
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
    /// By these speeds, or without any by what the processor has.
    pub fn with(dtype: DType, speeds: Option<&Speeds>) -> Self {
        /// Rates within this factor are equal: a measurement is no better.
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
    /// What was asked for; not the pack's lists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Autocast { pack, op_level, dtype, enabled, cache, promote, white, black, rules: _ } = self;
        let mut shown = f.debug_struct("Autocast");
        shown.field("pack", &pack.name).field("op_level", op_level).field("dtype", dtype).field("enabled", enabled);
        shown.field("cache", cache).field("promote", promote).field("white", white).field("black", black).finish()
    }
}
