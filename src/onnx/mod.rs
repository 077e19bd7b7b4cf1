//! ONNX models: read, planned, converted to mixed precision, imported, exported.

mod convert;
mod edits;
mod import;
mod keep;
mod model;
mod numbers;
mod painted;
mod pieces;
mod plan;
mod ranges;
mod rebuild;
mod schema;
mod tensor;
mod types;
mod values;
mod wire;

pub use convert::{OnnxConvertOptions, OnnxConverted};
pub use import::{Fixed, ImportOptions, OnnxNetwork};
pub use model::OnnxModel;
pub use plan::{OnnxPlan, OnnxPlanOptions};
pub use ranges::OnnxRanges;
pub use tensor::Elem;
