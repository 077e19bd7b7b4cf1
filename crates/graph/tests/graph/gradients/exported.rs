//! Every op as an ONNX model: exported, imported again and run.

use std::collections::{BTreeMap, BTreeSet};

use precast::{DType, Op, Tensor, no_grad};
use precast_graph::{
    Graph,
    onnx::{ExportOptions, ImportOptions, OnnxModel, export_bytes},
};

use super::{all_rows, inputs::CASES, row::Run};
use crate::common::npy::npy;

/// Ops that no model of ONNX can have.
const REFUSED: &[Op] = &[Op::Dropout, Op::Erfinv, Op::Erfc, Op::CtcLoss, Op::MultilabelMarginLoss];

/// Returns the tolerance, in epsilons of the dtype relative to the largest number: a low op rounds once.
fn epsilons(dtype: DType) -> f64 {
    if dtype.is_low() { 1.01 } else { 64.0 }
}

/// Returns why a call differs from its model, if it does; an error with `refused` if it has none.
fn differs(inputs: &[Tensor], run: &Run, dtype: DType, options: &ExportOptions) -> Result<(), String> {
    let of = |x: &Tensor| if x.dtype().is_float() { x.cast(dtype) } else { x.clone() };
    let inputs: Vec<Tensor> = inputs.iter().map(of).collect();
    let graph = Graph::trace_fn(&Default::default(), &inputs, |x| Ok(vec![run(x)?])).map_err(|e| e.to_string())?;
    let bytes = export_bytes(&graph, options).map_err(|e| format!("refused: {e}"))?;
    let model = OnnxModel::from_bytes(bytes).map_err(|e| format!("read: {e}"))?;
    let network = model.import(&ImportOptions::new()).map_err(|e| format!("import: {e}\n{graph}"))?;
    let wanted = graph.run(&inputs).map_err(|e| e.to_string())?.swap_remove(0);
    let met = no_grad(|| network.call_many(&inputs));
    if met.as_ref().is_err_and(|e| inputs[0].is_empty() && e.to_string().contains("cannot be resized")) {
        return Ok(());
    }
    let met = met.map_err(|e| format!("run: {e}\n{graph}"))?.swap_remove(0);
    if (wanted.dtype(), wanted.shape()) != (met.dtype(), met.shape()) {
        return Err(format!("{met:?}, not {wanted:?}\n{graph}"));
    }
    let (wanted, met) = (wanted.to_f64(), met.to_f64());
    let largest = wanted.iter().filter(|x| x.is_finite()).fold(1e-3f64, |most, x| most.max(x.abs()));
    let near = |(a, b): (&f64, &f64)| {
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= epsilons(dtype) * dtype.epsilon() * largest
    };
    match wanted.iter().zip(&met).find(|pair| !near(*pair)) {
        Some((wanted, met)) => Err(format!("{met}, not {wanted}\n{graph}")),
        None => Ok(()),
    }
}

/// Runs every case of every row, and returns the failures and, by op, whether any case was exported.
fn all(dtype: DType, options: &ExportOptions) -> (Vec<String>, BTreeMap<Op, bool>, BTreeSet<String>) {
    let (mut failures, mut exported, mut refusals) = (vec![], BTreeMap::new(), BTreeSet::new());
    for row in &all_rows() {
        for number in 0..CASES {
            let of_row = exported.entry(row.op).or_insert(false);
            let failure = row.failure_in(number, |inputs, run, _| differs(inputs, run, dtype, options));
            match failure {
                None => *of_row = true,
                Some(words) if words.contains("refused: ") => {
                    let (_, why) = words.split_once("refused: ").expect("it is there");
                    refusals.insert(format!("{}: {why}", row.op));
                }
                Some(words) => failures.push(words),
            }
        }
    }
    (failures, exported, refusals)
}

fn check(dtype: DType, options: &ExportOptions) {
    check_but(dtype, options, REFUSED);
}

