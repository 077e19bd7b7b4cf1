"""Classes of modules: those of `torch.nn`, and those of others by their bases."""

from __future__ import annotations

import precast
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

CLASSES = sorted(
    name
    for name, value in vars(nn).items()
    if isinstance(value, type) and issubclass(value, nn.Module) and value is not nn.Module
)


def _bare(kind: type[nn.Module]) -> nn.Module:
    """Returns an instance without parameters: a plan reads classes."""
    made = kind.__new__(kind)
    nn.Module.__init__(made)
    return made


def test_torch_has_its_classes() -> None:
    assert len(CLASSES) >= 140
    assert {"Linear", "SyncBatchNorm", "CrossEntropyLoss", "LazyConv2d", "ParameterList"} <= set(CLASSES)


NORMS = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]
NORMS += ["LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d"]
NORMS += ["LazyInstanceNorm3d", "LayerNorm", "RMSNorm", "SyncBatchNorm"]
PRODUCTS = ["Linear", "LazyLinear", "Conv1d", "Conv2d", "Conv3d", "LazyConv1d", "LazyConv2d", "LazyConv3d"]
PRODUCTS += ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LazyConvTranspose1d", "LazyConvTranspose2d"]
PRODUCTS += ["LazyConvTranspose3d", "LSTM", "LSTMCell", "GRU", "GRUCell", "RNN", "RNNCell", "MultiheadAttention"]


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_torch_is_known_to_lists_and_rules(name: str) -> None:
    # The pack has the norms on its full list already, and the products on its low one.
    level, words, dtype = ("O1", "low", "bfloat16") if name in NORMS else ("O2", "full", "float32")
    by_list = precast.Policy(level, "bfloat16", cells={words: {"add": [name]}})
    by_rule = precast.Policy("O2", "bfloat16", rules=[{"kind": name, "run": "float32"}])
    model = nn.Sequential(nn.ReLU())
    # A list may name a class that the network does not have.
    by_list.plan(model)
    model.append(_bare(getattr(nn, name)))
    for policy, expected in ((by_list, dtype), (by_rule, "float32")):
        decision = policy.plan(model).decisions[2]
        assert (decision.kind, decision.run, decision.dtype) == (name, "fixed", expected)


def test_the_lists_of_the_levels_reach_exactly_their_classes() -> None:
    model = nn.ModuleList(_bare(getattr(nn, name)) for name in CLASSES)
    o1 = precast.Policy("O1", "bfloat16").plan(model).decisions[1:]
    assert sorted(
        decision.kind for decision in o1 if decision.dtype == "bfloat16" and decision.run == "fixed"
    ) == sorted(PRODUCTS)
    o2 = precast.Policy("O2", "bfloat16").plan(model).decisions[1:]
    assert sorted(decision.kind for decision in o2 if decision.dtype == "float32") == sorted(NORMS)


def test_classes_of_others_are_decided_by_their_bases() -> None:
    class Norm(nn.LayerNorm):
        pass

    class SpecialNorm(Norm):
        pass

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    model = nn.Sequential(SpecialNorm(4), parametrizations.weight_norm(nn.Linear(4, 4)), Scale(), Scale())
    plan = precast.Policy("O2", "bfloat16").plan(model)
    decisions = {decision.path: decision for decision in plan.decisions}
    assert (decisions["0"].kind, decisions["0"].because) == ("SpecialNorm", "full list, precast-1")
    assert decisions["1"].kind == "ParametrizedLinear"
    assert plan.notes == [
        "Scale has parameters of its own and no base in torch.nn, so no list decides for it: `2` and 1 more"
    ]
    o1 = precast.Policy("O1", "bfloat16").plan(model)
    assert o1.decisions[2].because == "low list, precast-1"
    for applied in (plan, o1):
        with applied.applied(model):
            assert model(torch.randn(2, 4)).dtype is torch.float32


@pytest.mark.filterwarnings("ignore")
def test_quantized_modules_of_torch_take_float32() -> None:
    ao = torch.ao.quantization
    dynamic = ao.quantize_dynamic(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), {nn.Linear})
    static = nn.Sequential(ao.QuantStub(), nn.Linear(8, 8), nn.ReLU(), ao.DeQuantStub(), nn.Linear(8, 4)).eval()
    for place in (0, 1, 3):
        static[place].qconfig = ao.get_default_qconfig("x86")
    ao.prepare(static, inplace=True)
    x = torch.randn(16, 8)
    static(x)
    ao.convert(static, inplace=True)
    for model, kinds in (
        (dynamic, {"0": "DynamicQuantizedLinear", "2": "DynamicQuantizedLinear"}),
        (static, {"0": "Quantize", "1": "QuantizedLinear", "3": "DeQuantize"}),
    ):
        plan = precast.Policy("O3", "bfloat16").plan(model)
        decisions = {decision.path: decision for decision in plan.decisions}
        assert {path: decisions[path].kind for path in kinds} == kinds
        assert all(decisions[path].because == "to_float(f32)" for path in kinds)
        wide = model(x)
        with plan.applied(model):
            low = model(x)
        # Steps of 8 bits, and of bfloat16 between them.
        assert 0 < (low - wide).abs().max() < 0.05 * wide.abs().max()
        assert plan.check(model, x, compiled=False)


