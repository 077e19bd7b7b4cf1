//! The quantized operands of the cell being run.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use precast_base::path::named;
use precast_kernels::codes::{Delayed, DelayedRule, ScaleRule, Stream};
use precast_policy::policy::{Format, Operands};

use super::{CONTEXT, Of, Scope, in_backward, is_all_in_f32, is_recording, shard};
use crate::{
    error::{Error, Result},
    logging::warn,
    recording,
};

/// An operand of the products of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// The input.
    X,
    /// The weight.
    W,
    /// The gradient of the output.
    G,
}

impl Which {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Which::X => "input",
            Which::W => "weight",
            Which::G => "gradient",
        }
    }
}

/// The products of a cell, by their order in a call of it, and their operands.
type ByOperand<T> = BTreeMap<(u64, Which), T>;

/// The operands of the products of a cell, in its slot.
#[derive(Debug)]
pub struct Quantizer {
    operands: Operands,
    /// Path of the cell, which keys its random bits.
    path: String,
    /// Number of calls so far that drew random bits.
    calls: AtomicU64,
    /// `true` once a call without products was warned of.
    warned: AtomicBool,
    /// The scales of delayed scaling.
    delayed: Mutex<ByOperand<Delayed>>,
    /// The largest magnitudes in the shards of the running step; `None` when no step collects them.
    of_shards: Mutex<Option<ByOperand<f32>>>,
}

/// A call of a cell whose products have quantized operands.
#[derive(Clone, Debug)]
pub struct Quantizing {
    of: Arc<Quantizer>,
    /// Number of the call.
    call: u64,
    /// Number of the product that comes next.
    product: u64,
    /// The delayed scales of this call, which its backward pass uses again.
    scales: Arc<Mutex<ByOperand<f32>>>,
}

impl Quantizer {
    /// Creates the operands of the cell at a path.
    pub fn new(operands: Operands, path: &str) -> Self {
        let (path, warned) = (path.into(), AtomicBool::new(false));
        Quantizer {
            operands,
            path,
            calls: AtomicU64::new(0),
            warned,
            delayed: Mutex::default(),
            of_shards: Mutex::default(),
        }
    }

    /// Returns the operands.
    pub fn operands(&self) -> Operands {
        self.operands
    }

    /// Begins a call of the cell. One that may have gradients, of a recipe that rounds at random, takes the next number: in a
    /// shard, that of the step and the shard.
    pub fn begin(self: &Arc<Self>) -> Quantizing {
        let draws = is_recording() && self.operands.recipe().is_some_and(|recipe| recipe.is_random());
        let draw = || {
            let of = self.clone();
            recording::on_end(move || _ = of.calls.fetch_sub(1, Ordering::Relaxed));
            self.calls.fetch_add(1, Ordering::Relaxed)
        };
        let call = if draws { shard::draw_in_shard(Arc::as_ptr(self) as usize).unwrap_or_else(draw) } else { 0 };
        Quantizing { of: self.clone(), call, product: 0, scales: Arc::default() }
    }

    /// Returns what a checkpoint keeps: the number of calls that drew random bits, and scale and history of each operand with
    /// a delayed scale. Empty before there is any.
    pub fn state(&self) -> Vec<u64> {
        let (calls, delayed) = (self.calls.load(Ordering::Relaxed), lock(&self.delayed));
        if calls == 0 && delayed.is_empty() {
            return Vec::new();
        }
        let mut words = vec![calls];
        for ((product, which), state) in &*delayed {
            words.extend([*product, *which as u64, state.scale().to_bits().into(), state.history().len() as u64]);
            words.extend(state.history().iter().map(|amax| u64::from(amax.to_bits())));
        }
        words
    }

