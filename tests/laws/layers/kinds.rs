//! Kinds that files can name: each reads back as written.

use precast::{
    io::{kinds, models},
    prelude::*,
};

/// One network with a cell of every kind, each with options that differ from the defaults.
const EVERY_KIND: &[&str] = &[
    "{kind: AdaptiveAvgPool1d, output_size: 3}",
    "{kind: AdaptiveAvgPool2d, output_size: [3, 1]}",
    "{kind: AdaptiveAvgPool3d, output_size: 2}",
    "{kind: AvgPool1d, kernel_size: 3, stride: 1, padding: 1}",
    "{kind: AvgPool2d, kernel_size: [2, 3], count_include_pad: false}",
    "{kind: AvgPool3d, kernel_size: 2, padding: same, ceil: true}",
    "{kind: BatchNorm1d, num_features: 3, affine: false}",
    "{kind: BatchNorm2d, num_features: 3, eps: 0.001}",
    "{kind: BatchNorm3d, num_features: 3, momentum: 0.25}",
    "{kind: CellList, cells: [{kind: Tanh}]}",
    "{kind: ColumnEmbedding, vocab_sizes: [3, 9], embedding_sizes: [2, 4]}",
    "{kind: Conv1d, in_channels: 2, out_channels: 4, kernel_size: 3, stride: 2, padding: 1, groups: 2}",
    "{kind: Conv1dTranspose, in_channels: 2, out_channels: 4, kernel_size: 3, stride: 2, output_padding: 1}",
    "{kind: Conv2d, in_channels: 1, out_channels: 2, kernel_size: [3, 5], padding: [1, [0, 2]], bias: false}",
    "{kind: Conv2dTranspose, in_channels: 2, out_channels: 2, kernel_size: 2, padding: same, groups: 2}",
    "{kind: Conv3d, in_channels: 1, out_channels: 2, kernel_size: 2, dilation: [1, 2, 1]}",
    "{kind: Conv3dTranspose, in_channels: 1, out_channels: 2, kernel_size: [1, 2, 3], bias: false}",
    "{kind: Dense, in_features: 3, out_features: 2, bias: false}",
    "{kind: Dropout, p: 0.5}",
    "{kind: ELU, alpha: 2.0}",
    "{kind: Embedding, vocab_size: 5, embedding_size: 2}",
    "{kind: Flatten, start_axis: 2}",
    "{kind: GELU, approximate: true}",
    "{kind: GRU, input_size: 2, hidden_size: 3, num_layers: 2, bias: false}",
    "{kind: GRUCell, input_size: 2, hidden_size: 3}",
    "{kind: GroupNorm, num_groups: 2, num_channels: 4, eps: 0.5}",
    "{kind: HSigmoid}",
    "{kind: HSwish}",
    "{kind: HardTanh}",
    "{kind: Identity}",
    "{kind: InstanceNorm1d, num_features: 3}",
    "{kind: InstanceNorm2d, num_features: 3, affine: false}",
    "{kind: InstanceNorm3d, num_features: 3, eps: 0.01}",
    "{kind: LSTM, input_size: 2, hidden_size: 3, bidirectional: true}",
    "{kind: LSTMCell, input_size: 2, hidden_size: 3, bias: false}",
    "{kind: LayerNorm, normalized_shape: [2, 3], eps: 0.0, bias: false}",
    "{kind: LeakyReLU, slope: 0.25}",
    "{kind: LoRA, base: {in_features: 3, out_features: 2, bias: false}, rank: 2, alpha: 4.0, dropout: 0.25}",
    "{kind: LogSoftmax, axis: 0}",
    "{kind: MaxPool1d, kernel_size: 3, stride: 1}",
    "{kind: MaxPool2d, kernel_size: 3, stride: [1, 2], padding: 1}",
    "{kind: MaxPool3d, kernel_size: 2, ceil: true}",
    "{kind: MultiheadAttention, embed_dim: 4, num_heads: 2, bias: false, causal: true, rotary: {base: 100.0}}",
    "{kind: PReLU, channels: 3, slope: 0.5}",
    "{kind: RNN, input_size: 2, hidden_size: 3, relu: true}",
    "{kind: RNNCell, input_size: 2, hidden_size: 3}",
    "{kind: ReLU}",
    "{kind: ReLU6}",
    "{kind: RmsNorm, num_features: 4, eps: 0.1}",
    "{kind: RotaryEmbedding, base: 500.0, interleaved: true}",
    "{kind: Sequential, cells: [{kind: ReLU}, {kind: Sequential, cells: []}]}",
    "{kind: SiLU}",
    "{kind: Sigmoid}",
    "{kind: Softmax, axis: 1}",
    "{kind: Softplus}",
    "{kind: Tanh}",
    "{kind: TransformerDecoder, layer: {d_model: 4, nhead: 2, dim_feedforward: 3, bias: false}, num_layers: 2}",
    "{kind: TransformerDecoderLayer, d_model: 4, nhead: 2, dim_feedforward: 3, causal: true, layer_norm_eps: 0.5}",
    "{kind: TransformerEncoder, layer: {d_model: 4, nhead: 2, dim_feedforward: 3}, num_layers: 1, norm: true}",
    "{kind: TransformerEncoderLayer, d_model: 4, nhead: 2, dim_feedforward: 3, activation: gelu, norm_first: true}",
];

fn read(net: &str) -> Child {
    models::parse(&format!("version: 1\nnet: {net}\n"), "test.yaml", 7).unwrap_or_else(|e| panic!("{net}: {e}"))
}

