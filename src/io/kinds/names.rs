//! Names in torch and MindSpore of this library's cells.

use serde::Serialize;

use crate::{
    error::{Error, Result, nearest},
    layers::kinds,
};

/// Names of a kind of cell in other frameworks; empty where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Names {
    /// Names in `torch.nn`.
    pub torch: &'static [&'static str],
    /// Names in `mindspore.nn`.
    pub mindspore: &'static [&'static str],
}

/// One row per kind: its name here, in torch, in MindSpore.
const NAMES: &[(&str, Names)] = &[
    row("AdaptiveAvgPool1d", &["AdaptiveAvgPool1d"], &["AdaptiveAvgPool1d"]),
    row("AdaptiveAvgPool2d", &["AdaptiveAvgPool2d"], &["AdaptiveAvgPool2d"]),
    row("AdaptiveAvgPool3d", &["AdaptiveAvgPool3d"], &["AdaptiveAvgPool3d"]),
    row("AvgPool1d", &["AvgPool1d"], &["AvgPool1d"]),
    row("AvgPool2d", &["AvgPool2d"], &["AvgPool2d"]),
    row("AvgPool3d", &["AvgPool3d"], &["AvgPool3d"]),
    row("BatchNorm1d", &["BatchNorm1d"], &["BatchNorm1d"]),
    row("BatchNorm2d", &["BatchNorm2d"], &["BatchNorm2d"]),
    row("BatchNorm3d", &["BatchNorm3d"], &["BatchNorm3d"]),
    row("CellList", &["ModuleList"], &["CellList"]),
    row("Conv1d", &["Conv1d"], &["Conv1d"]),
    row("Conv1dTranspose", &["ConvTranspose1d"], &["Conv1dTranspose"]),
    row("Conv2d", &["Conv2d"], &["Conv2d"]),
    row("Conv2dTranspose", &["ConvTranspose2d"], &["Conv2dTranspose"]),
    row("Conv3d", &["Conv3d"], &["Conv3d"]),
    row("Conv3dTranspose", &["ConvTranspose3d"], &["Conv3dTranspose"]),
    row("Dense", &["Linear"], &["Dense"]),
    row("Dropout", &["Dropout"], &["Dropout"]),
    row("ELU", &["ELU"], &["ELU"]),
    row("Embedding", &["Embedding"], &["Embedding"]),
    row("Flatten", &["Flatten"], &["Flatten"]),
    row("GELU", &["GELU"], &["GELU"]),
    row("GRU", &["GRU"], &["GRU"]),
    row("GRUCell", &["GRUCell"], &["GRUCell"]),
    row("GraphCell", &[], &[]),
    row("GroupNorm", &["GroupNorm"], &["GroupNorm"]),
    row("HSigmoid", &["Hardsigmoid"], &["HSigmoid"]),
    row("HSwish", &["Hardswish"], &["HSwish"]),
    row("HardTanh", &["Hardtanh"], &["Hardtanh"]),
    row("Identity", &["Identity"], &["Identity"]),
    row("InstanceNorm1d", &["InstanceNorm1d"], &["InstanceNorm1d"]),
    row("InstanceNorm2d", &["InstanceNorm2d"], &["InstanceNorm2d"]),
    row("InstanceNorm3d", &["InstanceNorm3d"], &["InstanceNorm3d"]),
    row("LSTM", &["LSTM"], &["LSTM"]),
    row("LSTMCell", &["LSTMCell"], &["LSTMCell"]),
    row("LayerNorm", &["LayerNorm"], &["LayerNorm"]),
    row("LeakyReLU", &["LeakyReLU"], &["LeakyReLU"]),
    row("LoRA", &[], &[]),
    row("LogSoftmax", &["LogSoftmax"], &["LogSoftmax"]),
    row("MaxPool1d", &["MaxPool1d"], &["MaxPool1d"]),
    row("MaxPool2d", &["MaxPool2d"], &["MaxPool2d"]),
    row("MaxPool3d", &["MaxPool3d"], &["MaxPool3d"]),
    row("MultiheadAttention", &["MultiheadAttention"], &["MultiheadAttention"]),
    row("PReLU", &["PReLU"], &["PReLU"]),
    row("RNN", &["RNN"], &["RNN"]),
    row("RNNCell", &["RNNCell"], &["RNNCell"]),
    row("ReLU", &["ReLU"], &["ReLU"]),
    row("ReLU6", &["ReLU6"], &["ReLU6"]),
    row("RmsNorm", &["RMSNorm"], &[]),
    row("RotaryEmbedding", &[], &[]),
    row("Sequential", &["Sequential"], &["SequentialCell"]),
    row("SiLU", &["SiLU"], &["SiLU"]),
    row("Sigmoid", &["Sigmoid"], &["Sigmoid"]),
    row("Softmax", &["Softmax"], &["Softmax"]),
    row("Softplus", &["Softplus"], &[]),
    row("Tanh", &["Tanh"], &["Tanh"]),
    row("TransformerDecoder", &["TransformerDecoder"], &["TransformerDecoder"]),
    row("TransformerDecoderLayer", &["TransformerDecoderLayer"], &["TransformerDecoderLayer"]),
    row("TransformerEncoder", &["TransformerEncoder"], &["TransformerEncoder"]),
    row("TransformerEncoderLayer", &["TransformerEncoderLayer"], &["TransformerEncoderLayer"]),
];

