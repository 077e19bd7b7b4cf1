//! `precast shadow`: the error of each cell of a lowered network.

use std::path::PathBuf;

use precast::{io::models::Model, no_grad, plan::undo, policy::LossScaleSpec};
use precast_diagnose::{
    shadow::{Digits, Shadow, ShadowCell},
    tune::LossOf,
};
use precast_explorer::Note;

use super::{
    Cli, Failure, Result, examples,
    inputs::{Read, shown},
    outputs::Page,
    plan_page::write_noted,
    print,
};

/// Run a lowered network next to itself in float32, and show the error that enters, begins in and leaves each cell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Errors are relative. The effect is the predicted error of the network's output when only this cell is lowered; the cells with
the largest are first.

Examples:
  precast shadow runs/o2 --policy o2
  precast shadow runs/o2 --policy o2-bf16 --gradients
  precast shadow runs/o2 --policy o2 --digits")]
pub(super) struct Args {
    #[command(flatten)]
    examples: examples::Args,
    /// A policy file or a built-in policy [default: that of the run]
    #[arg(short, long)]
    policy: Option<PathBuf>,
    /// Compare the gradients of the loss, too
    #[arg(long)]
    gradients: bool,
    /// Look for lost digits without float32: by two passes with stochastic rounding
    #[arg(long, conflicts_with = "gradients")]
    digits: bool,
    #[command(flatten)]
    page: Page,
}

pub(super) fn run(cli: &Cli, args: &Args) -> Result {
    args.page.check(&[&args.examples.files()[..], &[("--policy", args.policy.as_deref())]].concat())?;
    if args.digits && args.page.html.is_some() {
        return Err(Failure::Usage("--html is of the errors of cells, which --digits does not compare".into()));
    }
    let policy = args.examples.policy(args.policy.as_deref())?;
    let in_the_end = policy.value.in_the_end();
    let mut subject = args.examples.read(cli, 1, "shadow needs at least 1 example")?;
    undo(&mut subject.net);
    let mut net = std::mem::replace(&mut subject.net, precast::Child::of(precast::layers::Identity));
    let batch = subject.batches[0].clone();
    if args.digits {
        in_the_end.apply(&mut net)?;
        let digits = Digits::of(&net, |net| no_grad(|| batch.call(net))).map_err(Failure::work)?;
        return print(format_args!("model   {}\npolicy  {policy}\n\n{digits}", shown(&args.examples.model)));
    }
    let mut scaled = in_the_end.clone();
    if let (LossScaleSpec::Dynamic(dynamic), Some(scale)) = (&mut scaled.loss_scale, subject.scale) {
        dynamic.init = scale;
    }
    let loss: LossOf<'_> = &|y, at| subject.loss(y, at);
    let shadow = Shadow::of_step(&scaled, &mut net, &|net| batch.call(net), args.gradients.then_some(loss));
    let shadow = shadow.map_err(Failure::work)?;
    print(format_args!("model   {}\npolicy  {policy}\n\n{shadow}", shown(&args.examples.model)))?;
    let Some(page) = &args.page.html else { return Ok(()) };
    let note = |cell: &ShadowCell| {
        let ShadowCell { incoming, local, outgoing, effect, .. } = cell;
        let text =
            format!("error {incoming:.1e} enters, {local:.1e} begins here, {outgoing:.1e} leaves; effect {effect:.1e}");
        (cell.path.clone(), vec![Note { mark: format!("effect {effect:.1e}"), text }])
    };
    undo(&mut net);
    let model = Read::of_file(Model::new(net), &args.examples.model);
    write_noted(page, &model, policy.to_string(), &in_the_end, shadow.cells.iter().map(note).collect())
}
