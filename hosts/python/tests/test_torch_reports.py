"""Public reports about the precision of modules of torch, each as a small network.

A test shows what the report met, where torch and its libraries still do it on a CPU, and then the network by a plan.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import precast
import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

BF16, F32 = torch.bfloat16, torch.float32
RUNNING = tuple(int(part) for part in torch.__version__.split(".")[:2])

compiles = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a compiler of C++")
rms_norm_is_listed = pytest.mark.skipif(RUNNING < (2, 12), reason="rms_norm joined the list in torch 2.12")


def _plan(model: nn.Module, *rules: dict[str, object], level: str = "O2", dtype: str = "bfloat16") -> precast.Plan:
    return precast.Policy(level, dtype, rules=rules).plan(model)


def _returned(model: nn.Module, call: Callable[[], object]) -> dict[str, torch.dtype]:
    """Returns the dtype of what each module returns in a call, by its path."""
    found: dict[str, torch.dtype] = {}

    def hook(path: str) -> Callable[[nn.Module, object, Any], None]:
        return lambda module, inputs, output: found.update({path: getattr(output, "dtype", None)})

    hooks = [module.register_forward_hook(hook(path)) for path, module in model.named_modules()]
    with torch.no_grad():
        call()
    for handle in hooks:
        handle.remove()
    return found


def _planned(plan: precast.Plan, model: nn.Module, *batch: object) -> dict[str, torch.dtype]:
    with plan.applied(model):
        return _returned(model, lambda: model(*batch))


def _autocast(model: nn.Module, *batch: object) -> dict[str, torch.dtype]:
    """Returns the dtypes of a call in `torch.autocast`, on the CPU and on the CUDA of `_cuda`."""
    # The class torch.autocast turns itself off without a device of CUDA.
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", BF16)
    try:
        with torch.autocast("cpu", BF16):
            return _returned(model, lambda: model(*batch))
    finally:
        torch.set_autocast_enabled("cuda", False)


@contextmanager
def _cuda() -> Iterator[None]:
    """Makes tensors of CUDA without data: ops give them the dtypes that autocast on CUDA gives."""
    with FakeTensorMode(), torch.device("cuda"):
        yield


@pytest.fixture
def mesh() -> Iterator[Any]:
    """A mesh of one process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.device_mesh.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


class Block(nn.Module):
    """A residual block with a norm and a router."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.router, self.fc = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        return x + self.fc(h) * self.router(h).sigmoid()


class Then(nn.Linear):
    """A layer, and a function of what it returns."""

    def __init__(self, width: int, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__(width, width)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(super().forward(x))


def _t5() -> tuple[Any, Tensor]:
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, vocab_size=16)
    return transformers.T5EncoderModel(config).eval(), torch.randint(16, (1, 4))


# Which modules a rule reaches.


def test_transformers_47990() -> None:
    """transformers 47990: an unanchored pattern of a gate also reaches gate_proj."""
    model, x = nn.Sequential(nn.Sequential()), torch.randn(2, 8)
    for name in ("gate", "gate_proj", "down_proj"):
        model[0].add_module(name, nn.Linear(8, 8))
    assert [path for path, _ in model.named_modules() if re.match("0.gate", path)] == ["0.gate", "0.gate_proj"]
    plan = _plan(model, {"path": "*.gate", "run": "float32", "expect": 1, "because": "it routes"})
    met = _planned(plan, model, x)
    assert (met["0.gate"], met["0.gate_proj"], met["0.down_proj"]) == (F32, BF16, BF16)
    assert "it routes" in plan.explain("0.gate") and "it routes" not in plan.explain("0.gate_proj")


def test_transformers_45674() -> None:
    """transformers 45674: a skip list of one's own took the head off the list, and it was quantized."""
    transformers = pytest.importorskip("transformers")
    skipped = pytest.importorskip("transformers.quantizers.base").HfQuantizer.get_modules_to_not_convert
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small, vocab_size=16))
    own = "model.layers.0.mlp.down_proj"
    assert skipped(model) == ["lm_head"] and skipped(model, [own]) == [own]
    head = {"path": "lm_head", "run": "float32"}
    before, plan = _plan(model, head), _plan(model, head, {"path": own, "run": "float32"})
    assert plan.diff(before).changes == [(own, "runs f32", "runs bf16")]
    assert set(skipped(model, plan.to_hf_skip_list())) == {"lm_head", own}


