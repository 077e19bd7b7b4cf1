//! `precast init`: a starting policy that names the cells of one network.

use std::{collections::BTreeMap, path::PathBuf};

use precast::{
    Child, Op, Plan,
    io::models::Model,
    plan::{Decision, Reason},
    policy::{Operands, Pack, Policy, PolicyFile, Rule, RunAs},
    precision::Treatment,
};
use precast_base::{files, printable, quoted};

use super::{
    Cli, Failure, Result, graph,
    inputs::{self, Read, shown, word},
    outputs::{self, Output},
    print, print_as_it_is,
};

/// Write a policy for a network: a built-in one with its comments, and the exceptions that may matter in this network
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast init lenet5_bn                                     to standard output
  precast init my-model.yaml --policy o2-bf16 --output my-policy.yaml
  precast init my-model.yaml --policy o2-bf16 --low-bit mxfp8   with rules for products in 8 bits
  precast plan my-model.yaml --policy my-policy.yaml

It plans as the policy that it was made of, until you change it. Every exception is a comment, with its reason.")]
pub(super) struct Args {
    /// A model file, or the name of a built-in model
    model: PathBuf,
    /// The policy to start from: a file, or the name of a built-in policy
    #[arg(short, long, default_value = "o2")]
    policy: PathBuf,
    /// A recipe of 8 or 4 bits for the operands of products, such as `rowwise` or `mxfp8`: the first and the last layer with
    /// weights, and those whose sizes its blocks do not divide, are left out
    #[arg(long, value_name = "RECIPE")]
    low_bit: Option<Operands>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    args.output.check(&[("MODEL", Some(&args.model)), ("--policy", Some(&args.policy))])?;
    outputs::check_ending("--output", args.output.file.as_deref(), &["yaml", "yml"])?;
    let model = inputs::model(cli, &args.model, 0)?;
    let policy = inputs::policy_file(&args.policy)?;
    if let PolicyFile::Graph(policy) = &policy.value {
        graph::check_ops(policy)?;
    }
    let text = text(cli, args, &model, &policy)?;
    // The output must be readable.
    if let PolicyFile::Cells(written) = PolicyFile::parse(&text, "the new policy").map_err(Failure::work)? {
        written.plan(&model.value.net).map_err(Failure::work)?;
    }
    match &args.output.file {
        None => print_as_it_is(text.trim_end()),
        Some(file) => {
            files::replace(file, text.as_bytes()).map_err(Failure::work)?;
            print(format_args!("written: {}", shown(file)))
        }
    }
}

/// The part cut off a built-in policy: the exceptions below are for this network.
const GENERAL_EXCEPTIONS: &str = "# Your own exceptions go here; the first rule";

