//! Names in other libraries of the kinds of cells that the packs list under precast's names.

use serde::Serialize;

use crate::catalogue::System;

/// Names of a kind of cell in other libraries; empty where they have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Names {
    /// Names in `torch.nn`.
    pub torch: &'static [&'static str],
    /// Names in `mindspore.nn`.
    pub mindspore: &'static [&'static str],
}

/// One row for each kind: its name here, in torch, and in MindSpore.
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
    row("ColumnEmbedding", &[], &[]),
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

/// Kinds with weights of several axes that no product reads, here and in burn.
const WITHOUT_PRODUCTS: &[&str] = &[
    "BatchNorm",
    "ColumnEmbedding",
    "Embedding",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "PRelu",
    "PReLU",
    "RmsNorm",
];

/// Returns whether the weights of a cell of this kind are operands of products; `true` for a user-defined kind.
pub(crate) fn has_products(kind: &str) -> bool {
    !WITHOUT_PRODUCTS.contains(&kind)
}

/// Returns the names of a kind in other libraries; `None` for a user-defined kind.
pub fn elsewhere(kind: &str) -> Option<Names> {
    NAMES.iter().find(|(here, _)| *here == kind).map(|(_, names)| *names)
}

/// Iterates over all names of cells in other libraries, each with its library and the kind here.
pub fn foreign() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    NAMES.iter().flat_map(|(kind, names)| {
        let torch = names.torch.iter().map(|name| (*name, "torch", *kind));
        torch.chain(names.mindspore.iter().map(|name| (*name, "MindSpore", *kind)))
    })
}

/// Returns the kind with this name in torch or MindSpore, and the library: `Linear` and `nn.Linear` are `Dense`.
pub fn named_elsewhere(name: &str) -> Option<(&'static str, &'static str)> {
    let last = name.rsplit('.').next().unwrap_or(name);
    foreign().find(|(other, ..)| *other == last).map(|(_, who, kind)| (kind, who))
}

/// The modules of burn with the corresponding kinds here. A norm or a pool of burn may have several.
const BURN: &[(&str, &[&str])] = &[
    ("AdaptiveAvgPool1d", &["AdaptiveAvgPool1d"]),
    ("AdaptiveAvgPool2d", &["AdaptiveAvgPool2d"]),
    ("AvgPool1d", &["AvgPool1d"]),
    ("AvgPool2d", &["AvgPool2d"]),
    ("BatchNorm", &["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"]),
    ("Conv1d", &["Conv1d"]),
    ("Conv2d", &["Conv2d"]),
    ("Conv3d", &["Conv3d"]),
    ("ConvTranspose1d", &["Conv1dTranspose"]),
    ("ConvTranspose2d", &["Conv2dTranspose"]),
    ("ConvTranspose3d", &["Conv3dTranspose"]),
    ("Dropout", &["Dropout"]),
    ("Embedding", &["Embedding"]),
    ("Gelu", &["GELU"]),
    ("GroupNorm", &["GroupNorm"]),
    ("Gru", &["GRU"]),
    ("HardSigmoid", &["HSigmoid"]),
    ("HardSwish", &["HSwish"]),
    ("InstanceNorm", &["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]),
    ("LayerNorm", &["LayerNorm"]),
    ("LeakyRelu", &["LeakyReLU"]),
    ("Linear", &["Dense"]),
    ("Lstm", &["LSTM"]),
    ("MaxPool1d", &["MaxPool1d"]),
    ("MaxPool2d", &["MaxPool2d"]),
    ("MultiHeadAttention", &["MultiheadAttention"]),
    ("PRelu", &["PReLU"]),
    ("Relu", &["ReLU"]),
    ("RmsNorm", &["RmsNorm"]),
    ("RotaryEncoding", &["RotaryEmbedding"]),
    ("Sigmoid", &["Sigmoid"]),
    ("Softplus", &["Softplus"]),
    ("Tanh", &["Tanh"]),
    ("TransformerDecoder", &["TransformerDecoder"]),
    ("TransformerDecoderLayer", &["TransformerDecoderLayer"]),
    ("TransformerEncoder", &["TransformerEncoder"]),
    ("TransformerEncoderLayer", &["TransformerEncoderLayer"]),
];

/// A kind by its name in a system, with the corresponding kinds of precast.
pub type Named = (&'static str, Vec<&'static str>);

/// Returns the known kinds of a system. Empty for a system with ops only.
pub fn of(system: System) -> Vec<Named> {
    let named = |names: fn(&Names) -> &'static [&'static str]| {
        let rows = NAMES.iter().flat_map(move |(here, all)| names(all).iter().map(move |there| (*there, vec![*here])));
        rows.collect()
    };
    match system {
        System::Torch => named(|names| names.torch),
        System::MindSpore => named(|names| names.mindspore),
        System::Burn => BURN.iter().map(|(there, here)| (*there, here.to_vec())).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind here that the tables name exists.
    #[test]
    fn kinds_of_other_systems_are_kinds_here() {
        for system in System::ALL {
            for (there, here) in of(*system) {
                assert!(!here.is_empty(), "{system} {there}");
                here.iter()
                    .for_each(|kind| assert!(elsewhere(kind).is_some(), "{system} {there}: no kind is called {kind}"));
            }
        }
        assert_eq!(of(System::Torch).iter().find(|(there, _)| *there == "Linear").unwrap().1, ["Dense"]);
        assert!(of(System::Onnx).is_empty());
    }
}
