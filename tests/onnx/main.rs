//! ONNX models, imported and run.

mod build;
mod cases;
mod networks;
mod pb;
mod refused;
mod suite;
