//! Training steps of candle, with networks as its users write them: ops that have a gradient.

use candle_core::{D, DType, Device, IndexOp, Module, Result, Tensor, Var};
use candle_nn::{
    AdamW, BatchNorm, Conv2d, Conv2dConfig, LSTM, LSTMConfig, LayerNorm, Optimizer, RNN, VarBuilder, VarMap, loss, lstm,
};

use super::{
    Kind, Step,
    nets::Task,
    weights::{self, Block, Weights},
};

/// Creates a training step in f32 that multiplies in `low`.
pub fn step(kind: Kind, task: &Task, weights: &Weights, low: DType) -> std::result::Result<Step, String> {
    let mut training = Training::new(kind, task, weights, low).map_err(|e| e.to_string())?;
    Ok(Box::new(move || training.step().map_err(|e| e.to_string())))
}

struct Training {
    net: Box<dyn Module>,
    x: Tensor,
    y: Tensor,
    optimizer: Rule,
}

/// An optimizer. candle's SGD has no momentum.
enum Rule {
    Sgd { vars: Vec<Var>, velocities: Vec<Option<Tensor>> },
    AdamW(AdamW),
}

impl Training {
    fn new(kind: Kind, task: &Task, weights: &Weights, low: DType) -> Result<Self> {
        let of = Layers::new(weights, low)?;
        let net: Box<dyn Module> = match kind {
            Kind::ResNet => Box::new(ResNet::new(&of, weights)?),
            Kind::Mlp => Box::new(Mlp(weights.dense().iter().map(|name| of.linear(name)).collect::<Result<_>>()?)),
            Kind::Gpt { heads } => Box::new(Gpt::new(&of, weights, heads)?),
            Kind::Lstm => Box::new(Lstm::new(&of)?),
        };
        let ids = |x: &precast::Tensor| x.to_f64().into_iter().map(|x| x as u32).collect::<Vec<_>>();
        let (shape, vars) = (task.x.shape(), of.vars.all_vars());
        let x = match task.x.dtype() {
            precast::DType::F32 => {
                let numbers: Vec<f32> = task.x.to_f64().into_iter().map(|x| x as f32).collect();
                Tensor::from_vec(numbers, shape, &Device::Cpu)?
            }
            _ => Tensor::from_vec(ids(&task.x), shape, &Device::Cpu)?,
        };
        let optimizer = match task.adamw {
            true => Rule::AdamW(AdamW::new_lr(vars, 1e-3)?),
            false => Rule::Sgd { velocities: vec![None; vars.len()], vars },
        };
        Ok(Training { net, x, y: Tensor::from_vec(ids(&task.y), task.y.shape(), &Device::Cpu)?, optimizer })
    }

    fn step(&mut self) -> Result<f64> {
        let loss = loss::cross_entropy(&self.net.forward(&self.x)?, &self.y)?;
        match &mut self.optimizer {
            Rule::AdamW(adamw) => adamw.backward_step(&loss)?,
            Rule::Sgd { vars, velocities } => {
                let grads = loss.backward()?;
                for (var, velocity) in vars.iter().zip(velocities) {
                    let Some(grad) = grads.get(var) else { continue };
                    let next = match velocity {
                        Some(velocity) => ((&*velocity * 0.9)? + grad)?,
                        None => grad.clone(),
                    };
                    // Gradients refer to the activations that they were computed from.
                    let next = next.detach();
                    var.set(&(var.as_tensor() - (&next * 0.01)?)?)?;
                    *velocity = Some(next);
                }
            }
        }
        Ok(loss.to_scalar::<f32>()?.into())
    }
}

/// A builder of layers from precast's weights, by its names.
struct Layers {
    vars: VarMap,
    low: DType,
}

impl Layers {
    fn new(weights: &Weights, low: DType) -> Result<Self> {
        let vars = VarMap::new();
        let mut data = vars.data().lock().map_err(candle_core::Error::msg)?;
        for (name, weight) in weights.iter() {
            let var = Var::from_vec(weight.numbers.clone(), weight.shape.as_slice(), &Device::Cpu)?;
            let _ = data.insert(name.to_string(), var);
        }
        drop(data);
        Ok(Layers { vars, low })
    }

    fn get(&self, name: &str) -> Result<Tensor> {
        let data = self.vars.data().lock().map_err(candle_core::Error::msg)?;
        let var = data.get(name).ok_or_else(|| candle_core::Error::msg(format!("precast has no `{name}`")))?;
        Ok(var.as_tensor().clone())
    }

