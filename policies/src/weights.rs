//! Tensors of a cell that are known as weights and may be stored in low precision. All others keep their digits:
//! frequency tables, scales of quantized weights, running statistics, decay factors, schedules, masks, states of
//! optimizers.

/// The name of a weight in a cell, with its minimum and maximum number of axes.
type Known = (&'static str, usize, usize);

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
pub(crate) fn weights_of(path: &str, kind: &str) -> &'static [Known] {
    if kept_for(path).is_some() {
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
        "RotaryEmbedding" | CONSTANTS => &[],
        _ => UNLISTED,
    }
}

/// Maximum depth of nested cells. The rest of a longer name is the name of the tensor.
pub(crate) const MAX_DEPTH: usize = 64;

/// Splits the name of a tensor into the path of its cell and its name in that cell.
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
pub fn is_weight(path: &str, kind: &str, own: &str, axes: usize) -> bool {
    let name = without_layer(own);
    weights_of(path, kind).iter().any(|&(known, least, most)| known == name && (least..=most).contains(&axes))
}

/// The kind of a cell whose `weight` is not that of a layer, by its name.
pub(crate) const CONSTANTS: &str = "Constants";

/// Words of the name of a copy of a network: `avg_model` is an average, `avg_pool` is not.
const NETWORK: &str = "model models module net network param params parameters weight weights state dict copy";

/// Pairs of words in the names of numbers that an optimizer keeps for each parameter.
const MOMENTS: &[[&str; 2]] = &[
    ["exp", "avg"],
    ["exp", "inf"],
    ["square", "avg"],
    ["grad", "avg"],
    ["acc", "delta"],
    ["state", "sum"],
    ["momentum", "buffer"],
    ["first", "moment"],
    ["second", "moment"],
    ["adam", "m"],
    ["adam", "v"],
];

/// Says why all tensors of a cell keep their digits, by the segments of its path: they are a moving average of a
/// network, a state of an optimizer, or statistics.
pub fn kept_for(path: &str) -> Option<&'static str> {
    path.split('.').find_map(|segment| {
        let words = words(segment);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match () {
            () if is_average(&words) => Some("a moving average"),
            () if is_state(&words) => Some("a state of an optimizer"),
            () if is_statistics(&words) => Some("statistics"),
            () => None,
        }
    })
}

fn is_average(words: &[&str]) -> bool {
    let has = |of: &str| has(words, of);
    let average = has("ema averaged polyak") || (has("moving running") && has("average avg"));
    // `swa` alone is also attention to a sliding window.
    let of_network = has("swa average avg shadow momentum") && has(NETWORK);
    average || of_network || matches!(words, ["shadow" | "averager"] | ["momentum", "encoder"])
}

fn is_state(words: &[&str]) -> bool {
    let moments = words.windows(2).any(|two| MOMENTS.iter().any(|moment| moment == two));
    moments
        || has(words, "optimizer optimizers optim")
        || has_only(words, "moment moments moment1 moment2 momentum accum")
}

fn is_statistics(words: &[&str]) -> bool {
    let of = "stat stats statistics running norm normalization data dataset input inputs output outputs";
    has(words, "stat stats statistics") && has_only(words, of)
}

/// Says whether the `weight` of a cell without a bias is known by the cell's name as constants: a table of frequencies,
/// a mask, scales, or the weights of classes in a loss.
pub(crate) fn is_constants(path: &str) -> bool {
    const LAYER: &str = "attention attn block conv dense embedder fc head layer linear mixer mlp net norm";
    const TABLE: &str = "rotary rope fourier sinusoid sinusoidal sincos freq freqs frequencies";
    const SCALE: &str = "scale scales zero point points inv act activation weight input output q k v kv";
    const MASK: &str = "mask attn attention causal padding pad key src tgt";
    const TIME: &str = "time timestep timesteps proj features";
    let words = words(path.rsplit('.').next().unwrap_or_default());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let has = |of: &str| has(&words, of);
    match () {
        () if has_only(&words, MASK) => has("mask"),
        () if has_only(&words, SCALE) => has("scale scales") || (has("zero") && has("point points")),
        () if has_only(&words, TIME) => has("time timestep timesteps") && has("proj features"),
        () => (has(TABLE) || has("criterion loss")) && !has(LAYER),
    }
}

