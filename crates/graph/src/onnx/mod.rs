//! ONNX models: read, planned, converted to mixed precision, imported, exported.
//!
//! An imported model is a network like any other: it runs, trains, has plans, and can be recorded as a graph.
//!
//! ```
//! use precast::prelude::*;
//! use precast_graph::{Graph, onnx::{ImportOptions, OnnxModel}};
//! let model = OnnxModel::open("tests/onnx/data/exports/resnet-script/model.onnx")?;
//! let mut net = model.import(&ImportOptions::new())?;
//! let x = Tensor::ones(&[2, 3, 32, 32], DType::F32);
//! assert_eq!(net.call(&x)?.shape(), [2, 10]);
//!
//! let graph = Graph::trace(&net, &[x.clone()])?; // for a batch of any size
//! assert_eq!(graph.run(&[x.clone()])?[0].to_f64(), net.call(&x)?.to_f64());
//!
//! let applied = Policy::named("o2-bf16")?.plan(&net)?.apply(&mut net)?;
//! let mut optimizer = Sgd::new(net.params(), 0.05);
//! optimizer.update(&net.call(&x)?.square()?.mean_all()?.backward()?)?;
//! applied.undo(&mut net)?;
//! # Ok::<(), precast::Error>(())
//! ```

mod convert;
mod drawn;
mod edits;
mod exact;
mod export;
mod fact;
mod facts;
mod graph;
mod import;
mod inline;
mod keep;
mod model;
mod numbers;
mod painted;
mod pieces;
mod plan;
mod ranges;
mod reasons;
mod rebuild;
mod schema;
mod stored;
mod sums;
mod tensor;
mod types;
mod values;
mod wire;

pub use convert::{OnnxConvertOptions, OnnxConverted};
pub use export::{ExportOptions, export, export_bytes};
pub use import::{Fixed, ImportOptions, OnnxNetwork};
pub use model::OnnxModel;
pub use plan::{OnnxPlan, OnnxPlanOptions};
pub use ranges::OnnxRanges;
pub use tensor::Elem;
