//! The state of an optimizer as plain data, and the state of one parameter.

use std::collections::{BTreeMap, BTreeSet};

use precast_base::names::did_you_mean;
use precast_kernels::{
    Array, memory,
    update::{eight_bit, eight_bit::Map},
};
use precast_tensor::internals::TensorInternals as _;

use super::rule::{Kept, Of};
use crate::{
    DType, Tensor,
    error::{Error, Result},
};

/// The state of an optimizer: update counts and named tensors, which a safetensors file can hold. Learning rates and
/// other hyperparameters are not part of it.
///
/// ```
/// use precast::{optim::OptimizerState, prelude::*};
/// let net = Child::new(Dense::new(2, 1, &mut Rng::seed(1)));
/// let mut optimizer = Adam::new(net.params(), 0.1);
/// let loss = net.call(&Tensor::ones(&[1, 2], DType::F32))?.sum_all()?;
/// assert_eq!(LossScale::none().step(&mut optimizer, &loss)?, Outcome::Stepped);
///
/// let state: OptimizerState = optimizer.state();
/// assert_eq!((state.optimizer.as_str(), state.steps["weight"]), ("adam", 1));
/// let names: Vec<&str> = state.tensors.iter().map(|(name, _)| name.as_str()).collect();
/// assert_eq!(names, ["weight/mean", "weight/square", "bias/mean", "bias/square"]);
///
/// let mut resumed = Adam::new(net.params(), 0.1);
/// resumed.restore(state)?; // continues with the same bits
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OptimizerState {
    /// The kind of optimizer, such as `adam`.
    pub optimizer: String,
    /// The number of updates of each parameter, by path. Contains every parameter.
    pub steps: BTreeMap<String, u64>,
    /// Tensors by path and name, such as `fc1.weight/mean`; none for a parameter that has not been updated.
    ///
    /// An 8-bit average has two: `mean.codes`, a row of i64 of eight codes each, the first in the lowest byte, and
    /// `mean.largest`, one f32 per 256 elements. Codes that are a vector are those of bitsandbytes, in earlier states, and
    /// are translated. A parameter stored with Kahan compensation has `compensation` in bf16.
    pub tensors: Vec<(String, Tensor)>,
}

/// The optimizer state of one parameter.
#[derive(Clone)]
pub(super) struct Memory {
    /// Number of updates so far.
    pub steps: u64,
    pub kept: Vec<Average>,
    /// In bf16, if the parameter is stored with compensation.
    pub compensation: Option<Array>,
}

/// A tensor that a rule keeps.
#[derive(Clone)]
pub(super) enum Average {
    /// In the dtype of the arithmetic.
    Full(Array),
    Blocks {
        codes: Vec<u8>,
        largest: Vec<f32>,
        map: &'static Map,
    },
}

/// The layout of the state of one parameter: the tensors of its rule, and whether each is in 8 bits.
#[derive(Clone)]
pub(super) struct Layout {
    /// The dtype of the arithmetic.
    pub wide: DType,
    pub kept: Vec<(Kept, bool)>,
    /// The shape of the compensation, if there is one.
    pub compensation: Option<Vec<usize>>,
}

fn map_of(kept: &Kept) -> &'static Map {
    if kept.eight_bit == Some(Of::Squares) { eight_bit::squares() } else { eight_bit::signed() }
}

/// Creates an array of equal numbers, in memory of its own: it outlives everything in the arena, where it would be
/// between the memory of one step and that of the next.
fn constant(shape: &[usize], start: f64, wide: DType) -> Array {
    let len = shape.iter().product();
    let array = match wide {
        DType::F64 => Array::from_vec(memory::constant(start, len), shape),
        _ => Array::from_vec(memory::constant(start as f32, len), shape),
    };
    array.expect("as many numbers as the shape has")
}

impl Memory {
    /// Creates the state before the first update.
    pub fn new(layout: &Layout) -> Memory {
        let start = |(kept, in_eight_bit): &(Kept, bool)| {
            let len: usize = kept.shape.iter().product();
            if *in_eight_bit {
                let map = map_of(kept);
                Average::Blocks {
                    codes: vec![map.zero(); len],
                    largest: vec![0.0; len.div_ceil(eight_bit::BLOCK)],
                    map,
                }
            } else {
                Average::Full(constant(&kept.shape, kept.start, layout.wide))
            }
        };
        let compensation = layout.compensation.as_ref().map(|shape| zeros(shape));
        Memory { steps: 0, kept: layout.kept.iter().map(start).collect(), compensation }
    }

