//! ONNX models in `precast plan`, `explain`, `diff` and `convert`.

use std::path::{Path, PathBuf};

use precast::{
    DType, Level,
    plan::Diff,
    policy::{GraphPolicy, Lists, PolicyFile},
};
use precast_base::printable;
use precast_graph::{
    NodeDecision,
    onnx::{OnnxConvertOptions, OnnxConverted, OnnxModel, OnnxPlan, OnnxPlanOptions, OnnxRanges},
};
use precast_train::{data::npz_arrays, report::graph_table_by};
use serde::Serialize;

use super::{
    Cli, Failure, Format, Result,
    inputs::{self, Read, header, shown},
    outputs::{self, Force},
    plan_page, print, print_json,
    progress::Bar,
    run::say_line,
    table::library_table,
};

/// Returns the lists by which nodes are painted. Level O0 has none: nothing runs low.
fn policy_for(file: &Read<PolicyFile>) -> Result<GraphPolicy> {
    match &file.value {
        PolicyFile::Graph(policy) => Ok(policy.clone()),
        PolicyFile::Cells(policy) if policy.level == Level::O0 => {
            Ok(GraphPolicy::with_lists(DType::F16, Lists::named("O0"))?)
        }
        PolicyFile::Cells(policy) => Err(Failure::Usage(format!(
            "{file} is a policy of level {}, which decides by cells, and an ONNX file has nodes; `--policy onnx` and \
             `onnx-bf16` are for ONNX, and your own has `graph: {{}}` and `pack: onnx-1`",
            policy.level
        ))),
    }
}

/// The output of `--format json`.
#[derive(Serialize)]
struct Report<'a> {
    dtype: DType,
    low: usize,
    full: usize,
    others: usize,
    nodes: &'a [NodeDecision],
}

/// Prints the output of `precast plan`.
pub(super) fn plan(argument: &Path, file: &Read<PolicyFile>, ranges: &RangeArgs, format: Format) -> Result {
    let (model, policy) = (inputs::onnx_model(argument)?, policy_for(file)?);
    show(&model, file, &ranges.plan(&model.value, &policy)?, format)
}

/// Writes the page of the nodes under policies for graphs.
pub(super) fn page(argument: &Path, files: &[Read<PolicyFile>], ranges: &RangeArgs, page: &Path) -> Result {
    let model = inputs::onnx_model(argument)?;
    let policies = files.iter().map(policy_for).collect::<Result<Vec<_>>>()?;
    let nodes = policies.iter().map(|policy| Ok(ranges.plan(&model.value, policy)?.decisions().to_vec()));
    plan_page::write_nodes(page, model.to_string(), files, &policies, &nodes.collect::<Result<Vec<_>>>()?)
}

/// Prints the output of `precast graph`, and draws the nodes into files: SVG, DOT.
pub(super) fn graph(
    argument: &Path,
    file: &Read<PolicyFile>,
    (svg, dot): (Option<&Path>, Option<&Path>),
    format: Format,
) -> Result {
    let (model, policy) = (inputs::onnx_model(argument)?, policy_for(file)?);
    let plan = model.value.plan(&policy)?;
    let drawings = [svg.map(|file| (file, plan.to_svg())), dot.map(|file| (file, plan.to_dot()))];
    show(&model, file, &plan, format)?;
    for (file, text) in drawings.into_iter().flatten() {
        outputs::write(file, &text)?;
    }
    Ok(())
}

fn show(model: &Read<OnnxModel>, file: &Read<PolicyFile>, plan: &OnnxPlan<'_>, format: Format) -> Result {
    match format {
        Format::Json => {
            let (low, full) = (plan.count(plan.dtype()), plan.count(DType::F32));
            print_json(&Report { dtype: plan.dtype(), low, full, others: plan.others(), nodes: plan.decisions() })
        }
        Format::Text => {
            let table = graph_table_by(plan.decisions(), library_table);
            print(format_args!("{}{table}\n{}", header(model, &[file]), summary(plan)))
        }
    }
}

fn summary(plan: &OnnxPlan<'_>) -> String {
    let (low, full) = (plan.count(plan.dtype()), plan.count(DType::F32));
    let others = match plan.others() {
        0 => String::new(),
        others => format!("; {others} without floats"),
    };
    format!("{low} of {} nodes run in {}{others}", low + full, plan.dtype().long_name())
}

