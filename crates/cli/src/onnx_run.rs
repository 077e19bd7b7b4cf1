//! `precast run`: an ONNX model on inputs from a file.

use std::path::PathBuf;

use precast::{Child, Tensor, no_grad, policy::PolicyFile};
use precast_base::printable;
use precast_graph::onnx::{ImportOptions, OnnxConvertOptions, OnnxModel, OnnxNetwork};
use precast_train::{
    FixedNumber,
    data::{npz_arrays, write_npz},
    is_onnx,
};
use serde::Serialize;

use super::{
    Failure, Format, Result,
    inputs::{self, Read, header, shown},
    outputs::{self, Force},
    print, print_json,
    table::library_table,
};

/// Run an ONNX model on inputs, under a policy or beside another model
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  precast run model.onnx --inputs x.npz --outputs y.npz       inputs and outputs as arrays of NumPy, by name
  precast run model.onnx --inputs x.npz --against low.onnx    how far the outputs of a converted model are from these
  precast run model.onnx --inputs x.npz --policy o2-bf16      how far a policy moves them
  precast run vad.onnx --inputs x.npz --fix sr=16000          an input that steers the model is fixed

`numpy.savez('x.npz', input=x)` writes a file with one input. The model runs in float32, but for what it asks for itself.")]
pub(super) struct Args {
    /// An ONNX model
    model: PathBuf,
    /// An `.npz` file with an array for each input
    #[arg(long, value_name = "FILE")]
    inputs: PathBuf,
    /// Write the outputs to an `.npz` file; those of --policy or --against, if there is one
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Also run the network under this policy, a file or the name of a built-in one, and compare the outputs
    #[arg(short, long)]
    policy: Option<PathBuf>,
    /// Also run this ONNX model, and compare the outputs
    #[arg(long, value_name = "MODEL", conflicts_with = "policy")]
    against: Option<PathBuf>,
    /// Fix the value of an input: NAME=VALUE. May be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = fixed, allow_negative_numbers = true)]
    fix: Vec<(String, FixedNumber)>,
    /// Fix the length of a symbolic axis: NAME=LENGTH. May be given several times
    #[arg(long, value_name = "NAME=LENGTH", value_parser = length)]
    axis: Vec<(String, usize)>,
    /// Output format
    #[arg(long, default_value = "text")]
    format: Format,
}

/// Parses the value of an input.
fn fixed(text: &str) -> Result<(String, FixedNumber), String> {
    let (name, value) = text.rsplit_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.into(), value.parse().map_err(|error: precast::Error| error.to_string())?))
}

/// Parses the length of an axis.
fn length(text: &str) -> Result<(String, usize), String> {
    let (name, length) = text.rsplit_once('=').ok_or("expected NAME=LENGTH")?;
    Ok((name.into(), length.parse().map_err(|_| format!("`{length}` is not a length; expected a whole number"))?))
}

/// An output of a model.
#[derive(Serialize)]
struct Output {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    /// The least and the largest finite number.
    least: Option<f64>,
    largest: Option<f64>,
    /// The count of infinities and NaN.
    not_finite: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    differs: Option<Difference>,
}

/// The distance between an output and another one.
#[derive(Serialize)]
struct Difference {
    /// The largest difference of two numbers.
    largest: f64,
    /// The norm of the difference, divided by the norm of the output.
    relative: f64,
    /// The count of numbers that are finite in one of both alone.
    not_finite: usize,
}

type Outputs = Vec<(String, Tensor)>;

pub(super) fn run(args: &Args) -> Result {
    let read = [
        ("MODEL", Some(&args.model)),
        ("--inputs", Some(&args.inputs)),
        ("--against", args.against.as_ref()),
        ("--policy", args.policy.as_ref()),
    ];
    outputs::check_unread(
        &read.map(|(name, path)| (name, path.map(PathBuf::as_path))),
        &[("--outputs", args.outputs.as_deref())],
        args.force,
    )?;
    outputs::check_ending("--outputs", args.outputs.as_deref(), &["npz"])?;
    if let Some(other) = [Some(&args.model), args.against.as_ref()].into_iter().flatten().find(|path| !is_onnx(path)) {
        return Err(Failure::Usage(format!(
            "`{}` is not an ONNX model by its name, and `run` takes those; `predict` is for the folder of a run",
            shown(other)
        )));
    }
    let policy = args.policy.as_deref().map(inputs::policy_file).transpose()?;
    let given = npz_arrays(&args.inputs).map_err(|error| error.context("--inputs"))?;
    let model = inputs::onnx_model(&args.model)?;
    let mut net = import(&model.value, &model, args)?;
    let first = called(&net, &model, &given)?;
    let second = match (&args.against, policy.as_ref().map(|policy| &policy.value)) {
        (Some(other), _) => {
            let other = inputs::onnx_model(other)?;
            Some(called(&import(&other.value, &other, args)?, &other, &given)?)
        }
        (None, Some(PolicyFile::Cells(policy))) => {
            let _applied = policy.in_the_end().plan(&net)?.apply(&mut net)?;
            Some(called(&net, &model, &given)?)
        }
        (None, Some(PolicyFile::Graph(policy))) => {
            let bytes = model.value.plan(policy)?.to_bytes(&OnnxConvertOptions::new())?;
            Some(called(&import(&OnnxModel::from_bytes(bytes)?, &model, args)?, &model, &given)?)
        }
        (None, None) => None,
    };
    let rows = first.iter().map(|(name, x)| output(name, x, second.as_ref()));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    if let Some(file) = &args.outputs {
        let written = second.as_ref().unwrap_or(&first);
        write_npz(file, written.iter().map(|(name, x)| (&name[..], x))).map_err(Failure::work)?;
    }
    match args.format {
        Format::Json => print_json(&rows),
        Format::Text => {
            let policies: Vec<&Read<PolicyFile>> = policy.iter().collect();
            let against = args.against.as_ref().map_or(String::new(), |other| format!("against {}\n", shown(other)));
            let written = args.outputs.as_ref().map_or(String::new(), |file| format!("\nwritten: {}", shown(file)));
            print(format_args!("{}{against}{}{written}", header(&model, &policies), table(&rows)))
        }
    }
}

