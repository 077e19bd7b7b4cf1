//! The initial weights of precast's networks, for the same networks of its peers.

use std::collections::BTreeMap;

use precast::prelude::*;

/// A weight with its shape.
pub struct Weight {
    pub shape: Vec<usize>,
    pub numbers: Vec<f32>,
}

/// Weights by precast's names.
pub struct Weights(BTreeMap<String, Weight>);

/// Names of a convolution and of the norm after it, and the stride.
pub struct ConvNorm {
    pub conv: String,
    pub norm: String,
    pub stride: usize,
}

/// Layers of a residual block.
pub struct Block {
    pub parts: Vec<ConvNorm>,
    pub project: Option<ConvNorm>,
}

/// Returns the first layers of a ResNet.
pub fn stem() -> ConvNorm {
    ConvNorm { conv: "0".into(), norm: "1".into(), stride: 2 }
}

impl Weights {
    pub fn of(net: &Child) -> Result<Self> {
        let weights = net.params().into_iter().map(|(name, param)| {
            let value = param.value();
            Ok((name, Weight { shape: value.shape().to_vec(), numbers: value.to_vec()? }))
        });
        Ok(Weights(weights.collect::<Result<_>>()?))
    }

    pub fn get(&self, name: &str) -> std::result::Result<&Weight, String> {
        self.0.get(name).ok_or_else(|| format!("precast has no `{name}`"))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Weight)> {
        self.0.iter().map(|(name, weight)| (name.as_str(), weight))
    }

    fn has(&self, name: &str) -> bool {
        self.get(&format!("{name}.weight")).is_ok()
    }

    /// Returns the names of the layers of an MLP, which have a ReLU between them.
    pub fn dense(&self) -> Vec<String> {
        (0..).step_by(2).map(|i| i.to_string()).take_while(|name| self.has(name)).collect()
    }

    /// Returns the names of the blocks of a GPT.
    pub fn decoders(&self) -> Vec<String> {
        (0..).map(|i| format!("blocks.{i}")).take_while(|name| self.has(&format!("{name}.qkv"))).collect()
    }

    /// Returns the blocks of a ResNet, which follow the four layers of its stem, and the name of its head.
    pub fn residual(&self) -> (Vec<Block>, String) {
        let mut blocks = Vec::new();
        let mut i = 4;
        loop {
            let part =
                |conv, norm, stride| ConvNorm { conv: format!("{i}.{conv}"), norm: format!("{i}.{norm}"), stride };
            let project = self.has(&format!("{i}.project.0"));
            // Stages after the first begin with a projection, and halve each side.
            let stride = if project && i > 4 { 2 } else { 1 };
            let parts = if self.has(&format!("{i}.narrow")) {
                vec![part("narrow", "norm1", 1), part("conv", "norm2", stride), part("widen", "norm3", 1)]
            } else if self.has(&format!("{i}.conv1")) {
                vec![part("conv1", "norm1", stride), part("conv2", "norm2", 1)]
            } else {
                // A pool and a reshape are before the head.
                return (blocks, (i + 2).to_string());
            };
            blocks.push(Block { parts, project: project.then(|| part("project.0", "project.1", stride)) });
            i += 1;
        }
    }
}