    /// Sets what a checkpoint kept; nothing sets the state before the first call.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for words of another recipe.
    pub fn set_state(&self, words: &[u64]) -> Result<()> {
        let other = || Error::value("the operands in the checkpoint are those of another recipe");
        let (&calls, mut rest) = words.split_first().unwrap_or((&0, &[]));
        let mut delayed = BTreeMap::new();
        while let [product, which, scale, len, after @ ..] = rest {
            let which = [Which::X, Which::W, Which::G].get(*which as usize).copied().ok_or_else(other)?;
            let history = after.get(..*len as usize).ok_or_else(other)?;
            let history: Vec<f32> = history.iter().map(|amax| f32::from_bits(*amax as u32)).collect();
            let state = self.first_scale(which).ok_or_else(other)??;
            let state = state.with_state(f32::from_bits(*scale as u32), &history)?;
            delayed.insert((*product, which), state);
            rest = &after[*len as usize..];
        }
        self.calls.store(calls, Ordering::Relaxed);
        *lock(&self.delayed) = delayed;
        Ok(())
    }

    /// Returns the scale of an operand before its first step; `None` if it is not delayed.
    fn first_scale(&self, which: Which) -> Option<Result<Delayed>> {
        let recipe = self.operands.recipe()?;
        let operand = match which {
            Which::X => recipe.output.left,
            Which::W => recipe.output.right,
            Which::G => recipe.grad_input.left,
        };
        let ScaleRule::Delayed(rule) = operand.scale else { return None };
        Some(Delayed::new(operand.format, rule))
    }

    /// Collects the largest magnitudes of the shards that follow, up to [`amaxima`](Quantizer::amaxima). Returns `false` if no
    /// scale is delayed.
    pub fn collect_amaxima(&self) -> bool {
        let is_delayed = self.operands.recipe().is_some_and(|recipe| recipe.is_delayed());
        *lock(&self.of_shards) = is_delayed.then(ByOperand::new);
        is_delayed
    }

    /// Returns the largest magnitude of each operand in the shards since the collection began: product, operand, and bits.
    pub fn amaxima(&self) -> Vec<[u64; 3]> {
        let all = lock(&self.of_shards).take().unwrap_or_default();
        all.into_iter().map(|((product, which), amax)| [product, which as u64, amax.to_bits().into()]).collect()
    }

    /// Updates the scale of an operand with its largest magnitude in a step, as [`amaxima`](Quantizer::amaxima) returns it.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an operand without a delayed scale.
    pub fn update(&self, [product, which, amax]: [u64; 3]) -> Result<()> {
        let which = [Which::X, Which::W, Which::G].get(which as usize).copied();
        let first = which.and_then(|which| Some((which, self.first_scale(which)?)));
        let (which, first) = first.ok_or_else(|| Error::value("a rank has operands of another recipe"))?;
        let (mut delayed, first) = (lock(&self.delayed), first?);
        delayed.entry((product, which)).or_insert(first).update(f32::from_bits(amax as u32));
        Ok(())
    }
}

impl Quantizing {
    /// Returns the operands.
    pub fn operands(&self) -> Operands {
        self.of.operands
    }

    /// Returns the call for the products of which its next product is composed.
    #[must_use]
    pub fn inside(self) -> Self {
        Quantizing { product: (self.product + 1) << 32, ..self }
    }

    /// Returns the random bits of an operand of the next product.
    pub fn stream(&self, which: Which) -> Stream {
        Stream::new(0, &format!("{}/{}/{which:?}", self.of.path, self.product), self.call)
    }