/// Prints the output of `precast explain`.
pub(super) fn explain(
    cli: &Cli,
    argument: &Path,
    name: &str,
    file: &Read<PolicyFile>,
    ranges: &RangeArgs,
    format: Format,
) -> Result {
    let (model, policy) = (inputs::onnx_model(argument)?, policy_for(file)?);
    let plan = ranges.plan(&model.value, &policy)?;
    let decision = plan.decision(name).map_err(|error| {
        let found = of_scope(&plan, name).unwrap_or(error.to_string());
        Failure::Usage(format!(
            "{found}; `{} plan {} --policy {}` shows every node",
            cli.program,
            model.word(),
            file.word()
        ))
    })?;
    match format {
        Format::Json => print_json(decision),
        Format::Text => {
            let NodeDecision { node, op, dtype, because, .. } = decision;
            let mut text = format!("{}{} ({})", header(&model, &[file]), printable(node), printable(op));
            text += &format!("\n  dtype    {dtype}");
            if let Some(because) = because {
                text += &format!("\n  because  {}", printable(&because.to_string()));
            }
            print(text)
        }
    }
}

/// Returns the nodes of a scope, for requests such as `/a/q`.
fn of_scope(plan: &OnnxPlan<'_>, asked: &str) -> Option<String> {
    let parts: Vec<&str> = asked.split(['/', '.']).filter(|part| !part.is_empty()).collect();
    let scope = parts.join(".") + ".";
    let inside = plan.decisions().iter().map(|decision| &decision.node).filter(|node| node.starts_with(&scope));
    let names: Vec<String> = inside.clone().take(4).map(|node| format!("`{}`", printable(node))).collect();
    let more = if inside.count() > names.len() { ", .." } else { "" };
    (!names.is_empty()).then(|| format!("`{}` is a scope, with the nodes {}{more}", printable(asked), names.join(", ")))
}

/// Prints the output of `precast diff`.
pub(super) fn diff(argument: &Path, from: &Read<PolicyFile>, to: &Read<PolicyFile>, format: Format) -> Result {
    let model = inputs::onnx_model(argument)?;
    if let Some(cells) =
        [from, to].into_iter().find(|file| file.cells().is_some_and(|cells| cells.value.level != Level::O0))
    {
        return Err(Failure::Usage(format!(
            "{cells} decides by the cells of the imported network, and the other policy by the nodes of the file, which \
             do not compare; `precast run --policy` shows what each does to the outputs"
        )));
    }
    let (before, after) = (policy_for(from)?, policy_for(to)?);
    let (before, after) = (model.value.plan(&before)?, model.value.plan(&after)?);
    let diff = Diff::between((&from.value.to_string(), before.decisions()), (&to.value.to_string(), after.decisions()));
    match format {
        Format::Json => print_json(&diff),
        Format::Text => print(format_args!("{}{diff}", header(&model, &[from, to]))),
    }
}

/// Inputs on which the ranges of an ONNX model are measured.
#[derive(Debug, Default, clap::Args)]
pub(super) struct RangeArgs {
    /// ONNX: measure the ranges of all values on these inputs, an `.npz` file with an array for each input; nodes with
    /// values near the end of the low range stay float32. May be given several times
    #[arg(long, value_name = "FILE")]
    inputs: Vec<PathBuf>,
}

impl RangeArgs {
    /// Refuses inputs where no ranges are measured.
    pub fn refuse(&self) -> Result {
        match &self.inputs[..] {
            [] => Ok(()),
            _ => Err(Failure::Usage("--inputs measures an ONNX model for a policy for graphs, such as `onnx`".into())),
        }
    }

    fn plan<'a>(&self, model: &'a OnnxModel, policy: &GraphPolicy) -> Result<OnnxPlan<'a>> {
        Ok(model.plan_with(policy, &self.with(model, policy, OnnxPlanOptions::new())?, &mut |_| ())?)
    }

    /// Adds the ranges on the inputs of each file.
    fn with(&self, model: &OnnxModel, policy: &GraphPolicy, options: OnnxPlanOptions) -> Result<OnnxPlanOptions> {
        if self.inputs.is_empty() && policy.keep.values_beyond.is_some() {
            say_line("`keep: values` of the policy has no effect without --inputs, on which the values are measured");
        }
        let mut all: Option<OnnxRanges> = None;
        for file in &self.inputs {
            let failed = |error: precast::Error| error.context(format!("--inputs {}", shown(file)));
            let measured = npz_arrays(file).and_then(|inputs| model.measure(&inputs)).map_err(failed)?;
            all.get_or_insert_default().merge(&measured);
        }
        Ok(match all {
            Some(ranges) => options.ranges(ranges),
            None => options,
        })
    }
}

