//! Converts an ONNX model to float16, and compares what it computes with float32.
//!
//! `cargo run --release --package precast-graph --example onnx`, or with a model of your own and its input: `-- model.onnx x 2,3,32,32`.

use precast::{policy::GraphPolicy, prelude::*};
use precast_graph::onnx::{OnnxConvertOptions, OnnxModel};

fn main() -> precast::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, input, shape) = match &arguments[..] {
        [path, input, shape] => (path.as_str(), input.as_str(), shape.as_str()),
        _ => (concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/torch-vit.onnx"), "x0", "2,3,32,32"),
    };
    let shape: Vec<usize> = shape.split(',').filter_map(|length| length.parse().ok()).collect();
    let x = Tensor::randn(&shape, &mut Rng::seed(1))?;

    let model = OnnxModel::open(path)?;
    let plan = model.plan(&GraphPolicy::named("onnx")?)?;
    for decision in plan.decisions().iter().filter(|decision| !decision.dtype.is_low()) {
        println!("{}  {decision}", decision.node);
    }
    let low = std::env::temp_dir().join("precast-example-onnx.onnx");
    let converted = plan.convert(&low, &OnnxConvertOptions::new().replace(true), &mut |_| ())?;
    println!("{} casts; {} bytes, {} before", converted.casts, converted.bytes_after, converted.bytes_before);

    let wanted = model.run(&[(input, x.clone())])?;
    let met = OnnxModel::open(&low)?.run(&[(input, x)])?;
    for ((name, wanted), (_, met)) in wanted.iter().zip(&met) {
        let pairs = wanted.to_f64().into_iter().zip(met.to_f64());
        let error = pairs.map(|(wanted, met)| (wanted - met).abs()).fold(0.0, f64::max);
        println!("{name}: float16 differs from float32 by at most {error:.1e}");
    }
    Ok(())
}
