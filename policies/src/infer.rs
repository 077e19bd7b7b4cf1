//! Inference of the tree of cells from the names and shapes of tensors.

use std::{borrow::Cow, collections::BTreeMap};

use precast_base::{DType, path::join};

use crate::{
    outline::{Outline, OutlinedCell},
    weights::{cell_of, is_constants, is_weight},
};

/// A tensor by its name and shape, from which a cell is inferred.
#[derive(Clone, Copy, Debug)]
pub struct NamedTensor<'a> {
    /// Name, with dots between the segments: `layers.0.fc.weight`.
    pub name: &'a str,
    /// Shape.
    pub shape: &'a [usize],
    /// Dtype; `None` for one that precast has not, such as float8.
    pub dtype: Option<DType>,
    /// `true` for floating dtypes, including those that precast has not.
    pub is_float: bool,
}

impl<'a> NamedTensor<'a> {
    /// Creates the description of a tensor in a dtype of precast.
    pub fn new(name: &'a str, shape: &'a [usize], dtype: DType) -> Self {
        NamedTensor { name, shape, dtype: Some(dtype), is_float: dtype.is_float() }
    }

    fn is_castable(&self) -> bool {
        self.dtype.is_some_and(DType::is_castable)
    }
}

/// Kind of a cell without tensors of its own.
pub const CONTAINER: &str = "Container";
/// Kind of a cell whose `weight` is not that of a layer, by the name of the cell: a table, a mask, scales, or the
/// weights of classes in a loss.
pub const CONSTANTS: &str = crate::weights::CONSTANTS;
/// Kind of a cell that its tensors do not identify.
pub const UNKNOWN: &str = "Unknown";

/// One cell while the tree grows.
#[derive(Default)]
struct Growing<'a> {
    own: BTreeMap<&'a str, NamedTensor<'a>>,
    inside: BTreeMap<Segment<'a>, Growing<'a>>,
}

/// A segment of a path. Numbers sort first, numerically.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Segment<'a>(u64, &'a str);

impl<'a> From<&'a str> for Segment<'a> {
    fn from(text: &'a str) -> Self {
        Segment(text.parse().unwrap_or(u64::MAX), text)
    }
}

impl Outline {
    /// Infers the tree of cells from the names and shapes of tensors; `architecture` is the kind of the root.
    ///
    /// Each dotted prefix of a name is a cell. Its kind follows from its own tensors: a `weight` of two axes is a
    /// `Dense`, or an `Embedding` if the name says so; of three to five axes a convolution; of one axis a norm;
    /// `running_mean` a batch norm; `weight_ih_l0` an `LSTM`, a `GRU` or an `RNN`. A cell without tensors of its own is
    /// a [`CONTAINER`], and one that cannot be identified is [`UNKNOWN`]. A `weight` without a bias is of [`CONSTANTS`]
    /// if the name of its cell is that of a table, a mask, scales, or a loss. Cells without any tensors, such as
    /// activations, are absent.
    ///
    /// ```
    /// use precast_policy::{DType, Outline, infer::NamedTensor};
    /// let net = Outline::inferred(
    ///     [
    ///         NamedTensor::new("layers.0.q_proj.weight", &[8, 8], DType::F32),
    ///         NamedTensor::new("layers.0.norm.weight", &[8], DType::F32),
    ///     ],
    ///     Some("Llama"),
    /// );
    /// let kinds: Vec<&str> = net.cells().iter().map(|cell| &*cell.kind).collect();
    /// assert_eq!(kinds, ["Llama", "Container", "Container", "RmsNorm", "Dense"]);
    /// ```
    pub fn inferred<'a>(tensors: impl IntoIterator<Item = NamedTensor<'a>>, architecture: Option<&str>) -> Outline {
        let mut root = Growing::default();
        let (mut rank, mut names) = (None, Vec::new());
        for tensor in tensors {
            if tensor.is_castable() {
                names.push(tensor.name.to_string());
            }
            let (path, own) = cell_of(tensor.name);
            let path = path.split('.').filter(|segment| !segment.is_empty());
            let cell = path.fold(&mut root, |cell, segment| cell.inside.entry(segment.into()).or_default());
            cell.own.insert(own, tensor);
            if own == "weight" && (3..=5).contains(&tensor.shape.len()) {
                rank = rank.max(Some(tensor.shape.len() - 2));
            }
        }
        let mut cells = Vec::new();
        list(&root, "", 0, rank.unwrap_or(2), &mut cells);
        if let Some(architecture) = architecture {
            cells[0].kind = Cow::Owned(architecture.to_string());
            cells[0].keeps = keeps(&root, "", architecture);
        }
        Outline::walked(cells).tensors(names)
    }
}