/// Imports a model with what the arguments fix.
fn import<T>(model: &OnnxModel, read: &Read<T>, args: &Args) -> Result<Child<OnnxNetwork>> {
    let fixed = args.fix.iter().fold(ImportOptions::new(), |options, (name, value)| options.fix(name, *value));
    let options = args.axis.iter().fold(fixed, |options, (name, length)| options.axis(name, *length));
    Ok(model.import(&options).map_err(|error| error.context(read.argument()))?)
}

/// Calls a network in evaluation and returns its outputs by name.
fn called<T>(net: &Child<OnnxNetwork>, read: &Read<T>, given: &[(String, Tensor)]) -> Result<Outputs> {
    let inputs =
        net.cell().in_order(given).map_err(|error| error.context(format!("--inputs for {}", read.argument())))?;
    let made = no_grad(|| net.call_many(&inputs)).map_err(|error| error.context(read.argument()))?;
    Ok(net.cell().outputs().map(str::to_string).zip(made).collect())
}

/// Describes an output, and its distance from that of the same name.
fn output(name: &str, x: &Tensor, others: Option<&Outputs>) -> Result<Output> {
    let numbers = x.to_f64();
    let finite = || numbers.iter().copied().filter(|number| number.is_finite());
    let differs = match others {
        None => None,
        Some(others) => {
            let other = others.iter().find(|(other, _)| other == name).map(|(_, other)| other);
            let other =
                other.ok_or_else(|| Failure::Usage(format!("the other model has no output `{}`", printable(name))))?;
            if other.shape() != x.shape() {
                let words = format!("of shape {:?}, and in the other model of shape {:?}", x.shape(), other.shape());
                return Err(Failure::Usage(format!("the output `{}` is {words}", printable(name))));
            }
            Some(difference(&numbers, &other.to_f64()))
        }
    };
    Ok(Output {
        name: name.into(),
        dtype: x.dtype().long_name().into(),
        shape: x.shape().to_vec(),
        least: finite().reduce(f64::min),
        largest: finite().reduce(f64::max),
        not_finite: numbers.iter().filter(|number| !number.is_finite()).count(),
        differs,
    })
}

/// Measures the distance of numbers from others of the same count.
fn difference(numbers: &[f64], others: &[f64]) -> Difference {
    let pairs = || numbers.iter().zip(others).filter(|(a, b)| a.is_finite() && b.is_finite());
    let norm = pairs().map(|(a, _)| a * a).sum::<f64>().sqrt();
    let apart = pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    Difference {
        largest: pairs().map(|(a, b)| (a - b).abs()).fold(0.0, f64::max),
        relative: if apart == 0.0 { 0.0 } else { apart / norm },
        not_finite: numbers.iter().zip(others).filter(|(a, b)| a.is_finite() != b.is_finite()).count(),
    }
}

fn table(rows: &[Output]) -> String {
    let compared = rows.iter().any(|row| row.differs.is_some());
    let mut names = vec!["output", "dtype", "shape", "least", "largest", "not finite"];
    if compared {
        names.extend(["largest difference", "relative", "not finite in one"]);
    }
    let number = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.6}"));
    let cells =
        |row: &Output| {
            let mut cells = vec![
                printable(&row.name).into_owned(),
                row.dtype.clone(),
                format!("{:?}", row.shape),
                number(row.least),
                number(row.largest),
                row.not_finite.to_string(),
            ];
            cells.extend(row.differs.iter().flat_map(|by| {
                [format!("{:.2e}", by.largest), format!("{:.2e}", by.relative), by.not_finite.to_string()]
            }));
            cells
        };
    library_table(&names, rows.iter().map(cells).collect(), &[3, 4, 5, 6, 7, 8])
}
