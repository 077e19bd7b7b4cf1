//! The networks, as in `peers/torch_steps.py`.

use precast::prelude::*;

/// A network with one batch of noise to train it on.
pub struct Task {
    pub net: Child,
    pub x: Tensor,
    pub y: Tensor,
    pub adamw: bool,
}

impl Task {
    /// Creates the optimizer of the network, of its parameters as they are now.
    pub fn optimizer(&self) -> Box<dyn Optimizer> {
        let params = self.net.params();
        match self.adamw {
            true => Box::new(AdamW::new(params, 1e-3)),
            false => Box::new(Sgd::new(params, 0.01).momentum(0.9)),
        }
    }
}

/// Names of the small networks, in table order.
pub const NAMES: [&str; 5] = ["lenet5", "mlp", "resnet18", "lstm", "gpt"];

/// Names of networks of the size that people train, in table order.
pub const REAL: [&str; 7] =
    ["resnet50-224", "resnet18-224", "depthwise50-224", "mlp-2048", "gpt2-small", "gpt-4096", "lstm-1024"];

/// Builds a network and a batch `times` as large as the bench's.
pub fn task(name: &str, times: usize) -> Result<Task> {
    let mut rng = Rng::seed(0);
    let r = &mut rng;
    let (net, shape, classes): (Child, &[usize], usize) = match name {
        "lenet5" => (lenet5(r)?, &[32, 1, 28, 28], 10),
        "mlp" => (mlp(&[784, 512, 512, 10], r), &[64, 784], 10),
        "resnet18" => (resnet18(32, r)?, &[8, 3, 32, 32], 10),
        "lstm" => (Child::of(Lstm::new(256, r)?), &[16, 32, 256], 10),
        "gpt" => (Gpt { vocabulary: 256, width: 128, length: 64, heads: 4, layers: 4 }.build(r), &[8, 64], 256),
        "resnet50-224" => (resnet50(false, r)?, &[4, 3, 224, 224], 1000),
        "resnet18-224" => (resnet18_on_pictures(r)?, &[4, 3, 224, 224], 1000),
        "depthwise50-224" => (resnet50(true, r)?, &[4, 3, 224, 224], 1000),
        "mlp-2048" => (mlp(&[2048, 2048, 2048, 2048, 10], r), &[256, 2048], 10),
        "gpt2-small" => {
            (Gpt { vocabulary: 50_257, width: 768, length: 256, heads: 12, layers: 12 }.build(r), &[2, 256], 50_257)
        }
        "gpt-4096" => {
            (Gpt { vocabulary: 1000, width: 512, length: 4096, heads: 8, layers: 2 }.build(r), &[1, 4096], 1000)
        }
        "lstm-1024" => (Child::of(Lstm::new(1024, r)?), &[32, 100, 1024], 10),
        other => {
            let known = [&NAMES[..], &REAL[..]].concat().join(", ");
            return Err(Error::path(format!("no network is called `{other}`; allowed: {known}")));
        }
    };
    let mut shape = shape.to_vec();
    shape[0] *= times;
    with_noise(net, &shape, classes, name.starts_with("gpt"), r)
}

/// Adds a batch of noise of this shape: `tokens` below `classes` with one label each, or numbers with one label a row.
pub fn with_noise(net: Child, shape: &[usize], classes: usize, tokens: bool, r: &mut Rng) -> Result<Task> {
    let count: usize = shape.iter().product();
    let (x, labels) = if tokens {
        let mut ids = || (0..count).map(|_| r.uniform(0.0, classes as f64) as i64).collect::<Vec<_>>();
        (Tensor::from_vec(ids(), shape)?, ids())
    } else {
        let x: Vec<f64> = (0..count).map(|_| r.normal(0.0, 1.0)).collect();
        let labels = (0..shape[0]).map(|_| r.uniform(0.0, classes as f64) as i64).collect();
        (Tensor::from_f64(&x, shape, DType::F32)?, labels)
    };
    let y = Tensor::from_vec(labels.clone(), &[labels.len()])?;
    Ok(Task { net, x, y, adamw: tokens })
}

fn lenet5(rng: &mut Rng) -> Result<Child> {
    Ok(sequential![
        Conv2dSpec::new(1, 6, 5).padding(Padding::all(2)).build(rng)?,
        ReLU,
        MaxPool2d::new(2),
        Conv2d::new(6, 16, 5, rng),
        ReLU,
        MaxPool2d::new(2),
        Flatten::default(),
        Dense::new(400, 120, rng),
        ReLU,
        Dense::new(120, 84, rng),
        ReLU,
        Dense::new(84, 10, rng),
    ]
    .into())
}

/// Builds dense layers of these sizes, with ReLU between them.
pub fn mlp(sizes: &[usize], rng: &mut Rng) -> Child {
    let mut net = sequential![Dense::new(sizes[0], sizes[1], rng)];
    for sizes in sizes[1..].windows(2) {
        net.push(ReLU);
        net.push(Dense::new(sizes[0], sizes[1], rng));
    }
    net.into()
}