/// Options of `precast convert` for ONNX models.
#[derive(Debug, clap::Args)]
pub(super) struct OnnxArgs {
    #[command(flatten)]
    ranges: RangeArgs,
    /// ONNX: inputs and outputs that become low, by name with commas between; all without names
    #[arg(long, value_name = "NAMES", num_args = 0.., value_delimiter = ',', require_equals = true)]
    low_io: Option<Vec<String>>,
    /// ONNX: write low ops as float32 with their results rounded by casts, as any runtime can check them
    #[arg(long)]
    explicit: bool,
    /// ONNX: store tensors of this many bytes or more in a data file beside the model
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    external: Option<u64>,
}

impl OnnxArgs {
    /// Refuses forms that exclude each other, and a file to write that is read, or cannot be written.
    pub fn check(&self, to: &Path, force: Force) -> Result {
        if self.explicit && self.low_io.is_some() {
            let words = "--explicit and --low-io exclude each other: the explicit form takes and gives float32";
            return Err(Failure::Usage(words.into()));
        }
        let read: Vec<_> = self.ranges.inputs.iter().map(|file| ("--inputs", Some(&**file))).collect();
        outputs::check_unread(&read, &[("TO", Some(to))], force)
    }

    /// Returns the name of an option that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--low-io", self.low_io.is_some()),
            ("--explicit", self.explicit),
            ("--inputs", !self.ranges.inputs.is_empty()),
            ("--external", self.external.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// The output of `precast convert --format json`.
#[derive(Serialize)]
struct ConvertReport<'a> {
    from: String,
    to: String,
    dtype: DType,
    #[serde(flatten)]
    converted: &'a OnnxConverted,
    nodes: &'a [NodeDecision],
}

/// The arguments of `precast convert` that are for all files.
pub(super) struct Converting<'a> {
    pub from: &'a Path,
    pub to: &'a Path,
    pub policy: &'a Read<PolicyFile>,
    pub force: bool,
    pub quiet: bool,
    pub format: Format,
}

/// Converts a model and prints the report.
pub(super) fn convert(args: &Converting<'_>, own: &OnnxArgs) -> Result {
    let (model, policy) = (inputs::onnx_model(args.from)?, policy_for(args.policy)?);
    let options = match own.low_io.as_deref() {
        None => OnnxPlanOptions::new(),
        Some([]) => OnnxPlanOptions::new().low_io(),
        Some(names) => OnnxPlanOptions::new().low_io_of(names),
    };
    let options = own.ranges.with(&model.value, &policy, options)?;
    let bar = if args.quiet { Bar::hidden() } else { Bar::of_bytes(model.value.bytes()) };
    let plan = model.value.plan_with(&policy, &options, &mut |bytes| bar.advance(bytes / 2))?;
    for note in plan.notes() {
        say_line(&format!("{}: {note}", shown(args.from)));
    }
    let mut writing = OnnxConvertOptions::new().explicit(own.explicit).replace(args.force);
    if let Some(bytes) = own.external {
        writing = writing.external(bytes);
    }
    let converted = plan.convert(args.to, &writing, &mut |bytes| bar.advance(bytes / 2));
    bar.finish();
    let converted = converted.map_err(Failure::work)?;
    match args.format {
        Format::Json => print_json(&ConvertReport {
            from: args.from.to_string_lossy().into_owned(),
            to: args.to.to_string_lossy().into_owned(),
            dtype: plan.dtype(),
            converted: &converted,
            nodes: plan.decisions(),
        }),
        Format::Text => {
            let mut text = format!("{}{}\n", header(&model, &[args.policy]), summary(&plan));
            text += &kept(plan.decisions());
            text += &format!(
                "{} casts, {} weights in {}; {} bytes, {} before\n",
                converted.casts,
                converted.lowered,
                plan.dtype().long_name(),
                converted.bytes_after,
                converted.bytes_before
            );
            text += &format!("written: {}", shown(args.to));
            if let Some(data) = &converted.data {
                text += &format!(", {}", shown(data));
            }
            print(text)
        }
    }
}

/// Most nodes that the report of a conversion names.
const MOST_NAMED: usize = 12;

/// Returns a line for each node that stays float32, up to a number.
fn kept(decisions: &[NodeDecision]) -> String {
    let full = || decisions.iter().filter(|of| of.dtype == DType::F32 && of.computes());
    let line = |of: &NodeDecision| printable(&format!("  {}  {of}", of.node)).into_owned() + "\n";
    let mut text: String = full().take(MOST_NAMED).map(line).collect();
    if let Some(more @ 1..) = full().count().checked_sub(MOST_NAMED) {
        text += &format!("  and {more} more in float32\n");
    }
    text
}

/// Refuses options for ONNX models with other files.
pub(super) fn refuse(own: &OnnxArgs, from: &Path) -> Result {
    match own.given() {
        Some(name) => Err(Failure::Usage(format!("{name} is for ONNX models, and `{}` is none", inputs::shown(from)))),
        None => Ok(()),
    }
}