    /// Returns whether it was made for this layout. A momentum or 8-bit state that is enabled between two steps starts
    /// afresh.
    pub fn fits(&self, layout: &Layout) -> bool {
        let fits = |(average, (kept, in_eight_bit)): (&Average, &(Kept, bool))| match average {
            Average::Full(array) => !in_eight_bit && array.shape() == kept.shape && array.dtype() == layout.wide,
            Average::Blocks { codes, .. } => *in_eight_bit && codes.len() == kept.shape.iter().product::<usize>(),
        };
        self.kept.len() == layout.kept.len() && self.kept.iter().zip(&layout.kept).all(fits)
    }

    /// Returns its tensors by name.
    pub fn tensors(&self, layout: &Layout) -> Vec<(String, Tensor)> {
        let mut all = Vec::new();
        for (average, (kept, _)) in self.kept.iter().zip(&layout.kept) {
            let name = kept.name;
            match average {
                Average::Full(array) => all.push((name.to_string(), Tensor::from_array(array.clone()))),
                Average::Blocks { codes, largest, .. } => {
                    all.push((format!("{name}.codes"), row(codes.chunks(8).map(packed).collect())));
                    all.push((format!("{name}.largest"), flat(largest.clone())));
                }
            }
        }
        all.extend(
            self.compensation.iter().map(|array| ("compensation".to_string(), Tensor::from_array(array.clone()))),
        );
        all
    }

    /// Restores the state from tensors in the order, and with the shapes and dtypes, of [`Layout::tensors`].
    fn restored(layout: &Layout, steps: u64, tensors: Vec<Tensor>) -> Memory {
        let mut memory = Memory::new(layout);
        let mut tensors = tensors.into_iter().map(|tensor| tensor.array().contiguous());
        let mut next = || tensors.next().expect("one for each");
        for average in &mut memory.kept {
            match average {
                Average::Full(array) => *array = next(),
                Average::Blocks { codes, largest, .. } => {
                    let bytes = next();
                    let bytes =
                        bytes.slice::<i64>().expect("it was checked").iter().flat_map(|eight| eight.to_le_bytes());
                    codes.iter_mut().zip(bytes).for_each(|(code, byte)| *code = byte);
                    largest.copy_from_slice(next().slice::<f32>().expect("it was checked"));
                }
            }
        }
        if let Some(compensation) = &mut memory.compensation {
            *compensation = next();
        }
        memory.steps = steps;
        memory
    }
}

pub(super) fn zeros(shape: &[usize]) -> Array {
    Tensor::zeros(shape, DType::Bf16).array().clone()
}

/// Packs eight codes, or the last few.
fn packed(codes: &[u8]) -> i64 {
    let mut bytes = [0; 8];
    bytes[..codes.len()].copy_from_slice(codes);
    i64::from_le_bytes(bytes)
}

/// Returns codes of the present map as a tensor.
fn row(eights: Vec<i64>) -> Tensor {
    let shape = [1, eights.len()];
    Tensor::from_array(Array::from_vec(eights, &shape).expect("one element for each"))
}

fn flat<T: precast_kernels::Stored>(numbers: Vec<T>) -> Tensor {
    let shape = [numbers.len()];
    Tensor::from_array(Array::from_vec(numbers, &shape).expect("one element for each"))
}

impl Layout {
    /// Returns the names, dtypes and shapes of the tensors.
    fn tensors(&self) -> Vec<(String, DType, Vec<usize>)> {
        let mut all = Vec::new();
        for (kept, in_eight_bit) in &self.kept {
            if *in_eight_bit {
                let len: usize = kept.shape.iter().product();
                all.push((format!("{}.codes", kept.name), DType::I64, vec![1, len.div_ceil(8)]));
                all.push((format!("{}.largest", kept.name), DType::F32, vec![len.div_ceil(eight_bit::BLOCK)]));
            } else {
                all.push((kept.name.to_string(), self.wide, kept.shape.clone()));
            }
        }
        all.extend(self.compensation.iter().map(|shape| ("compensation".to_string(), DType::Bf16, shape.clone())));
        all
    }