def _rows(*shape: int) -> Tensor:
    return torch.randn(*shape)


CALLS = {
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(1), (2, 3, 8, 8)),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), (2, 3, 8, 8)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), (3, 4)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), (3, 4, 2, 2)),
    "CELU": (lambda: nn.CELU(), (2, 4)),
    "Conv1d": (lambda: nn.Conv1d(3, 4, 3), (2, 3, 8)),
    "Conv2d": (lambda: nn.Conv2d(3, 4, 3), (2, 3, 8, 8)),
    "Conv3d": (lambda: nn.Conv3d(3, 4, 3), (2, 3, 8, 8, 8)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 4, 3), (2, 3, 8, 8)),
    "Dropout": (lambda: nn.Dropout(0.5), (2, 4)),
    "ELU": (lambda: nn.ELU(), (2, 4)),
    "Flatten": (lambda: nn.Flatten(), (2, 4, 2)),
    "GELU": (lambda: nn.GELU(), (2, 4)),
    "GLU": (lambda: nn.GLU(), (2, 4)),
    "GRU": (lambda: nn.GRU(4, 3), (5, 2, 4)),
    "GRUCell": (lambda: nn.GRUCell(4, 3), (2, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (3, 4, 2)),
    "Hardswish": (lambda: nn.Hardswish(), (2, 4)),
    "Identity": (lambda: nn.Identity(), (2, 4)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), (3, 4, 2, 2)),
    "LSTM": (lambda: nn.LSTM(4, 3), (5, 2, 4)),
    "LSTMCell": (lambda: nn.LSTMCell(4, 3), (2, 4)),
    "LayerNorm": (lambda: nn.LayerNorm(4), (2, 4)),
    "LeakyReLU": (lambda: nn.LeakyReLU(), (2, 4)),
    "Linear": (lambda: nn.Linear(4, 3), (2, 4)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), (2, 4, 3, 3)),
    "LogSoftmax": (lambda: nn.LogSoftmax(-1), (2, 4)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (2, 3, 8, 8)),
    "PReLU": (lambda: nn.PReLU(), (2, 4)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), (2, 4, 3, 3)),
    "RMSNorm": (lambda: nn.RMSNorm(4), (2, 4)),
    "RNN": (lambda: nn.RNN(4, 3), (5, 2, 4)),
    "RNNCell": (lambda: nn.RNNCell(4, 3), (2, 4)),
    "ReLU": (lambda: nn.ReLU(), (2, 4)),
    "Softmax": (lambda: nn.Softmax(-1), (2, 4)),
    "Softplus": (lambda: nn.Softplus(), (2, 4)),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (2, 3, 4)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2), (2, 3, 4, 4)),
}


@pytest.mark.parametrize("run", ["low", "float32-inside"])
@pytest.mark.parametrize("name", CALLS)
def test_a_module_returns_its_planned_dtype_and_close_values(name: str, run: str) -> None:
    make, shape = CALLS[name]
    model, x = nn.Sequential(make()).eval(), _rows(*shape)
    wide = model(x)
    policy = precast.Policy("O3", "bfloat16", rules=[{"path": "0", "run": run}])
    plan = policy.plan(model)
    report = plan.check(model, x, compiled=False)
    assert report, str(report)
    with plan.applied(model):
        low = model(x)
    for one, other in zip(_leaves(wide), _leaves(low), strict=True):
        assert other.dtype is torch.float32
        assert (one - other).abs().max() <= 0.05 * one.abs().max() + 0.02
        # The input was rounded to 8 bits, and so is the output of both.
        assert torch.equal(other, other.bfloat16().float())


def _leaves(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    assert isinstance(value, tuple)
    return [leaf for part in value for leaf in _leaves(part)]


def test_a_large_model_is_planned_on_meta() -> None:
    with torch.device("meta"):
        blocks = [nn.TransformerEncoderLayer(8192, 64, 28672, batch_first=True) for _ in range(2)]
        model = nn.Sequential(nn.Embedding(128256, 8192), *blocks, nn.Linear(8192, 128256, bias=False))
    plan = precast.Policy("O2", "bfloat16").plan(model)
    assert len(plan.decisions) == 1 + 1 + 2 * 10 + 1
    assert all(parameter.device.type == "meta" for parameter in model.parameters())
