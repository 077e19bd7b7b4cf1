//! ONNX models: read, planned, converted to mixed precision, imported, exported.

mod model;
mod tensor;
mod wire;

pub use model::OnnxModel;
pub use tensor::Elem;