    /// Replaces what was saved for this parameter before: codes of the dynamic map of 8-bit averages, and the average of
    /// squares of a centered RMSProp, which keeps the variance.
    fn translate(&self, path: &str, found: &mut BTreeMap<String, Tensor>) {
        if self.kept.iter().any(|(kept, _)| kept.name == "variance")
            && let Some(square) = found.remove(&format!("{path}/square"))
        {
            let less = |mean: &Tensor| square.sub(&mean.square()?)?.clamp(0.0, f64::INFINITY);
            let variance = found.get(&format!("{path}/mean")).and_then(|mean| less(mean).ok());
            found.insert(format!("{path}/variance"), variance.unwrap_or(square));
        }
        for (kept, _) in self.kept.iter().filter(|(_, in_eight_bit)| *in_eight_bit) {
            let Some(old) = found.get_mut(&format!("{path}/{}.codes", kept.name)) else { continue };
            let eights = old.array().contiguous();
            if let (1, Some(eights)) = (old.rank(), eights.slice::<i64>()) {
                let to = map_of(kept).of_dynamic();
                let translated = |old: &i64| i64::from_le_bytes(old.to_le_bytes().map(|code| to[usize::from(code)]));
                *old = row(eights.iter().map(translated).collect());
            }
        }
    }
}

/// Returns the memory of each parameter from a state, or every difference as an error.
pub(super) fn restored(
    state: OptimizerState,
    optimizer: &str,
    layouts: &[(String, Layout)],
) -> Result<Vec<Option<Memory>>> {
    let OptimizerState { optimizer: saved, steps, tensors } = state;
    if saved != optimizer {
        return Err(Error::value(format!("the state is one of the optimizer `{saved}`; this is `{optimizer}`")));
    }
    let mut differences = Vec::new();
    let known: BTreeSet<&str> = layouts.iter().map(|(path, _)| path.as_str()).collect();
    for path in steps.keys().filter(|path| !known.contains(path.as_str())) {
        let near = did_you_mean(path, layouts.iter().map(|(path, _)| path.as_str()));
        differences.push(format!("`{path}` is not a parameter of the optimizer{near}"));
    }
    let mut found: BTreeMap<String, Tensor> = BTreeMap::new();
    for (name, tensor) in tensors {
        if found.insert(name.clone(), tensor).is_some() {
            differences.push(format!("`{name}` is there twice"));
        }
    }
    let mut all = Vec::new();
    for (path, layout) in layouts {
        let Some(&steps) = steps.get(path) else {
            differences.push(format!("the parameter `{path}` is missing"));
            continue;
        };
        layout.translate(path, &mut found);
        let mut of_path = Vec::new();
        for (name, dtype, shape) in if steps == 0 { vec![] } else { layout.tensors() } {
            let name = format!("{path}/{name}");
            match found.remove(&name) {
                None => differences.push(format!("`{name}` is missing")),
                Some(tensor) if tensor.dtype() != dtype || tensor.shape() != shape => differences.push(format!(
                    "`{name}` is {} {:?}; the optimizer's is {dtype} {shape:?}",
                    tensor.dtype(),
                    tensor.shape()
                )),
                Some(tensor) => of_path.push(tensor),
            }
        }
        all.push((layout, steps, of_path));
    }
    let of_known = |name: &str| name.rsplit_once('/').is_some_and(|(path, _)| known.contains(path));
    // Tensors of unknown parameters were already reported with those parameters.
    differences.extend(found.keys().filter(|name| of_known(name)).map(|name| format!("`{name}` is not kept")));
    if !differences.is_empty() {
        return Err(Error::value(match &differences[..] {
            [one] => format!("the state does not fit the optimizer: {one}"),
            all => format!("the state does not fit the optimizer: {} differences:\n- {}", all.len(), all.join("\n- ")),
        }));
    }
    let memory = |(layout, steps, tensors)| (steps > 0).then(|| Memory::restored(layout, steps, tensors));
    Ok(all.into_iter().map(memory).collect())
}
