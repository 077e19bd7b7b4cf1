//! The five networks, as in `peers/torch_steps.py`.

use precast::prelude::*;

/// A network with one batch of noise to train it on.
pub struct Task {
    pub net: Child,
    pub x: Tensor,
    pub y: Tensor,
    pub adamw: bool,
}

/// All names, in table order.
pub const NAMES: [&str; 5] = ["lenet5", "mlp", "resnet18", "lstm", "gpt"];

/// Builds a network and a batch `times` as large as the bench's.
pub fn task(name: &str, times: usize) -> Result<Task> {
    let mut rng = Rng::seed(0);
    let r = &mut rng;
    let (net, shape, classes): (Child, &[usize], usize) = match name {
        "lenet5" => (lenet5(r)?, &[32, 1, 28, 28], 10),
        "mlp" => (mlp(r), &[64, 784], 10),
        "resnet18" => (resnet18(32, r)?, &[8, 3, 32, 32], 10),
        "lstm" => (Child::of(Lstm::new(256, r)?), &[16, 32, 256], 10),
        "gpt" => (Child::of(Gpt::new(r)?), &[8, 64], 256),
        other => return Err(Error::path(format!("no network is called `{other}`; allowed: {}", NAMES.join(", ")))),
    };
    let mut shape = shape.to_vec();
    shape[0] *= times;
    let count: usize = shape.iter().product();
    let (x, labels) = if name == "gpt" {
        let mut ids = || (0..count).map(|_| r.uniform(0.0, 256.0) as i64).collect::<Vec<_>>();
        (Tensor::from_vec(ids(), &shape)?, ids())
    } else {
        let x: Vec<f64> = (0..count).map(|_| r.normal(0.0, 1.0)).collect();
        let labels = (0..shape[0]).map(|_| r.uniform(0.0, classes as f64) as i64).collect();
        (Tensor::from_f64(&x, &shape, DType::F32)?, labels)
    };
    let y = Tensor::from_vec(labels.clone(), &[labels.len()])?;
    Ok(Task { net, x, y, adamw: name == "gpt" })
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

fn mlp(rng: &mut Rng) -> Child {
    sequential![Dense::new(784, 512, rng), ReLU, Dense::new(512, 512, rng), ReLU, Dense::new(512, 10, rng)].into()
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

fn resnet18(width: usize, rng: &mut Rng) -> Result<Child> {
    let stem = Conv2dSpec::new(3, width, 3).padding(Padding::all(1)).bias(false).build(rng)?;
    let mut net = sequential![stem, BatchNorm2d::new(width), ReLU];
    let mut inputs = width;
    for (stage, block) in (0..4).flat_map(|stage| [(stage, 0), (stage, 1)]) {
        let outputs = width << stage;
        let stride = if stage > 0 && block == 0 { 2 } else { 1 };
        net.push(Residual::new(inputs, outputs, stride, rng)?);
        inputs = outputs;
    }
    net.push(AdaptiveAvgPool2d::new(1));
    net.push(Flatten::default());
    net.push(Dense::new(inputs, 10, rng));
    Ok(net.into())
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

/// A decoder of four blocks over 256 tokens.
#[derive(Cell, Debug)]
struct Gpt {
    embedding: Child<Embedding>,
    position: Child<Embedding>,
    blocks: Child<Sequential>,
    norm: Child<LayerNorm>,
    head: Child<Dense>,
}

impl Gpt {
    fn new(rng: &mut Rng) -> Result<Self> {
        let (vocabulary, width, length) = (256, 128, 64);
        Ok(Gpt {
            embedding: Child::new(Embedding::new(vocabulary, width, rng)),
            position: Child::new(Embedding::new(length, width, rng)),
            blocks: Child::new(Sequential::new((0..4).map(|_| Block::new(width, 4, rng).into()).collect())),
            norm: Child::new(LayerNorm::new(&[width])),
            head: Child::new(Dense::new(width, vocabulary, rng)),
        })
    }
}

impl Forward for Gpt {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let x = self.embedding.call(ids)?.add(&self.position.call(&Tensor::arange(ids.shape()[1]))?)?;
        let y = self.head.call(&self.norm.call(&self.blocks.call(&x)?)?)?;
        y.reshape(&[-1, y.shape()[2] as isize])
    }
}