def test_llm_compressor_1428() -> None:
    """llm-compressor 1428: the head is `language_model.lm_head`, so the entry `lm_head` did not keep it."""
    model = nn.ModuleDict({"language_model": nn.ModuleDict({"fc": nn.Linear(4, 4), "lm_head": nn.Linear(4, 8)})})
    assert "lm_head" not in dict(model.named_modules())
    with pytest.raises(precast.Error, match=r"path lm_head matches no cell .*`language_model\.lm_head`"):
        _plan(model, {"path": "lm_head", "run": "float32"})
    with pytest.raises(precast.Error, match="a segment is a name"):
        _plan(model, {"path": "re:.*lm_head", "run": "float32"})
    plan = _plan(model, {"path": "**.lm_head", "run": "float32", "expect": 1})
    assert plan.to_hf_skip_list() == ["language_model.lm_head"]


def test_diffusers_10347() -> None:
    """diffusers 10347: the name of a class among patterns of paths matches nothing, without a word."""
    casting = pytest.importorskip("diffusers.hooks").apply_layerwise_casting

    class MaskDecoder(Block):
        pass

    model, x = nn.Sequential(nn.Linear(8, 8), MaskDecoder()), torch.randn(2, 8)
    casting(lowered := nn.Sequential(MaskDecoder()), torch.float8_e4m3fn, F32, skip_modules_pattern=("MaskDecoder",))
    assert lowered[0].fc.weight.dtype is torch.float8_e4m3fn
    with pytest.raises(precast.Error, match="path MaskDecoder matches no cell"):
        _plan(model, {"path": "MaskDecoder", "run": "float32"})
    met = _planned(_plan(model, {"kind": "MaskDecoder", "run": "float32"}), model, x)
    assert (met["0"], met["1.fc"], met["1"]) == (BF16, F32, F32)


# Whether float32 holds at run time.


def test_transformers_39058(tmp_path: Path) -> None:
    """transformers 39058: modules to keep in float32 are bfloat16 in a model that is loaded in bfloat16."""
    model, ids = _t5()
    model.save_pretrained(tmp_path)
    for dtype, kept in ((torch.float16, F32), (BF16, BF16)):
        loaded = type(model).from_pretrained(tmp_path, dtype=dtype)
        assert loaded.encoder.block[0].layer[1].DenseReluDense.wo.weight.dtype is kept
        plan = _plan(model, {"path": "**.wo", "run": "float32", "expect": 2}, dtype=str(dtype).removeprefix("torch."))
        met = _planned(plan, model, ids)
        assert met["encoder.block.0.layer.1.DenseReluDense.wo"] is F32
        assert met["encoder.block.0.layer.1.DenseReluDense.wi"] is dtype


def test_transformers_43683() -> None:
    """transformers 43683: modules meant for float32 beside float16 alone are float32 beside bfloat16, too."""
    (model, ids), wo = _t5(), "encoder.block.0.layer.1.DenseReluDense.wo"
    forced, _ = _t5()
    forced.bfloat16().get_submodule(wo).float()
    met = _returned(forced, lambda: forced(ids))
    # And so is what is behind it, as a residual sum takes the wider dtype.
    assert (met["encoder.block.0.layer.0.SelfAttention.q"], met[wo], met["encoder.block.0.layer.1"]) == (BF16, F32, F32)
    plan = _plan(model)
    met = _planned(plan, model, ids)
    assert (met[wo], met["encoder.block.0.layer.1"]) == (BF16, BF16)
    assert plan.check(model, ids, compiled=False) and "because  level O2" in plan.explain(wo)


