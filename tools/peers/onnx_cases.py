"""onnx_cases.py FOLDER PRECAST: converts each case of a folder by the command, and checks what came out.

A case is NAME.json next to its model: the options of the conversion under `convert`, the inputs, and what must hold under
`checks`. A converted model must pass onnx's checker with strict inference, and give the outputs of the float32 model in
onnxruntime, with and without its optimizations; or in onnx's reference, where a case says so. Nodes must run in the dtypes
of the case. The project's own tests check the rest. Needs onnx, onnxruntime and numpy. Prints `onnx cases: H of N hold`, and
why the others do not.
"""
import json, os, subprocess, sys, tempfile, time
import numpy as np
import onnx, onnxruntime
from onnx.reference import ReferenceEvaluator


def array(written):
    if "full" in written:
        return np.full(written["full"], written["value"], np.float32)
    numbers = written["data"]
    if written["dtype"] == "string":
        return np.array(numbers, object).reshape(written["shape"])
    if written["dtype"].startswith("float"):
        numbers = [float(number) for number in numbers]
    return np.array(numbers).astype(written["dtype"]).reshape(written["shape"])


def run(model, inputs, level=None):
    """The outputs by name: of onnxruntime with this level of optimization, or of the reference."""
    if level is None:
        session = ReferenceEvaluator(model)
        with np.errstate(all="ignore"):
            return dict(zip(session.output_names, session.run(None, inputs)))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    read = {given.name for given in session.get_inputs() + session.get_overridable_initializers()}
    met = session.run(None, {name: numbers for name, numbers in inputs.items() if name in read})
    return dict(zip([output.name for output in session.get_outputs()], met))


def fault(model, strict=True):
    """What onnx's checker says of a model, by inference, too, or nothing."""
    try:
        onnx.checker.check_model(model, full_check=strict)
    except Exception as error:
        return f"onnx's checker: {error}"


def unlike(met, right, checks, name):
    """Why an output is not the right one, or nothing."""
    met, right = np.asarray(met), np.asarray(right)
    if list(met.shape) != checks.get("shape", {}).get(name, list(right.shape)):
        return f"has the shape {met.shape}, right is {right.shape}"
    if checks.get("finite") and not np.isfinite(met.astype(np.float64)).all():
        return "is not finite"
    if right.dtype.kind != "f" or checks.get("equal") or name in checks.get("equal_outputs", []):
        return None if (met == right).all() else "differs"
    bound = checks.get("close") or checks.get("close_reference") or {"rtol": 0, "atol": 0}
    met, right = met.astype(np.float64), right.astype(np.float64)
    far = ~np.isclose(met, right, equal_nan=True, **bound)
    return f"has {met[far][0]} for {right[far][0]}, {far.sum()} of {far.size} are wrong" if far.any() else None


def dtypes(model):
    """The dtypes that each named node of the main graph reads, as inference finds them."""
    bare = onnx.load(model)
    graph = bare.graph
    known = {value.name: value.type.tensor_type.elem_type for value in graph.value_info}
    del graph.value_info[:]
    graph = onnx.shape_inference.infer_shapes(bare, data_prop=True).graph
    met = {value.name: value.type.tensor_type.elem_type for value in [*graph.value_info, *graph.input, *graph.output]}
    known |= {name: dtype for name, dtype in met.items() if dtype}
    known |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    # Those of the domains of others are unknown to it.
    for node in graph.node:
        if node.op_type == "Cast":
            known[node.output[0]] = next(a.i for a in node.attribute if a.name == "to")
    return {node.name: [known.get(name, 0) for name in node.input] for node in graph.node}


def misplaced(case, model):
    """The nodes that run in another dtype than they must."""
    checks, options, read = case["checks"], case["convert"], dtypes(model)
    low = onnx.TensorProto.DataType.Value(options["low"].upper())
    full = checks.get("full", []) + (checks.get("full_with_ranges", []) if options.get("ranges") else [])
    wrong = [f"{name} does not run low" for name in checks.get("low", []) if low not in read.get(name, [])]
    wrong += [f"{name} runs low" for name in full if name not in read or low in read[name]]
    for place, dtype in checks.get("node_input", {}).items():
        name, at = place.rsplit(":", 1)
        if name not in read or read[name][int(at)] != onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)):
            wrong.append(f"{place} is not {dtype}")
    return wrong