fn list(cell: &Growing<'_>, path: &str, depth: usize, rank: usize, cells: &mut Vec<OutlinedCell>) {
    let kind = kind(cell, path, rank);
    let keeps = keeps(cell, path, kind);
    let weights = cell.own.values().filter(|tensor| tensor.is_float);
    let mut outlined = weights.fold(OutlinedCell::new(path, kind), |cell, tensor| cell.weight(tensor.shape));
    (outlined.depth, outlined.keeps) = (depth, keeps);
    cells.push(outlined);
    for (Segment(_, name), inside) in &cell.inside {
        list(inside, &join(path, name), depth + 1, rank, cells);
    }
}

/// Returns the tensors of a cell that are not known as weights.
fn keeps(cell: &Growing<'_>, path: &str, kind: &str) -> Vec<String> {
    let castable = cell.own.iter().filter(|(_, tensor)| tensor.is_castable());
    let others = castable.filter(|(own, tensor)| !is_weight(path, kind, own, tensor.shape.len()));
    others.map(|(own, _)| own.to_string()).collect()
}

/// Returns the kind of a cell. `rank` is the number of spatial axes of the model's convolutions.
fn kind(cell: &Growing<'_>, path: &str, rank: usize) -> &'static str {
    let floats = || cell.own.iter().filter(|(_, tensor)| tensor.is_float);
    let shape = |names: &[&str]| floats().find(|(name, _)| names.contains(name)).map(|(_, tensor)| tensor.shape);
    if floats().next().is_none() {
        return if cell.inside.is_empty() { UNKNOWN } else { CONTAINER };
    }
    let last = path.rsplit('.').find(|segment| segment.parse::<u64>().is_err()).unwrap_or_default().to_lowercase();
    if shape(&["running_mean"]).is_some() {
        return ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"][rank - 1];
    }
    if let Some(kind) = recurrent(shape) {
        return kind;
    }
    if shape(&["in_proj_weight"]).is_some() {
        return "MultiheadAttention";
    }
    let bias = shape(&["bias", "beta"]);
    if bias.is_none() && shape(&["weight"]).is_some() && is_constants(path) {
        return CONSTANTS;
    }
    match shape(&["weight", "gamma", "weight_v"]) {
        Some([_, _]) if bias.is_none() && is_embedding(&last) => "Embedding",
        Some([_, _]) => "Dense",
        Some([out, inside, window @ ..]) if window.len() <= 3 => {
            // A transposed convolution has its input channels on the first axis.
            let by_bias = matches!(bias, Some([len]) if len != out && *inside > 0 && len.is_multiple_of(*inside));
            let by_name = ["transpose", "deconv"].iter().any(|word| last.contains(word));
            let kinds = match by_bias || by_name {
                false => ["Conv1d", "Conv2d", "Conv3d"],
                true => ["Conv1dTranspose", "Conv2dTranspose", "Conv3dTranspose"],
            };
            kinds[window.len() - 1]
        }
        Some([len]) => norm(&last, bias.map(|bias| bias == [*len])),
        _ if shape(&["inv_freq"]).is_some() => "RotaryEmbedding",
        _ => UNKNOWN,
    }
}

/// Recognizes a recurrent layer or cell: the rows of `weight_ih` are the gates for each element of the state.
fn recurrent<'a>(shape: impl Fn(&[&str]) -> Option<&'a [usize]>) -> Option<&'static str> {
    let kinds = |layer: bool| if layer { ["RNN", "GRU", "LSTM"] } else { ["RNNCell", "GRUCell", "LSTMCell"] };
    let (layer, of) = match shape(&["weight_ih_l0"]) {
        Some(of) => (true, of),
        None => (false, shape(&["weight_ih"])?),
    };
    // The state of an LSTM with a projection is shorter than its gates.
    if shape(&["weight_hr_l0"]).is_some() {
        return Some("LSTM");
    }
    let (&[rows, _], &[_, state]) = (of, shape(&["weight_hh_l0", "weight_hh"])?) else { return None };
    match rows.checked_div(state)? {
        1 => Some(kinds(layer)[0]),
        3 => Some(kinds(layer)[1]),
        4 => Some(kinds(layer)[2]),
        _ => None,
    }
}

