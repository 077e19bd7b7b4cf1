//! The ops of a graph with the casts that the lists of a policy ask for.

use std::{collections::HashMap, fmt};

use precast_base::printable;
use precast_policy::{
    DType, Error, ErrorKind, Level, Op, Outline, OutlinedCell, Policy, Result,
    catalogue::System,
    policy::Entry,
    precision::{Frame, Treatment, resolve},
};

use super::Graph;

/// The ops of a graph, each with the casts that a policy asks for.
#[derive(Clone, Debug)]
pub struct Painted {
    /// The ops, in order.
    pub ops: Vec<PaintedOp>,
}

/// An op with the casts of its inputs, and the reason.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PaintedOp {
    /// Name in burn's graphs, such as `Matmul`.
    pub name: String,
    /// Path of the module whose parameter it takes, such as `blocks.0.up`. `None` for an op without parameters.
    pub module: Option<String>,
    /// Dtypes of the floating inputs as they come.
    pub from: Vec<DType>,
    /// Dtypes of the floating inputs after the casts.
    pub to: Vec<DType>,
    /// Dtype of the result, if it is floating.
    pub output: Option<DType>,
    /// The list that decides, and its name.
    pub because: String,
    /// `true` when the list asks for f32.
    pub full: bool,
}

impl Graph {
    /// Decides for each op what a policy would cast, by the function that decides for precast's own regions. The dtypes
    /// that it gives to results are those of the inputs of the ops behind. Record the network without a plan for it: with
    /// one, the casts of the plan are ops as well.
    ///
    /// The ops are burn's: a linear layer is a product and a sum, where torch has one op, so an f32 bias widens the sum.
    ///
    /// # Errors
    /// Those of [`Policy::plan`]; [`ErrorKind::Level`] for O1 and O2, which decide module by
    /// module; [`ErrorKind::List`] for an op that the lists refuse.
    pub fn painted(&self, policy: &Policy) -> Result<Painted> {
        if matches!(policy.level, Level::O1 | Level::O2) {
            return Err(Error::new(
                ErrorKind::Level,
                format!(
                    "level {} decides module by module: print `policy.plan(&net)`. `level: auto` shows what the op lists of its \
                     pack would do",
                    policy.level
                ),
            ));
        }
        let plan = policy.plan_outline(Outline::new([OutlinedCell::new("", "Network")])?)?;
        let frame = plan.decisions[0].adapter.as_ref().map(|adapter| adapter.frame());
        let mut met: HashMap<u64, DType> = HashMap::new();
        let mut ops = Vec::new();
        for recorded in &self.ops {
            let listed = Op::named_in(System::Burn, &recorded.name).unwrap_or_default();
            // A name of burn may be several ops here, of which a list may have one.
            let op = listed.iter().copied().find(|op| plan.listed.contains_key(op)).or(listed.first().copied());
            let floats = recorded.inputs.iter().filter_map(|(id, dtype)| Some((id, (*dtype)?)));
            let from: Vec<DType> = floats.map(|(id, dtype)| met.get(id).copied().unwrap_or(dtype)).collect();
            let casts = match op {
                Some(op) => resolve(frame.as_ref(), op, &from)?,
                None => Default::default(),
            };
            let to = if op.is_some() { casts.after(&from) } else { from.clone() };
            let widest = to.iter().copied().reduce(DType::promote);
            let mut output = None;
            for (id, dtype) in &recorded.outputs {
                let Some(dtype) = dtype else { continue };
                let result = casts.output.or(widest).unwrap_or(*dtype);
                met.insert(*id, result);
                output = Some(result);
            }
            let entry = op.and_then(|op| plan.listed.get(&op));
            let because = match (&frame, entry) {
                (Some(Frame::Fixed(_)), _) => format!("level {}", policy.level),
                (Some(_), Some(Entry { treatment, origin, because, .. })) => match because {
                    Some(because) => format!("{treatment} list, {origin}: {}", printable(because)),
                    None => format!("{treatment} list, {origin}"),
                },
                (Some(_), None) if from != to => "unlisted: dtypes meet, and the widest wins".to_string(),
                (Some(_), None) if op.is_some() => format!("unlisted: {}", plan.unlisted.meaning()),
                (Some(_), None) => "not an op that lists can name".to_string(),
                (None, _) => "no casts".to_string(),
            };
            let full = entry.is_some_and(|entry| entry.treatment == Treatment::Full);
            let module = recorded.module.as_deref().map(str::to_string);
            ops.push(PaintedOp { name: recorded.name.clone(), module, from, to, output, because, full });
        }
        Ok(Painted { ops })
    }
}

impl fmt::Display for Painted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtypes = |dtypes: &[DType]| dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" ");
        let casts = |op: &PaintedOp| match op.from == op.to {
            true => dtypes(&op.from),
            false => format!("{} cast to {}", dtypes(&op.from), dtypes(&op.to)),
        };
        let module = |op: &PaintedOp| match op.module.as_deref() {
            None => String::new(),
            Some("") => "(root)".to_string(),
            Some(path) => printable(path).into_owned(),
        };
        let width = |of: &dyn Fn(&PaintedOp) -> usize| self.ops.iter().map(of).max().unwrap_or(0);
        let (names, modules) = (width(&|op| op.name.len()), width(&|op| module(op).chars().count()));
        let inputs = width(&|op| casts(op).len());
        for (at, op) in self.ops.iter().enumerate() {
            let (name, output) = (&op.name, op.output.map_or("", DType::name));
            let (module, casts, because) = (module(op), casts(op), &op.because);
            writeln!(f, "{at:4}  {name:names$}  {module:modules$}  {casts:inputs$}  {output:4}  {because}")?;
        }
        let changed = self.ops.iter().filter(|op| op.from != op.to).count();
        writeln!(f, "{} ops, {changed} with casts", self.ops.len())?;
        // An op of a module runs in f32 with it, by a rule.
        let in_code: Vec<String> = self
            .ops
            .iter()
            .enumerate()
            .filter(|(_, op)| op.full && op.module.is_none())
            .map(|(at, op)| format!("{} ({at})", op.name))
            .collect();
        if !in_code.is_empty() {
            writeln!(
                f,
                "to follow the lists in code, compute these by `precast_burn::in_f32`: {}",
                in_code.join(", ")
            )?;
        }
        Ok(())
    }
}
