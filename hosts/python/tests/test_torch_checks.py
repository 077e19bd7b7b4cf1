"""Checks: dtypes of a call, the first fault of a step, hazards."""

from __future__ import annotations

import math

import networks
import precast
import pytest
import torch
from torch import Tensor, nn


def _plan(model: nn.Module, level: str = "O2", dtype: str = "bfloat16", **keys: object) -> precast.Plan:
    return precast.Policy(level, dtype, **keys).plan(model)


def test_a_module_whose_code_casts_by_itself_returns_as_planned() -> None:
    class Casts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x).float()

    model = nn.Sequential(Casts(), nn.Linear(4, 4))
    plan, x = _plan(model), torch.randn(2, 4)
    assert plan.check(model, x)
    with plan.applied(model):
        assert model[0](x).dtype is torch.bfloat16


def test_a_module_that_is_not_called_is_a_difference() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(4)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.layer_norm(x, (4,), self.norm.weight, self.norm.bias)

    model = nn.Sequential(Reads())
    report = _plan(model).check(model, torch.randn(2, 4), compiled=False)
    assert len(report.differences) == 1
    assert report.differences[0].startswith("`0.norm` (LayerNorm) is planned to cast and was never called")
    with pytest.raises(precast.Error, match="was never called") as caught:
        report.raise_first()
    assert caught.value.kind == "Plan"


def test_a_fault_is_found_through_wrappers_and_not_in_masks() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    plan, x = _plan(model), torch.randn(2, 4)
    for wrapped in (torch.compile(model, backend="eager"), nn.DataParallel(model)):
        assert plan.find_fault(wrapped, x) is None
    with torch.no_grad():
        model[0].weight[0, 0] = float("inf")
    fault = plan.find_fault(nn.DataParallel(model), x)
    assert fault is not None and (fault.path, fault.op) == ("0", "before any op: 0.weight")

    class Masked(nn.Module):
        def __init__(self, all_of_it: bool) -> None:
            super().__init__()
            self.mask = torch.ones(4, 4).tril() == 0 if not all_of_it else torch.ones(4, 4) == 1

        def forward(self, x: Tensor) -> Tensor:
            return x.masked_fill(self.mask, float("-inf")).softmax(-1)

    scores = torch.randn(4, 4)
    for all_of_it in (False, True):
        model = nn.Sequential(Masked(all_of_it))
        fault = _plan(model).find_fault(model, scores)
        # A row that is masked as a whole has no probabilities.
        assert (fault and (fault.path, fault.op, fault.value)) == (("0", "softmax", "nan") if all_of_it else None)

    class Logs(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * 0.0).log().exp()

    model = nn.Sequential(Logs())
    fault = _plan(model).find_fault(model, scores)
    assert fault is not None and (fault.op, fault.value) == ("log", "inf")


def test_an_op_that_stays_low_in_a_float32_module_is_a_difference() -> None:
    class Halves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.bfloat16() * 2).float()

    model = nn.Sequential(Halves())
    report = _plan(model, rules=[{"path": "0", "run": "float32"}]).check(model, torch.randn(2, 4), compiled=False)
    assert report.differences == ["`0` (Halves) is planned to run float32, and `mul` returned bfloat16"]


def test_compiled_code_that_differs_is_found() -> None:
    class Differs(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.add(x, 1.0) if torch.compiler.is_compiling() else torch.add(x.float(), 1.0).to(torch.float32)

    model = nn.Sequential(Differs())
    report = _plan(model, "auto").check(model, torch.randn(2, 4).bfloat16())
    assert report.differences == ["`0`: `add` returned float32 in eager code and bfloat16 in compiled code"]


def test_code_that_cannot_be_compiled_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("no compiler\nwith details")

    monkeypatch.setattr(torch, "compile", fails)
    model = networks.mlp().eval()
    report = _plan(model).check(model, torch.randn(2, 64))
    assert report
    assert report.notes == ["not compiled: no compiler"]


def test_a_check_leaves_statistics_gradients_and_random_numbers() -> None:
    model = networks.mlp()
    model(torch.randn(8, 64)).sum().backward()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    grads = [parameter.grad for parameter in model.parameters()]
    random = torch.get_rng_state()
    plan, x = _plan(model), torch.ones(8, 64)
    plan.check(model, x, compiled=False)
    plan.find_fault(model, x, loss=lambda y: y.sum())
    plan.lint(model, x)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())
    assert all(one is parameter.grad for one, parameter in zip(grads, model.parameters(), strict=True))
    assert torch.equal(random, torch.get_rng_state())


class Planted(nn.Module):
    """A module in which one op fails."""

    def __init__(self, op: str) -> None:
        super().__init__()
        self.op, self.fc = op, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        match self.op:
            case "exp":
                return (y * 0 + 200).exp()
            case "log":
                return (y.abs() * 0 - 1).log()
            case "div":
                return y / (y * 0)
            case "pow":
                return (y.abs() * 0 + 1e30).pow(3)
            case "sqrt":
                # Finite forward; its slope at 0 is not.
                return (y * 0).abs().sqrt() + y
            case "norm":
                return (y * 0).norm(dim=-1, keepdim=True).pow(0.5) + y
        return y


