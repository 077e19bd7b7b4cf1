"""onnx_exports.py FOLDER: exported networks and ops in onnxruntime.

A case is a folder with models, `input_0.npy`, ... and `output_0.npy`, the result of the graph. Every model passes the checker
of onnx with full inference, and float32 agrees within 1e-5 of the largest number. Of the low ops of a network, each a model
of its own in the explicit form, at least 99.9 % of the numbers have the same bits, and the others are one step off, counted
from 1/256 of the largest number on: below, sums cancel. A recurrent layer reads what it has rounded itself, step by step, and has
97 %. A whole explicit network is within 1e-2 (float16) or 5e-2 (bfloat16), since its ops read what others have rounded. Other low
models must load, where onnxruntime has kernels for them.
"""

import collections
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

LOW = {TensorProto.FLOAT16: 10, TensorProto.BFLOAT16: 7}


def low_dtype(model):
    """The low dtype of a model's casts, if it has one."""
    for node in model.graph.node:
        if node.op_type == "Cast":
            to = next(a.i for a in node.attribute if a.name == "to")
            if to in LOW:
                return to
    return None


def session(path):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    # Only the arithmetic that is written.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def given(at, model):
    found = {}
    for index, value in enumerate(model.graph.input):
        x = np.load(f"{at}/input_{index}.npy")
        kind = value.type.tensor_type.elem_type
        if kind == TensorProto.BFLOAT16:
            raise NotImplementedError("inputs of bfloat16")
        found[value.name] = x.astype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    return found


def steps(a, b, digits):
    """The distance of numbers in steps of a dtype with so many digits after the point."""
    least = max(2.0**-14 if digits == 10 else 2.0**-126, np.abs(a).max() / 256)
    exponent = np.floor(np.log2(np.maximum(np.abs(a), least)))
    return np.abs(a - b) / 2.0 ** (exponent - digits)


class Shares:
    """The numbers of the low ops of each network."""

    def __init__(self):
        self.counts = collections.defaultdict(lambda: [0, 0, 0.0])

    def add(self, group, same, far):
        count = self.counts[group]
        count[0] += int(same.sum())
        count[1] += same.size
        count[2] = max(count[2], far)


def check(at, name, shares):
    """Returns what does not hold, and what was measured."""
    path = f"{at}/{name}"
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    try:
        running = session(path)
    except Exception as error:
        text = str(error)
        return (None, "no kernel in onnxruntime") if "NOT_IMPLEMENTED" in text else (text, "")
    met = np.asarray(running.run(None, given(at, model))[0]).astype(np.float64)
    wanted = np.load(f"{at}/output_0.npy").astype(np.float64)
    if met.shape != wanted.shape:
        return f"shape {met.shape}, not {wanted.shape}", ""
    if not wanted.size:
        return None, "empty"
    same = (met == wanted) | np.isnan(met) & np.isnan(wanted)
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0, np.abs(met - wanted)).max() / max(np.abs(np.where(np.isfinite(wanted), wanted, 0)).max(), 1e-3)
    low = low_dtype(model)
    if low is None:
        return (None if off <= 1e-5 else f"off by {off:.1e}"), f"off {off:.1e}"
    if name != "explicit.onnx":
        return None, f"off {off:.1e}"
    case = os.path.basename(at)
    if case.startswith(("node-", "op-")):
        if case.startswith("op-"):
            group = "the table in " + case.split("-")[-1]
        else:
            group = "-".join(case.split("-")[1:-3])
            group = f"{group}, recurrent" if case.endswith("FusedRnn") else group
        far = steps(wanted, met, LOW[low])[~same].max(initial=0.0)
        shares.add(group, same, far)
        return (f"{case}: {far:.0f} steps off" if far > 1.01 and "recurrent" not in group else None), ""
    bound = 1e-2 if low == TensorProto.FLOAT16 else 5e-2
    measured = f"{same.mean():.3%} same bits, off {off:.1e}"
    return (None if off <= bound else measured), measured


def main(folder):
    wrong, ops, shares = [], collections.Counter(), Shares()
    for case in sorted(os.listdir(folder)):
        at = f"{folder}/{case}"
        of_case = []
        for name in sorted(file for file in os.listdir(at) if file.endswith(".onnx")):
            try:
                problem, measured = check(at, name, shares)
            except Exception as error:
                problem, measured = f"{type(error).__name__}: {error}", ""
            if problem:
                wrong.append(f"{case}/{name}: {problem[:400]}")
            of_case.append(f"{name.removesuffix('.onnx')}: {problem or measured}"[:160])
        kind = case.split("-")[0] if case.startswith(("op-", "node-")) else "network"
        if kind == "network":
            print(f"{case}: " + "; ".join(of_case), flush=True)
        ops[kind] += 1
    for group, (same, count, far) in shares.counts.items():
        share = same / count
        print(f"low ops of {group}: {share:.4%} of {count} numbers have the same bits, the others are {far:.0f} steps off at most")
        if share < (0.97 if "recurrent" in group else 0.999):
            wrong.append(f"low ops of {group}: {share:.4%}")
    counts = f"{ops['network']} networks, {ops['node']} low ops of networks and {ops['op']} calls of ops"
    print(f"{counts}; {len(wrong)} do not hold")
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


main(sys.argv[1])
