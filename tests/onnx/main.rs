//! ONNX models, imported and run.

mod build;
mod cases;
mod convert;
mod networks;
mod pb;
mod refused;
mod suite;