def test_axolotl_3670() -> None:
    """axolotl 3670: norms of the model's own class fell to bfloat16, and perplexity rose 5 to 60 times."""
    inside = []

    class AfmoeRMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))

        def forward(self, x: Tensor) -> Tensor:
            inside.append((x.dtype, self.weight.dtype))
            return x * x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt() * self.weight

    model, x = nn.Sequential(AfmoeRMSNorm(), nn.Linear(8, 8), AfmoeRMSNorm(), nn.Linear(8, 8)), torch.randn(2, 8)
    model.bfloat16()(x.bfloat16())
    assert set(inside) == {(BF16, BF16)}
    # No list knows the class, which the plan says.
    assert any("AfmoeRMSNorm has parameters of its own" in note for note in _plan(model.float()).notes)
    plan = _plan(model, {"kind": "AfmoeRMSNorm", "run": "float32-inside", "expect": 2})
    inside.clear()
    met = _planned(plan, model, x)
    assert set(inside) == {(F32, F32)}
    assert (met["0"], met["1"], met["2"]) == (BF16, BF16, BF16)
    assert plan.check(model, x, compiled=False)


def test_pytorch_49038() -> None:
    """pytorch 49038: no means to run one class in float32 in autocast without a change of its code."""
    model, x = nn.Sequential(Then(8, lambda y: (y @ y.T).tanh()), nn.Linear(2, 2)), torch.randn(2, 8)
    assert _autocast(model, x)["0"] is BF16
    wide = model[0](x)
    with _plan(model, {"kind": "Then", "run": "float32"}, level="auto").applied(model):
        met = _autocast(model, x)
        assert torch.equal(model[0](x), wide)
    assert (met["0"], met["1"]) == (F32, BF16)


def test_lerobot_3912() -> None:
    """lerobot 3912: autocast never did anything in the training loop, and nothing said so."""

    class Off(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", enabled=False):
                return super().forward(x.float())

    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.randn(2, 4)
    with accelerator.autocast():
        assert _returned(model, lambda: model(x))["0"] is F32
    plan = _plan(model)
    assert plan.check(model, x, compiled=False) and _planned(plan, model, x)["0"] is BF16
    # Where code turns it off, the check says where.
    report = _plan(model.append(Off(4, 4))).check(model, x, compiled=False)
    assert report.differences == ["`2` (Off) is planned to return bfloat16 and returned float32"]


# What is stored and sharded.


def test_verl_7092() -> None:
    """verl 7092: nothing reads the list of modules to keep in float32, and they are loaded in bfloat16."""
    model, keep = nn.Sequential(Block(), Block()), ["router"]
    plan = _plan(model, *({"path": f"**.{name}", "run": "float32"} for name in keep))
    met = _planned(plan, model, torch.randn(2, 8))
    assert (met["0.router"], met["0.fc"], model[0].router.weight.dtype) == (F32, BF16, F32)
    model[0].router.bfloat16()
    with pytest.raises(
        precast.Error, match=r"`0\.router` runs float32, and its parameter `weight` is stored in bfloat"
    ):
        plan.apply(model)


def test_verl_7165() -> None:
    """verl 7165: a cast of the whole model also rounds the buffers of modules that are to stay in float32."""
    model, x = nn.Sequential(Then(8, lambda y: y.sigmoid() + model[0].correction)), torch.randn(2, 8)
    model[0].register_buffer("correction", torch.rand(8))
    model.bfloat16()
    # Parameters are loaded again, or have copies in float32; buffers that are not stored stay rounded.
    for parameter in model.parameters():
        parameter.data = parameter.data.float()
    plan = _plan(model, {"path": "0", "run": "float32"})
    assert any("correction" in line for line in plan.lint(model, x))


def _shard(model: nn.Module, plan: precast.Plan, mesh: Any) -> nn.Module:
    for path, mixed in plan.to_fsdp2():
        fully_shard(model.get_submodule(path), mesh=mesh, mp_policy=mixed)
    return model


def test_accelerate_4110(mesh: Any) -> None:
    """accelerate 4110: FSDP2 gathers norms in bfloat16 with the block around them, and training converges badly."""
    gathered: list[torch.dtype] = []
    whole, model, x = nn.Sequential(Block()), nn.Sequential(Block()), torch.randn(2, 8)
    fully_shard(whole, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=BF16))
    _shard(model, _plan(model), mesh)
    for sharded in (whole, model):
        for module in (sharded[0].norm, sharded[0].fc):
            module.register_forward_hook(lambda module, inputs, output: gathered.append(module.weight.dtype))
        sharded(x).float().sum().backward()
    assert gathered == [BF16, BF16, F32, BF16]


