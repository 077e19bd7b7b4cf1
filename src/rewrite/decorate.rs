//! Parameters stored in 16 bit, with f32 masters behind them or without.

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    DType, Param,
    cell::{AsCell, Child, Node, join},
    error::{Error, Result},
    logging::event,
    policy::{Pack, Select},
    printable::printable,
    tensor::{Beyond, Rounding},
};
use precast_policy::path::shown;

/// How [`decorate`] stores the parameters of a network.
#[derive(Clone, Debug)]
#[must_use = "nothing is stored until `decorate` is called with it"]
pub struct Decorate {
    dtype: DType,
    pack: Option<Pack>,
    excluded: Vec<Select>,
    keep: Keep,
    save_dtype: Option<DType>,
}

/// What an optimizer has beside a value that is stored low.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keep {
    Masters,
    Nothing(Rounding),
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
    /// All floating parameters and buffers in f16 or bf16, with f32 masters, but for the kinds of cells that
    /// [`Pack::DEFAULT`] keeps in f32. The dtype is checked by [`decorate`].
    pub fn new(dtype: DType) -> Self {
        Decorate { dtype, pack: None, excluded: Vec::new(), keep: Keep::Masters, save_dtype: None }
    }

    /// Keeps the kinds of cells that this pack keeps, as `paddle-3.3`.
    ///
    /// # Errors
    /// As [`Pack::named`].
    pub fn pack(mut self, name: &str) -> Result<Self> {
        self.pack = Some(Pack::named(name)?);
        Ok(self)
    }

    /// Leaves the cells of a kind as they are, with all inside them.
    pub fn exclude_kind(mut self, kind: impl Into<String>) -> Self {
        self.excluded.push(Select::Kind(kind.into()));
        self
    }

    /// Leaves the cells whose path matches as they are, with all inside them, or the parameters whose path matches.
    ///
    /// # Errors
    /// [`ErrorKind::Policy`](crate::ErrorKind::Policy) when the pattern is malformed.
    pub fn exclude_path(mut self, pattern: &str) -> Result<Self> {
        self.excluded.push(Select::Path(pattern.parse()?));
        Ok(self)
    }

    /// Whether each low parameter has an f32 master (it has, unless switched off). With one, no update is lost and undoing
    /// is exact; without, a parameter takes 2 bytes instead of 6, and an update of less than half a unit in the last
    /// place of the low value is lost.
    pub fn masters(mut self, masters: bool) -> Self {
        self.keep = if masters { Keep::Masters } else { Keep::Nothing(Rounding::Nearest) };
        self
    }

    /// No masters; an update is rounded to one of the two nearest bf16 numbers at random, to each with the probability of its
    /// nearness. A parameter takes 2 bytes, and updates are right on average. bf16 alone.
    ///
    /// The random bits are a function of the seed, the path of the parameter in the optimizer, the number of the update and
    /// the place of the element: they are the same with any number of threads, and when a run goes on from a file.
    ///
    /// Source: Gupta et al. 2015, "Deep learning with limited numerical precision".
    pub fn stochastic_rounding(mut self, seed: u64) -> Self {
        self.keep = Keep::Nothing(Rounding::Stochastic { seed });
        self
    }

    /// No masters; optimizers keep what rounding leaves out of each number in bf16, and add it to the next update. A parameter
    /// takes 4 bytes, 2 of them in the optimizer's [state](crate::optim::OptimizerState), and has 16 significant bits. bf16
    /// alone.
    ///
    /// Sources: Kahan 1965, "Further remarks on reducing truncation errors"; Zamirai et al. 2020, "Revisiting bfloat16
    /// training", algorithm 1. There the optimizer rounds each of its operations to bf16; here it computes in f32.
    pub fn kahan(mut self) -> Self {
        self.keep = Keep::Nothing(Rounding::Kahan);
        self
    }

    /// The dtype in which [`weights::save`](crate::io::weights::save) writes every floating parameter and buffer of the
    /// network, the kept ones too: the master rounded once, or the value where there is none. Without this a file loses
    /// nothing: it holds the masters in f32, and the others in the dtype they are stored in.
    pub fn save_dtype(mut self, dtype: DType) -> Self {
        self.save_dtype = Some(dtype);
        self
    }
}

/// What [`decorate`] did, parameter by parameter, and how to take it back. `println!("{decorated}")` is a line for each.
#[derive(Clone, Debug)]
pub struct Decorated {
    /// One entry for each parameter and buffer, in the order of the network; a tied one once.
    pub params: Vec<Stored>,
    dtype: DType,
    keep: Keep,
    save_dtype: Option<DType>,
}

