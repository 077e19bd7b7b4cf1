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


def for_training(export, plan):
    """Products in FP8 and INT8, by layers of torchao."""
    linear = importlib.import_module("torchao.float8.float8_linear").Float8Linear
    said = []
    for recipe, name in {"tensorwise": "tensorwise", "rowwise-hp-grad": "rowwise_with_gw_hp", "int8": "int8"}.items():
        torch.manual_seed(2)
        model, x = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)).bfloat16(), torch.randn(32, 32).bfloat16()
        want = model(x)
        names = run(export("torchao", "{ path: '**', operands: %s }, { path: '2', operands: none }" % recipe, model))
        assert names["RECIPES"] == {"0": name}, names["RECIPES"]
        names["train_in_8_bits"](model, emulate=True)
        assert (type(model[0]) is linear) == (recipe != "int8") and type(model[2]) is nn.Linear
        got = model(x)
        got.float().pow(2).sum().backward()
        error = ((got - want).norm() / want.norm()).item()
        assert 1e-3 < error < 0.1 and model[0].weight.grad.isfinite().all(), error
        said.append(f"{recipe} {error:.1e}")
    return f"outputs beside those in bf16: {', '.join(said)}"


def for_qwix(export, plan):
    qwix, jax = importlib.import_module("qwix"), importlib.import_module("jax")
    flax = importlib.import_module("flax.linen")
    jnp = jax.numpy

    class Mlp(flax.Module):
        @flax.compact
        def __call__(self, x):
            return flax.Dense(16, name="2")(jax.nn.relu(flax.Dense(64, name="0")(x)))

    model, x, said = Mlp(), jax.random.normal(jax.random.key(0), (32, 32)), []
    like = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
    weights = model.init(jax.random.key(1), x)
    want = model.apply(weights, x)
    for recipe in ("tensorwise", "rowwise", "mxfp8", "nvfp4", "int8"):
        rules = "{ path: '**', operands: %s }, { path: '2', operands: none }" % recipe
        provider = run(export("qwix", rules, like))["provider"]()
        there = qwix.quantize_model(model, provider)
        got, grads = jax.value_and_grad(lambda w: (there.apply(w, x) ** 2).sum())(weights)
        error = float(jnp.linalg.norm(there.apply(weights, x) - want) / jnp.linalg.norm(want))
        assert 1e-3 < error < (0.4 if recipe == "nvfp4" else 0.1), (recipe, error)
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))
        said.append(f"{recipe} {error:.1e}")
    return f"Qwix {qwix.__version__}, outputs beside those in f32: {', '.join(said)}"


def for_transformer_engine(export, plan):
    te = importlib.import_module("transformer_engine.pytorch")
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)).bfloat16().cuda()
    x = torch.randn(32, 32).bfloat16().cuda()
    want = model(x)
    run(export("transformer-engine", "{ path: '**', operands: delayed }, { path: '2', operands: none }", model))["convert"](model)
    assert isinstance(model[0], te.Linear) and type(model[2]) is nn.Linear
    error = ((model(x) - want).norm() / want.norm()).item()
    assert 1e-3 < error < 0.1, error
    return f"outputs beside those in bf16: {error:.1e}"


def main(precast):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "net.safetensors")
        save(Net().state_dict(), file)

        def command(*words, policy="o2-bf16"):
            words = [*precast, *words, "--policy", str(policy)]
            return subprocess.run(words, check=True, capture_output=True, text=True).stdout

        def export(to, rules=None, model=None):
            """The file for a library: of the network, or of a model under O2 with rules."""
            if rules is None:
                return command("export", str(file), "--to", to)
            here, policy = Path(folder, "model.safetensors"), Path(folder, "policy.yaml")
            save({name: value.float().cpu() for name, value in model.state_dict().items()}, here)
            policy.write_text(f"version: 1\nlevel: O2\ndtype: bfloat16\nrules: [{rules}]\n")
            return command("export", str(here), "--to", to, policy=policy)

        decisions = json.loads(command("plan", str(file), "--format", "json"))["decisions"]
        dtype = lambda run: getattr(torch, next(iter(run.values())))
        plan = {decision["path"]: dtype(decision["run"]) for decision in decisions}
        for library, check in {
            "torch": for_torch, "keras": for_keras, "torchao": for_torchao, "torchao, training": for_training,
            "transformer-engine": for_transformer_engine, "qwix": for_qwix, "deepspeed": for_deepspeed,
        }.items():
            try:
                print(f"{library}: {check(export, plan)}")
            except ModuleNotFoundError as error:
                print(f"{library}: LEFT OUT, {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
