//! The networks that Paddle decorated: the layers with parameters, under the same paths. They are never run.

use precast::{
    cell::{Member, Part, PartMut},
    prelude::*,
};

/// Builds the network of this name.
pub fn network(name: &str) -> Option<Child> {
    let mut rng = Rng::seed(1);
    Some(match name {
        "LeNet" => Child::of(LeNet::new(&mut rng)),
        "ResBlock" => Child::of(ResBlock::new(&mut rng)),
        "TransformerBlock" => Child::of(TransformerBlock::new(&mut rng)),
        "EmbeddingNet" => Child::of(EmbeddingNet::new(&mut rng)),
        _ => return None,
    })
}

/// Returns the kind here of a Paddle layer class.
pub fn kind(class: &str) -> &str {
    match class {
        "Linear" => "Dense",
        "Conv2D" => "Conv2d",
        "MaxPool2D" => "MaxPool2d",
        "BatchNorm1D" => "BatchNorm1d",
        "BatchNorm2D" => "BatchNorm2d",
        "BatchNorm3D" => "BatchNorm3d",
        "InstanceNorm1D" => "InstanceNorm1d",
        "InstanceNorm2D" => "InstanceNorm2d",
        "MultiHeadAttention" => "MultiheadAttention",
        same => same,
    }
}

/// Returns the path here of a Paddle parameter.
fn path(theirs: &str) -> String {
    let Some((layer, name)) = theirs.rsplit_once('.') else { return theirs.to_string() };
    let name = match name {
        "_mean" => "running_mean",
        "_variance" => "running_var",
        "_weight" | "scale" => "weight",
        "_dropout_state" => "dropout_state",
        same => same,
    };
    format!("{layer}.{name}")
}

/// Every parameter and buffer of a network under each of its paths: tied ones have several.
pub struct Named(Vec<(String, Param)>);

impl Named {
    pub fn of(net: &Child) -> Self {
        Named(net.named_params())
    }

    pub fn iter(&self) -> impl Iterator<Item = &(String, Param)> {
        self.0.iter()
    }

    /// Returns the parameter with Paddle's name. A recurrent layer of Paddle's holds its weights under separate names,
    /// and again under those of the cell inside it; the recording may or may not identify them.
    pub fn find(&self, theirs: &str) -> Option<&Param> {
        let path = path(theirs);
        let at = |path: &str| self.0.iter().find(|(known, _)| known == path).map(|(_, param)| param);
        at(&path).or_else(|| {
            let (layer, name) = path.rsplit_once('.')?;
            at(&format!("{layer}.cell.{name}"))
        })
    }

    /// Iterates over all paths of a parameter.
    pub fn paths(&self, param: &Param) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, known)| known.is_same(param)).map(|(path, _)| path.as_str())
    }
}

#[derive(Cell, Debug)]
struct LeNet {
    features: Child<Sequential>,
    fc: Child<Sequential>,
}

impl LeNet {
    fn new(rng: &mut Rng) -> Self {
        let pool = || MaxPool2d::new(2);
        LeNet {
            features: Child::new(sequential![
                Conv2d::new(1, 6, 3, rng),
                ReLU,
                pool(),
                Conv2d::new(6, 16, 5, rng),
                ReLU,
                pool()
            ]),
            fc: Child::new(sequential![Dense::new(400, 120, rng), Dense::new(120, 84, rng), Dense::new(84, 10, rng)]),
        }
    }
}

impl Forward for LeNet {}

#[derive(Cell, Debug)]
struct ResBlock {
    conv1: Child<Conv2d>,
    bn1: Child<BatchNorm2d>,
    conv2: Child<Conv2d>,
    bn2: Child<BatchNorm2d>,
    downsample: Child<Sequential>,
    relu: Child<ReLU>,
}

impl ResBlock {
    fn new(rng: &mut Rng) -> Self {
        let mut conv = || Child::new(Conv2dSpec::new(4, 4, 3).bias(false).build(rng).unwrap());
        let (conv1, conv2) = (conv(), conv());
        let norm = || Child::new(BatchNorm2d::new(4));
        let downsample = Child::new(sequential![Conv2d::new(4, 4, 1, rng), BatchNorm2d::new(4)]);
        ResBlock { conv1, bn1: norm(), conv2, bn2: norm(), downsample, relu: Child::new(ReLU) }
    }
}

impl Forward for ResBlock {}