/// How one parameter is stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its path; the first, when it is tied.
    pub path: String,
    /// Its dtype before.
    pub before: DType,
    /// Its dtype now.
    pub after: DType,
    /// Why it is not stored low; `None` when it is.
    pub kept: Option<KeptBecause>,
    param: Param,
}

/// Why a parameter is not stored low.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum KeptBecause {
    /// Only f32, f16 and bf16 are ever cast.
    DType(DType),
    /// The user excluded it, or a cell around it.
    Excluded(Select),
    /// The pack keeps the kind of a cell around it in f32.
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

/// Stores the parameters and floating buffers of a network in f16 or bf16, each rounded once ("pure" low precision, O2 of
/// `paddle.amp.decorate`).
///
/// A parameter keeps its identity: handles, ties and optimizers made before or after stay right. An optimizer updates
/// the [master](Param::master) in f32 and the value is the master rounded once, so training with masters is f32 training,
/// bit for bit, on the same gradients. Without masters the update is computed in f32 and rounded into the value.
/// A low parameter's gradient is low, summed in f32 where it is read at many places; [`LossScale`](crate::LossScale)
/// unscales it in f32.
///
/// These stay as they are: f64, integers and booleans; what is excluded; and kinds of cells that the pack keeps in f32 for
/// this dtype, such as batch norms with their running statistics. A tied parameter is kept where any of its places is.
///
/// Decorating again replaces: the network is then as if only the last decoration had been made, from the masters where
/// there are any.
///
/// A decorated network runs under every policy, whose regions cast only what differs, and under none on inputs of its
/// dtype. Where ops go by lists (O1, auto), one that is on no list and mixes no dtypes, such as `bias_add`, may meet an f32
/// input and a low parameter, and says so.
///
/// # Errors
/// [`ErrorKind::DType`](crate::ErrorKind::DType) unless the dtype is f16 or bf16, the pack is made for it, and that for
/// saving is floating, and for f16 with stochastic rounding or Kahan compensation,
/// [`ErrorKind::Path`](crate::ErrorKind::Path) for an exclusion that nothing matches, with the nearest name,
/// [`ErrorKind::Value`](crate::ErrorKind::Value) when a finite number would become infinite. Nothing was changed then.
///
/// ```
/// use precast::{prelude::*, rewrite::{Decorate, decorate}};
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
    let (masters, rounding) = match keep {
        Keep::Masters => (true, Rounding::Nearest),
        Keep::Nothing(rounding) => (false, rounding),
    };
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
    event!(
        INFO,
        %dtype,
        stored_low = params.iter().filter(|stored| stored.kept.is_none()).count(),
        kept = params.iter().filter(|stored| stored.kept.is_some()).count(),
        masters,
        "parameters decorated"
    );
    Ok(Decorated { params, dtype, keep, save_dtype })
}

/// Every parameter, each once, with the reason to keep it if there is one.
fn survey<C: ?Sized + AsCell>(net: &Child<C>, dtype: DType, pack: &Pack, excluded: &[Select]) -> Result<Vec<Stored>> {
    let mut found: Vec<Stored> = Vec::new();
    let mut place = HashMap::new();
    let mut hits = vec![false; excluded.len()];
    let (mut paths, mut kinds) = (Vec::new(), Vec::new());
    // Why the cells on the way down to the current one keep what is inside them.
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
            let Node::Param(param) = node else { return };
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

/// A finite number must not become infinite in the dtype in which a parameter is stored.
fn check_range(path: &str, param: &Param, dtype: DType) -> Result<()> {
    Beyond::check(param.full().array(), dtype).map_err(|beyond| {
        Error::value(format!("`{}` {beyond}; exclude it or store it in another dtype", printable(path)))
    })
}

impl Decorated {
    /// Takes every decoration of these parameters back: each is stored in the dtype it was made in, and saved in it.
    ///
    /// With masters this is exact. Before training each parameter has the bits it had before [`decorate`]; after training
    /// it has those of its master, as if it had been trained in f32 on the same gradients. Without masters what rounding
    /// lost cannot be restored: each is the exact widening of its low value. Training goes on with the same optimizer.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when a parameter that was made in f16 or bf16 has been trained, in another
    /// dtype, beyond what that can hold. Nothing is changed then.
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