const fn row(
    kind: &'static str,
    torch: &'static [&'static str],
    mindspore: &'static [&'static str],
) -> (&'static str, Names) {
    (kind, Names { torch, mindspore })
}

/// Returns the names of a kind in other frameworks; `None` for a program's own kind.
pub(crate) fn elsewhere(kind: &str) -> Option<Names> {
    NAMES.iter().find(|(here, _)| *here == kind).map(|(_, names)| *names)
}

/// Iterates over all foreign names of cells, each with its framework and the kind here.
fn foreign() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    NAMES.iter().flat_map(|(kind, names)| {
        let torch = names.torch.iter().map(|name| (*name, "torch", *kind));
        torch.chain(names.mindspore.iter().map(|name| (*name, "MindSpore", *kind)))
    })
}

/// Returns the kind for a name in torch or MindSpore, and the framework: `Linear` and `nn.Linear` are `Dense`.
pub(crate) fn named_elsewhere(name: &str) -> Option<(&'static str, &'static str)> {
    let last = name.rsplit('.').next().unwrap_or(name);
    foreign().find(|(other, ..)| *other == last).map(|(_, who, kind)| (kind, who))
}

/// Returns the kind for a name: one of [`layers::kinds`](crate::layers::kinds), or the name in torch or MindSpore, such
/// as `Linear` or `nn.Linear`.
///
/// # Errors
/// [`ErrorKind::Model`](crate::ErrorKind::Model) for an unknown name, with the nearest one.
///
/// ```
/// use precast::io::kinds::named;
/// assert_eq!((named("Dense")?, named("nn.Linear")?), ("Dense", "Dense"));
/// assert!(named("Linaer").unwrap_err().to_string().contains("did you mean `Linear`, as torch calls Dense?"));
/// # Ok::<(), precast::Error>(())
/// ```
pub fn named(name: &str) -> Result<&'static str> {
    let here = kinds()?;
    if let Some(kind) = here.iter().find(|kind| **kind == name) {
        return Ok(kind);
    }
    if let Some((kind, _)) = named_elsewhere(name) {
        return Ok(kind);
    }
    Err(Error::model(unknown(name, &here)))
}

/// Returns the error text for an unknown name.
pub(crate) fn unknown(name: &str, here: &[&'static str]) -> String {
    let all: Vec<(&str, &str, &str)> = here.iter().map(|kind| (*kind, "", *kind)).chain(foreign()).collect();
    let near = match nearest(name, &all, |(name, ..)| name) {
        None => "; a kind of a program is known to that program's own command".into(),
        Some((near, _, kind)) if near == kind => format!(" (did you mean `{kind}`?)"),
        Some((near, who, kind)) => format!(" (did you mean `{near}`, as {who} calls {kind}?)"),
    };
    format!("no kind of cell is called `{name}`{near}")
}
