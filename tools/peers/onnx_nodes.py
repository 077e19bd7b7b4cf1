"""onnx_nodes.py PRECAST [OP ...]: ONNX's own node tests, each between products, converted by every policy for ONNX in float16 and
bfloat16. Whatever is written passes onnx's checker and strict inference and loads in onnxruntime, if the float32 model does.

Prints a line for each failure, then the counts. Exit 0 without failures. Needs onnx, onnxruntime, numpy.
"""
import json, os, subprocess, sys, tempfile, warnings

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

warnings.filterwarnings("ignore")
ort.set_default_logger_severity(4)
PACKS = ["onnx-1", "onnxruntime-1.32", "modelopt-0.47", "onnxconverter-common-1.16"]
FLOAT = TensorProto.FLOAT


def between(model):
    """Puts a product with the identity in front of each float32 input and behind each output; None where none can be."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph, front, behind, products = model.graph, [], [], 0
    names = {name for node in graph.node for name in [*node.input, *node.output]}
    if "precast_in" in names or any(opset.domain not in ("", "ai.onnx") for opset in model.opset_import):
        return None
    for values, is_input in ((graph.input, True), (graph.output, False)):
        for value in values:
            of = value.type.tensor_type
            dims = [dim.dim_value for dim in of.shape.dim]
            if of.elem_type != FLOAT or not dims or dims[-1] == 0:
                continue
            inner, eye = f"precast_{'in' if is_input else 'out'}_{value.name}", f"precast_eye_{products}"
            products += 1
            graph.initializer.append(numpy_helper.from_array(np.eye(dims[-1], dtype=np.float32), eye))
            for node in graph.node:
                places = node.input if is_input else node.output
                for place, name in enumerate(places):
                    if name == value.name:
                        places[place] = inner
                if not is_input:
                    for place, name in enumerate(node.input):
                        if name == value.name:
                            node.input[place] = inner
            ends = ([value.name, eye], [inner]) if is_input else ([inner, eye], [value.name])
            (front if is_input else behind).append(helper.make_node("MatMul", *ends, name=f"precast_product_{products}"))
    nodes = [*front, *graph.node, *behind]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    return model if front and behind else None


def faults(path, feed):
    """Returns what refuses a model, as words by checker."""
    found = {}
    for name, check in (
        ("checker", lambda: onnx.checker.check_model(path, full_check=True)),
        ("inference", lambda: onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True, data_prop=True)),
        ("onnxruntime", lambda: ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feed)),
    ):
        try:
            check()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
    return found


def apart(work):
    """Runs in a process of its own, since inference may crash."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as out:
            json.dump(work(), out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as made:
        text = made.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"process": "crashed"}


def main():
    from onnx.backend.test.case.node import collect_testcases

    binary, ops = sys.argv[1], set(sys.argv[2:])
    cases, failed, written, left_out = collect_testcases(None), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        policies = []
        for pack in PACKS:
            for dtype in ("float16", "bfloat16"):
                path = os.path.join(folder, f"{pack}-{dtype}.yaml")
                with open(path, "w") as out:
                    json.dump({"version": 1, "pack": pack, "dtype": dtype, "graph": {}}, out)
                policies.append(path)
        model, low = os.path.join(folder, "model.onnx"), os.path.join(folder, "low.onnx")
        for case in cases:
            if case.model is None or ops and not ops & {node.op_type for node in case.model.graph.node}:
                continue
            try:
                made = between(case.model)
            except Exception:
                made = None
            if made is None:
                left_out += 1
                continue
            onnx.save(made, model)
            inputs = case.data_sets[0][0] if case.data_sets else []
            feed = {value.name: np.asarray(x) for value, x in zip(made.graph.input, inputs) if not isinstance(x, list)}
            before, known = None, {}
            for policy in policies:
                name = f"{case.name} by {os.path.basename(policy)[:-5]}"
                words = [binary, "convert", model, low, "--policy", policy, "--force", "--quiet"]
                done = subprocess.run(words, capture_output=True, text=True)
                if done.returncode:
                    failed += "panic" in done.stderr
                    if "panic" in done.stderr:
                        print(f"{name}: {done.stderr.strip()[:200]}", flush=True)
                    continue
                written += 1
                with open(low, "rb") as file:
                    text = file.read()
                before = apart(lambda: faults(model, feed)) if before is None else before
                # onnxruntime has no arithmetic in bfloat16, and few kernels in float16 for the ops that other packs lower.
                may_lack = "bfloat16" in policy or "onnx-1-" not in os.path.basename(policy)
                lacking = ("NotImplemented", "not supported", "Type 'tensor(bfloat16)' of input parameter")
                lacks = lambda words: may_lack and any(some in words for some in lacking)
                if text not in known:
                    known[text] = apart(lambda: faults(low, feed))
                after = known[text]
                new = {who: words for who, words in after.items() if who not in before}
                new = {who: words for who, words in new.items() if who != "onnxruntime" or not lacks(words)}
                failed += bool(new)
                for who, words in new.items():
                    print(f"{name}: {who}: {words}", flush=True)
    print(f"{written} converted models, {failed} failures; {left_out} tests without a float32 input and output")
    sys.exit(1 if failed else 0)


main()
