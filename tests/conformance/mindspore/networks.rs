//! The recorded networks, each built from either of two kits of layers.

use precast::prelude::*;

use crate::mindspore::calls::op;
use crate::mindspore::unfused::{self, Same, param};

/// Kit of layers of a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kit {
    /// MindSpore's layers, op by op.
    Unfused,
    /// The library's own layers, product and bias with one rounding.
    Library,
}

use Kit::Unfused;

fn rng() -> Rng {
    Rng::seed(0)
}

/// Puts a cell at several places: the clones share its parameters.
fn places<C: Cell + Clone, const N: usize>(cell: C) -> [Child; N] {
    let child = Child::new(cell);
    std::array::from_fn(|_| child.clone().erase())
}

/// Defines the layers that differ between the kits: MindSpore's first.
macro_rules! layers {
    ($($name:ident($($size:ident),*) $unfused:expr, $library:expr;)*) => {
        impl Kit { $(
            fn $name(self $(, $size: usize)*) -> Child {
                match self {
                    Unfused => $unfused.into(),
                    Kit::Library => $library.into(),
                }
            }
        )* }
    };
}

layers! {
    conv1d(inputs, outputs, kernel)
        unfused::Conv1d { weight: param(&[outputs, inputs, 1, kernel]), bias: param(&[outputs]) },
        Conv1dSpec::new(inputs, outputs, kernel).padding(precast::Padding::Same).build(&mut rng()).expect("a layer");
    conv3d(inputs, outputs, k)
        unfused::Conv3d { weight: param(&[outputs, inputs, k, k, k]), bias: param(&[outputs]) },
        Conv3d::new(inputs, outputs, k, &mut rng());
    conv1d_transpose(inputs, outputs, kernel)
        unfused::Conv1dTranspose { weight: param(&[inputs, outputs, 1, kernel]) },
        Conv1dTransposeSpec::new(inputs, outputs, kernel).bias(false).build(&mut rng()).expect("a layer");
    conv2d_transpose(inputs, outputs, k)
        unfused::Conv2dTranspose { weight: param(&[inputs, outputs, k, k]), bias: param(&[outputs]) },
        Conv2dTranspose::new(inputs, outputs, k, &mut rng());
    batch_norm2d(channels) unfused::BatchNorm2d::new(channels), BatchNorm2d::new(channels);
    batch_norm3d(channels)
        unfused::BatchNorm3d { bn2d: Child::new(unfused::BatchNorm2d::new(channels)) },
        BatchNorm3d::new(channels);
    layer_norm(len)
        unfused::LayerNorm { gamma: param(&[len]), beta: param(&[len]) },
        LayerNormSpec::new([len]).eps(1e-7).build().expect("a layer");
    group_norm(groups, channels)
        unfused::GroupNorm { gamma: param(&[channels]), beta: param(&[channels]), groups },
        GroupNormSpec::new(groups, channels).build().expect("a layer");
    embedding(entries, len)
        unfused::Embedding { embedding_table: param(&[entries, len]) },
        Embedding::new(entries, len, &mut rng());
    prelu(channels) unfused::PReLU { w: param(&[channels]) }, PReLU::new(channels);
    sigmoid() unfused::Sigmoid {}, Sigmoid;
    relu() unfused::Relu {}, ReLU;
    tanh() unfused::Tanh {}, Tanh;
    gelu() unfused::Gelu {}, GELU { approximate: true };
    rnn(inputs, hidden) unfused::RNNCell::new(inputs, hidden), RNNCell::new(inputs, hidden, &mut rng());
    gru(inputs, hidden) unfused::GRUCell::new(inputs, hidden), GRUCell::new(inputs, hidden, &mut rng());
    lstm(inputs, hidden) unfused::LSTMCell::new(inputs, hidden), LSTMCell::new(inputs, hidden, &mut rng());
}

impl Kit {
    fn dense(self, inputs: usize, outputs: usize) -> Child {
        let [only] = self.tied_dense(inputs, outputs);
        only
    }

    /// Makes one layer at `N` places.
    fn tied_dense<const N: usize>(self, inputs: usize, outputs: usize) -> [Child; N] {
        match self {
            Unfused => places(unfused::Dense::new(inputs, outputs)),
            Kit::Library => places(Dense::new(inputs, outputs, &mut rng())),
        }
    }