#[test]
fn every_kind_is_registered_once_and_covered_here() {
    let covered: Vec<&str> = EVERY_KIND.iter().map(|net| read(net).slot().cell.kind()).collect();
    assert_eq!(precast::layers::kinds().unwrap(), covered);
}

/// Returns a cell without the nested maps.
fn outer(net: &str) -> String {
    let mut depth = 0;
    let outside = |c: &char| {
        depth += i32::from(*c == '{');
        let keep = depth < 2;
        depth -= i32::from(*c == '}');
        keep
    };
    net.chars().filter(outside).collect()
}

/// `precast show cells` shows these results.
#[test]
fn every_kind_is_described() {
    for net in EVERY_KIND {
        let kind = read(net).slot().cell.kind();
        let info = kinds::describe(kind).unwrap();
        assert!(!info.about.is_empty() && !info.about.contains("[`"), "{kind}: {}", info.about);
        assert!(info.elsewhere.is_some(), "{kind} has no row in policies/src/kinds.rs");
        let example = info.example.as_ref();
        let example = example.unwrap_or_else(|| panic!("the documentation of {kind} has no `In files:`"));
        assert_eq!(read(example).slot().cell.kind(), kind);
        let plain = models::to_yaml(&read(example)).unwrap();
        for option in &info.options {
            let name = &option.name;
            assert!(!option.takes.is_empty() && option.takes != "text", "{kind}: `{name}` takes {}", option.takes);
            assert_eq!(option.default.is_none(), option.required, "{kind}: the default of `{name}` is not known");
            // Writing out the default changes nothing.
            if let Some(default) = option.default.as_ref().filter(|default| !default.is_null())
                && !example.contains(&format!("{name}: "))
            {
                let written = format!("{}, {name}: {default}}}", &example[..example.len() - 1]);
                assert_eq!(models::to_yaml(&read(&written)).unwrap(), plain, "{written}");
            }
        }
        // The options of the cell above are among those found.
        for (name, _) in
            outer(net).split(", ").filter_map(|option| option.split_once(": ")).filter(|(name, _)| !name.contains('{'))
        {
            let known = info.options.iter().any(|option| option.name == name.trim());
            assert!(known || name.contains(['[', '"']), "{kind}: `{name}`");
        }
    }
}

/// Names of torch and MindSpore lead to the kinds here.
#[test]
fn kinds_are_found_by_the_names_of_others() {
    let cases = [
        ("Linear", "Dense"),
        ("torch.nn.Linear", "Dense"),
        ("nn.ReLU", "ReLU"),
        ("RMSNorm", "RmsNorm"),
        ("ConvTranspose2d", "Conv2dTranspose"),
        ("mindspore.nn.SequentialCell", "Sequential"),
        ("ModuleList", "CellList"),
        ("Hardtanh", "HardTanh"),
    ];
    for (name, kind) in cases {
        assert_eq!(kinds::named(name).unwrap(), kind);
    }
    let error = |net: &str| {
        let error = models::parse(&format!("version: 1\nnet: {net}\n"), "test.yaml", 7).unwrap_err().to_string();
        error.lines().next().unwrap().to_string()
    };
    let message = error("{kind: Linear, in_features: 3, out_features: 2}");
    assert!(message.ends_with("no kind of cell is called `Linear`; what torch calls so is `Dense` here"), "{message}");
    assert!(error("{kind: relu}").ends_with("(did you mean `ReLU`?)"));
}

#[test]
fn every_kind_reads_back_as_written() {
    for net in EVERY_KIND {
        let cell = read(net);
        let text = models::to_yaml(&cell).unwrap();
        let again = models::parse(&text, "again.yaml", 7).unwrap_or_else(|e| panic!("{text}\n{e}"));
        assert_eq!(models::to_yaml(&again).unwrap(), text);
        assert_eq!(format!("{again:?}"), format!("{cell:?}"), "{text}");
        // The same seed gives the same weights.
        let values = |net: &Child| net.named_params().iter().map(|(_, p)| p.value().to_f64()).collect::<Vec<_>>();
        assert_eq!(values(&again), values(&cell), "{text}");
    }
}

/// A copy has parameters of its own, with the same paths and values.
#[test]
fn every_kind_is_copied() {
    for net in EVERY_KIND {
        let cell = read(net);
        let copy = cell.deep_copy().unwrap_or_else(|error| panic!("{net}: {error}"));
        let (own, copied) = (cell.named_params(), copy.named_params());
        assert_eq!(format!("{copy:?}"), format!("{cell:?}"));
        assert_eq!(own.len(), copied.len(), "{net}");
        for ((path, param), (other, copy)) in own.iter().zip(&copied) {
            assert_eq!((path, param.value().to_f64()), (other, copy.value().to_f64()), "{net}");
            assert!(!param.is_same(copy) && param.is_buffer() == copy.is_buffer(), "{net} {path}");
        }
    }
}

#[test]
fn every_kind_refuses_a_key_it_does_not_know() {
    for net in EVERY_KIND {
        let wrong = format!("{}, nonsense: 1}}", &net[..net.len() - 1]);
        let error = models::parse(&format!("version: 1\nnet: {wrong}\n"), "test.yaml", 7).unwrap_err().to_string();
        assert!(error.starts_with("test.yaml:2:") && error.contains("`nonsense`"), "{wrong}: {error}");
    }
}
