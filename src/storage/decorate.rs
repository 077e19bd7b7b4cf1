//! Storing parameters in 16 bits, with or without f32 masters.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use precast_base::path::shown;
use precast_tensor::{
    Beyond, Rounding,
    internals::{ParamInternals as _, TensorInternals as _},
};

use crate::{
    DType, Param,
    cell::{AsCell, Child, Part, join},
    error::{Error, Result},
    policy::{Pack, Select},
    printable::printable,
};

/// Options of [`decorate`] for storing the parameters of a network.
#[derive(Clone, Debug)]
#[must_use = "nothing is stored until `decorate` is called with it"]
pub struct Decorate {
    dtype: DType,
    pack: Option<Pack>,
    excluded: Vec<Select>,
    keep: Keep,
    save_dtype: Option<DType>,
}

/// Data that an optimizer keeps in addition to a value stored low.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keep {
    Masters,
    Nothing(Rounding),
}

impl Keep {
    /// Returns whether there are masters, and the rounding of updates.
    fn parts(self) -> (bool, Rounding) {
        match self {
            Keep::Masters => (true, Rounding::Nearest),
            Keep::Nothing(rounding) => (false, rounding),
        }
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keep::Masters => f.write_str("with f32 masters"),
            Keep::Nothing(Rounding::Nearest) => f.write_str("without masters"),
            Keep::Nothing(Rounding::Stochastic { seed }) => write!(f, "with stochastic rounding (seed {seed})"),
            Keep::Nothing(Rounding::Kahan) => f.write_str("with Kahan compensation"),
        }
    }
}

impl Decorate {
    /// Stores all floating parameters and buffers in f16 or bf16, with f32 masters, except for the kinds of cells that
    /// [`Pack::DEFAULT`] keeps in f32. [`decorate`] checks the dtype.
    pub fn new(dtype: DType) -> Self {
        Decorate { dtype, pack: None, excluded: Vec::new(), keep: Keep::Masters, save_dtype: None }
    }

    /// Keeps the kinds of cells that this pack keeps, for example `paddle-3.3`.
    ///
    /// # Errors
    /// Those of [`Pack::named`].
    pub fn pack(mut self, name: &str) -> Result<Self> {
        self.pack = Some(Pack::named(name)?);
        Ok(self)
    }

    /// Leaves cells of a kind unchanged, including all cells inside them.
    pub fn exclude_kind(mut self, kind: impl Into<String>) -> Self {
        self.excluded.push(Select::Kind(kind.into()));
        self
    }

    /// Leaves cells whose path matches unchanged, including all cells inside them, and parameters whose path matches.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when the pattern is malformed.
    pub fn exclude_path(mut self, pattern: &str) -> Result<Self> {
        self.excluded.push(Select::Path(pattern.parse()?));
        Ok(self)
    }

    /// Sets whether each low parameter has an f32 master. Default: true. With a master, no update is lost and undoing
    /// is exact; without one, a parameter takes 2 bytes instead of 6, and an update of less than half a unit in the
    /// last place of the low value is lost.
    pub fn masters(mut self, masters: bool) -> Self {
        self.keep = if masters { Keep::Masters } else { Keep::Nothing(Rounding::Nearest) };
        self
    }

    /// Uses no masters and rounds each updated value stochastically, to either of the two nearest bf16 numbers with a
    /// probability proportional to its nearness. A parameter takes 2 bytes, and updates are right on average. bf16 only.
    ///
    /// The random bits are a function of the seed, the path of the parameter in the optimizer, the number of the update
    /// and the index of the element: they are the same for any number of threads, and when a run resumes from a file.
    ///
    /// Source: Gupta et al. 2015, "Deep learning with limited numerical precision".
    pub fn stochastic_rounding(mut self, seed: u64) -> Self {
        self.keep = Keep::Nothing(Rounding::Stochastic { seed });
        self
    }

    /// Uses no masters; optimizers keep the rounding error of each number in bf16 and add it to the next update. A
    /// parameter takes 4 bytes, 2 of them in the optimizer's [state](crate::optim::OptimizerState), and has 16
    /// significant bits. bf16 only.
    ///
    /// Sources: Kahan 1965, "Further remarks on reducing truncation errors"; Zamirai et al. 2020, "Revisiting bfloat16
    /// training", algorithm 1. There the optimizer rounds each of its operations to bf16; here it computes in f32.
    pub fn kahan(mut self) -> Self {
        self.keep = Keep::Nothing(Rounding::Kahan);
        self
    }