    fn linear(&self, name: &str) -> Result<Linear> {
        let [weight, bias] = [self.get(&format!("{name}.weight"))?, self.get(&format!("{name}.bias"))?];
        Ok(Linear { weight, bias, low: self.low })
    }

    fn layer_norm(&self, name: &str) -> Result<Norm> {
        let norm = LayerNorm::new_no_bias(self.get(&format!("{name}.weight"))?, 1e-5);
        Ok(Norm { norm, bias: self.get(&format!("{name}.bias"))? })
    }

    fn conv_norm(&self, names: &weights::ConvNorm, inputs: usize) -> Result<ConvNorm> {
        let weights::ConvNorm { conv, norm, stride } = names;
        let weight = self.get(&format!("{conv}.weight"))?;
        let (outputs, of_group, kernel, _) = weight.dims4()?;
        let config =
            Conv2dConfig { padding: kernel / 2, stride: *stride, groups: inputs / of_group, ..Default::default() };
        let [scale, bias] = [self.get(&format!("{norm}.weight"))?, self.get(&format!("{norm}.bias"))?];
        let [mean, var] = [Tensor::zeros_like(&scale)?, Tensor::ones_like(&scale)?];
        let norm = BatchNorm::new(outputs, mean, var, scale, bias, 1e-5)?;
        Ok(ConvNorm { conv: Conv2d::new(weight, None, config), norm })
    }
}

/// A dense layer whose product is in `low`: the weight is stored in f32.
struct Linear {
    weight: Tensor,
    bias: Tensor,
    low: DType,
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let product = candle_nn::Linear::new(self.weight.to_dtype(self.low)?, None);
        product.forward(&x.to_dtype(self.low)?)?.to_dtype(DType::F32)?.broadcast_add(&self.bias)
    }
}

struct Mlp(Vec<Linear>);

impl Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.0[0].forward(x)?;
        for layer in &self.0[1..] {
            x = layer.forward(&x.relu()?)?;
        }
        Ok(x)
    }
}

struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm,
}

impl Module for ConvNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.norm.forward_train(&self.conv.forward(x)?)
    }
}

struct Residual {
    parts: Vec<ConvNorm>,
    project: Option<ConvNorm>,
}

impl Module for Residual {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut y = self.parts[0].forward(x)?;
        for part in &self.parts[1..] {
            y = part.forward(&y.relu()?)?;
        }
        match &self.project {
            Some(project) => (y + project.forward(x)?)?.relu(),
            None => (y + x)?.relu(),
        }
    }
}

struct ResNet {
    stem: ConvNorm,
    blocks: Vec<Residual>,
    head: Linear,
}

impl ResNet {
    fn new(of: &Layers, weights: &Weights) -> Result<Self> {
        let (blocks, head) = weights.residual();
        let mut inputs = 64;
        let mut next = |Block { parts, project }: &Block| {
            let before = inputs;
            let parts = parts.iter().map(|names| {
                let part = of.conv_norm(names, inputs)?;
                inputs = part.conv.weight().dim(0)?;
                Ok(part)
            });
            let parts = parts.collect::<Result<_>>()?;
            let project = project.as_ref().map(|names| of.conv_norm(names, before));
            Ok(Residual { parts, project: project.transpose()? })
        };
        let blocks = blocks.iter().map(&mut next).collect::<Result<_>>()?;
        Ok(ResNet { stem: of.conv_norm(&weights::stem(), 3)?, blocks, head: of.linear(&head)? })
    }
}

impl Module for ResNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = max_pool(&max_pool(&self.stem.forward(x)?.relu()?, 2)?, 3)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        self.head.forward(&x.mean((2, 3))?)
    }
}

/// Pools an even axis by a maximum over 3 with a stride of 2 and a padding of 1. candle's `max_pool2d` has a gradient only
/// where kernel and stride are equal. After a ReLU, zeros are as good a padding as -infinity.
fn max_pool(x: &Tensor, axis: usize) -> Result<Tensor> {
    let mut pairs = x.dims().to_vec();
    let half = pairs[axis] / 2;
    pairs[axis] = half + 1;
    pairs.insert(axis + 1, 2);
    let pairs = x.pad_with_zeros(axis, 1, 1)?.reshape(pairs)?;
    let [even, odd] = [0, 1].map(|i| pairs.narrow(axis + 1, i, 1).and_then(|x| x.squeeze(axis + 1)));
    let even = even?;
    let ends = even.narrow(axis, 0, half)?.maximum(&even.narrow(axis, 1, half)?)?;
    ends.maximum(&odd?.narrow(axis, 0, half)?)
}