fn text(cli: &Cli, args: &Args, model: &Read<Model>, policy: &Read<PolicyFile>) -> Result<String> {
    let (name, base) = (model.short_name(), policy.short_name());
    let (name, base) = (printable(&name), printable(&base));
    let file = args.output.file.as_deref().map_or("FILE".into(), word);
    let (program, argument) = (&cli.program, model.word());
    let mut text = format!(
        "# A policy for {name}, begun as {policy} by `{program} init`.\n#\n\
         # See what it does:     {program} plan {argument} --policy {file}\n\
         # Ask for one cell:     {program} explain {argument} PATH --policy {file}\n\
         # Let an editor check:  {program} show schema > schema.json, and here: # yaml-language-server: $schema=schema.json\n\n"
    );
    match PolicyFile::shipped_text(&base).filter(|_| policy.built_in) {
        Some(shipped) => {
            // Its head explains how to load it, which is covered above.
            let (_, body) = shipped.split_once("\n\n").unwrap_or(("", shipped));
            let body = body.split(GENERAL_EXCEPTIONS).next().unwrap_or(body);
            text += &body.replace(&format!("name: {base}\n"), &format!("name: {}\n", named(&format!("{name}-{base}"))));
        }
        None => text += &policy.text()?,
    }
    let text = format!("{}\n", text.trim_end());
    let PolicyFile::Cells(of_cells) = &policy.value else {
        return match args.low_bit {
            None => Ok(text),
            Some(_) => Err(Failure::Usage("--low-bit is for networks of cells, and this policy is for graphs".into())),
        };
    };
    let plan = of_cells.plan(&model.value.net)?;
    let counts: Vec<String> = plan.counts().into_iter().map(|(run, n)| format!("{n} {run}")).collect();
    let counts = counts.join(", ");
    let exceptions = exceptions(&plan, &model.value.net)?;
    let cells = match plan.decisions.len() {
        1 => "1 cell".into(),
        cells => format!("{cells} cells"),
    };
    let head = format!("{text}\n# Its plan for the {cells} of this network: {counts}.");
    let low_bits = match args.low_bit {
        Some(operands) => low_bits(of_cells, &plan, &model.value.net, operands)?,
        None => Vec::new(),
    };
    if exceptions.is_empty() && low_bits.is_empty() {
        return Ok(head + "\n");
    }
    let mark = if policy.built_in { "" } else { "# " };
    let low_bits = low_bits.iter().map(|rule| format!("  {mark}{rule},\n"));
    let lines = exceptions.iter().map(|(why, rule)| format!("  # {why}\n  # {rule},\n"));
    let lines: String = low_bits.chain(lines).collect();
    // A file may already have a key `rules`, or be written in braces.
    Ok(match policy.built_in {
        true => format!(
            "{head}\n# Exceptions that could matter here: take away the `#` before a rule, and it counts.\n\
             # The first rule that matches a cell decides, and each must match one.\nrules: [\n{lines}]\n"
        ),
        false => format!(
            "{head}\n# Exceptions that could matter here: rules to be added to yours, each behind `- `.\n{}",
            lines.replace(" },\n", " }\n")
        ),
    })
}

/// Cells of a kind that are tried, of which each is a plan of the network.
const FEW: usize = 8;

/// Returns rules that quantize the operands of the products of a network, but for its ends.
fn low_bits(policy: &Policy, plan: &Plan, net: &Child, operands: Operands) -> Result<Vec<String>> {
    let reaches = |rule: &Rule| {
        let mut policy = policy.clone();
        policy.rules.insert(0, rule.clone());
        policy.plan(net).is_ok()
    };
    let mut kinds: Vec<&str> = plan.decisions.iter().map(|decision| &*decision.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let of_kind = |kind: &&str| {
        // A few cells say whether a kind has products.
        let paths = plan.decisions.iter().filter(|decision| decision.kind == **kind).take(FEW);
        paths.map(|decision| Rule::operands(&decision.path, operands)).any(|rule| rule.is_ok_and(|rule| reaches(&rule)))
    };
    let kinds: Vec<&str> = kinds.into_iter().filter(of_kind).collect();
    if kinds.is_empty() {
        return Err(Failure::Usage(format!(
            "--low-bit {operands}: no cell of the network has products whose operands this policy may quantize"
        )));
    }
    let whys = ["the first layer reads the inputs", "the loss reads what the last layer returns"];
    let of_ends = ends(net).into_iter().zip(whys).filter_map(|(path, why)| {
        let rule = Rule::operands(&path?, Operands::NONE).ok().filter(reaches)?;
        Some(rule.because(why).to_line())
    });
    let of_kinds = kinds.iter().map(|kind| format!("{{ kind: {}, operands: {operands} }}", quoted(kind)));
    Ok(of_ends.chain(of_kinds).collect())
}

/// Returns the paths of the first and the last cell with matrices of weights. A single one is the last.
fn ends(net: &Child) -> [Option<String>; 2] {
    let params = net.named_params();
    let matrices = params.iter().filter(|(_, param)| param.is_trained() && param.shape().len() > 1);
    let owners: Vec<&str> = matrices.filter_map(|(path, _)| Some(path.rsplit_once('.')?.0)).collect();
    let first = owners.first().filter(|first| owners.last() != Some(first));
    [first, owners.last()].map(|path| path.map(|path| path.to_string()))
}

/// Returns a name for one line of YAML, in quotes where it could otherwise be misread.
fn named(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain) {
        true => name.into(),
        false => quoted(name),
    }
}