/// Two convolutions with norms and a residual connection.
#[derive(Cell, Debug)]
struct Residual {
    conv1: Child<Conv2d>,
    norm1: Child<BatchNorm2d>,
    conv2: Child<Conv2d>,
    norm2: Child<BatchNorm2d>,
    project: Option<Child<Sequential>>,
}

impl Residual {
    fn new(inputs: usize, outputs: usize, stride: usize, rng: &mut Rng) -> Result<Self> {
        let conv = |inputs, kernel: usize, stride: usize, rng: &mut Rng| {
            let padding = Padding::all(kernel / 2);
            Conv2dSpec::new(inputs, outputs, kernel).stride(stride).padding(padding).bias(false).build(rng)
        };
        let project = match stride != 1 || inputs != outputs {
            true => Some(Child::new(sequential![conv(inputs, 1, stride, rng)?, BatchNorm2d::new(outputs)])),
            false => None,
        };
        Ok(Residual {
            conv1: Child::new(conv(inputs, 3, stride, rng)?),
            norm1: Child::new(BatchNorm2d::new(outputs)),
            conv2: Child::new(conv(outputs, 3, 1, rng)?),
            norm2: Child::new(BatchNorm2d::new(outputs)),
            project,
        })
    }
}

impl Forward for Residual {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.norm1.call(&self.conv1.call(x)?)?.relu()?;
        let y = self.norm2.call(&self.conv2.call(&y)?)?;
        match &self.project {
            Some(project) => y.add(&project.call(x)?)?.relu(),
            None => y.add(x)?.relu(),
        }
    }
}

pub fn resnet18(width: usize, rng: &mut Rng) -> Result<Child> {
    let stem = Conv2dSpec::new(3, width, 3).padding(Padding::all(1)).bias(false).build(rng)?;
    residuals(sequential![stem, BatchNorm2d::new(width), ReLU], width, 10, rng)
}

/// Builds the ResNet-18 of pictures of 224 x 224.
pub fn resnet18_on_pictures(rng: &mut Rng) -> Result<Child> {
    residuals(picture_stem(rng)?, 64, 1000, rng)
}

/// Returns the first layers of a network on pictures: a quarter of each side is left.
fn picture_stem(rng: &mut Rng) -> Result<Sequential> {
    let conv = Conv2dSpec::new(3, 64, 7).stride(2).padding(Padding::all(3)).bias(false).build(rng)?;
    Ok(sequential![conv, BatchNorm2d::new(64), ReLU, MaxPool2d::new(3).stride(2).padding(1)])
}

/// Adds the eight blocks of a ResNet-18 and its head.
fn residuals(mut net: Sequential, width: usize, classes: usize, rng: &mut Rng) -> Result<Child> {
    let mut inputs = width;
    for (stage, block) in (0..4).flat_map(|stage| [(stage, 0), (stage, 1)]) {
        let outputs = width << stage;
        let stride = if stage > 0 && block == 0 { 2 } else { 1 };
        net.push(Residual::new(inputs, outputs, stride, rng)?);
        inputs = outputs;
    }
    Ok(with_head(net, inputs, classes, rng))
}

fn with_head(mut net: Sequential, inputs: usize, classes: usize, rng: &mut Rng) -> Child {
    net.push(AdaptiveAvgPool2d::new(1));
    net.push(Flatten::default());
    net.push(Dense::new(inputs, classes, rng));
    net.into()
}

/// Three convolutions with norms and a residual connection: to fewer channels, over space, and to four times as many.
#[derive(Cell, Debug)]
struct Bottleneck {
    narrow: Child<Conv2d>,
    norm1: Child<BatchNorm2d>,
    conv: Child<Conv2d>,
    norm2: Child<BatchNorm2d>,
    widen: Child<Conv2d>,
    norm3: Child<BatchNorm2d>,
    project: Option<Child<Sequential>>,
}

impl Bottleneck {
    fn new(inputs: usize, middle: usize, stride: usize, groups: usize, rng: &mut Rng) -> Result<Self> {
        let outputs = 4 * middle;
        let pointwise = |inputs, outputs, stride: usize, rng: &mut Rng| {
            Conv2dSpec::new(inputs, outputs, 1).stride(stride).bias(false).build(rng)
        };
        let conv =
            Conv2dSpec::new(middle, middle, 3).stride(stride).padding(Padding::all(1)).groups(groups).bias(false);
        let project = match stride != 1 || inputs != outputs {
            true => Some(Child::new(sequential![pointwise(inputs, outputs, stride, rng)?, BatchNorm2d::new(outputs)])),
            false => None,
        };
        Ok(Bottleneck {
            narrow: Child::new(pointwise(inputs, middle, 1, rng)?),
            norm1: Child::new(BatchNorm2d::new(middle)),
            conv: Child::new(conv.build(rng)?),
            norm2: Child::new(BatchNorm2d::new(middle)),
            widen: Child::new(pointwise(middle, outputs, 1, rng)?),
            norm3: Child::new(BatchNorm2d::new(outputs)),
            project,
        })
    }
}