/// Says whether some of the words are among others, which are separated by spaces.
fn has(words: &[&str], of: &str) -> bool {
    words.iter().any(|word| of.split(' ').any(|other| other == *word))
}

/// Says whether there are words and all are among others.
fn has_only(words: &[&str], of: &str) -> bool {
    !words.is_empty() && words.iter().all(|word| has(&[word], of))
}

/// Splits `snake_case` and `CamelCase` into words in lower case.
fn words(segment: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let letters: Vec<char> = segment.chars().collect();
    for (i, &letter) in letters.iter().enumerate() {
        let lower = |at: usize| letters.get(at).is_some_and(|c| c.is_lowercase() || c.is_ascii_digit());
        // `BCELoss` is two words; `EMA` is one.
        let begins = letter.is_uppercase() && i > 0 && (lower(i - 1) || lower(i + 1));
        if begins || letter == '_' || letter == '-' {
            words.push(String::new());
        }
        if let (Some(word), true) = (words.last_mut(), letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
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
    }

    #[test]
    fn a_path_says_that_its_tensors_are_no_weights() {
        for (paths, why) in [
            (
                "swa_model.module.fc averaged_model.fc averaged.module.fc avg_model.x shadow.x polyak.x modelEma.x \
                 model_ema.x EMA.x ema_state.x params_ema.x teacher_ema.x ema.x shadow_params.0 AveragedModel.x \
                 ExponentialMovingAverage.x moving_avg.x momentum_encoder.x",
                "a moving average",
            ),
            (
                "optimizer.0.exp_avg_sq.fc exp_avg.fc momentum_buffer.fc optimizer_state.fc optim.fc moment1.fc \
                 square_avg.fc adam_m.fc max_exp_avg_sq.fc",
                "a state of an optimizer",
            ),
            ("stats.mean running_stats.x", "statistics"),
        ] {
            for path in paths.split_whitespace() {
                assert_eq!(kept_for(path), Some(why), "{path}");
                assert!(!is_weight(path, "Dense", "weight", 2), "{path}");
            }
        }
        for path in "schema.ema1.remap average_pool.proj avg_pool.conv attn_avg_pool.q_proj moving_head shadow_head.fc \
                     shadow_detector.0 shadow_encoder.0 layers.0.swa.q_proj momentum_head moment_decoder.fc experts.0 expert_avg.fc \
                     stats_pool.fc mean var status.fc remember schema"
            .split_whitespace()
        {
            assert_eq!(kept_for(path), None, "{path}");
        }
    }

    #[test]
    fn constants_are_known_by_the_name_of_their_cell() {
        for path in "rotary rotary_emb x.rope fourier_features gaussian_fourier_projection time_proj sinusoidal \
                     SinusoidalPositionEmbedding sincos_pos mask attn_mask causal_mask quantizer.scale act_quant.scale \
                     weight_scale zero_point criterion loss_fn loss ce_loss BCEWithLogitsLoss timestep_features"
            .split_whitespace()
        {
            assert!(is_constants(path), "{path}");
        }
        for path in "mask_embed.0 mask_downscaling.0 mask_head mask_features mask_tokens mask_decoder.iou_head.0 \
                     time_embed.0 time_embedding.linear_1 time_emb_proj time_embed timestep_embed attn attention key \
                     q k v k_proj act input output fourier_mlp.0 fourier_conv rotary_attn.q_proj loss_head downscale \
                     upscale multi_scale_conv scale_mlp point_head point zero_conv weight_proj quantizer.weight_proj \
                     quantize.embedding europe lossless to_q"
            .split_whitespace()
        {
            assert!(!is_constants(path), "{path}");
        }
        assert!(!is_constants(""));
    }
}