    /// Sets the dtype in which [`weights::save`](crate::storage::weights::save) writes every floating parameter and buffer
    /// of the network, including those kept: the master rounded once, or the value if there is none. By default a file
    /// loses nothing: it holds the masters in f32, and the others in the dtype in which they are stored.
    pub fn save_dtype(mut self, dtype: DType) -> Self {
        self.save_dtype = Some(dtype);
        self
    }
}

/// A parameter or buffer that is stored low, or would be.
#[derive(Clone, Debug)]
pub struct LowParam {
    /// Its path; the first one if it is tied.
    pub path: String,
    /// The parameter or buffer.
    pub param: Param,
    /// Dtype in which it is stored.
    pub dtype: DType,
    has_master: bool,
    rounding: Rounding,
}

impl LowParam {
    /// Returns the parameters and buffers of a network that are stored low now.
    pub fn of<C: ?Sized + AsCell>(net: &Child<C>) -> Vec<LowParam> {
        let mut seen = HashSet::new();
        let low = net.named_params().into_iter().filter(|(_, param)| param.dtype().is_low() && seen.insert(param.id()));
        low.map(|(path, param)| {
            let (dtype, has_master, rounding) = (param.dtype(), param.master().is_some(), param.rounding());
            LowParam { path, param, dtype, has_master, rounding }
        })
        .collect()
    }

    /// Returns whether updates smaller than half a step of its dtype are lost: it has no master, and is rounded to nearest.
    pub fn loses_updates(&self) -> bool {
        !self.has_master && self.rounding == Rounding::Nearest
    }

    /// Returns a copy that is stored so.
    pub fn copy(&self) -> Param {
        let copy = Param::new(self.param.full());
        copy.store_low(self.dtype, self.has_master, self.rounding);
        copy
    }
}

impl Decorate {
    /// Returns the parameters and buffers that this would store low, without a check of their range.
    ///
    /// # Errors
    /// Those of [`decorate`] for the pack and the exclusions.
    pub fn would_store<C: ?Sized + AsCell>(&self, net: &Child<C>) -> Result<Vec<LowParam>> {
        let pack = self.pack.clone().map_or_else(|| Pack::named(Pack::DEFAULT), Ok)?;
        let (has_master, rounding) = self.keep.parts();
        let low = survey(net, self.dtype, &pack, &self.excluded)?.into_iter().filter(|stored| stored.kept.is_none());
        let of = |Stored { path, param, .. }| LowParam { path, param, dtype: self.dtype, has_master, rounding };
        Ok(low.map(of).collect())
    }
}

/// The result of [`decorate`], parameter by parameter, which can be undone. `println!("{decorated}")` prints a line for
/// each.
#[derive(Clone, Debug)]
pub struct Decorated {
    /// One entry for each parameter and buffer, in the order of the network; tied ones have a single entry.
    pub params: Vec<Stored>,
    dtype: DType,
    keep: Keep,
    save_dtype: Option<DType>,
}

/// The storage of one parameter.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its path; the first one if it is tied.
    pub path: String,
    /// Its dtype before.
    pub before: DType,
    /// Its dtype now.
    pub after: DType,
    /// The reason for not storing it low; `None` when it is stored low.
    pub kept: Option<KeptBecause>,
    param: Param,
}

/// The reason for not storing a parameter low.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum KeptBecause {
    /// Its dtype, which is never cast: only f32, f16 and bf16 are.
    DType(DType),
    /// An exclusion by the user, of it or of a cell around it.
    Excluded(Select),
    /// The pack, which keeps the kind of a cell around it in f32.
    Pack {
        /// The kind.
        kind: String,
        /// The name of the pack.
        pack: Arc<str>,
    },
}

impl fmt::Display for KeptBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeptBecause::DType(dtype) => write!(f, "{} is never cast", dtype.long_name()),
            KeptBecause::Excluded(select) => write!(f, "excluded, {select}"),
            KeptBecause::Pack { kind, pack } => write!(f, "{}, {}", printable(kind), printable(pack)),
        }
    }
}

impl fmt::Display for Decorated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stored in {}, {}", self.dtype.long_name(), self.keep)?;
        if let Some(dtype) = self.save_dtype {
            write!(f, ", saved in {}", dtype.long_name())?;
        }
        writeln!(f)?;
        let width = self.params.iter().map(|p| shown(&p.path).chars().count()).max().unwrap_or(0);
        for Stored { path, before, after, kept, .. } in &self.params {
            let path = shown(path);
            match kept {
                None => writeln!(f, "{path:width$}  {before} -> {after}")?,
                Some(kept) if before == after => writeln!(f, "{path:width$}  {after}  kept: {kept}")?,
                Some(kept) => writeln!(f, "{path:width$}  {before} -> {after}  kept: {kept}")?,
            }
        }
        let low = self.params.iter().filter(|p| p.kept.is_none()).count();
        let all = self.params.len();
        write!(f, "{all} parameters and buffers, {low} stored in {}, {} kept", self.dtype, all - low)
    }
}

