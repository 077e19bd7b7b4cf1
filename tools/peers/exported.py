"""Runs what `precast export` writes with the libraries for which it is written. `cargo xtask export --python PATH` starts it."""

import importlib
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, scale=None):
        y = self.down(torch.relu(self.up(self.norm(x))))
        return x + (y if scale is None else y * scale)


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(2))
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 50)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, scale=torch.ones((), dtype=torch.float32))
        x = x + self.attention(x, x, x)[0]
        return self.head(self.norm(self.rnn(x)[0]))


def save(state, path):
    """Writes a safetensors file of f32 tensors."""
    header, data = {}, b""
    for name, value in state.items():
        bytes_ = value.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def run(text):
    """The names that a Python file defines."""
    names = {}
    exec(compile(text, "exported", "exec"), names)
    return names


def for_torch(export, plan):
    torch.manual_seed(1)
    model, ids = Net().eval(), torch.arange(12).reshape(2, 6)
    want, met = model(ids), {}
    hooks = run(export("torch"))["apply"](model)

    def note(path):
        def hook(_, args, kwargs):
            floats = [x.dtype for x in [*args, *kwargs.values()] if isinstance(x, torch.Tensor) and x.is_floating_point()]
            met[path] = floats[0] if floats else None

        return hook

    for path, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(note(path), with_kwargs=True))
    got = model(ids)
    for path, run_in in plan.items():
        dtypes = {p.dtype for p in model.get_submodule(path).parameters(recurse=False)}
        assert dtypes <= {run_in}, (path, dtypes, run_in)
        # Attention reads the weights of its projection, and does not call it.
        if met.get(path) is not None:
            assert met[path] == run_in, (path, met[path], run_in)
    assert got.dtype == torch.float32
    error = (got - want).abs().max() / want.abs().max()
    assert 0 < error < 2e-2, error
    for hook in hooks:
        hook.remove()
    return f"{len(plan)} modules run in the dtypes of the plan; the outputs differ by {error:.1e} of the largest"


def for_keras(export, plan):
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = importlib.import_module("keras")
    names = run(export("keras"))
    keras.config.set_dtype_policy(names["policy_map"]("net"))
    layers = [keras.layers.LayerNormalization(name="norm"), keras.layers.Dense(50, name="head")]
    net = keras.Sequential(layers, name="net")
    net.build((2, 16))
    for layer in net.layers:
        want = str(plan[layer.path.split("/", 1)[1]]).removeprefix("torch.")
        assert (layer.compute_dtype, layer.variable_dtype) == (want, "float32"), (layer.path, layer.dtype_policy)
    met = net(keras.ops.ones((2, 16)))
    assert keras.backend.standardize_dtype(met.dtype) == str(plan["head"]).removeprefix("torch.")
    return f"Keras {keras.__version__}: {len(net.layers)} layers compute in the dtypes of the plan"


def for_torchao(export, plan):
    torchao = importlib.import_module("torchao")
    quantization = importlib.import_module("torchao.quantization")
    model = Net()
    config = run(export("torchao"))["fqn_to_config"](quantization.Int8WeightOnlyConfig())
    quantization.quantize_(model, config, filter_fn=None)
    linear = {path: module for path, module in model.named_modules() if type(module) is nn.Linear}
    # Of attention only the layer itself is known to torchao.
    for path, module in linear.items():
        lowered = type(module.weight.data) is not torch.Tensor
        assert lowered == (plan[path] != torch.float32), (path, type(module.weight))
    return f"torchao {torchao.__version__}: {len(linear)} linear layers are lowered as the plan says"


def for_deepspeed(export, plan):
    deepspeed = importlib.import_module("deepspeed")
    config = importlib.import_module("deepspeed.runtime.config")
    autocast = importlib.import_module("deepspeed.runtime.torch_autocast")
    told = json.loads(export("deepspeed"))
    assert config.get_torch_autocast_enabled(told)
    assert config.get_torch_autocast_dtype(told) == torch.bfloat16
    modules = config.get_lower_precision_safe_modules(told)

    class Engine:
        module = Net()
        zero_quantized_weights = staticmethod(lambda: False)

    autocast.init_autocast_params(Engine, torch.bfloat16, modules)
    for path, module in Engine.module.named_modules():
        low = {autocast.has_comm_dtype(p) for p in module.parameters(recurse=False)}
        if type(module) in (nn.Linear, nn.LayerNorm):
            assert low == {plan[path] == torch.bfloat16}, (path, low)
    return f"DeepSpeed {deepspeed.__version__}: classes of modules communicate as the plan says"


def main(precast):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "net.safetensors")
        save(Net().state_dict(), file)

        def command(*words):
            return subprocess.run([*precast, *words, "--policy", "o2-bf16"], check=True, capture_output=True, text=True).stdout

        decisions = json.loads(command("plan", str(file), "--format", "json"))["decisions"]
        dtype = lambda run: getattr(torch, next(iter(run.values())))
        plan = {decision["path"]: dtype(decision["run"]) for decision in decisions}
        for library, check in {
            "torch": for_torch, "keras": for_keras, "torchao": for_torchao, "deepspeed": for_deepspeed,
        }.items():
            try:
                print(f"{library}: {check(lambda to: command('export', str(file), '--to', to), plan)}")
            except ModuleNotFoundError as error:
                print(f"{library}: LEFT OUT, {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
