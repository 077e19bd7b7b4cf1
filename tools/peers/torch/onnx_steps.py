"""Trains three exported networks in torch: `python tools/peers/torch/onnx_steps.py crates/graph/tests/onnx/data/exports OUT`.

Each network is written here as its ONNX file has it (batch norms folded into convolutions) and starts from the weights in
the file. After three steps of SGD with the rate 0.05 on the mean square of the outputs, OUT/NAME.pb has the outputs.
"""

import math
import sys

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper


def resnet(w, x):
    names = [n for n in w if n.startswith("onnx::Conv")]
    pairs = [(w[names[i]], w[names[i + 1]]) for i in range(0, len(names), 2)]
    conv = lambda i, x, stride, pad: F.conv2d(x, *pairs[i], stride, pad)
    x = F.max_pool2d(F.relu(conv(0, x, 2, 3)), 3, 2, 1)
    x = F.relu(conv(2, F.relu(conv(1, x, 1, 1)), 1, 1) + x)
    x = F.relu(conv(4, F.relu(conv(3, x, 2, 1)), 1, 1) + conv(5, x, 2, 0))
    return x.mean((2, 3)) @ w["fc.weight"].T + w["fc.bias"]


def norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def vit(w, x):
    q, k, v, o, f1, f2 = (w[n] for n in w if n.startswith("onnx::MatMul"))
    x = F.conv2d(x, w["pe.weight"], w["pe.bias"], 8).flatten(2).transpose(1, 2)
    x = torch.cat([w["cls"].expand(x.shape[0], -1, -1), x], 1) + w["pos"]
    h = norm(w, "n1", x)
    heads = lambda y: y.view(y.shape[0], y.shape[1], 2, -1).transpose(1, 2)
    q, k, v = (heads(h @ m + w[f"a.{n}.bias"]) for m, n in ((q, "q"), (k, "k"), (v, "v")))
    a = ((q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])).softmax(-1) @ v
    x = x + a.transpose(1, 2).reshape(x.shape) @ o + w["a.o.bias"]
    x = x + F.gelu(norm(w, "n2", x) @ f1 + w["f1.bias"]) @ f2 + w["f2.bias"]
    return norm(w, "n", x)[:, 0] @ w["h.weight"].T + w["h.bias"]


def gpt2(w, ids):
    qkv, o, f1, f2, head = (w[n] for n in ("val_9", "val_61", "val_65", "val_71", "permute"))
    x = w["w.weight"][ids] + w["embedding_1"]
    n = ids.shape[1]
    heads = lambda y: y.view(y.shape[0], n, 2, -1).transpose(1, 2)
    q, k, v = (heads(y) for y in (norm(w, "n1", x) @ qkv + w["qkv.bias"]).split(16, 2))
    a = (q @ k.transpose(-1, -2)) / math.sqrt(8)
    a = torch.where(torch.tril(torch.ones(n, n, dtype=torch.bool)), a, torch.finfo(a.dtype).min)
    x = x + (a.softmax(-1) @ v).transpose(1, 2).reshape(x.shape) @ o + w["o.bias"]

    h = norm(w, "n1", x) @ f1 + w["f1.bias"]
    x = x + 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3))) @ f2 + w["f2.bias"]
    return norm(w, "n1", x) @ head


def main(folder, out):
    for name, forward in (("resnet-script", resnet), ("gpt2-dynamo", gpt2), ("vit-script", vit)):
        model = onnx.load(f"{folder}/{name}/model.onnx")
        weights = {}
        for t in model.graph.initializer:
            value = torch.tensor(numpy_helper.to_array(t).copy())
            weights[t.name] = value.requires_grad_() if value.is_floating_point() and value.numel() > 1 else value
        # torch writes equal weights once, with a copy for each other one.
        for node in model.graph.node:
            if node.op_type == "Identity":
                weights[node.output[0]] = weights[node.input[0]].detach().clone().requires_grad_()
        with open(f"{folder}/{name}/input_0.pb", "rb") as file:
            x = torch.tensor(numpy_helper.to_array(onnx.TensorProto.FromString(file.read())).copy())
        with open(f"{folder}/{name}/output_0.pb", "rb") as file:
            expected = torch.tensor(numpy_helper.to_array(onnx.TensorProto.FromString(file.read())).copy())
        off = (forward(weights, x) - expected).abs().max().item()
        assert off < 1e-4, f"{name} is off by {off}"
        optimizer = torch.optim.SGD([w for w in weights.values() if w.requires_grad], lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            forward(weights, x).square().mean().backward()
            optimizer.step()
        y = forward(weights, x).detach().numpy().astype(np.float32)
        print(name, off, float(expected.square().mean()), float((y**2).mean()))
        with open(f"{out}/{name}.pb", "wb") as file:
            file.write(numpy_helper.from_array(y).SerializeToString())


main(*sys.argv[1:])
