//! Some seventy plausible mistakes, each a change of the source in one place or two.

/// A mistake: in `file` the first text of each change, which occurs there once, is replaced by the second.
pub struct Mutation {
    /// Short description of the mistake.
    pub name: &'static str,
    pub file: &'static str,
    pub changes: &'static [(&'static str, &'static str)],
    /// Test targets likely to notice, run first; `lib` is the tests inside the library.
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
        "policies/src/dtype.rs",
        &[("std::cmp::Ordering::Equal => DType::F32,", "std::cmp::Ordering::Equal => DType::F16,")],
        &["lib", "torch"],
    ),
    mutation(
        "list full runs low",
        "policies/src/precision/resolve.rs",
        &[("Treatment::Full => DType::F32,", "Treatment::Full => rules.low,")],
        &["lib", "torch"],
    ),
    mutation(
        "gray looks at no input",
        "policies/src/precision/resolve.rs",
        &[(
            "if deciding.contains(&DType::F32) { DType::F32 } else { rules.low }",
            "if deciding.is_empty() { DType::F32 } else { rules.low }",
        )],
        &["lib", "paddle"],
    ),
    mutation(
        "a norm's parameters go low with its input",
        "policies/src/precision/resolve.rs",
        &[("if by_first && to == rules.low { inputs.len().min(1) } else { inputs.len() }", "inputs.len()")],
        &["lib", "paddle"],
    ),
    mutation(
        "a banned op is let through",
        "policies/src/precision/resolve.rs",
        &[("Treatment::AsIs => return Ok(()),", "Treatment::AsIs | Treatment::Banned => return Ok(()),")],
        &["lib", "features"],
    ),
    mutation(
        "a region casts f64",
        "policies/src/precision/resolve.rs",
        &[(
            "cast_all(&mut casts, inputs, *dtype, DType::is_castable)",
            "cast_all(&mut casts, inputs, *dtype, DType::is_float)",
        )],
        &["lib", "levels", "properties", "features"],
    ),
    mutation(
        "results of listed ops stay low at O1",
        "policies/src/precision/resolve.rs",
        &[("casts.output = rules.back;", "casts.output = None;")],
        &["lib", "levels", "mindspore"],
    ),
    mutation(
        "a three-dimensional convolution promotes mixed inputs",
        "policies/src/catalogue/table.rs",
        &[("Conv3d Refuses Convolution", "Conv3d Promotes Convolution")],
        &["torch"],
    ),
    mutation(
        "two lists of a pack are swapped",
        "policies/src/policy/pack_file.rs",
        &[(
            "(Treatment::Low, &self.low),\n            (Treatment::Full, &self.full),\n            (Treatment::Widest",
            "(Treatment::Full, &self.low),\n            (Treatment::Low, &self.full),\n            (Treatment::Widest",
        )],
        &["packs", "torch"],
    ),
    mutation(
        "ops that promote run in f32",
        "policies/src/policy/pack_file.rs",
        &[("(Treatment::Widest, &self.widest)", "(Treatment::Full, &self.widest)")],
        &["packs", "torch"],
    ),
    mutation(
        "ops that a file adds to the low list are dropped",
        "policies/src/policy/v1/changes.rs",
        &[(
            "added.into_iter().for_each(|(item, origin)| item.put(lists, Entry::new(treatment, origin)));",
            "let _ = (added, treatment);",
        )],
        &["lib", "policy_files", "levels"],
    ),
    mutation(
        "`use_promote` is ignored",
        "src/autocast.rs",
        &[("if !self.promote {", "if !self.promote && self.op_level.is_none() {")],
        &["autocast", "paddle"],
    ),
    mutation(
        "an inner region names f16 where it names nothing",
        "src/autocast.rs",
        &[("self.dtype.or(inherited).unwrap_or(self.pack.dtypes[0])", "self.dtype.unwrap_or(self.pack.dtypes[0])")],
        &["autocast", "features"],
    ),
    // Ends of regions.
    mutation(
        "a region stays after a panic",
        "src/tensor/context/region.rs",
        &[(
            "        stack.truncate(depth);",
            "        if !std::thread::panicking() {\n            stack.truncate(depth);\n        }",
        )],
        &["lib", "autocast"],
    ),
    mutation(
        "a region stays after an error",
        "src/cell/call.rs",
        &[(
            "body(&self.cell, inputs.map(&mut cast_in)).map(|outputs| outputs.map(&mut cast_out))",
            "let outputs = body(&self.cell, inputs.map(&mut cast_in));\n                \
             if outputs.is_err() {\n                    std::mem::forget(_inside);\n                }\n                \
             outputs.map(|outputs| outputs.map(&mut cast_out))",
        )],
        &["levels"],
    ),
    mutation(
        "a region reaches the backward pass",
        "src/tensor/backward.rs",
        &[("let _off = context::enter(Frame::Off);", "")],
        &["custom_ops"],
    ),
    // Cells and their adapters.
    mutation(
        "the cast of outputs is dropped",
        "src/cell/call.rs",
        &[("outward: cast.map(|cast| cast.outward) }", "outward: None }")],
        &["levels", "mindspore"],
    ),
    mutation(
        "the cast of inputs is dropped",
        "src/cell/call.rs",
        &[("let inward = cast.map(|cast| cast.inward).filter(|_| !by_op);", "let inward = None;")],
        &["levels", "mindspore"],
    ),
    mutation(
        "a cell on the full list is lowered",
        "policies/src/plan/decide.rs",
        &[("_ => (Region::Fixed(DType::F32), Choice::Forced),", "_ => (self.low(), Choice::Forced),")],
        &["levels", "properties", "mindspore"],
    ),
    mutation(
        "an op on the full list at O2 keeps its f32",
        "policies/src/policy/mod.rs",
        &[("back: Some(self.dtype), unlisted", "back: None, unlisted")],
        &["levels", "properties"],
    ),
    mutation(
        "an exact path is no stronger than a rule",
        "policies/src/plan/decide.rs",
        &[("let rules = exact.chain(others);", "let rules = others.chain(exact);")],
        &["levels", "properties", "policy_files"],
    ),
    mutation(
        "the last rule wins",
        "policies/src/plan/decide.rs",
        &[("matching.iter().filter_map(|&i|", "matching.iter().rev().filter_map(|&i|")],
        &["levels", "properties", "policy_files"],
    ),
    mutation(
        "a list is stronger than what stands around a cell",
        "policies/src/plan/decide.rs",
        &[("claims.extend(inside);", "claims.extend(inside.filter(|_| policy.level != Level::O2));")],
        &["levels", "properties"],
    ),
    mutation(
        "O1 lowers neighbours of listed cells",
        "policies/src/plan/decide.rs",
        &[("if bare_root { inward } else { DType::F32 }", "if bare_root { inward } else { inward }")],
        &["levels", "mindspore"],
    ),
    mutation(
        "a pattern matches the beginning of a name",
        "policies/src/policy/pattern.rs",
        &[("Segment::Exactly(name) => name == part", "Segment::Exactly(name) => part.starts_with(name.as_str())")],
        &["lib", "policy_files"],
    ),
    mutation(
        "undo clears what stood there before",
        "src/plan/apply.rs",
        &[("before.next().unwrap_or_default()", "before.next().and(None).unwrap_or_default()")],
        &["properties", "levels"],
    ),
    // Parameters.
    mutation(
        "low copies are kept where they shall not be",
        "src/ops/mod.rs",
        &[(
            "Some(to) if cached => x.cast_as(CastRole::IntoOp(op), *to),",
            "Some(to) if cached || to.is_low() => x.cast(*to),",
        )],
        &["autocast", "features"],
    ),
    mutation(
        "a master is rounded at each update",
        "src/tensor/param.rs",
        &[("*master = full.cast(DType::F32);", "*master = full.cast(state.value.dtype()).cast(DType::F32);")],
        &["decorate"],
    ),
    mutation(
        "decorate stores batch norms low",
        "src/storage/decorate.rs",
        &[(".or(own).or_else(by_pack);", ".or(own).or_else(|| by_pack().filter(|_| false));")],
        &["decorate", "paddle"],
    ),
    mutation(
        "gradients of low parameters are summed in 16 bit",
        "src/tensor/backward.rs",
        &[(
            "Some(before) if grad.dtype().is_low() && !widened.nodes.contains(id) => {",
            "Some(before) if grad.dtype() == DType::Bool => {",
        )],
        &["decorate"],
    ),
    // The loss scale and the step.
    mutation(
        "found_inf is ignored",
        "src/scale/step.rs",
        &[(
            "unscaled.first.clone().or_else(replaced)) else {",
            "unscaled.first.clone().or_else(replaced).filter(|_| unscaled.scaling.scale < 1.0)) else {",
        )],
        &["scale", "scalers", "training"],
    ),
    mutation(
        "gradients are not unscaled",
        "src/tensor/grads.rs",
        &[("Factors { unscale: 1.0 / unscaled.scaling.scale, clip: 1.0 }", "Factors { unscale: 1.0, clip: 1.0 }")],
        &["scale", "scalers", "training"],
    ),
    mutation(
        "a loss that is not finite lowers the scale",
        "src/scale/step.rs",
        &[("Some(_) => self.machine.skip(),", "Some(_) => self.adjust(false),")],
        &["scale", "scalers"],
    ),
    mutation(
        "a loss that is not finite is a step if its gradients are finite",
        "src/scale/step.rs",
        &[("            _ => Some(Cause::Loss),", "            None => None,\n            _ => Some(Cause::Loss),")],
        &["not_taken"],
    ),
    mutation(
        "a skipped step leaves running statistics moved",
        "src/scale/step.rs",
        &[
            ("grads.doubt();\n        self.votes.skipped", "self.votes.skipped"),
            ("votes.skipped.iter().for_each(|pass| pass.take_back());", ""),
        ],
        &["not_taken"],
    ),
    mutation(
        "a change that is taken back takes later ones along",
        "src/tensor/param.rs",
        &[("filter(|change| change.pass != Some(pass))", "filter(|_| false)")],
        &["not_taken"],
    ),
    mutation(
        "a number that is not finite is stored",
        "src/tensor/param.rs",
        &[("(true, _) => return Ok(()),", "(true, _) => state = self.write(),")],
        &["not_taken"],
    ),
    mutation(
        "skipped steps count for the loss of an epoch",
        "src/train/fit.rs",
        &[("steps.iter().filter(|step| !step.is_skipped());", "steps.iter();")],
        &["not_taken", "cli_runs"],
    ),
    mutation(
        "finite steps before an overflow still count",
        "policies/src/scale.rs",
        &[("        state.counter = 0;\n        if state.spared", "        if state.spared")],
        &["scalers"],
    ),
    mutation(
        "a gradient that was replaced is not looked at",
        "src/tensor/grads.rs",
        &[("unscaled.replaced = true", "unscaled.replaced = false")],
        &["scale", "scalers"],
    ),
    mutation(
        "gradients of two scales are added",
        "src/scale/scaled.rs",
        &[("if scale != others {", "if scale.is_nan() {")],
        &["scalers"],
    ),
    mutation(
        "an overflow is forgotten after a loss that was not finite",
        "src/scale/step.rs",
        &[("if !matches!(self.votes.worst, Some(Cause::Overflow { .. })) {", "if self.votes.worst.is_none() {")],
        &["scalers"],
    ),
    mutation(
        "steps that were spared are forgiven by every finite step",
        "policies/src/scale.rs",
        &[("if grows || d.forgive != Forgive::Growth {", "{")],
        &["scalers"],
    ),
    mutation(
        "AdamW's decay goes through the gradient",
        "src/optim/adam.rs",
        &[("true => (0.0, 1.0 - step.lr * step.weight_decay),", "true => (step.weight_decay, 1.0),")],
        &["optim"],
    ),
    mutation(
        "a recomputed cell ends the region of its forward pass",
        "src/cell/recompute.rs",
        &[(
            "    let (outputs, recorded) = recording::record_for_good(|| body(inputs));",
            "    let _off = precision::enter(Frame::Off);\n    let (outputs, recorded) = recording::record_for_good(|| body(inputs));",
        )],
        &["recompute"],
    ),
    mutation(
        "a recomputed widening keeps its way past the segment",
        "src/cell/recompute.rs",
        &[("Some(narrow) => y.widening_of(of(narrow)),", "Some(_) => of(&y),")],
        &["recompute"],
    ),
    mutation(
        "gradients of weights in f32 are computed from rounded activations",
        "src/ops/weight_grads.rs",
        &[("    forward.saved[0] = x.clone();\n", "    let _ = x;\n")],
        &["weight_grads"],
    ),
    mutation(
        "f16 without a loss scale is not noticed",
        "src/tensor/backward.rs",
        &[("grads.came_through_f16(*id);", "")],
        &["small_loss"],
    ),
    // Numbers.
    mutation(
        "f64 is rounded twice",
        "src/kernels/cast/mod.rs",
        &[("f64 => f16: x => f16::from_f32(round_to_odd(x));", "f64 => f16: x => f16::from_f32(x as f32);")],
        &["lib", "torch"],
    ),
    mutation(
        "bf16 ties go up, sixteen at a time",
        "src/kernels/simd/x86.rs",
        &[(
            "let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));",
            "let odd = _mm512_set1_epi32(1);",
        )],
        &["lib", "torch"],
    ),
    mutation(
        "the gradient of softmax is twice as large",
        "src/kernels/reduce/softmax.rs",
        &[("*dx = y * (dy - mean);", "*dx = y * (dy - mean) * R::of(2.0);")],
        &["ops", "gradients"],
    ),
    mutation(
        "the parameters of a norm get the gradient of its first rows only",
        "src/kernels/reduce/norm.rs",
        &[("sum_middle(&parts, 1, blocks, count)", "parts[..count].to_vec().into()")],
        &["gradients", "layers"],
    ),
    mutation(
        "a query sees the key behind it",
        "src/kernels/attention.rs",
        &[("first: if self.causal { start + 1 } else { keys }", "first: if self.causal { start + 2 } else { keys }")],
        &["op_values", "layers"],
    ),
    mutation(
        "running variances are biased",
        "src/tensor/param.rs",
        &[("count as f64 / (count - 1) as f64", "1.0 + 0.0 * count as f64")],
        &["layers", "mindspore"],
    ),
    // Weights from other tools.
    mutation(
        "a conversion does not count what becomes infinite",
        "src/kernels/counted.rs",
        &[("u32::from(finite & (y == f32::INFINITY))", "u32::from((x < 0.0) & (y == f32::INFINITY))")],
        &["lib", "convert"],
    ),
    mutation(
        "a folder is replaced though a file of it is lost",
        "src/storage/stored/convert.rs",
        &[("!new.contains(&path.as_path())", "new.is_empty() && path.exists()")],
        &["convert"],
    ),
    mutation(
        "an index names any file",
        "src/storage/stored/folder.rs",
        &[("match plain && !name.contains(['/', '\\\\']) {", "match plain || name.contains('/') {")],
        &["lib", "convert"],
    ),
    // Runs.
    mutation(
        "a resumed run begins its schedule anew",
        "src/train/fit.rs",
        &[("stepped: count(STEPPED)? }", "stepped: 0 * count(STEPPED)? }")],
        &["runs"],
    ),
    mutation(
        "a resumed run begins its epoch anew",
        "src/train/fit.rs",
        &[("step: count(STEP)?,", "step: 0 * count(STEP)?,")],
        &["runs"],
    ),
    mutation(
        "metrics after the checkpoint stay",
        "src/train/folder.rs",
        &[("if whole > text as u64 {", "if whole > u64::MAX - text as u64 {")],
        &["runs", "cli_runs"],
    ),
    mutation(
        "the newest checkpoints are removed",
        "src/train/folder.rs",
        &[("for old in all.iter().rev().skip(keep) {", "for old in all.iter().skip(keep) {")],
        &["runs"],
    ),
    mutation(
        "data that changed is taken",
        "src/train/folder.rs",
        &[("if of(&then) == of(now) {", "if then.train_examples == now.train_examples {")],
        &["runs"],
    ),
    mutation(
        "two processes share a folder",
        "src/train/folder.rs",
        &[(
            "        match lock.try_lock() {\n            Ok(()) => {}",
            "        match lock.try_lock_shared() {\n            Ok(()) => {}",
        )],
        &["runs"],
    ),
    mutation(
        "an output that is not finite is an answer",
        "src/train/score.rs",
        &[("highest.is_finite().then_some(class)", "(highest.is_finite() || true).then_some(class)")],
        &["not_taken", "cli_runs"],
    ),
    mutation(
        "a worse score is the best",
        "src/train/run.rs",
        &[(
            "epoch.score.is_better_than(history.epochs[best].score)",
            "!epoch.score.is_better_than(history.epochs[best].score)",
        )],
        &["runs"],
    ),
    mutation(
        "weights of a run that are damaged are taken",
        "src/train/predict.rs",
        &[("        weights::check_of_run(&best)?;\n", "")],
        &["runs", "cli_runs"],
    ),
    mutation(
        "an option of an optimizer in a run file is ignored",
        "src/train/method.rs",
        &[(
            "if *amsgrad { adam.amsgrad(true) } else { adam };\n                Box",
            "if *amsgrad { adam } else { adam };\n                Box",
        )],
        &["lib"],
    ),
    mutation(
        "low storage without masters keeps masters",
        "src/train/storage.rs",
        &[("Storage::Low(_) => how.masters(false),", "Storage::Low(_) => how,")],
        &["runs"],
    ),
    // Kernels.
    mutation(
        "of twelve terms that are transposed, the last are lost",
        "src/kernels/simd/x86.rs",
        &[("    if count > 8 {\n        let upper", "    if count > 12 {\n        let upper")],
        &["lib"],
    ),
    mutation(
        "pairs of bf16 whose products are subnormal are multiplied as pairs",
        "src/kernels/gemm/pairs.rs",
        &[(">= -126 + 14", ">= -126")],
        &["lib"],
    ),
    mutation(
        "a line of each run of memory that is split is lost",
        "src/kernels/memory/arena.rs",
        &[("start.add(lines) }, has - lines);", "start.add(lines) }, has - lines - 1);")],
        &["lib"],
    ),
    mutation(
        "gradients of scores are not scaled",
        "src/kernels/attention.rs",
        &[("                        scaled(dscores, scale);\n", "")],
        &["gradients"],
    ),
    mutation(
        "attention rounds its weights to 16 bit",
        "src/kernels/attention.rs",
        &[(
            "                    unrounded(Layout::NN, (rows, keys, e), (&weights, v),",
            "                    let narrow = T::narrow_vec(weights.iter().copied().collect());\n                    T::widen_into(&narrow, &mut weights);\n                    unrounded(Layout::NN, (rows, keys, e), (&weights, v),",
        )],
        &["gradients"],
    ),
    mutation(
        "an infinite gradient passes a ReLU that is off, as NaN",
        "src/ops/elementwise/unary.rs",
        &[("Output flat |y| if y <= R::zero()", "Output |y| if y <= R::zero()")],
        &["ops", "mindspore_training"],
    ),
];
