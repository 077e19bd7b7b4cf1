//! Training steps of burn on its CPU backend, with networks as its users write them.

use burn::{
    module::{Module, Param},
    nn::{
        BatchNorm, BatchNormConfig, Embedding, GateController, Gelu, LayerNorm, LayerNormConfig, Linear, Lstm,
        LstmConfig, PaddingConfig2d, Relu,
        conv::{Conv2d, Conv2dConfig},
        loss::CrossEntropyLossConfig,
        pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig},
    },
    optim::{AdamWConfig, GradientsParams, SgdConfig, momentum::MomentumConfig},
    tensor::{Bool, Device, Int, Tensor, TensorData, activation::softmax},
};

use super::{
    Kind, Step,
    nets::Task,
    weights::{self, Weight, Weights},
};

type Result<T> = std::result::Result<T, String>;

/// Creates a training step in f32.
pub fn step(kind: Kind, task: &Task, weights: &Weights) -> Result<Step> {
    let device = Device::default().autodiff();
    let of = Layers { weights, device: &device };
    let shape = task.x.shape().to_vec();
    let data = match kind {
        Kind::Gpt { .. } => TensorData::new(ids(&task.x), shape),
        _ => TensorData::new(task.x.to_vec::<f32>().map_err(|e| e.to_string())?, shape),
    };
    Ok(match kind {
        Kind::ResNet => steps(ResNet::new(&of)?, Tensor::from_data(data, &device), task, ResNet::forward),
        Kind::Mlp => steps(Mlp::new(&of)?, Tensor::from_data(data, &device), task, Mlp::forward),
        Kind::Gpt { heads } => steps(Gpt::new(&of, heads)?, Tensor::from_data(data, &device), task, Gpt::forward),
        Kind::Lstm => steps(OnLast::new(&of)?, Tensor::from_data(data, &device), task, OnLast::forward),
    })
}

fn ids(x: &precast::Tensor) -> Vec<i32> {
    x.to_f64().into_iter().map(|x| x as i32).collect()
}

/// Makes a step of a network, with the optimizers of precast's.
fn steps<M: Module + 'static, X: Clone + 'static>(net: M, x: X, task: &Task, forward: fn(&M, X) -> Tensor<2>) -> Step {
    let device = Device::default().autodiff();
    let y = Tensor::<1, Int>::from_ints(&ids(&task.y)[..], &device);
    let cross_entropy = CrossEntropyLossConfig::new().init(&device);
    let (mut optimizer, lr) = match task.adamw {
        true => (AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init(), 1e-3),
        false => {
            let momentum = MomentumConfig::new().with_momentum(0.9).with_dampening(0.0);
            (SgdConfig::new().with_momentum(Some(momentum)).init(), 0.01)
        }
    };
    // Empty during an update, so that the optimizer owns the weights and can change them in place.
    let mut trained = Some(net);
    Box::new(move || {
        let net = trained.take().ok_or("an update failed before")?;
        let loss = cross_entropy.forward(forward(&net, x.clone()), y.clone());
        let value = loss.clone().detach();
        let grads = GradientsParams::from_grads(loss.backward(), &net);
        trained = Some(optimizer.step(lr, net, grads));
        value.try_into_scalar::<f32>().map(f64::from).map_err(|e| e.to_string())
    })
}

/// A builder of layers from precast's weights, by its names.
struct Layers<'a> {
    weights: &'a Weights,
    device: &'a Device,
}

