//! ONNX models, imported and run.

mod build;
mod callbacks;
mod cases;
#[path = "../../../../tests/common/mod.rs"]
mod common;
mod convert;
mod export;
mod functions;
#[cfg(unix)]
mod killed;
mod mixed;
#[allow(dead_code, reason = "the benches use more of it")]
#[path = "../../../../benches/steps/nets.rs"]
mod nets;
mod networks;
mod pb;
mod reach;
mod records;
mod refused;
mod suite;
mod written;