/// Returns whether a matrix of this name is an embedding table.
fn is_embedding(name: &str) -> bool {
    let ends = ["embed", "embeds", "embedding", "embeddings", "emb"];
    let names = ["wte", "wpe", "shared", "relative_attention_bias"];
    let begins = name.starts_with("embed_") && name != "embed_out";
    begins || names.contains(&name) || ends.iter().any(|end| name.ends_with(end))
}

/// Returns the kind of a cell with a one-dimensional weight; `bias` is whether its bias, if any, has the same length.
fn norm(name: &str, bias: Option<bool>) -> &'static str {
    let named = name.contains("norm") || name == "ln" || name.starts_with("ln_") || name.ends_with("_ln");
    match bias {
        Some(true) if name.contains("group") || name == "gn" => "GroupNorm",
        Some(true) if name.contains("instance") => "InstanceNorm2d",
        // Layers of torch with a one-dimensional weight and bias are norms, whatever their name.
        Some(true) => "LayerNorm",
        None if named => "RmsNorm",
        None if name.contains("prelu") => "PReLU",
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::MAX_DEPTH;

    /// An f32 tensor by name and shape.
    type Named<'a> = (&'a str, &'a [usize]);

    fn outline_of(tensors: &[Named<'_>]) -> Vec<(String, String)> {
        let named = tensors.iter().map(|&(name, shape)| {
            NamedTensor::new(name, shape, if name.ends_with("ids") { DType::I64 } else { DType::F32 })
        });
        Outline::inferred(named, None).cells().iter().map(|cell| (cell.path.clone(), cell.kind.to_string())).collect()
    }

    /// Shapes as in the layers of torch.
    #[test]
    fn each_layer_of_torch_is_known_by_its_tensors() {
        let rows: &[(&str, &[Named<'_>])] = &[
            ("Dense", &[("x.weight", &[3, 4]), ("x.bias", &[3])]),
            ("Embedding", &[("embed_tokens.weight", &[9, 4])]),
            ("Embedding", &[("word_embeddings.weight", &[9, 4])]),
            ("Dense", &[("embed_out.weight", &[9, 4])]),
            ("Dense", &[("time_embed.0.weight", &[9, 4]), ("time_embed.0.bias", &[9])]),
            ("Conv1d", &[("x.weight", &[3, 4, 5])]),
            ("Conv2d", &[("x.weight", &[3, 4, 5, 5]), ("x.bias", &[3])]),
            ("Conv3d", &[("x.weight", &[3, 4, 5, 5, 5])]),
            ("Conv2dTranspose", &[("x.weight", &[3, 4, 5, 5]), ("x.bias", &[4])]),
            ("Conv2dTranspose", &[("deconv.weight", &[4, 4, 5, 5])]),
            ("BatchNorm2d", &[("bn.weight", &[3]), ("bn.running_mean", &[3]), ("bn.num_batches_tracked_ids", &[])]),
            ("LayerNorm", &[("norm.gamma", &[3]), ("norm.beta", &[3])]),
            ("LayerNorm", &[("1.weight", &[3]), ("1.bias", &[3])]),
            ("GroupNorm", &[("group_norm.weight", &[3]), ("group_norm.bias", &[3])]),
            ("RmsNorm", &[("input_layernorm.weight", &[3])]),
            ("RmsNorm", &[("ln_f.weight", &[3])]),
            ("PReLU", &[("prelu.weight", &[1])]),
            ("Unknown", &[("x.weight", &[3])]),
            ("Unknown", &[("x.scale", &[3, 3])]),
            ("Unknown", &[("x.weight", &[])]),
            ("Unknown", &[("x.position_ids", &[3])]),
            ("LSTM", &[("rnn.weight_ih_l0", &[20, 3]), ("rnn.weight_hh_l0", &[20, 5])]),
            ("GRU", &[("rnn.weight_ih_l0", &[15, 3]), ("rnn.weight_hh_l0", &[15, 5])]),
            ("RNN", &[("rnn.weight_ih_l0", &[5, 3]), ("rnn.weight_hh_l0", &[5, 5])]),
            ("LSTM", &[("r.weight_ih_l0", &[20, 3]), ("r.weight_hh_l0", &[20, 2]), ("r.weight_hr_l0", &[2, 5])]),
            ("LSTMCell", &[("rnn.weight_ih", &[20, 3]), ("rnn.weight_hh", &[20, 5])]),
            ("Unknown", &[("rnn.weight_ih", &[20, 3]), ("rnn.weight_hh", &[20, 0])]),
            ("RotaryEmbedding", &[("rotary_emb.inv_freq", &[8])]),
            ("Constants", &[("time_proj.weight", &[9, 4])]),
            ("Dense", &[("time_proj.weight", &[9, 4]), ("time_proj.bias", &[9])]),
            ("Constants", &[("mask.weight", &[1, 1, 4, 4])]),
            ("Constants", &[("rotary_emb.weight", &[9, 4])]),
            ("LayerNorm", &[("mask.weight", &[4]), ("mask.bias", &[4])]),
        ];
        for (kind, tensors) in rows {
            let met = outline_of(tensors);
            assert_eq!(met.last().unwrap().1, *kind, "{tensors:?}");
        }
        let attention = outline_of(&[("a.in_proj_weight", &[9, 3]), ("a.out_proj.weight", &[3, 3])]);
        let kinds: Vec<&str> = attention.iter().map(|(_, kind)| kind.as_str()).collect();
        assert_eq!(kinds, ["Container", "MultiheadAttention", "Dense"]);
        let flat = outline_of(&[("conv.weight", &[3, 4, 5]), ("bn.running_mean", &[3])]);
        assert_eq!(flat[1], ("bn".into(), "BatchNorm1d".into()), "as many axes as the convolutions have");
    }

    #[test]
    fn cells_stand_in_the_order_of_people_and_odd_names_stay_tensors() {
        let met =
            outline_of(&[("h.10.w", &[1]), ("h.9.w", &[1]), ("a", &[1]), ("b..w", &[1]), (".c", &[1]), ("d.", &[1])]);
        let paths: Vec<&str> = met.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["", "b", "d", "h", "h.9", "h.10"]);
        assert_eq!(met[0].1, "Unknown", "it has tensors of its own");
        for (name, cell, own) in
            [("", "", ""), ("a", "", "a"), ("a.b.c", "a.b", "c"), ("a..c", "a", ".c"), (".", "", "."), ("a.", "a", "")]
        {
            assert_eq!(cell_of(name), (cell, own), "{name}");
        }
        let deep = "a.".repeat(100_000);
        assert_eq!(cell_of(&deep).0.split('.').count(), MAX_DEPTH);
        assert_eq!(outline_of(&[(&deep, &[1])]).len(), MAX_DEPTH + 1);
    }
}