impl Forward for Bottleneck {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.norm1.call(&self.narrow.call(x)?)?.relu()?;
        let y = self.norm2.call(&self.conv.call(&y)?)?.relu()?;
        let y = self.norm3.call(&self.widen.call(&y)?)?;
        match &self.project {
            Some(project) => y.add(&project.call(x)?)?.relu(),
            None => y.add(x)?.relu(),
        }
    }
}

/// Builds the ResNet-50 of pictures of 224 x 224; `depthwise`: its 3x3 convolutions have a group for each channel.
fn resnet50(depthwise: bool, rng: &mut Rng) -> Result<Child> {
    let mut net = picture_stem(rng)?;
    let mut inputs = 64;
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let middle = 64 << stage;
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            net.push(Bottleneck::new(inputs, middle, stride, if depthwise { middle } else { 1 }, rng)?);
            inputs = 4 * middle;
        }
    }
    Ok(with_head(net, inputs, 1000, rng))
}

/// Two layers of an LSTM over a sequence, and a head on the last output.
#[derive(Cell, Debug)]
struct Lstm {
    lstm: Child<LSTM>,
    head: Child<Dense>,
}

impl Lstm {
    fn new(hidden: usize, rng: &mut Rng) -> Result<Self> {
        let lstm = LSTMSpec::new(hidden, hidden).num_layers(2).build(rng)?;
        Ok(Lstm { lstm: Child::new(lstm), head: Child::new(Dense::new(hidden, 10, rng)) })
    }
}

impl Forward for Lstm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.lstm.call(x)?;
        self.head.call(&y.at(1, y.shape()[1] - 1)?)
    }
}

/// One pre-norm transformer block.
#[derive(Cell, Debug)]
struct Block {
    norm1: Child<LayerNorm>,
    qkv: Child<Dense>,
    out: Child<Dense>,
    norm2: Child<LayerNorm>,
    up: Child<Dense>,
    down: Child<Dense>,
    heads: usize,
}

impl Block {
    fn new(width: usize, heads: usize, rng: &mut Rng) -> Self {
        Block {
            norm1: Child::new(LayerNorm::new(&[width])),
            qkv: Child::new(Dense::new(width, 3 * width, rng)),
            out: Child::new(Dense::new(width, width, rng)),
            norm2: Child::new(LayerNorm::new(&[width])),
            up: Child::new(Dense::new(width, 4 * width, rng)),
            down: Child::new(Dense::new(4 * width, width, rng)),
            heads,
        }
    }
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [batch, length, width] = x.shape() else { return Err(Error::shape("needs [batch, length, width]")) };
        let (batch, length, width) = (*batch as isize, *length as isize, *width as isize);
        let heads = self.heads as isize;
        let qkv = self.qkv.call(&self.norm1.call(x)?)?.reshape(&[batch, length, 3, heads, width / heads])?;
        let qkv = qkv.permute(&[2, 0, 3, 1, 4])?;
        let y = qkv.at(0, 0)?.scaled_dot_product_attention(&qkv.at(0, 1)?, &qkv.at(0, 2)?, None, true, None)?;
        let x = x.add(&self.out.call(&y.transpose(1, 2)?.reshape(&[batch, length, width])?)?)?;
        x.add(&self.down.call(&self.up.call(&self.norm2.call(&x)?)?.gelu()?)?)
    }
}

/// Sizes of a decoder.
pub struct Gpt {
    pub vocabulary: usize,
    pub width: usize,
    pub length: usize,
    pub heads: usize,
    pub layers: usize,
}

impl Gpt {
    pub fn build(self, rng: &mut Rng) -> Child {
        let Gpt { vocabulary, width, length, heads, layers } = self;
        Child::of(Decoder {
            embedding: Child::new(Embedding::new(vocabulary, width, rng)),
            position: Child::new(Embedding::new(length, width, rng)),
            blocks: Child::new(Sequential::new((0..layers).map(|_| Block::new(width, heads, rng).into()).collect())),
            norm: Child::new(LayerNorm::new(&[width])),
            head: Child::new(Dense::new(width, vocabulary, rng)),
        })
    }
}

/// A decoder of pre-norm blocks.
#[derive(Cell, Debug)]
struct Decoder {
    embedding: Child<Embedding>,
    position: Child<Embedding>,
    blocks: Child<Sequential>,
    norm: Child<LayerNorm>,
    head: Child<Dense>,
}

impl Forward for Decoder {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let x = self.embedding.call(ids)?.add(&self.position.call(&Tensor::arange(ids.shape()[1]))?)?;
        let y = self.head.call(&self.norm.call(&self.blocks.call(&x)?)?)?;
        y.reshape(&[-1, y.shape()[2] as isize])
    }
}
