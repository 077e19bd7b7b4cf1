//! Plausible mistakes that cargo-mutants cannot make, in kernels, roundings and tapes, and those of several lines; and in
//! training runs, on which it is not run.

/// A mistake: in `file` the first text of each change, which occurs there once, is replaced by the second.
pub struct Mutation {
    /// Short description of the mistake.
    pub name: &'static str,
    pub file: &'static str,
    pub changes: &'static [(&'static str, &'static str)],
    /// Tests likely to notice, run first: `target::module`, or `lib` for the tests inside the library.
    pub first: &'static [&'static str],
}

/// Makes a row of the table.
const fn mutation(
    name: &'static str,
    file: &'static str,
    changes: &'static [(&'static str, &'static str)],
    first: &'static [&'static str],
) -> Mutation {
    Mutation { name, file, changes, first }
}

pub const MUTATIONS: &[Mutation] = &[
    // Dtype of an op.
    mutation(
        "f16 and bf16 meet in f16",
        "crates/base/src/dtype.rs",
        &[("std::cmp::Ordering::Equal => DType::F32,", "std::cmp::Ordering::Equal => DType::F16,")],
        &["lib", "conformance::torch"],
    ),
    // Ends of regions.
    mutation(
        "a region stays after a panic",
        "crates/tensor/src/tensor/context/mod.rs",
        &[(
            "            Of::Region => drop(context.regions.remove(number)),",
            "            Of::Region if std::thread::panicking() => {}\n            Of::Region => drop(context.regions.remove(number)),",
        )],
        &["lib", "plan::regions"],
    ),
    mutation(
        "a region stays after an error",
        "src/cell/call.rs",
        &[(
            "body(inputs.map(&mut cast_in)).map(|outputs| outputs.map(&mut cast_out))",
            "let outputs = body(inputs.map(&mut cast_in));\n                \
             if outputs.is_err() {\n                    std::mem::forget(_inside);\n                }\n                \
             outputs.map(|outputs| outputs.map(&mut cast_out))",
        )],
        &["policy::levels"],
    ),
    mutation(
        "a region reaches the backward pass",
        "crates/tensor/src/tensor/backward.rs",
        &[("let _off = context::enter(Frame::Off);", "")],
        &["plan::custom_ops"],
    ),
    // Parameters.
    mutation(
        "a master is rounded at each update",
        "crates/tensor/src/tensor/param.rs",
        &[("*master = full.cast(DType::F32);", "*master = full.cast(state.value.dtype()).cast(DType::F32);")],
        &["train::decorate"],
    ),
    mutation(
        "gradients of low parameters are summed in 16 bit",
        "crates/tensor/src/tensor/backward.rs",
        &[(
            "Some(before) if grad.dtype().is_low() && !widened.nodes.contains(id) => {",
            "Some(before) if grad.dtype() == DType::Bool => {",
        )],
        &["train::decorate"],
    ),
    // The loss scale and the step.
    mutation(
        "a skipped step leaves running statistics moved",
        "src/scale/step.rs",
        &[
            ("grads.doubt();\n        self.votes.skipped", "self.votes.skipped"),
            ("votes.skipped.iter().for_each(|pass| pass.take_back());", ""),
        ],
        &["training::skipped_steps"],
    ),
    mutation(
        "a change that is taken back takes later ones along",
        "crates/tensor/src/tensor/param.rs",
        &[("filter(|change| change.pass != Some(pass))", "filter(|_| false)")],
        &["training::skipped_steps"],
    ),
    mutation(
        "AdamW's decay goes through the gradient",
        "src/optim/adam.rs",
        &[("true => (0.0, 1.0 - step.lr * step.weight_decay),", "true => (step.weight_decay, 1.0),")],
        &["train::optim"],
    ),
    mutation(
        "a recomputed cell ends the region of its forward pass",
        "src/cell/recompute.rs",
        &[(
            "    let (outputs, recorded) = recording::record_for_good(|| body(inputs));",
            "    let _off = precision::enter(Frame::Off);\n    let (outputs, recorded) = recording::record_for_good(|| body(inputs));",
        )],
        &["plan::recompute"],
    ),
    mutation(
        "a recomputed widening keeps its way past the segment",
        "src/cell/recompute.rs",
        &[("Some(narrow) => y.widening_of(of(narrow)),", "Some(_) => of(&y),")],
        &["plan::recompute"],
    ),
    mutation(
        "gradients of weights in f32 are computed from rounded activations",
        "crates/tensor/src/ops/weight_grads.rs",
        &[("    forward.saved[0] = x.clone();\n", "    let _ = x;\n")],
        &["plan::weight_grads"],
    ),
    mutation(
        "f16 without a loss scale is not noticed",
        "crates/tensor/src/tensor/backward.rs",
        &[("grads.came_through_f16(*id);", "")],
        &["training::underflow"],
    ),
    // Numbers.
    mutation(
        "f64 is rounded twice",
        "crates/kernels/src/cast/mod.rs",
        &[("f64 => f16: x => f16::from_f32(round_to_odd(x));", "f64 => f16: x => f16::from_f32(x as f32);")],
        &["lib", "conformance::torch"],
    ),
    mutation(
        "bf16 ties go up, sixteen at a time",
        "crates/kernels/src/simd/x86.rs",
        &[(
            "let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));",
            "let odd = _mm512_set1_epi32(1);",
        )],
        &["lib", "conformance::torch"],
    ),
    mutation(
        "the gradient of softmax is twice as large",
        "crates/kernels/src/reduce/softmax.rs",
        &[("|_, [y, dy]| y * (dy - mean)", "|_, [y, dy]| y * (dy - mean) * R::of(2.0)")],
        &["laws::ops", "laws::gradients"],
    ),
    mutation(
        "the parameters of a norm get the gradient of its first rows only",
        "crates/kernels/src/reduce/norm.rs",
        &[("sum_middle(&parts, 1, blocks, count)", "parts[..count].to_vec().into()")],
        &["laws::gradients", "laws::layers"],
    ),
    mutation(
        "a query sees the key behind it",
        "crates/kernels/src/attention.rs",
        &[("first: if self.causal { start + 1 } else { keys }", "first: if self.causal { start + 2 } else { keys }")],
        &["laws::layer_ops", "laws::layers"],
    ),
    // Runs.
    mutation(
        "skipped steps count for the loss of an epoch",
        "crates/train/src/training/history.rs",
        &[("let taken = || steps.iter().filter(|step| !step.is_skipped());", "let taken = || steps.iter();")],
        &["lib", "training::skipped_steps"],
    ),
    mutation(
        "an output that is not finite is an answer",
        "crates/train/src/training/score.rs",
        &[("highest.is_finite().then_some(class)", "(highest.is_finite() || true).then_some(class)")],
        &["training::skipped_steps", "command::runs"],
    ),
    mutation(
        "a resumed run begins its schedule anew",
        "crates/train/src/training/fit.rs",
        &[("stepped: count(STEPPED)? }", "stepped: 0 * count(STEPPED)? }")],
        &["runs::folders"],
    ),
    mutation(
        "a resumed run begins its epoch anew",
        "crates/train/src/training/fit.rs",
        &[("step: count(STEP)?,", "step: 0 * count(STEP)?,")],
        &["runs::folders"],
    ),
    mutation(
        "metrics after the checkpoint stay",
        "crates/train/src/folder.rs",
        &[("if whole > text as u64 {", "if whole > u64::MAX - text as u64 {")],
        &["runs::folders", "command::runs"],
    ),
    mutation(
        "the newest checkpoints are removed",
        "crates/train/src/folder.rs",
        &[("for old in all.iter().rev().skip(keep) {", "for old in all.iter().skip(keep) {")],
        &["runs::folders"],
    ),
    mutation(
        "data that changed is taken",
        "crates/train/src/folder.rs",
        &[("if of(&then) == of(now) {", "if then.train_examples == now.train_examples {")],
        &["runs::folders"],
    ),
    mutation(
        "two processes share a folder",
        "crates/train/src/folder.rs",
        &[("match lock.try_lock() {", "match lock.try_lock_shared() {")],
        &["runs::folders"],
    ),
    mutation(
        "a worse score is the best",
        "crates/train/src/run.rs",
        &[(
            "epoch.score.is_better_than(history.epochs[best].score)",
            "!epoch.score.is_better_than(history.epochs[best].score)",
        )],
        &["runs::folders"],
    ),
    mutation(
        "weights of a run that are damaged are taken",
        "crates/train/src/predict.rs",
        &[("        weights::check_of_run(&best)?;\n", "")],
        &["runs::folders", "command::runs"],
    ),
    mutation(
        "low storage without masters keeps masters",
        "crates/train/src/storage.rs",
        &[("Storage::Low(_) => how.masters(false),", "Storage::Low(_) => how,")],
        &["lib", "runs::folders"],
    ),
    // Kernels.
    mutation(
        "of twelve terms that are transposed, the last are lost",
        "crates/kernels/src/simd/x86.rs",
        &[("    if count > 8 {\n        let upper", "    if count > 12 {\n        let upper")],
        &["lib"],
    ),
    mutation(
        "pairs of bf16 whose products are subnormal are multiplied as pairs",
        "crates/kernels/src/gemm/pairs.rs",
        &[(">= -126 + 14", ">= -126")],
        &["lib"],
    ),
    mutation(
        "a line of each run of memory that is split is lost",
        "crates/kernels/src/memory/arena.rs",
        &[("start.add(lines) }, has - lines);", "start.add(lines) }, has - lines - 1);")],
        &["lib"],
    ),
    mutation(
        "gradients of scores are not scaled",
        "crates/kernels/src/attention.rs",
        &[("                        scaled(dscores, scale);\n", "")],
        &["laws::gradients"],
    ),
    mutation(
        "attention rounds its weights to 16 bit",
        "crates/kernels/src/attention.rs",
        &[(
            "                    unrounded(Layout::NN, (rows, keys, e), (&weights, v),",
            "                    let narrow = T::narrow_vec(weights.iter().copied().collect());\n                    T::widen_into(&narrow, &mut weights);\n                    unrounded(Layout::NN, (rows, keys, e), (&weights, v),",
        )],
        &["laws::gradients"],
    ),
    mutation(
        "an infinite gradient passes a ReLU that is off, as NaN",
        "crates/kernels/src/elementwise/derivatives.rs",
        &[("y if y <= R::zero() => R::zero(),", "y if y <= R::zero() => x[0] * R::zero(),")],
        &["laws::ops", "conformance::mindspore"],
    ),
];