def test_pytorch_156784(mesh: Any) -> None:
    """pytorch 156784: FSDP2 refuses modules of different dtypes in one group."""
    x, stored, model = torch.randn(2, 8), nn.Sequential(Block(), Block()), nn.Sequential(Block(), Block())
    stored[0].bfloat16()
    with pytest.raises(AssertionError, match="uniform original parameter dtype"):
        fully_shard(stored, mesh=mesh)(x)
    _shard(model, _plan(model, {"path": "1", "run": "float32"}), mesh)
    met = _returned(model, lambda: model(x))
    model(x).sum().backward()
    assert (met["0.fc"], met["1.fc"]) == (BF16, F32)
    assert {parameter.grad.dtype for parameter in model.parameters()} == {F32}


def test_torchtune_2254() -> None:
    """torchtune 2254: training in bfloat16 converges badly, as weights and states of the optimizer are bfloat16."""

    def trained(model: nn.Module) -> float:
        weight = nn.init.ones_(model[0].weight)
        optimizer = torch.optim.AdamW([weight], 1e-3, weight_decay=0.0)
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.ones(1, 1, dtype=weight.dtype)).float().sum().backward()
            optimizer.step()
        assert optimizer.state[weight]["exp_avg"].dtype is weight.dtype
        return weight.item()

    # Steps of 0.001 are less than half of the step of a bfloat16 at 1.
    assert trained(nn.Sequential(nn.Linear(1, 1)).bfloat16()) == 1.0
    model = nn.Sequential(nn.Linear(1, 1))
    assert abs(trained(_plan(model).apply(model)) - 0.98) < 1e-4
    assert _returned(model, lambda: model(torch.ones(1, 1)))["0"] is BF16


def test_torchtune_2267(mesh: Any) -> None:
    """torchtune 2267: the dtypes of FSDP2 come from a file, and gradients are to be summed in float32."""
    policy = precast.Policy.parse("version: 1\nlevel: O2\ndtype: bfloat16\n", "recipe.yaml")
    low, model = (nn.Sequential(nn.Linear(1, 1, bias=False)) for _ in range(2))
    fully_shard(low, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=BF16))
    _shard(model, policy.plan(model), mesh)
    sums = []
    for sharded in (low, model):
        # Gradients of two batches are summed as those of two processes are.
        for last, value in enumerate((1.0, 2.0**-9)):
            sharded.set_requires_gradient_sync(bool(last))
            sharded(torch.full((1, 1), value)).float().sum().backward()
        sums.append(sharded[0].weight.grad.full_tensor().item())
    assert sums == [1.0, 1.0 + 2.0**-9]


# Lists that move between versions.


@rms_norm_is_listed
def test_pytorch_188955() -> None:
    """pytorch 188955: from 2.12 on, autocast widens rms_norm even of a bfloat16 input and weight."""
    with _cuda():
        model, x = nn.Sequential(nn.RMSNorm(8, dtype=BF16)), torch.empty(2, 8, dtype=BF16)
        assert _autocast(model, x)["0"] is F32
        with precast.pin("torch-2.11-cuda") as pinned:
            assert _autocast(model, x)["0"] is BF16 and "rms_norm" in pinned.ops
        assert _autocast(model, x)["0"] is F32


@rms_norm_is_listed
def test_fastvideo_1587() -> None:
    """FastVideo 1587: what a module with a functional norm returns drifted to float32 with a new torch."""

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.rms_norm(self.fc(x), (8,))

    with _cuda():
        model, x = nn.Sequential(Scale(), nn.Linear(8, 8)), torch.empty(2, 8)
        assert _autocast(model, x)["0"] is F32
        plan = _plan(model)
        assert plan.decisions[1].effect == "runs bf16"
        assert _planned(plan, model, x)["0"] is BF16


