"""Writes the test suite of the package onnx as files: `python tools/peers/onnx_suite.py FOLDER`.

Each case is a folder with `model.onnx`, `input_0.pb`, ..., `output_0.pb`, ... A line of `cases.tsv` has its family, its
name, the tolerances, and the reason if the import cannot represent it: an op without a counterpart, a type, a sequence.
"""

import json
import os
import sys

import numpy as np
import onnx
import onnx.backend.test as suite
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

# The ops of ai.onnx without a counterpart among the ops of precast.
WITHOUT = set(
    """Bernoulli BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CausalConvWithState Col2Im Compress ConvInteger
    DFT DeformConv Det DynamicQuantizeLinear ImageDecoder LinearAttention MatMulInteger MaxRoiPool MaxUnpool Multinomial
    NonMaxSuppression QLinearConv QLinearMatMul QuantizeLinear RandomNormal RandomNormalLike RandomUniform
    RandomUniformLike RegexFullMatch ReverseSequence RoiAlign STFT StringConcat StringNormalizer StringSplit TensorScatter
    TfIdfVectorizer Unique""".split()
)
MAPPED = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT64, TensorProto.BOOL}
INTEGERS = {TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64}


def ops(nodes):
    for node in nodes:
        yield node.domain, node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from ops(attribute.g.node)
            for graph in attribute.graphs:
                yield from ops(graph.node)


def reason(model):
    """Returns why a case is none of the mapped ones; an empty text for one that is."""
    functions = {(f.domain, f.name) for f in model.functions}
    nodes = [*model.graph.node, *(node for f in model.functions for node in f.node)]
    for domain, op in ops(nodes):
        if (domain, op) not in functions and domain not in ("", "ai.onnx"):
            return f"domain {domain}"
        if op in WITHOUT:
            return f"op {op}"
    types = set()
    for value in [*model.graph.input, *model.graph.output]:
        if not value.type.HasField("tensor_type"):
            return "sequence or optional"
        types.add(value.type.tensor_type.elem_type)
    others = types - MAPPED
    if others and others <= INTEGERS:
        return "other integers"
    return f"type {TensorProto.DataType.Name(sorted(others)[0])}" if others else ""


def write(folder, model, data_sets):
    for number, (inputs, outputs) in enumerate(data_sets):
        at = folder if number == 0 else f"{folder}/{number}"
        os.makedirs(at, exist_ok=True)
        for kind, values in (("input", inputs), ("output", outputs)):
            for index, value in enumerate(values):
                if not isinstance(value, TensorProto):
                    if isinstance(value, (list, dict)) or value is None:
                        continue
                    value = numpy_helper.from_array(np.asarray(value))
                with open(f"{at}/{kind}_{index}.pb", "wb") as file:
                    file.write(value.SerializeToString())
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/model.onnx", "wb") as file:
        file.write(model.SerializeToString())


def of_folder(path):
    """Yields the inputs and outputs of a case that the package has as files."""
    for name in sorted(os.listdir(path)):
        at = f"{path}/{name}"
        if os.path.isdir(at):
            read = lambda kind: [tensor(f"{at}/{kind}_{i}.pb") for i in range(100) if os.path.exists(f"{at}/{kind}_{i}.pb")]
            yield read("input"), read("output")


def tensor(path):
    value = TensorProto()
    with open(path, "rb") as file:
        value.ParseFromString(file.read())
    return value


def main(out):
    data = os.path.join(os.path.dirname(suite.__file__), "data")
    rows = []
    for case in collect_testcases(None):
        write(f"{out}/node/{case.name}", case.model, case.data_sets)
        rows.append(("node", case.name, case.rtol, case.atol, reason(case.model)))
    for family in ("pytorch-converted", "pytorch-operator", "simple"):
        for name in sorted(os.listdir(f"{data}/{family}")):
            path = f"{data}/{family}/{name}"
            if not os.path.exists(f"{path}/model.onnx"):
                continue
            model = onnx.load(f"{path}/model.onnx")
            write(f"{out}/{family}/{name}", model, of_folder(path))
            rows.append((family, name, 1e-3, 1e-7, reason(model)))
    for file in sorted(os.listdir(f"{data}/light")):
        if not file.endswith(".onnx"):
            continue
        name = file.removesuffix(".onnx")
        model = onnx.load(f"{data}/light/{file}")
        values = {t.name for t in model.graph.initializer}
        declared = next(i for i in model.graph.input if i.name not in values)
        shape = [d.dim_value or 1 for d in declared.type.tensor_type.shape.dim]
        count = int(np.prod(shape))
        x = (np.arange(count).reshape(shape) / count).astype(np.float32)
        write(f"{out}/light/{name}", model, [([x], [tensor(f"{data}/light/{name}_output_0.pb")])])
        at = f"{data}/real/test_{name.removeprefix('light_')}/data.json"
        set = json.load(open(at)) if os.path.exists(at) else {}
        rows.append(("light", name, set.get("rtol", 1e-3), set.get("atol", 1e-7), reason(model)))
    with open(f"{out}/cases.tsv", "w") as file:
        for row in rows:
            file.write("\t".join(map(str, row)) + "\n")


main(sys.argv[1])