fn check_but(dtype: DType, options: &ExportOptions, but: &[Op]) {
    let (failures, exported, refusals) = all(dtype, options);
    if std::env::var("PRECAST_SHOW").is_ok() {
        for words in &refusals {
            println!("{words}");
        }
        println!("{} of {} ops", exported.values().filter(|is| **is).count(), exported.len());
        println!("{} failures", failures.len());
        let mut met = BTreeMap::<&str, usize>::new();
        for words in &failures {
            let op = words.split(' ').next().unwrap_or("");
            let count = met.entry(op).or_default();
            *count += 1;
            if *count == 1 {
                println!("{words}");
            }
        }
        println!("{met:?}");
    }
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
    let refused: Vec<Op> = exported.iter().filter(|(_, is)| !**is).map(|(op, _)| *op).collect();
    assert_eq!(refused, but);
}

#[test]
fn every_op_is_exported_in_float32() {
    check(DType::F32, &ExportOptions::new());
}

#[test]
fn every_op_is_exported_in_float64() {
    check(DType::F64, &ExportOptions::new());
}

#[test]
fn every_op_is_exported_in_bfloat16() {
    check(DType::Bf16, &ExportOptions::new());
}

#[test]
fn every_op_is_exported_in_explicit_float16() {
    check(DType::F16, &ExportOptions::new().explicit(true));
}

#[test]
fn every_op_is_exported_for_the_first_opset_and_for_the_last() {
    // Sampling and sums at indices came with opset 16.
    let later = [Op::ScatterAdd, Op::GridSampler2d, Op::GridSampler3d, Op::IndexAdd];
    let mut but = [REFUSED, &later].concat();
    but.sort_unstable();
    check_but(DType::F32, &ExportOptions::new().opset(13), &but);
    check(DType::F16, &ExportOptions::new().opset(24));
}

/// Writes a model of each op for some of its cases into the folder `PRECAST_ONNX_EXPORTED`: `cargo xtask onnx --exports`
/// runs them in onnxruntime.
#[test]
#[ignore = "writes files for `cargo xtask onnx`"]
fn ops_for_onnxruntime() {
    let folder = std::env::var("PRECAST_ONNX_EXPORTED").expect("PRECAST_ONNX_EXPORTED names a folder");
    for (place, row) in all_rows().iter().enumerate() {
        for (number, low) in
            [(4, None), (7, None), (10, None), (13, None), (10, Some(DType::F16)), (13, Some(DType::Bf16))]
        {
            row.failure_in(number, |inputs, run, _| {
                let kind = low.map_or("f32", |low| low.name());
                let of = |x: &Tensor| if x.dtype().is_float() { x.cast(low.unwrap_or(DType::F32)) } else { x.clone() };
                let inputs: Vec<Tensor> = inputs.iter().map(of).collect();
                // Runtimes take no bfloat16 from Python, so each input comes as float32.
                let wide: Vec<Tensor> = inputs
                    .iter()
                    .map(|x| if low.is_some() && x.dtype().is_float() { x.cast(DType::F32) } else { x.clone() })
                    .collect();
                let call = |x: &[Tensor]| {
                    let of = |x: &Tensor| match low {
                        Some(low) if x.dtype().is_float() => x.cast(low),
                        _ => x.clone(),
                    };
                    let y = run(&x.iter().map(of).collect::<Vec<_>>())?;
                    Ok(vec![if y.dtype().is_low() { y.cast(DType::F32) } else { y }])
                };
                let graph = Graph::trace_fn(&Default::default(), &wide, call).map_err(|e| e.to_string())?;
                let at = std::path::Path::new(&folder).join(format!("op-{}-{place}-{number}-{kind}", row.op));
                let options = ExportOptions::new().explicit(low.is_some());
                let Ok(bytes) = export_bytes(&graph, &options) else { return Ok(()) };
                std::fs::create_dir_all(&at).expect("a folder");
                let name = if low.is_some() { "explicit.onnx" } else { "model.onnx" };
                std::fs::write(at.join(name), bytes).expect("a file");
                wide.iter().enumerate().for_each(|(i, x)| npy(&at.join(format!("input_{i}.npy")), x));
                npy(&at.join("output_0.npy"), &graph.run(&wide).map_err(|e| e.to_string())?[0]);
                Ok(())
            });
        }
    }
}