struct Lstm {
    layers: [LSTM; 2],
    head: Linear,
}

impl Lstm {
    fn new(of: &Layers) -> Result<Self> {
        let head = of.linear("head")?;
        let hidden = head.weight.dim(1)?;
        let builder = VarBuilder::from_varmap(&of.vars, DType::F32, &Device::Cpu).pp("lstm");
        let layer = |layer_idx| lstm(hidden, hidden, LSTMConfig { layer_idx, ..Default::default() }, builder.clone());
        Ok(Lstm { layers: [layer(0)?, layer(1)?], head })
    }
}

impl Module for Lstm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [first, second] = &self.layers;
        let states = second.seq(&first.states_to_tensor(&first.seq(x)?)?)?;
        let last = states.last().ok_or_else(|| candle_core::Error::msg("an empty sequence"))?;
        self.head.forward(last.h())
    }
}

/// A layer norm of ops: the fused one, which candle takes where there is a bias, has no gradient.
struct Norm {
    norm: LayerNorm,
    bias: Tensor,
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.norm.forward(x)?.broadcast_add(&self.bias)
    }
}

struct Decoder {
    norms: [Norm; 2],
    qkv: Linear,
    out: Linear,
    up: Linear,
    down: Linear,
    heads: usize,
}

impl Decoder {
    fn new(of: &Layers, path: &str, heads: usize) -> Result<Self> {
        let linear = |name| of.linear(&format!("{path}.{name}"));
        let norms = [of.layer_norm(&format!("{path}.norm1"))?, of.layer_norm(&format!("{path}.norm2"))?];
        Ok(Decoder { norms, qkv: linear("qkv")?, out: linear("out")?, up: linear("up")?, down: linear("down")?, heads })
    }

    fn attention(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        let size = width / self.heads;
        let qkv = self.qkv.forward(x)?.reshape((batch, length, 3, self.heads, size))?.permute((2, 0, 3, 1, 4))?;
        let part = |i: usize| qkv.i(i)?.to_dtype(self.qkv.low)?.contiguous();
        let scores = part(0)?.matmul(&part(1)?.t()?)?.to_dtype(DType::F32)?;
        let scores = (scores * (size as f64).sqrt().recip())?.broadcast_add(mask)?;
        // `softmax_last_dim` has no gradient.
        let weights = candle_nn::ops::softmax(&scores, D::Minus1)?.to_dtype(self.qkv.low)?;
        let y = weights.matmul(&part(2)?)?.to_dtype(DType::F32)?.transpose(1, 2)?.reshape((batch, length, width))?;
        self.out.forward(&y)
    }

    fn forward(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let x = (x + self.attention(&self.norms[0].forward(x)?, mask)?)?;
        let y = self.up.forward(&self.norms[1].forward(&x)?)?.gelu_erf()?;
        x + self.down.forward(&y)?
    }
}

struct Gpt {
    words: Tensor,
    places: Tensor,
    mask: Tensor,
    blocks: Vec<Decoder>,
    norm: Norm,
    head: Linear,
}

impl Gpt {
    fn new(of: &Layers, weights: &Weights, heads: usize) -> Result<Self> {
        let places = of.get("position.weight")?;
        let length = places.dim(0)?;
        let mask = (0..length * length).map(|i| if i % length > i / length { f32::NEG_INFINITY } else { 0.0 });
        Ok(Gpt {
            words: of.get("embedding.weight")?,
            places,
            mask: Tensor::from_iter(mask, &Device::Cpu)?.reshape((length, length))?,
            blocks: weights.decoders().iter().map(|path| Decoder::new(of, path, heads)).collect::<Result<_>>()?,
            norm: of.layer_norm("norm")?,
            head: of.linear("head")?,
        })
    }
}

impl Module for Gpt {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let width = self.words.dim(1)?;
        let words = candle_nn::Embedding::new(self.words.clone(), width).forward(ids)?;
        let mut x = words.broadcast_add(&self.places)?;
        for block in &self.blocks {
            x = block.forward(&x, &self.mask)?;
        }
        self.head.forward(&self.norm.forward(&x)?)?.flatten_to(1)
    }
}