    fn batch_norm1d(self, channels: usize) -> Child {
        let [only] = self.tied_batch_norm1d(channels);
        only
    }

    /// Makes one norm at `N` places.
    fn tied_batch_norm1d<const N: usize>(self, channels: usize) -> [Child; N] {
        match self {
            Unfused => places(unfused::BatchNorm1d::new(channels)),
            Kit::Library => places(BatchNorm1d::new(channels)),
        }
    }

    /// Makes a 2-d convolution without bias.
    fn conv2d(self, inputs: usize, outputs: usize, kernel: usize, same: bool) -> Child {
        match self {
            Unfused => unfused::Conv2dBare { weight: param(&[outputs, inputs, kernel, kernel]), same }.into(),
            Kit::Library => {
                let padding = if same { precast::Padding::Same } else { precast::Padding::Valid };
                let spec = Conv2dSpec::new(inputs, outputs, kernel).padding(padding).bias(false);
                spec.build(&mut rng()).expect("a layer").into()
            }
        }
    }

    fn sequential(self, cells: Vec<Child>) -> Child {
        match self {
            Unfused => unfused::SequentialCell(unfused::Same(Sequential::new(cells))).into(),
            Kit::Library => Sequential::new(cells).into(),
        }
    }
}

/// Defines a network of children and own parameters, with one input (`|net, x|`) or several (`|net, [x, h]|`).
macro_rules! network {
    ($(#[$meta:meta])* $name:ident { $($child:ident),* $(; $param:ident)? } |$net:ident, $x:ident| $body:expr) => {
        network!(@struct $(#[$meta])* $name { $($child),* $(; $param)? });
        impl Forward for $name {
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $net = self;
                $body
            }
        }
    };
    ($(#[$meta:meta])* $name:ident { $($child:ident),* $(; $param:ident)? } many |$net:ident, $inputs:ident| $body:expr) => {
        network!(@struct $(#[$meta])* $name { $($child),* $(; $param)? });
        impl Forward for $name {
            fn forward_many(&self, $inputs: &[Tensor]) -> Result<Vec<Tensor>> {
                let $net = self;
                $body
            }
        }
    };
    (@struct $(#[$meta:meta])* $name:ident { $($child:ident),* $(; $param:ident)? }) => {
        $(#[$meta])*
        #[derive(Cell, Debug)]
        pub struct $name {
            $($child: Child,)*
            $($param: Param,)?
        }
    };
}

network! { LeNet5 { conv1, conv2, relu, max_pool2d, flatten, fc1, fc2, fc3 } |net, x| {
    let x = net.max_pool2d.call(&net.relu.call(&net.conv1.call(x)?)?)?;
    let x = net.max_pool2d.call(&net.relu.call(&net.conv2.call(&x)?)?)?;
    let x = net.relu.call(&net.fc1.call(&net.flatten.call(&x)?)?)?;
    let x = net.relu.call(&net.fc2.call(&x)?)?;
    net.fc3.call(&x)
} }

network! { Mlp { fc1, bn, relu, fc2 } |net, x| {
    net.fc2.call(&net.relu.call(&net.bn.call(&net.fc1.call(x)?)?)?)
} }

network! { ResBlock { conv1, bn1, conv2, bn2, down, relu, fc } |net, x| {
    let y = net.relu.call(&net.bn1.call(&net.conv1.call(x)?)?)?;
    let y = net.bn2.call(&net.conv2.call(&y)?)?;
    let y = op([&y, &net.down.call(x)?], |[y, x]| y + x)?;
    net.fc.call(&op([&net.relu.call(&y)?], |[y]| y.mean(&[2, 3], false))?)
} }

network! { Conv1dNet { conv, tanh } |net, x| net.tanh.call(&net.conv.call(x)?) }

network! { Conv3dNet { conv, bn, sig } |net, x| net.sig.call(&net.bn.call(&net.conv.call(x)?)?) }

network! { ConvTNet { t1, t2, relu } |net, x| {
    let x = net.t1.call(x)?.unsqueeze(1)?;
    net.relu.call(&net.t2.call(&x)?)
} }

network! { RnnNet { rnn, gru, lstm, fc } many |net, inputs| {
    let [x, h] = [&inputs[0], &inputs[1]];
    let a = net.rnn.call_many(&[x.clone(), h.clone()])?;
    let b = net.gru.call_many(&[a[0].clone(), h.clone()])?;
    let hc = net.lstm.call_many(&[b[0].clone(), h.clone(), h.clone()])?;
    Ok(vec![net.fc.call(&hc[0])?, hc[1].clone()])
} }

network! { RnnGruNet { rnn, gru, fc } many |net, inputs| {
    let [x, h] = [&inputs[0], &inputs[1]];
    let a = net.rnn.call_many(&[x.clone(), h.clone()])?;
    let b = net.gru.call_many(&[a[0].clone(), h.clone()])?;
    Ok(vec![net.fc.call(&b[0])?, b[0].clone()])
} }

network! {
    /// A single cell.
    RecurrentNet { cell } many |net, inputs| net.cell.call_many(inputs)
}

network! { LstmNet { cell } many |net, inputs| net.cell.call_many(inputs) }

network! { Block { ln1, q, k, v, ln2, gelu, o; w } |net, x| {
    let h = net.ln1.call(x)?;
    let (q, k, v) = (net.q.call(&h)?, net.k.call(&h)?, net.v.call(&h)?);
    let k = k.transpose(-1, -2)?;
    let scores = op([&op([&q, &k], |[q, k]| q.batch_matmul(k))?], |[scores]| scores * 0.5)?;
    let attended = op([&softmax(&scores)?, &v], |[scores, v]| scores.batch_matmul(v))?;
    let x = op([x, &attended], |[x, y]| x + y)?;
    let h = net.ln2.call(&x)?.reshape(&[-1, 4])?;
    let h = net.o.call(&net.gelu.call(&op([&h, &net.w.tensor()], |[h, w]| h.matmul(w))?)?)?;
    op([&x, &h.reshape(&[2, 3, 4])?], |[x, h]| x + h)
} }

network! { PreluNet { fc, prelu; a } |net, x| {
    op([&net.prelu.call(&net.fc.call(x)?)?, &net.a.tensor()], |[x, a]| x.prelu(a))
} }

network! { GnNet { conv, gn, inorm, relu } |net, x| {
    net.relu.call(&net.inorm.call(&net.gn.call(&net.conv.call(x)?)?)?)
} }

network! { EmbNet { emb, fc } |net, ids| {
    net.fc.call(&op([&net.emb.call(ids)?], |[x]| x.mean(&[1], false))?)
} }

network! { SeqNet { seq, head } |net, x| net.head.call(&net.seq.call(x)?) }

network! { SeqSharedNet { seq } |net, x| net.seq.call(x) }

#[derive(Cell, Debug)]
pub struct CellListNet {
    ls: Child<CellList>,
    tanh: Child,
}

impl Forward for CellListNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.ls.with(x, |list, x| list.iter().try_fold(x, |x, cell| cell.call(&x)))?;
        self.tanh.call(&x)
    }
}

network! { SharedNet { d, e, bn, bn_b, tanh } |net, x| {
    let x = net.tanh.call(&net.bn.call(&net.d.call(x)?)?)?;
    let x = net.tanh.call(&net.bn_b.call(&net.e.call(&x)?)?)?;
    net.d.call(&x)
} }

network! { Sub { d, bn } |net, x| net.bn.call(&net.d.call(x)?) }

network! { SharedDeepNet { a, b, c } |net, x| net.c.call(&net.b.call(&net.a.call(x)?)?) }

network! { SubclassNet { d, bn, relu } |net, x| net.relu.call(&net.bn.call(&net.d.call(x)?)?) }

fn relu(x: &Tensor) -> Result<Tensor> {
    op([x], |[x]| x.relu())
}

fn softmax(x: &Tensor) -> Result<Tensor> {
    op([x], |[x]| x.softmax(-1))
}

fn exp(x: &Tensor) -> Result<Tensor> {
    op([x], |[x]| x.exp())
}

network! { OpsNet { ; w } |net, x| {
    let w = net.w.tensor();
    let product = op([x, &w], |[x, w]| x.matmul(w))?;
    let d = op([&exp(&relu(&product)?)?, x], |[y, x]| y.add(x))?;
    let g = softmax(&relu(&op([&d, &w], |[d, w]| d.matmul_ext(w))?)?)?;
    let g = op([&g], |[g]| g.powf(2.0))?;
    op([&g, x], |[g, x]| Tensor::concat(&[g, x], 1))
} }

network! { OpsNet2 { ; w } many |net, inputs| {
    let w = net.w.tensor();
    let matmul = |x: &Tensor| op([x, &w], |[x, w]| x.matmul_ext(w));
    let a = matmul(&inputs[0])?;
    let b = op([&op([&exp(&a)?], |[a]| a + 1.0)?], |[b]| b.log())?;
    let d = op([&b, &op([&a], |[a]| a.tanh())?], |[b, a]| b * a)?;
    let e = op([&op([&d], |[d]| d.abs())?], |[d]| d.sqrt())?;
    Ok(vec![d, op([&e], |[e]| e.sum(&[-1], false))?, softmax(&e)?, matmul(&a)?])
} }

network! {
    /// The scale is an optional third input; its nested result is also available [typed](TupleNet::run).
    TupleNet { fc } many |net, inputs| {
        let (y, (i, n, z)) = net.run(&inputs[0], &inputs[1], inputs.get(2))?;
        Ok(vec![y, i, n, z])
    }
}

impl TupleNet {
    pub fn new(kit: Kit) -> Self {
        TupleNet { fc: kit.dense(4, 3) }
    }

    /// Returns a tensor and a tuple of an index, the integer input, and the same cast.
    #[allow(clippy::type_complexity)]
    pub fn run(&self, x: &Tensor, n: &Tensor, scale: Option<&Tensor>) -> Result<(Tensor, (Tensor, Tensor, Tensor))> {
        let y = self.fc.call(x)?;
        let i = y.argmax(-1, false)?;
        let z = n.cast(DType::F32);
        let y = match scale {
            Some(scale) => op([&y, scale], |[y, scale]| y * scale)?,
            None => y,
        };
        Ok((y, (i, n.clone(), z)))
    }
}

network! { ConstNet { fc } many |net, inputs| {
    let c = Tensor::from_f64(&[0.1, 0.2, 0.3, 0.4], &[4], DType::F32)?;
    let y = op([&net.fc.call(&inputs[0])?, &c], |[y, c]| y + c)?;
    let z = op([&inputs[0], &c], |[x, c]| x * c)?;
    Ok(vec![y, z, inputs[0].clone()])
} }

network! {
    /// The second ReLU is inside an `if` in MindSpore's source, which prevents casts from being merged there.
    IfNet { fc1, fc2 } |net, x| net.fc2.call(&relu(&relu(&net.fc1.call(x)?)?)?)
}

network! { InnerFuncNet { fc1, fc2 } |net, x| net.inner(&net.fc1.call(x)?) }

impl InnerFuncNet {
    fn inner(&self, x: &Tensor) -> Result<Tensor> {
        exp(&relu(&self.fc2.call(x)?)?)
    }
}

network! { ChainOps { ; w } |net, x| {
    let matmul = |x: &Tensor| op([x, &net.w.tensor()], |[x, w]| x.matmul(w));
    let c = matmul(&relu(&matmul(x)?)?)?;
    op([&exp(&c)?, &relu(&c)?], |[a, b]| a + b)
} }

network! { IdNet { } |_net, x| Ok(x.clone()) }

network! { DenseActNet { fc, r#do } |net, x| net.r#do.call(&net.fc.call(x)?) }

network! { TFNet { fc1, blk, fc2 } |net, x| net.fc2.call(&net.blk.call(&net.fc1.call(x)?)?) }

network! { TFInnerWins { blk, fc } |net, x| net.fc.call(&net.blk.call(x)?) }

network! { InnerAdd { leaf; w } |net, x| {
    let y = op([&net.leaf.call(x)?, &net.w.tensor()], |[y, w]| y * w)?;
    op([&y, x], |[y, x]| y + x)
} }

network! { TFMixed { a, b, ln } |net, x| net.ln.call(&net.b.call(&net.a.call(x)?)?) }

/// Builds the network of a name, without `to_float` unless the name requests it; `None` if there is no such network.
pub fn build(name: &str, kit: Kit) -> Option<Child> {
    if let Some(place) = name.strip_prefix("tofloat_").and_then(|rest| rest.rsplit_once('_'))
        && let Some(net) = with_to_float(place, kit)
    {
        return Some(net);
    }
    if let Some(net) = recurrent(name, kit) {
        return Some(net);
    }
    let dense = |inputs, outputs| kit.dense(inputs, outputs);
    let w = || param(&[4, 4]);
    Some(match name {
        "lenet5" => LeNet5 {
            conv1: kit.conv2d(1, 6, 5, false),
            conv2: kit.conv2d(6, 16, 5, false),
            relu: kit.relu(),
            max_pool2d: MaxPool2d::new(2).into(),
            flatten: Flatten::default().into(),
            fc1: dense(400, 120),
            fc2: dense(120, 84),
            fc3: dense(84, 10),
        }
        .into(),
        "mlp_bn1d" | "mlp_f16_input" => {
            Mlp { fc1: dense(4, 6), bn: kit.batch_norm1d(6), relu: kit.relu(), fc2: dense(6, 3) }.into()
        }
        "resblock" => ResBlock {
            conv1: kit.conv2d(2, 4, 3, true),
            bn1: kit.batch_norm2d(4),
            conv2: kit.conv2d(4, 4, 3, true),
            bn2: kit.batch_norm2d(4),
            down: kit.conv2d(2, 4, 1, true),
            relu: kit.relu(),
            fc: dense(4, 3),
        }
        .into(),
        "conv1d" => Conv1dNet { conv: kit.conv1d(2, 3, 3), tanh: kit.tanh() }.into(),
        "conv3d" => Conv3dNet { conv: kit.conv3d(1, 2, 2), bn: kit.batch_norm3d(2), sig: kit.sigmoid() }.into(),
        "convtranspose" => {
            ConvTNet { t1: kit.conv1d_transpose(2, 2, 3), t2: kit.conv2d_transpose(1, 2, 3), relu: kit.relu() }.into()
        }
        "rnn_cells" => RnnNet { rnn: kit.rnn(3, 4), gru: kit.gru(4, 4), lstm: kit.lstm(4, 4), fc: dense(4, 2) }.into(),
        "rnn_gru_cells" => RnnGruNet { rnn: kit.rnn(3, 4), gru: kit.gru(4, 4), fc: dense(4, 2) }.into(),
        "transformer_block" => Block {
            ln1: kit.layer_norm(4),
            q: dense(4, 4),
            k: dense(4, 4),
            v: dense(4, 4),
            ln2: kit.layer_norm(4),
            gelu: kit.gelu(),
            o: dense(4, 4),
            w: w(),
        }
        .into(),
        "prelu" => PreluNet { fc: dense(4, 4), prelu: kit.prelu(4), a: param(&[4]) }.into(),
        "groupnorm" => GnNet {
            conv: kit.conv2d(2, 4, 1, true),
            gn: kit.group_norm(2, 4),
            inorm: Identity.into(),
            relu: kit.relu(),
        }
        .into(),
        "embedding_dense" => EmbNet { emb: kit.embedding(7, 4), fc: dense(4, 3) }.into(),
        "nested_sequential" => {
            let inner = vec![kit.conv2d(2, 2, 1, true), kit.batch_norm2d(2), kit.relu()];
            let seq = vec![kit.conv2d(1, 2, 3, true), kit.batch_norm2d(2), kit.relu(), kit.sequential(inner)];
            let head = vec![Flatten::default().into(), dense(32, 3)];
            SeqNet { seq: kit.sequential(seq), head: kit.sequential(head) }.into()
        }
        "sequential_repeated_cell" => {
            let cells = vec![dense(4, 4), kit.batch_norm1d(4), kit.tanh(), dense(4, 4), kit.tanh()];
            SeqSharedNet { seq: kit.sequential(cells) }.into()
        }
        "celllist" => {
            let ls = CellList::new(vec![dense(4, 4), kit.batch_norm1d(4), dense(4, 4)]);
            CellListNet { ls: Child::new(ls), tanh: kit.tanh() }.into()
        }
        "shared_cells_same_parent" => {
            let ([d, e], [bn, bn_b]) = (kit.tied_dense(4, 4), kit.tied_batch_norm1d(4));
            SharedNet { d, e, bn, bn_b, tanh: kit.tanh() }.into()
        }
        "shared_cells_two_parents" => {
            let ([d, d_b], [bn, bn_b, bn_c]) = (kit.tied_dense(4, 4), kit.tied_batch_norm1d(4));
            let half = |d, bn| kit.sequential(vec![Sub { d, bn }.into(), kit.tanh()]);
            SharedDeepNet { a: half(d, bn), b: half(d_b, bn_b), c: Sub { d: dense(4, 4), bn: bn_c }.into() }.into()
        }
        "subclasses" => SubclassNet {
            d: unfused::MyDense { inner: Same(unfused::Dense::new(4, 4)) }.into(),
            bn: unfused::MyBN { inner: Same(unfused::BatchNorm1d::new(4)) }.into(),
            relu: kit.relu(),
        }
        .into(),
        "ops_primitives" => OpsNet { w: w() }.into(),
        "ops_functional" => OpsNet2 { w: w() }.into(),
        "tuple_output" | "tuple_output_kwarg" => TupleNet::new(kit).into(),
        "const_tensor" => ConstNet { fc: dense(4, 4) }.into(),
        "if_control_flow" => IfNet { fc1: dense(4, 4), fc2: dense(4, 4) }.into(),
        "inner_method" => InnerFuncNet { fc1: dense(4, 4), fc2: dense(4, 4) }.into(),
        "chain_ops" => ChainOps { w: w() }.into(),
        "identity" | "identity_f16_input" => IdNet {}.into(),
        "dense_act_3d" => {
            let activation = Some(Child::new(unfused::Sigmoid {}));
            // The library's Dense takes no activation.
            let fc = unfused::Dense { activation, ..unfused::Dense::new(4, 3) }.into();
            DenseActNet { fc, r#do: DropoutSpec::new(0.5).build(&mut rng()).expect("a valid rate").into() }.into()
        }
        "root_dense" => dense(4, 3),
        "root_batchnorm" => kit.batch_norm1d(4),
        "root_layernorm" => kit.layer_norm(4),
        "root_sequential" => kit.sequential(vec![dense(4, 4), kit.batch_norm1d(4), kit.relu(), dense(4, 2)]),
        "root_relu" => kit.relu(),
        "tofloat_mixed" => {
            let part = || Child::of(InnerAdd { leaf: dense(4, 4), w: param(&[4]) });
            TFMixed { a: part().to_float(DType::F16).ok()?, b: part(), ln: kit.layer_norm(4) }.into()
        }
        "tofloat_inner_after_container" => {
            let last = dense(4, 4).to_float(DType::F32).ok()?;
            let blk = kit.sequential(vec![dense(4, 4), kit.tanh(), last]).to_float(DType::F16).ok()?;
            TFInnerWins { blk, fc: dense(4, 3) }.into()
        }
        _ => return None,
    })
}

/// Builds `<class of the cell>_<inputs>_<hidden>`.
fn recurrent(name: &str, kit: Kit) -> Option<Child> {
    let (kind, sizes) = name.split_once('_')?;
    let (inputs, hidden) = sizes.split_once('_')?;
    let (inputs, hidden) = (inputs.parse().ok()?, hidden.parse().ok()?);
    Some(match kind {
        "RNNCell" => RecurrentNet { cell: kit.rnn(inputs, hidden) }.into(),
        "GRUCell" => RecurrentNet { cell: kit.gru(inputs, hidden) }.into(),
        "LSTMCell" => LstmNet { cell: kit.lstm(inputs, hidden) }.into(),
        _ => return None,
    })
}

/// Builds `tofloat_<place>_<dtype>`: a request at the first layer, a container, the norm inside it, or the root.
fn with_to_float((place, dtype): (&str, &str), kit: Kit) -> Option<Child> {
    let dtype = match dtype {
        "fp16" => DType::F16,
        "fp32" => DType::F32,
        "bf16" => DType::Bf16,
        _ => return None,
    };
    let asked = |child: Child, here: &str| if place == here { child.to_float(dtype).ok() } else { Some(child) };
    if !["leaf", "container", "bn", "root"].contains(&place) {
        return None;
    }
    let blk = vec![kit.dense(4, 4), asked(kit.batch_norm1d(4), "bn")?, kit.relu()];
    let net = TFNet {
        fc1: asked(kit.dense(4, 4), "leaf")?,
        blk: asked(kit.sequential(blk), "container")?,
        fc2: kit.dense(4, 3),
    };
    asked(net.into(), "root")
}