/// Own parameters and buffers of a cell, under names that are not Rust identifiers.
#[derive(Clone, Debug)]
struct Own(Vec<(&'static str, Param)>);

impl Own {
    fn param(name: &'static str) -> (&'static str, Param) {
        (name, Param::new(Tensor::full(&[2, 2], 0.1, DType::F32)))
    }
}

impl Member for Own {
    fn visit(&self, _: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        self.0.iter().for_each(|(name, param)| visitor(name, Part::Param(param)));
    }
    fn visit_mut(&mut self, _: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        self.0.iter_mut().for_each(|(name, param)| visitor(name, PartMut::Param(param)));
    }
}

#[derive(Cell, Debug)]
struct TransformerBlock {
    own: Own,
    attn: Child<MultiheadAttention>,
    ln1: Child<LayerNorm>,
    l1: Child<Dense>,
    l2: Child<Dense>,
    ln2: Child<LayerNorm>,
}

impl TransformerBlock {
    fn new(rng: &mut Rng) -> Self {
        let norm = || Child::new(LayerNorm::new(&[8]));
        let own = vec![
            Own::param("scale"),
            ("pos", Param::buffer(Tensor::full(&[4], 0.1, DType::F32))),
            ("idx", Param::buffer(Tensor::arange(4))),
        ];
        TransformerBlock {
            own: Own(own),
            attn: Child::new(MultiheadAttention::new(8, 2, rng)),
            ln1: norm(),
            l1: Child::new(Dense::new(8, 16, rng)),
            l2: Child::new(Dense::new(16, 8, rng)),
            ln2: norm(),
        }
    }
}

impl Forward for TransformerBlock {}

/// A recurrent network of Paddle: it and the cell that it wraps, at `0.cell`, share the weights.
#[derive(Cell, Debug)]
#[cell(kind = "LSTM")]
struct Lstm {
    own: Own,
    layers: Layers,
}

/// Cells that are named only by their position.
#[derive(Debug)]
struct Layers(Sequential);

impl Member for Layers {
    fn visit(&self, _: &str, visitor: &mut dyn FnMut(&str, Part<'_>)) {
        self.0.visit(visitor);
    }
    fn visit_mut(&mut self, _: &str, visitor: &mut dyn FnMut(&str, PartMut<'_>)) {
        self.0.visit_mut(visitor);
    }
}

impl Lstm {
    fn new(rng: &mut Rng) -> Self {
        let cell = LSTMCell::new(4, 4, rng);
        let own = vec![
            ("weight_ih_l0", cell.weight_ih.clone()),
            ("weight_hh_l0", cell.weight_hh.clone()),
            ("bias_ih_l0", cell.bias_ih.clone().unwrap()),
            ("bias_hh_l0", cell.bias_hh.clone().unwrap()),
            ("dropout_state", Param::buffer(Tensor::arange(4))),
        ];
        Lstm { own: Own(own), layers: Layers(Sequential::new(vec![Rnn { cell: Child::new(cell) }.into()])) }
    }
}

impl Forward for Lstm {}

#[derive(Cell, Debug)]
#[cell(kind = "RNN")]
struct Rnn {
    cell: Child<LSTMCell>,
}

impl Forward for Rnn {}

#[derive(Cell, Debug)]
struct SpectralNorm {
    own: Own,
}

impl Forward for SpectralNorm {}

#[derive(Cell, Debug)]
struct EmbeddingNet {
    emb: Child<Embedding>,
    gn: Child<GroupNorm>,
    inorm: Child<InstanceNorm2d>,
    lstm: Child<Lstm>,
    prelu: Child<PReLU>,
    bn_old: Child<BatchNorm2d>,
    bn1: Child<BatchNorm1d>,
    bn3: Child<BatchNorm3d>,
    in1: Child<InstanceNorm1d>,
    sn: Child<SpectralNorm>,
    fc: Child<Dense>,
    lrn: Child<Identity>,
}

impl EmbeddingNet {
    fn new(rng: &mut Rng) -> Self {
        EmbeddingNet {
            emb: Child::new(Embedding::new(10, 8, rng)),
            gn: Child::new(GroupNorm::new(2, 4)),
            inorm: Child::new(InstanceNorm2d::new(4)),
            lstm: Child::new(Lstm::new(rng)),
            prelu: Child::new(PReLU::new(1)),
            bn_old: Child::new(BatchNorm2d::new(4)),
            bn1: Child::new(BatchNorm1d::new(4)),
            bn3: Child::new(BatchNorm3d::new(4)),
            in1: Child::new(InstanceNorm1d::new(4)),
            sn: Child::new(SpectralNorm { own: Own(["weight_u", "weight_v"].map(Own::param).to_vec()) }),
            fc: Child::new(Dense::new(8, 2, rng)),
            lrn: Child::new(Identity),
        }
    }
}

impl Forward for EmbeddingNet {}