def holds(case, first, converted):
    """What does not hold for a converted model."""
    # Inference refuses some valid models, such as those with sparse initialisers.
    if wrong := fault(converted, strict=fault(first) is None):
        return [wrong]
    checks = case["checks"]
    inputs = {name: array(numbers) for name, numbers in case["inputs"].items()}
    others = [
        {name: np.array(numbers, inputs[name].dtype if name in inputs else np.float32) for name, numbers in also.items()}
        for also in checks.get("also", [])
    ]
    levels = onnxruntime.GraphOptimizationLevel
    all_levels = [None] if checks.get("only_reference") else [levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL]
    bad = misplaced(case, converted)
    for given in [inputs, *({**inputs, **other} for other in others)]:
        right = run(first, given, levels.ORT_ENABLE_ALL)
        for level in all_levels:
            try:
                met = run(converted, given, level)
            except Exception as error:
                return [f"{level or 'reference'}: {error}"]
            for name in right:
                why = unlike(met[name], right[name], checks, name) if name in met else "is missing"
                bad += [f"{level or 'reference'}: output {name} {why}"] if why else []
    return bad


def policy(options, path):
    """The name of a shipped policy, or a file with the rules of the case."""
    rules = [("path", name) for name in options.get("full_nodes", [])]
    rules += [("op", name) for name in options.get("full_ops", [])]
    if not rules:
        return {"float16": "onnx", "bfloat16": "onnx-bf16"}[options["low"]]
    lines = ["version: 1", "pack: onnx-1", f"dtype: {options['low']}", "graph: {}", "rules:"]
    lines += [f"  - {{ {key}: {json.dumps(name)}, run: float32 }}" for key, name in rules]
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    return path


def convert(program, model, to, under, more=()):
    command = [program, "convert", model, to, "--policy", under, "--force", "--quiet", *more]
    return subprocess.run(command, capture_output=True, text=True)


def same(a, b):
    with open(a, "rb") as first, open(b, "rb") as second:
        return first.read() == second.read()


def check(folder, program, scratch, case):
    with open(os.path.join(folder, case)) as file:
        written = json.load(file)
    options, checks = written["convert"], written["checks"]
    model, to = os.path.join(folder, written["model"]), os.path.join(scratch, written["model"])
    more = [] if options.get("keep_io") else ["--low-io"]
    if options.get("ranges"):
        np.savez(to + ".npz", **{name: array(value) for name, value in written["inputs"].items()})
        more += ["--inputs", to + ".npz"]
    under = policy(options, to + ".yaml")
    began = time.monotonic()
    done = convert(program, model, to, under, more)
    took = time.monotonic() - began
    if done.returncode:
        words = checks.get("refuse_or")
        refused = words and all(word in done.stderr for word in words) and not os.path.exists(to)
        return ([] if refused else [done.stderr.strip()]), took
    bad = holds(written, model, to)
    if checks.get("idempotent"):
        again = to + ".again.onnx"
        done = convert(program, to, again, under, more)
        if done.returncode or not same(to, again):
            bad.append("converting twice gives other bytes: " + done.stderr.strip())
    if checks.get("o0_same_bytes"):
        untouched = to + ".o0.onnx"
        done = convert(program, model, untouched, "o0")
        if done.returncode or not same(model, untouched):
            bad.append("level O0 gives other bytes: " + done.stderr.strip())
    return bad, took


def main():
    folder, program = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    cases = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    if not cases:
        sys.exit(f"{folder} has no cases: files NAME.json, each next to its model")
    hold, longest = 0, 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases:
            bad, took = check(folder, program, scratch, case)
            hold, longest = hold + (not bad), max(longest, took)
            if bad:
                print("\n  ".join([case, *bad]))
    print(f"the longest conversion took {longest:.2f} s")
    print(f"onnx cases: {hold} of {len(cases)} hold")
    sys.exit(0 if hold == len(cases) else 1)


if __name__ == "__main__":
    main()
