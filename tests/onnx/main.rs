//! ONNX models, imported and run.

mod build;
mod cases;
mod convert;
mod networks;
mod pb;
mod records;
mod refused;
mod suite;
