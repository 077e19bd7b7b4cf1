//! A form of a loss scale that TensorFlow refuses at run time.

use precast_graph::tensorflow::IntoLossScale;

fn main() {
    let _scale = true.into_loss_scale();
}