/// Stores the parameters and floating buffers of a network in f16 or bf16, each rounded once ("pure" low precision, O2
/// of `paddle.amp.decorate`).
///
/// A parameter keeps its identity: handles, ties and optimizers created before or after remain valid. An optimizer
/// updates the [master](Param::master) in f32 and the value is the master rounded once, so training with masters is f32
/// training, bit for bit, on the same gradients. Without masters the update is computed in f32 and rounded into the
/// value. The gradient of a low parameter is low, summed in f32 if the parameter is used in several places;
/// [`LossScale`](crate::LossScale) unscales it in f32.
///
/// Some parameters are kept unchanged: f64, integers and booleans; exclusions; and kinds of cells that the pack keeps
/// in f32 for this dtype, such as batch norms with their running statistics. A tied parameter is kept if any of its
/// places is.
///
/// Decorating again replaces the decoration: the network is then as if only the last one had been made, from the
/// masters where they exist.
///
/// A decorated network runs under every policy, whose regions cast only where dtypes differ, and under none on inputs
/// of its dtype. With op lists (O1, auto), an unlisted op that mixes no dtypes, such as `bias_add`, may get an f32
/// input and a low parameter, and returns an error.
///
/// # Errors
/// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16, the pack supports it, and the dtype
/// for saving is floating, and for f16 with stochastic rounding or Kahan compensation,
/// [`ErrorKind::Path`](crate::ErrorKind::Path) for an exclusion that nothing matches, with the nearest name,
/// [`ErrorKind::Value`](crate::ErrorKind::Value) when a finite number would become infinite. Nothing is changed then.
///
/// ```
/// use precast::{prelude::*, storage::{Decorate, decorate}};
/// let mut rng = Rng::seed(1);
/// let mut net = Child::new(sequential![Dense::new(4, 8, &mut rng), BatchNorm1d::new(8), Dense::new(8, 2, &mut rng)]);
/// let decorated = decorate(&net, Decorate::new(DType::Bf16).exclude_path("2")?.save_dtype(DType::F32))?;
/// println!("{decorated}"); // each parameter with its dtype before and after, and why it was kept
/// let dtypes: Vec<DType> = net.params().iter().map(|(_, param)| param.dtype()).collect();
/// assert_eq!(dtypes[..2], [DType::Bf16; 2]); // 0.weight, 0.bias
/// assert_eq!(dtypes[2..], [DType::F32; 4]); // the norm and what was excluded
///
/// auto_mixed_precision(&mut net, Level::O2, DType::Bf16)?;
/// let mut optimizer = Adam::new(net.params(), 1e-3); // updates the f32 masters
/// let loss = net.call(&Tensor::ones(&[1, 4], DType::F32))?.sum(&[], false)?;
/// assert_eq!(LossScale::none().step(&mut optimizer, &loss)?, Outcome::Stepped);
/// decorated.undo()?; // f32 again, with every bit of the training
/// # Ok::<(), precast::Error>(())
/// ```
pub fn decorate<C: ?Sized + AsCell>(net: &Child<C>, how: Decorate) -> Result<Decorated> {
    let Decorate { dtype, pack, excluded, keep, save_dtype } = how;
    if !dtype.is_low() {
        return Err(Error::dtype(format!("parameters are stored in float16 or bfloat16, got {}", dtype.long_name())));
    }
    let (masters, rounding) = keep.parts();
    if rounding != Rounding::Nearest && dtype != DType::Bf16 {
        return Err(Error::dtype(format!(
            "parameters are stored in bfloat16 {keep}, got {}; masters are for both dtypes",
            dtype.long_name()
        )));
    }
    if let Some(saved) = save_dtype.filter(|saved| !saved.is_float()) {
        return Err(Error::dtype(format!(
            "parameters are saved in float64, float32, float16 or bfloat16, got {}",
            saved.long_name()
        )));
    }
    let pack = pack.map_or_else(|| Pack::named(Pack::DEFAULT), Ok)?;
    pack.check_dtype(dtype)?;
    let mut params = survey(net, dtype, &pack, &excluded)?;
    for stored in &params {
        let to = if stored.kept.is_none() { dtype } else { stored.param.made_in() };
        check_range(&stored.path, &stored.param, to)?;
    }
    for stored in &mut params {
        match stored.kept {
            None => stored.param.store_low(dtype, masters, rounding),
            Some(_) => stored.param.store_as_made(),
        }
        stored.param.save_as(save_dtype);
        stored.after = stored.param.dtype();
    }
    tracing::info!(target: "precast", %dtype,
        stored_low = params.iter().filter(|stored| stored.kept.is_none()).count(),
        kept = params.iter().filter(|stored| stored.kept.is_some()).count(),
        masters,
        "parameters decorated"
    );
    Ok(Decorated { params, dtype, keep, save_dtype })
}

