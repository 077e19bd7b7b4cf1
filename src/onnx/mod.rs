//! ONNX models: read, planned, converted to mixed precision, imported, exported.

mod convert;
mod edits;
mod keep;
mod model;
mod numbers;
mod painted;
mod pieces;
mod plan;
mod rebuild;
mod schema;
mod tensor;
mod types;
mod values;
mod wire;

pub use convert::{OnnxConvertOptions, OnnxConverted};
pub use model::OnnxModel;
pub use plan::{OnnxPlan, OnnxPlanOptions, OnnxRanges};
pub use tensor::Elem;
