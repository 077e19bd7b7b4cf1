//! ONNX models, imported and run.

mod build;
mod cases;
mod convert;
mod export;
#[allow(dead_code, reason = "the benches use more of it")]
#[path = "../../benches/steps/nets.rs"]
mod nets;
mod networks;
#[path = "../common/npy.rs"]
mod npy;
mod pb;
mod refused;
mod suite;