/// Returns every parameter once, with the reason to keep it, if any.
fn survey<C: ?Sized + AsCell>(net: &Child<C>, dtype: DType, pack: &Pack, excluded: &[Select]) -> Result<Vec<Stored>> {
    let mut found: Vec<Stored> = Vec::new();
    let mut place = HashMap::new();
    let mut hits = vec![false; excluded.len()];
    let (mut paths, mut kinds) = (Vec::new(), Vec::new());
    // For each cell on the path down to the current one, the reason for keeping its contents.
    let mut above: Vec<Option<KeptBecause>> = Vec::new();
    let mut by_user = |path: &str, kind: &str| {
        let mut first = None;
        for (select, hit) in excluded.iter().zip(&mut hits) {
            if select.matches(path, kind) {
                *hit = true;
                first = first.or_else(|| Some(KeptBecause::Excluded(select.clone())));
            }
        }
        first
    };
    net.walk(&mut |entry| {
        above.truncate(entry.depth);
        let kind = entry.slot.cell.kind();
        let by_pack =
            || pack.keeps_f32(kind, dtype).then(|| KeptBecause::Pack { kind: kind.into(), pack: pack.name.clone() });
        let own = by_user(entry.path, kind);
        let kept = above.last().cloned().flatten().or(own).or_else(by_pack);
        paths.push(entry.path.to_string());
        kinds.push(kind);
        entry.slot.cell.visit(&mut |name, node| {
            let Part::Param(param) = node else { return };
            let (path, before) = (join(entry.path, name), param.dtype());
            let own = by_user(&path, "");
            let never = (!before.is_castable()).then_some(KeptBecause::DType(before));
            let kept = never.or(own).or_else(|| kept.clone());
            paths.push(path.clone());
            let i = *place.entry(param.id()).or_insert(found.len());
            match found.get_mut(i) {
                Some(tied) => tied.kept = tied.kept.take().or(kept),
                None => found.push(Stored { path, before, after: before, kept, param: param.clone() }),
            }
        });
        above.push(kept);
    });
    match excluded.iter().zip(hits).find(|(_, hit)| !hit) {
        None => Ok(found),
        Some((select, _)) => {
            let near = select.nearest(paths.iter().map(String::as_str), kinds);
            let what = if matches!(select, Select::Kind(_)) { "no cell" } else { "no cell and no parameter" };
            Err(Error::path(format!("the exclusion of {select} matches {what}{near}")))
        }
    }
}

/// Checks that no finite number becomes infinite in the dtype in which a parameter is stored.
fn check_range(path: &str, param: &Param, dtype: DType) -> Result<()> {
    Beyond::check(param.full().array(), dtype).map_err(|beyond| {
        Error::value(format!("`{}` {beyond}; exclude it or store it in another dtype", printable(path)))
    })
}

impl Decorated {
    /// Undoes every decoration of these parameters: each is stored and saved in its original dtype.
    ///
    /// With masters this is exact. Before training each parameter has the same bits as before [`decorate`]; after
    /// training it has those of its master, as if it had been trained in f32 on the same gradients. Without masters the
    /// digits lost to rounding cannot be restored: each parameter is the exact widening of its low value. Training can
    /// continue with the same optimizer.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when a parameter that was created in f16 or bf16 has been trained,
    /// in another dtype, beyond the range of its original one. Nothing is changed then.
    pub fn undo(&self) -> Result<()> {
        for Stored { path, param, .. } in &self.params {
            let made_in = param.made_in();
            Beyond::check(param.full().array(), made_in)
                .map_err(|beyond| Error::value(format!("`{}` {beyond}, in which it was made", printable(path))))?;
        }
        for Stored { param, .. } in &self.params {
            param.store_as_made();
            param.save_as(None);
        }
        Ok(())
    }
}
