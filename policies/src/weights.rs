//! Tensors of a cell that are known as weights and may be stored in low precision. All others keep their digits:
//! frequency tables, scales of quantized weights, running statistics, decay factors, schedules, masks.

/// The name of a weight in a cell, with its minimum and maximum number of axes.
#[doc(hidden)]
pub type Known = (&'static str, usize, usize);

const MOST: usize = 9;

/// Dense layers and convolutions; `weight_g` and `weight_v` are the two parts of a normalized weight.
const LAYER: &[Known] = &[("weight", 2, MOST), ("bias", 1, 1), ("weight_g", 1, MOST), ("weight_v", 2, MOST)];
const TABLE: &[Known] = &[("weight", 1, 2)];
const NORM: &[Known] = &[("weight", 1, MOST), ("bias", 1, MOST), ("gamma", 1, MOST), ("beta", 1, MOST)];
const RECURRENT: &[Known] =
    &[("weight_ih", 2, 2), ("weight_hh", 2, 2), ("weight_hr", 2, 2), ("bias_ih", 1, 1), ("bias_hh", 1, 1)];
const ATTENTION: &[Known] = &[
    ("in_proj_weight", 2, 2),
    ("in_proj_bias", 1, 1),
    ("q_proj_weight", 2, 2),
    ("k_proj_weight", 2, 2),
    ("v_proj_weight", 2, 2),
    ("bias_k", 3, 3),
    ("bias_v", 3, 3),
];
const ADAPTER: &[Known] = &[("a", 2, 2), ("b", 2, 2)];
/// Kinds not listed. A one-dimensional `weight` may be the class weights of a loss, and a `bias` of more axes is the
/// mask of GPT-2. `original` is the name of a weight under torch's parametrizations; the rest are the matrices of all
/// experts of a layer.
const UNLISTED: &[Known] = &[
    ("weight", 2, MOST),
    ("bias", 1, 1),
    ("original", 2, MOST),
    ("original0", 1, MOST),
    ("original1", 2, MOST),
    ("gate_up_proj", 3, 3),
    ("gate_up_proj_bias", 2, 2),
    ("gate_proj", 3, 3),
    ("up_proj", 3, 3),
    ("down_proj", 3, 3),
    ("down_proj_bias", 2, 2),
];

/// Returns the weights of a cell of a kind.
#[doc(hidden)]
pub fn weights_of(path: &str, kind: &str) -> &'static [Known] {
    if is_average(path) {
        return &[];
    }
    match kind {
        "Dense" | "Conv1d" | "Conv2d" | "Conv3d" | "Conv1dTranspose" | "Conv2dTranspose" | "Conv3dTranspose" => LAYER,
        "Embedding" | "PReLU" => TABLE,
        "BatchNorm1d" | "BatchNorm2d" | "BatchNorm3d" | "InstanceNorm1d" | "InstanceNorm2d" | "InstanceNorm3d"
        | "LayerNorm" | "GroupNorm" | "RmsNorm" => NORM,
        "RNN" | "GRU" | "LSTM" | "RNNCell" | "GRUCell" | "LSTMCell" => RECURRENT,
        "MultiheadAttention" => ATTENTION,
        "LoRA" => ADAPTER,
        "RotaryEmbedding" => &[],
        _ => UNLISTED,
    }
}

/// Maximum depth of nested cells. The rest of a longer name is the name of the tensor.
#[doc(hidden)]
pub const MAX_DEPTH: usize = 64;

/// Splits the name of a tensor into the path of its cell and its name in that cell.
#[doc(hidden)]
pub fn cell_of(name: &str) -> (&str, &str) {
    let mut end = 0;
    for (depth, (at, _)) in name.match_indices('.').enumerate() {
        let start = if end == 0 { 0 } else { end + 1 };
        // The name of a cell is not empty.
        if at == start || depth == MAX_DEPTH {
            break;
        }
        end = at;
    }
    if end == 0 { ("", name) } else { (&name[..end], &name[end + 1..]) }
}

/// Returns whether a tensor of a cell is known as a weight, given its own name and its number of axes.
#[doc(hidden)]
pub fn is_weight(path: &str, kind: &str, own: &str, axes: usize) -> bool {
    let name = without_layer(own);
    weights_of(path, kind).iter().any(|&(known, least, most)| known == name && (least..=most).contains(&axes))
}

/// Returns whether a cell belongs to a copy of the network that holds the moving average of its weights.
#[doc(hidden)]
pub fn is_average(path: &str) -> bool {
    path.split('.').any(|segment| {
        let segment = segment.to_ascii_lowercase();
        segment == "ema" || segment.starts_with("ema_") || segment.ends_with("_ema")
    })
}

/// Strips `_l0` or `_l0_reverse` from the name of a recurrent layer's weight.
fn without_layer(own: &str) -> &str {
    let name = own.strip_suffix("_reverse").unwrap_or(own);
    match name.rsplit_once("_l") {
        Some((before, layer)) if !layer.is_empty() && layer.bytes().all(|digit| digit.is_ascii_digit()) => before,
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_known_by_its_kind_its_name_and_its_axes() {
        for (path, kind, own, axes) in [
            ("fc", "Dense", "weight", 2),
            ("fc", "Dense", "bias", 1),
            ("conv", "Conv2d", "weight_v", 4),
            ("embed", "Embedding", "weight", 2),
            ("norm", "LayerNorm", "gamma", 1),
            ("rnn", "LSTM", "weight_ih_l0", 2),
            ("rnn", "GRU", "bias_hh_l12_reverse", 1),
            ("rnn", "GRUCell", "weight_hh", 2),
            ("a", "MultiheadAttention", "in_proj_weight", 2),
            ("x", "Mine", "weight", 3),
            ("cls", "Unknown", "bias", 1),
            ("experts", "Unknown", "gate_up_proj", 3),
            ("conv.parametrizations.weight", "Unknown", "original1", 3),
        ] {
            assert!(is_weight(path, kind, own, axes), "{path} {kind} {own}");
        }
    }

    #[test]
    fn all_else_is_not() {
        for (path, kind, own, axes) in [
            ("rope", "RotaryEmbedding", "inv_freq", 1),
            ("rope", "RotaryEmbedding", "weight", 2),
            ("fc", "Dense", "weight_scale", 1),
            ("fc", "Dense", "weight_scale_inv", 2),
            ("fc", "Dense", "scales", 2),
            ("fc", "Dense", "e_score_correction_bias", 1),
            ("norm", "BatchNorm2d", "running_var", 1),
            ("mixer", "Unknown", "A_log", 2),
            ("mixer", "Unknown", "D", 1),
            ("mixer", "Unknown", "dt_bias", 1),
            ("att", "Unknown", "time_decay", 1),
            ("", "Unknown", "alphas_cumprod", 1),
            ("", "CLIPModel", "logit_scale", 0),
            ("criterion", "Unknown", "weight", 1),
            ("attn", "Unknown", "bias", 4),
            ("pos", "Unknown", "pe", 3),
            ("model_ema.fc", "Dense", "weight", 2),
            ("ema.fc", "Dense", "weight", 2),
            ("rnn", "LSTM", "weight_ih_lx", 2),
        ] {
            assert!(!is_weight(path, kind, own, axes), "{path} {kind} {own}");
        }
        assert!(!is_average("schema.ema1.remap"));
    }
}