@rms_norm_is_listed
def test_fastvideo_1488() -> None:
    """FastVideo 1488: norms in float32 widen the activations behind them, and stages took 77 to 79 % longer."""
    with _cuda():
        model, x = nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8), nn.SiLU(), nn.Linear(8, 8)), torch.empty(2, 8)
        before, after = _autocast(model, x), _planned(_plan(model), model, x)
    assert [before[path] for path in "0123"] == [BF16, F32, F32, BF16]
    assert [after[path] for path in "0123"] == [BF16, BF16, BF16, BF16]


@rms_norm_is_listed
def test_diffusers_14104() -> None:
    """diffusers 14104: with normed queries in float32 beside values in bfloat16, kernels of attention fail."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qv, self.norm = nn.Linear(8, 16), nn.RMSNorm(8)

        def forward(self, x: Tensor) -> Tensor:
            q, v = self.qv(x).chunk(2, dim=-1)
            if (self.norm(q).dtype, v.dtype) != (BF16, BF16):
                raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
            return v

    with _cuda():
        model, x = nn.Sequential(Attention()), torch.empty(1, 4, 8)
        with pytest.raises(RuntimeError, match="FlashAttention"):
            _autocast(model, x)
        assert _planned(plan := _plan(model), model, x)["0"] is BF16
        assert plan.decisions[3].effect == "runs f32, returns bf16"


# Compiled code.


class Gated(nn.Module):
    """A product of two layers, and the sum of its halves."""

    def __init__(self) -> None:
        super().__init__()
        self.p_in, self.g_in = nn.Linear(32, 64, bias=False), nn.Linear(32, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        a, b = (self.p_in(x) * self.g_in(x)).chunk(2, dim=-1)
        return a + b


@compiles
def test_pytorch_168186() -> None:
    """pytorch 168186: compiled code in bfloat16 differs from eager code, and which module it is has to be guessed."""
    model, x = nn.Sequential(nn.Linear(32, 32), Gated(), nn.Linear(32, 4)).eval(), torch.randn(8, 32)
    with _plan(model).applied(model):
        eager = precast.dump(model, x)
        model.compile()
        found = precast.compare(eager, precast.dump(model, x))
    rows = {row.name: row for row in found.rows}
    # The layers inside return the same bits: it is what the module does with them.
    assert rows["1.p_in"].relative == rows["1.g_in"].relative == 0.0
    assert found.first is rows["1"] and 0 < rows["1"].steps < 2


def test_pytorch_150638() -> None:
    """pytorch 150638: outputs in bfloat16 differ with torch.compile, which two dumps should show."""

    def backend(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Callable[..., Any]:
        return lambda *inputs: [2.0 * output for output in graph(*inputs)]

    model, x = nn.Sequential(Gated()).eval(), torch.randn(8, 32)
    compiled = torch.compile(model, backend=backend)
    assert torch.equal(compiled(x), 2.0 * model(x))
    with pytest.raises(precast.Error, match=r"`model.compile\(\)` compiles them in place"):
        precast.dump(compiled, x)
    here = precast.dump(model, x)
    model.compile(backend=backend)
    assert not precast.compare(here, precast.dump(model, x))


def test_pytorch_181568() -> None:
    """pytorch 181568: the code of a module rounds to bfloat16, which compiled code leaves out."""
    model, x = nn.Sequential(nn.Linear(4, 4), Then(4, lambda y: y.to(BF16) + 1.0)), torch.randn(2, 4)
    assert _returned(model, lambda: model(x))["1"] is BF16
    assert _plan(model).lint(model, x) == ["`1`: its code casts to 16 bits by itself (`to`), whatever a plan says"]


# The first number that is not finite.


def _mean(y: Tensor) -> Tensor:
    return y.float().pow(2).mean()


def _fill(model: nn.Module, *weights: float) -> nn.Module:
    for layer, weight in zip(model, weights, strict=True):
        nn.init.constant_(layer.weight, weight)
        nn.init.zeros_(layer.bias)
    return model


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected in")
def test_pytorch_160016() -> None:
    """pytorch 160016: anomaly mode names an op of the loss, far from the one that made the first inf."""
    layers = (nn.Linear(2, 2), Then(2, torch.exp), Then(2, lambda y: y - y.max()))
    model, x = _fill(nn.Sequential(*layers), 100.0, 1.0, 1.0), torch.ones(1, 2)
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="PowBackward0"):
        _mean(model(x)).backward()
    fault = _plan(model).find_fault(model, x, loss=_mean)
    assert fault is not None and (fault.path, fault.op, fault.value, fault.backward) == ("1", "exp", "inf", False)


def test_pytorch_182156() -> None:
    """pytorch 182156: hooks on modules do not look into dicts, and those that do fire for all that pass a NaN on."""

    class Part(Then):
        def forward(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"h": super().forward(state["h"])}

    functions = (torch.relu, lambda y: (-1.0 - y.abs()).sqrt(), torch.relu)
    model, state, bad = nn.Sequential(*(Part(4, function) for function in functions)), {"h": torch.randn(2, 4)}, []
    for module in model:
        module.register_forward_hook(lambda module, state, out: bad.append(bool(out["h"].isnan().any())))
    model(state)
    assert bad == [False, True, True]
    fault = _plan(model).find_fault(model, state)
    assert fault is not None and (fault.path, fault.op, fault.value) == ("1", "sqrt", "nan")


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_pytorch_83537() -> None:
    """pytorch 83537: anomaly mode looks for NaN, and lets an inf of the backward pass through."""
    model, x = _fill(nn.Sequential(nn.Linear(1, 1), Then(1, torch.sqrt)), 1.0, 1.0), torch.ones(1, 1)
    with torch.no_grad():
        model[1].bias.fill_(-1.0)
    with torch.autograd.detect_anomaly():
        model(x).sum().backward()
    assert model[0].weight.grad.isinf().all()
    fault = _plan(model).find_fault(model, x, loss=lambda y: y.float().sum())
    assert fault is not None and (fault.path, fault.op, fault.value) == ("1", "backward of sqrt", "inf")


def test_miles_1560() -> None:
    """miles 1560: the norm of the gradients is NaN in the first step, though loss and activations are finite."""

    def normed(y: Tensor) -> Tensor:
        # The square root has no slope at a row of zeros, such as padding.
        y = y / (y.pow(2).sum(-1, keepdim=True).sqrt() + 1e-6)
        return y + (y @ y.transpose(-1, -2)).softmax(-1) @ y

    model, x = nn.Sequential(nn.Linear(4, 4), Then(4, normed), nn.Linear(4, 4)), torch.randn(1, 3, 4)
    x[:, 2] = 0.0
    for layer in model[:2]:
        nn.init.zeros_(layer.bias)
    loss = _mean(model(x))
    loss.backward()
    assert loss.isfinite() and nn.utils.get_total_norm([one.grad for one in model.parameters()]).isnan()
    fault = _plan(model).find_fault(model, x, loss=_mean)
    assert fault is not None and (fault.path, fault.op) == ("1", "backward of sqrt")


def test_returnn_1446() -> None:
    """returnn 1446: the first NaN in float16 is sought in a network that masks energies by -inf on purpose."""

    def masked(y: Tensor) -> Tensor:
        return (y @ y.transpose(-1, -2)).masked_fill(torch.ones(3, 3).triu(1).bool(), -torch.inf).softmax(-1) @ y

    model, x = nn.Sequential(Then(4, masked), nn.Linear(4, 4)), torch.randn(1, 3, 4)
    assert model(x).isfinite().all()
    nn.init.constant_(model[1].bias, 1e6)
    fault = _plan(model, dtype="float16").find_fault(model, x)
    assert fault is not None and (fault.path, fault.op) == ("1", "linear")