/// Returns the rules that may matter, each with its reason: cells decided by a list, those that lose most in 16 bits,
/// and the ends of the network.
fn exceptions(plan: &Plan, net: &Child) -> Result<Vec<(String, String)>> {
    let lowered = |decision: &Decision| decision.run.lowers();
    let mut exceptions = Vec::new();
    let mut by_kind: BTreeMap<&str, Vec<&Decision>> = BTreeMap::new();
    for decision in &plan.decisions {
        by_kind.entry(&decision.kind).or_default().push(decision);
    }
    let mut of_kind = |kind: &str, of: &[&Decision], why: &str, run: RunAs| {
        let few: Vec<&str> = of.iter().map(|decision| decision.path.as_str()).take(4).collect();
        let more = if of.len() > few.len() { format!(", ... {} in all", of.len()) } else { String::new() };
        let places = printable(&few.join(", ")).into_owned();
        let places = if places.is_empty() { String::new() } else { format!(" ({places}{more})") };
        let why = format!("{}{places} {why}", printable(kind));
        exceptions.push((why, Rule::kind(kind, run).to_line()));
    };
    for (kind, of) in &by_kind {
        let listed: Vec<&Decision> =
            of.iter().copied().filter(|one| matches!(one.because, Reason::Listed(_))).collect();
        if let Some(first) = listed.first() {
            match lowered(first) {
                true => of_kind(kind, &listed, &format!("runs low: {}. To keep it:", first.because), RunAs::Full),
                false => of_kind(kind, &listed, &format!("stays float32: {}. To lower it:", first.because), RunAs::Low),
            }
        }
    }
    for (kind, of) in &by_kind {
        let low: Vec<&Decision> = of.iter().copied().filter(|one| lowered(one)).collect();
        if let (Some(why), false) = (loss_in_16_bits(kind)?, low.is_empty()) {
            of_kind(kind, &low, &format!("runs low: {why}. To keep it:"), RunAs::Full);
        }
    }
    // A table is first where the inputs are integers, which are not rounded.
    let whys = [
        "is the first with weights: the inputs are rounded for it",
        "is the last with weights: the loss reads what it returns, rounded to 16 bits where the network around it is low",
    ];
    for (path, why) in ends(net).into_iter().zip(whys) {
        let decision = path.and_then(|path| plan.decision(&path).ok());
        let Some(decision) = decision.filter(|decision| lowered(decision) && decision.kind != "Embedding") else {
            continue;
        };
        let why = format!("{} ({}) {why}. To keep it:", printable(&decision.path), printable(&decision.kind));
        // A name with `*` or brackets in it is in no pattern.
        exceptions.extend(Rule::path(&decision.path, RunAs::Full).ok().map(|rule| (why, rule.to_line())));
    }
    Ok(exceptions)
}

/// Returns the reason why the results of a kind lose accuracy in 16 bits: what the pack says of its op, and known facts
/// about tables and probabilities.
fn loss_in_16_bits(kind: &str) -> Result<Option<String>> {
    let pack = Pack::named(Pack::DEFAULT)?;
    let lists = pack.region(None)?;
    let entry = Op::ALL.iter().find(|op| op.name() == kind).and_then(|op| lists.ops().get(op));
    let in_pack = entry.filter(|entry| entry.treatment == Treatment::Full).and_then(|entry| entry.because.clone());
    Ok(in_pack.map(|why| why.to_string()).or(match kind {
        "Softmax" => Some("of a probability 16 bits keep 2 to 4 digits".into()),
        "Embedding" => {
            Some("a table is read and not multiplied; 16 bits save no time there, and round each row".into())
        }
        _ => None,
    }))
}