impl Layers<'_> {
    fn param<const D: usize>(&self, name: &str) -> Result<Param<Tensor<D>>> {
        let Weight { shape, numbers } = self.weights.get(name)?;
        Ok(Param::from_data(TensorData::new(numbers.clone(), shape.clone()), self.device))
    }

    fn linear(&self, name: &str) -> Result<Linear> {
        self.rows_of(&format!("{name}.weight"), &format!("{name}.bias"), 0, 1)
    }

    /// Builds a layer of the part `at` of `parts` equal parts of the rows of a weight, which burn keeps transposed.
    fn rows_of(&self, weight: &str, bias: &str, at: usize, parts: usize) -> Result<Linear> {
        let (weight, bias) = (self.weights.get(weight)?, self.weights.get(bias)?);
        let (rows, columns) = (weight.shape[0] / parts, weight.shape[1]);
        let first = at * rows;
        let mut numbers = Vec::with_capacity(rows * columns);
        for column in 0..columns {
            numbers.extend((first..first + rows).map(|row| weight.numbers[row * columns + column]));
        }
        let bias = TensorData::new(bias.numbers[first..first + rows].to_vec(), [rows]);
        let weight = Param::from_data(TensorData::new(numbers, [columns, rows]), self.device);
        Ok(Linear { weight, bias: Some(Param::from_data(bias, self.device)) })
    }

    fn layer_norm(&self, name: &str) -> Result<LayerNorm> {
        let gamma = self.param::<1>(&format!("{name}.weight"))?;
        let mut norm = LayerNormConfig::new(gamma.dims()[0]).with_epsilon(1e-5).init(self.device);
        (norm.gamma, norm.beta) = (gamma, Some(self.param(&format!("{name}.bias"))?));
        Ok(norm)
    }

    fn embedding(&self, name: &str) -> Result<Embedding> {
        Ok(Embedding { weight: self.param(&format!("{name}.weight"))? })
    }

    fn conv_norm(&self, names: &weights::ConvNorm, inputs: usize) -> Result<ConvNorm> {
        let weights::ConvNorm { conv, norm, stride } = names;
        let weight = self.param::<4>(&format!("{conv}.weight"))?;
        let [outputs, of_group, kernel, _] = weight.dims();
        let pad = kernel / 2;
        let config = Conv2dConfig::new([inputs, outputs], [kernel, kernel])
            .with_stride([*stride, *stride])
            .with_padding(PaddingConfig2d::Explicit(pad, pad, pad, pad))
            .with_groups(inputs / of_group)
            .with_bias(false);
        let norms = BatchNormConfig::new(outputs).with_epsilon(1e-5).init(self.device);
        let [gamma, beta] = [self.param(&format!("{norm}.weight"))?, self.param(&format!("{norm}.bias"))?];
        Ok(ConvNorm { conv: Conv2d { weight, ..config.init(self.device) }, norm: BatchNorm { gamma, beta, ..norms } })
    }
}

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
    act: Relu,
}

impl Mlp {
    fn new(of: &Layers<'_>) -> Result<Self> {
        let layers = of.weights.dense().iter().map(|name| of.linear(name)).collect::<Result<_>>()?;
        Ok(Mlp { layers, act: Relu::new() })
    }

    fn forward(&self, mut x: Tensor<2>) -> Tensor<2> {
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(if i > 0 { self.act.forward(x) } else { x });
        }
        x
    }
}

#[derive(Module, Debug)]
struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm,
}

impl ConvNorm {
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(x))
    }
}

#[derive(Module, Debug)]
struct Residual {
    parts: Vec<ConvNorm>,
    project: Option<ConvNorm>,
    act: Relu,
}

impl Residual {
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let mut y = self.parts[0].forward(x.clone());
        for part in &self.parts[1..] {
            y = part.forward(self.act.forward(y));
        }
        let x = match &self.project {
            Some(project) => project.forward(x),
            None => x,
        };
        self.act.forward(x + y)
    }
}

#[derive(Module, Debug)]
struct ResNet {
    stem: ConvNorm,
    act: Relu,
    pool: MaxPool2d,
    blocks: Vec<Residual>,
    average: AdaptiveAvgPool2d,
    head: Linear,
}

impl ResNet {
    fn new(of: &Layers<'_>) -> Result<Self> {
        let (names, head) = of.weights.residual();
        let (mut blocks, mut inputs) = (Vec::new(), 64);
        for weights::Block { parts, project } in &names {
            let project = project.as_ref().map(|names| of.conv_norm(names, inputs)).transpose()?;
            let mut layers = Vec::new();
            for names in parts {
                let part = of.conv_norm(names, inputs)?;
                inputs = part.conv.weight.dims()[0];
                layers.push(part);
            }
            blocks.push(Residual { parts: layers, project, act: Relu::new() });
        }
        let pool = MaxPool2dConfig::new([3, 3]).with_strides([2, 2]);
        Ok(ResNet {
            stem: of.conv_norm(&weights::stem(), 3)?,
            act: Relu::new(),
            pool: pool.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(),
            blocks,
            average: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            head: of.linear(&head)?,
        })
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let mut x = self.pool.forward(self.act.forward(self.stem.forward(x)));
        for block in &self.blocks {
            x = block.forward(x);
        }
        let [batch, channels, ..] = x.dims();
        self.head.forward(self.average.forward(x).reshape([batch, channels]))
    }
}