    /// Returns the delayed scale of an operand of the next product, which has this largest magnitude. The first time in a call, the
    /// history takes the magnitude, unless the call has no gradients.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in a shard of no step that collects the magnitudes of all shards:
    /// their histories would differ.
    pub fn scale(&self, which: Which, format: Format, rule: DelayedRule, amax: f32) -> Result<f32> {
        let place = (self.product, which);
        if let Some(&scale) = lock(&self.scales).get(&place) {
            return Ok(scale);
        }
        let counts = is_recording() || in_backward();
        let mut delayed = lock(&self.of.delayed);
        if shard::is_in_shard() {
            let scale = delayed.get(&place).map_or(1.0, Delayed::scale);
            let mut of_shards = lock(&self.of.of_shards);
            let Some(largest) = of_shards.as_mut() else {
                return Err(Error::unsupported(
                    "delayed scales have one history, and shards of a batch would each have their own outside of a step of \
                     `DataParallel`; `operands: tensorwise` has the same formats",
                ));
            };
            if counts {
                let known = largest.entry(place).or_insert(0.0);
                *known = known.max(amax);
            }
            lock(&self.scales).insert(place, scale);
            return Ok(scale);
        }
        let state = match delayed.entry(place) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Delayed::new(format, rule)?),
        };
        let scale = state.scale();
        if counts {
            state.update(amax);
        }
        lock(&self.scales).insert(place, scale);
        Ok(scale)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the operands of the following products, until the guard is dropped; `None` for products that are not quantized.
pub fn enter_operands(operands: Option<Quantizing>) -> Scope {
    CONTEXT.with(|context| context.enter(Of::Operands, |number| context.operands.push(number, operands)))
}

/// Quantizes the operands of the products that follow, until the guard is dropped, as the cell at this path does in its first
/// call: the path keys the random bits. [`Operands::NONE`] quantizes none.
///
/// ```
/// use precast_tensor::{Tensor, precision::quantize_operands};
/// let (x, w) = (Tensor::from_vec(vec![1.0f32, 1.0 / 3.0], &[1, 2])?, Tensor::from_vec(vec![0.0f32, 1.0], &[1, 2])?);
/// let exact = x.linear(&w, None)?.item()?;
/// let _operands = quantize_operands("tensorwise".parse()?, "");
/// let error = (x.linear(&w, None)?.item()? / exact - 1.0).abs();
/// assert!(error > 1e-3 && error < 1.0 / 16.0); // e4m3 has 3 bits of mantissa
/// # Ok::<(), precast_tensor::Error>(())
/// ```
pub fn quantize_operands(operands: Operands, path: &str) -> Scope {
    let quantizer = operands.recipe().map(|_| Arc::new(Quantizer::new(operands, path)).begin());
    enter_operands(quantizer)
}

/// Returns whether operands of products are quantized.
pub fn quantizes() -> bool {
    CONTEXT.with(|context| context.operands.top(|operands| operands.is_some_and(|operands| operands.is_some())))
}

/// Warns, once for each cell, if the call that ends has multiplied no weights: its operands stay as they are.
pub fn warn_of_no_products() {
    if is_all_in_f32() {
        return;
    }
    let quantizer = CONTEXT.with(|context| {
        let none = |operands: &Quantizing| operands.product == 0 && !operands.of.warned.swap(true, Ordering::Relaxed);
        context
            .operands
            .top(|operands| operands.and_then(|of| of.as_ref()).filter(|of| none(of)).map(|of| of.of.clone()))
    });
    if let Some(Quantizer { path, operands, .. }) = quantizer.as_deref() {
        tracing::warn!(target: "precast", cell = %path, "no product with quantized operands");
        warn(&format!(
            "a rule quantizes the operands of {} ({operands}), and a call of it ran no `linear`, no convolution and no \
             recurrent op: nothing was quantized; `matmul` is not",
            named(path)
        ));
    }
}

/// Returns the call whose next product this is, and counts it; `None` if its operands are not quantized, as where every op runs
/// in f32.
pub fn next_product() -> Option<Quantizing> {
    if is_all_in_f32() {
        return None;
    }
    CONTEXT.with(|context| {
        context.operands.top(|operands| {
            let operands = operands?.as_mut()?;
            let now = operands.clone();
            operands.product += 1;
            Some(now)
        })
    })
}

/// Returns the call with the number of the product that was counted last; `None` if there is none.
pub fn last_product() -> Option<Quantizing> {
    CONTEXT.with(|context| {
        context.operands.top(|operands| {
            let operands = operands?.clone()?;
            let product = operands.product.checked_sub(1)?;
            Some(Quantizing { product, ..operands })
        })
    })
}
