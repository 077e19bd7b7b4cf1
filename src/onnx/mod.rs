//! ONNX models: read, planned, converted to mixed precision, imported, exported.

mod import;
mod model;
mod tensor;
mod wire;

pub use import::{Fixed, ImportOptions, OnnxNetwork};
pub use model::OnnxModel;
pub use tensor::Elem;