def _deep(op: str, at: int, blocks: int = 6) -> nn.Sequential:
    return nn.Sequential(*(Planted(op if place == at else "none") for place in range(blocks)))


@pytest.mark.parametrize("at", [0, 2, 5])
@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3"])
@pytest.mark.parametrize(("op", "value"), [("exp", "inf"), ("log", "nan"), ("div", "nan"), ("pow", "inf")])
def test_a_planted_fault_is_named(op: str, value: str, level: str, at: int) -> None:
    model = _deep(op, at)
    fault = _plan(model, level).find_fault(model, torch.randn(2, 8), loss=lambda y: y.float().sum())
    assert fault is not None
    names = {"div": {"div", "truediv", "__truediv__"}}.get(op, {op})
    assert fault.op in names
    assert (fault.path, fault.backward) == (str(at), False)
    assert fault.value in (value, "inf" if op == "div" else value)
    assert f"`{at}`" in str(fault)


@pytest.mark.parametrize("at", [0, 2, 5])
@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3"])
def test_a_fault_of_the_backward_pass_is_named(level: str, at: int) -> None:
    model = _deep("sqrt", at)
    fault = _plan(model, level).find_fault(model, torch.randn(2, 8), loss=lambda y: y.float().sum())
    assert fault is not None
    assert (fault.path, fault.backward) == (str(at), True)
    assert fault.op in ("backward of sqrt", "backward of abs")


def test_a_float16_overflow_is_named_with_its_magnitudes() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with torch.no_grad():
        model[1].weight.fill_(30000.0)
        model[0].weight.fill_(1.0)
    assert _plan(model, "O2", "bfloat16").find_fault(model, torch.ones(1, 4)) is None
    fault = _plan(model, "O2", "float16").find_fault(model, torch.ones(1, 4))
    assert fault is not None
    assert (fault.path, fault.op, fault.value) == ("1", "linear", "inf")
    assert fault.outputs == ["float16 [1, 4] up to none finite"]
    assert fault.because == "runs f16 (level O2)"


def test_a_scaled_loss_that_overflows_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    fault = _plan(model, "O2", "float16").find_fault(
        model, torch.full((1, 4), 60000.0), loss=lambda y: y.float().pow(2).sum(), scale=1e38
    )
    assert fault is not None
    assert fault.backward or fault.op.startswith("the loss, times")


def test_bad_inputs_and_parameters_are_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    fault = _plan(model).find_fault(model, torch.full((1, 4), math.nan))
    assert fault is not None and fault.op == "before any op: input 0"
    with torch.no_grad():
        model[0].weight[0, 0] = math.inf
    fault = _plan(model).find_fault(model, torch.ones(1, 4))
    assert fault is not None and (fault.path, fault.op) == ("0", "before any op: 0.weight")


@pytest.mark.parametrize("name", networks.CASES)
def test_a_sound_step_has_no_fault_and_no_lint(name: str) -> None:
    make, draw = networks.CASES[name]
    model, x = make(), draw()
    for dtype in ("bfloat16", "float16"):
        plan = _plan(model, "O2", dtype)
        assert plan.find_fault(model, x, loss=lambda y: y.float().pow(2).mean(), scale=1024.0) is None
        assert plan.lint(model, x) == []


def test_hazards_are_listed() -> None:
    class Loss(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.binary_cross_entropy(x.sigmoid(), torch.ones_like(x))

    class Half(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.half().float()

    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=1e-12), nn.Linear(4, 4), Half(), Loss())
    with torch.no_grad():
        model[0].weight.fill_(1e5)
        model[2].weight.fill_(1e-9)
        model[2].bias.zero_()
    model[3].register_forward_hook(lambda module, args, output: None)
    lints = precast.Policy("O3", "float16").plan(model).lint(model, torch.ones(2, 4))
    expected = [
        "`0`: its output reaches 4e+05; torch.float16 ends at 65504",
        "`3`: its code casts to 16 bits by itself (`half`), whatever a plan says",
        "`4`: `binary_cross_entropy` is an error in autocast on CUDA; use `binary_cross_entropy_with_logits`",
        "`0`: `weight` is beyond torch.float16, which ends at 65504",
        "`1`: its eps of 1e-12 is 0 in torch.float16",
        "`2`: all of `weight` is 0 in torch.float16",
        "`3`: it has hooks; `torch.compile` ignores those that are added after it has compiled",
    ]
    assert sorted(lints) == sorted(expected)
    # In bfloat16, only what has nothing to do with the range is left.
    fewer = precast.Policy("O3", "bfloat16").plan(model).lint(model, torch.ones(2, 4))
    assert sorted(fewer) == sorted(line for line in expected if "float16" not in line)