/// Two layers of an LSTM, and a head on the last output.
#[derive(Module, Debug)]
struct OnLast {
    layers: Vec<Lstm>,
    head: Linear,
}

impl OnLast {
    fn new(of: &Layers<'_>) -> Result<Self> {
        let head = of.linear("head")?;
        let [hidden, _] = head.weight.dims();
        let layer = |i: usize| -> Result<_> {
            let part = |kind: &str, at| {
                let [weight, bias] = ["weight", "bias"].map(|name| format!("lstm.{name}_{kind}_l{i}"));
                of.rows_of(&weight, &bias, at, 4)
            };
            let gate = |at| -> Result<_> {
                Ok(GateController { input_transform: part("ih", at)?, hidden_transform: part("hh", at)? })
            };
            let [input_gate, cell_gate, output_gate] = [gate(0)?, gate(2)?, gate(3)?];
            let lstm = LstmConfig::new(hidden, hidden, true).init(of.device);
            Ok(Lstm { input_gate, forget_gate: Some(gate(1)?), cell_gate, output_gate, ..lstm })
        };
        Ok(OnLast { layers: vec![layer(0)?, layer(1)?], head })
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<2> {
        let (x, _) = self.layers[0].forward(x, None);
        let (_, last) = self.layers[1].forward(x, None);
        self.head.forward(last.hidden)
    }
}

#[derive(Module, Debug)]
struct Decoder {
    norms: [LayerNorm; 2],
    qkv: Linear,
    out: Linear,
    up: Linear,
    act: Gelu,
    down: Linear,
    heads: usize,
}

impl Decoder {
    fn new(of: &Layers<'_>, path: &str, heads: usize) -> Result<Self> {
        let linear = |name: &str| of.linear(&format!("{path}.{name}"));
        let norms = [of.layer_norm(&format!("{path}.norm1"))?, of.layer_norm(&format!("{path}.norm2"))?];
        let [qkv, out, up, down] = [linear("qkv")?, linear("out")?, linear("up")?, linear("down")?];
        Ok(Decoder { norms, qkv, out, up, act: Gelu::new(), down, heads })
    }

    fn attention(&self, x: Tensor<3>, mask: &Tensor<4, Bool>) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let (heads, size) = (self.heads, width / self.heads);
        let qkv = self.qkv.forward(x).reshape([batch, length, 3, heads, size]).permute([2, 0, 3, 1, 4]);
        let part = |i: usize| qkv.clone().narrow(0, i, 1).reshape([batch, heads, length, size]);
        let scores = part(0).matmul(part(1).transpose()).div_scalar((size as f32).sqrt());
        let mask = mask.clone().expand([batch, heads, length, length]);
        let weights = softmax(scores.mask_fill(mask, f32::NEG_INFINITY), 3);
        self.out.forward(weights.matmul(part(2)).swap_dims(1, 2).reshape([batch, length, width]))
    }

    fn forward(&self, x: Tensor<3>, mask: &Tensor<4, Bool>) -> Tensor<3> {
        let x = x.clone() + self.attention(self.norms[0].forward(x), mask);
        let y = self.act.forward(self.up.forward(self.norms[1].forward(x.clone())));
        x + self.down.forward(y)
    }
}

#[derive(Module, Debug)]
struct Gpt {
    words: Embedding,
    places: Embedding,
    blocks: Vec<Decoder>,
    norm: LayerNorm,
    head: Linear,
}

impl Gpt {
    fn new(of: &Layers<'_>, heads: usize) -> Result<Self> {
        Ok(Gpt {
            words: of.embedding("embedding")?,
            places: of.embedding("position")?,
            blocks: of.weights.decoders().iter().map(|path| Decoder::new(of, path, heads)).collect::<Result<_>>()?,
            norm: of.layer_norm("norm")?,
            head: of.linear("head")?,
        })
    }

    fn forward(&self, words: Tensor<2, Int>) -> Tensor<2> {
        let [_, length] = words.dims();
        let device = words.device();
        let places = Tensor::<1, Int>::arange(0..length as i64, &device).reshape([1, length]);
        let mask = Tensor::<2, Bool>::tril_mask([length, length], 0, &device).reshape([1, 1, length, length]);
        let mut x = self.words.forward(words) + self.places.forward(places);
        for block in &self.blocks {
            x = block.forward(x, &mask);
        }
        self.head.forward(self.norm.forward(x)).flatten(0, 1)
    }
}
