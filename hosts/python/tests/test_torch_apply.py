"""Plans applied to networks of torch, and taken back."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
from collections.abc import Callable

import networks
import precast
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = ["O1", "O2", "O3", "auto"]


def _state(model: nn.Module) -> list[object]:
    """Everything of a network that a plan may not change."""
    seen: list[object] = []
    for name, module in model.named_modules():
        seen.append((name, id(module), type(module), sorted(module.__dict__)))
        seen.append([(key, id(value)) for key, value in module._parameters.items()])
        seen.append([len(module._forward_hooks), len(module._forward_pre_hooks), len(module._backward_hooks)])
    return seen


def _grads(model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    model(x).float().pow(2).sum().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", networks.CASES)
def test_a_call_is_as_planned_and_undone_exactly(name: str, level: str) -> None:
    make, draw = networks.CASES[name]
    model, x = make().eval(), draw()
    before, keys, wide = _state(model), list(model.state_dict()), model(x)
    plan = precast.Policy(level, "bfloat16").plan(model)
    report = plan.check(model, x, compiled=level == "O2")
    assert report, str(report)
    assert (report.ops > 0) == (level == "O2")
    assert _state(model) == before
    assert plan.apply(model) is model
    low, applied = model(x), _state(model)
    plan.apply(model)
    assert _state(model) == applied
    assert list(model.state_dict()) == keys
    # A bfloat16 has 8 bits: errors of a few of its steps.
    assert not torch.equal(low.float(), wide)
    assert (low.float() - wide).abs().max() <= 0.05 * wide.abs().max()
    plan.undo(model)
    assert _state(model) == before
    assert torch.equal(model(x), wide)


def test_gradients_and_parameters_are_float32() -> None:
    model = networks.Gpt()
    ids = torch.randint(64, (2, 16))
    wide = _grads(model, ids)
    with precast.Policy("O2", "bfloat16").plan(model).applied(model):
        low = _grads(model, ids)
    assert {grad.dtype for grad in low} == {torch.float32}
    for one, other in zip(wide, low, strict=True):
        assert (one - other).norm() <= 0.1 * one.norm()


@pytest.mark.parametrize(
    ("name", "level", "backend", "threads"),
    [
        *[(name, "O2", "eager", 1) for name in networks.CASES],
        *[("gpt", level, "eager", 1) for level in ("O1", "O3", "auto")],
        *[("gpt", "O2", "aot_eager", threads) for threads in (1, 4)],
    ],
)
def test_compiled_code_has_the_bits_of_eager_code(name: str, level: str, backend: str, threads: int) -> None:
    make, draw = networks.CASES[name]
    model, x = make().eval(), draw()
    had = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        wide = compiled(x)
        assert torch.equal(wide, model(x))
        plan = precast.Policy(level, "bfloat16").plan(model)
        plan.apply(model)
        # Compiled before: it is compiled again.
        low = compiled(x)
        assert torch.equal(low, model(x))
        assert not torch.equal(low.float(), wide)
        plan.undo(model)
        assert torch.equal(compiled(x), wide)
    finally:
        torch.set_num_threads(had)


def test_a_compiled_step_has_the_gradients_of_an_eager_one() -> None:
    model, x = networks.mlp(), torch.randn(8, 64)
    precast.Policy("O2", "bfloat16").plan(model).apply(model)
    eager = [grad.clone() for grad in _grads(copy.deepcopy(model), x)]
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for one, other in zip(eager, _grads(compiled, x), strict=True):
        assert torch.equal(one, other)


def test_a_copy_is_independent() -> None:
    model = networks.mlp().eval()
    x = torch.randn(8, 64)
    precast.Policy("O2", "bfloat16").plan(model).apply(model)
    there = copy.deepcopy(model)
    assert torch.equal(there(x), model(x))
    with torch.no_grad():
        there[6].weight.zero_()
        there[6].bias.zero_()
    assert there(x).abs().max() == 0
    assert model(x).abs().max() > 0


def test_a_pickled_network_runs_without_the_plan() -> None:
    model, x = networks.mlp().eval(), torch.randn(8, 64)
    wide = model(x)
    plan = precast.Policy("O2", "bfloat16").plan(model)
    plan.apply(model)
    there = pickle.loads(pickle.dumps(model))
    assert torch.equal(there(x), wide)
    assert torch.equal(plan.apply(there)(x), model(x))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), wide)


def test_another_plan_replaces_the_first_and_a_block_restores_it() -> None:
    model, x = networks.mlp().eval(), torch.randn(8, 64)
    o1, o2 = (precast.Policy(level, "bfloat16").plan(model) for level in ("O1", "O2"))
    fresh = o2.apply(copy.deepcopy(model))
    o1.apply(model)
    state = _state(model)
    with o2.applied(model) as same:
        assert same is model
        assert torch.equal(model(x), fresh(x))
    assert _state(model) == state


def test_a_forward_of_ones_own_is_kept() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    own = model[0].forward
    called = []

    def counted(x: Tensor) -> Tensor:
        called.append(x.dtype)
        return own(x)

    model[0].forward = counted  # type: ignore[method-assign]
    plan = precast.Policy("O1", "bfloat16").plan(model)
    with plan.applied(model):
        assert model(torch.randn(2, 4)).dtype is torch.float32
    assert called == [torch.bfloat16]
    assert model[0].__dict__["forward"] is counted
    assert not [key for key in model[0].__dict__ if "precast" in key]


def test_hooks_of_others_run() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    met = []
    model[0].register_forward_pre_hook(lambda module, args: met.append(args[0].dtype))
    model[0].register_forward_hook(lambda module, args, output: met.append(output.dtype))
    with precast.Policy("O1", "bfloat16").plan(model).applied(model):
        model(torch.randn(2, 4))
    assert met == [torch.float32, torch.float32]


def test_nested_inputs_are_cast_and_integers_are_not() -> None:
    met: list[object] = []

    class Takes(nn.Module):
        def forward(self, x: Tensor, more: dict[str, object], *, mask: Tensor) -> dict[str, object]:
            pair = more["pair"]
            assert isinstance(pair, tuple)
            met.extend([x.dtype, pair[0].dtype, pair[1].dtype, mask.dtype, more["words"]])
            return {"y": x, "ids": pair[1], "wide": x.double()}

    model = nn.Sequential(Takes())
    plan = precast.Policy("O0", "bfloat16").plan(model)
    plan = precast.Policy("O1", "bfloat16", rules=[{"path": "0", "run": "low"}]).plan(model)
    plan.apply(model)
    more = {"pair": (torch.ones(2), torch.arange(2)), "words": "kept"}
    output = model[0](torch.ones(2), more, mask=torch.ones(2, dtype=torch.bool))
    assert met == [torch.bfloat16, torch.bfloat16, torch.int64, torch.bool, "kept"]
    assert (output["y"].dtype, output["ids"].dtype, output["wide"].dtype) == (torch.float32, torch.int64, torch.float64)


def test_rules_of_lists_of_modules_reach_the_modules() -> None:
    model = networks.Gpt()
    plan = precast.Policy("O2", "bfloat16", rules=[{"path": "blocks", "run": "float32"}]).plan(model)
    assert plan.check(model, torch.randint(64, (2, 16)))
    met = []
    for block in model.blocks:
        block.up.register_forward_hook(lambda module, args, output: met.append(output.dtype))
    plan.apply(model)(torch.randint(64, (2, 16)))
    assert met == [torch.float32, torch.float32]


def test_tied_weights_stay_tied() -> None:
    model = networks.Gpt()
    with precast.Policy("O2", "bfloat16").plan(model).applied(model):
        model(torch.randint(64, (2, 16))).sum().backward()
        assert model.head.weight is model.tokens.weight


@pytest.mark.parametrize("compiled", [False, True])
def test_a_rule_recomputes(compiled: bool) -> None:
    class Counted(nn.Module):
        calls = 0

        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            if not torch.compiler.is_compiling():
                Counted.calls += 1
            return self.fc(x).exp()

    model, x = nn.Sequential(Counted(), nn.Linear(4, 2)), torch.randn(3, 4)
    without = [grad.clone() for grad in _grads(model, x)]
    plan = precast.Policy("O0", "bfloat16", rules=[{"path": "0", "checkpoint": True}])
    plan_of_o2 = precast.Policy("O2", "bfloat16", rules=[{"path": "0", "checkpoint": True}]).plan(model)
    assert "recomputed" in plan_of_o2.decisions[1].effect
    Counted.calls = 0
    with plan.plan(model).applied(model):
        run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        for one, other in zip(without, _grads(run, x), strict=True):
            assert torch.equal(one, other)
    assert Counted.calls == (0 if compiled else 2)


def test_wrappers_around_a_network_are_seen_through() -> None:
    model = networks.mlp()
    plan = precast.Policy("O2", "bfloat16").plan(model)
    assert precast.Policy("O2", "bfloat16").plan(torch.compile(model)) == plan
    assert precast.Policy("O2", "bfloat16").plan(nn.DataParallel(model)) == plan


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model.append(nn.ReLU()), "has a module `7` that the plan does not have"),
        (lambda model: model.__setitem__(2, nn.GELU()), "has a ReLU at `2`, and the network has a GELU"),
        (lambda model: model.__delitem__(6), "has a Linear at `6`, and the network has no such module"),
    ],
)
def test_a_plan_of_another_network_is_refused(change: Callable[[nn.Module], object], words: str) -> None:
    model = networks.mlp()
    plan = precast.Policy("O2", "bfloat16").plan(model)
    change(model)
    before = _state(model)
    with pytest.raises(precast.Error, match=words) as caught:
        plan.apply(model)
    assert caught.value.kind == "Path"
    assert _state(model) == before


def test_parameters_in_16_bits_are_refused_where_float32_is_planned() -> None:
    model = networks.mlp().bfloat16()
    plan = precast.Policy("O2", "bfloat16").plan(model)
    with pytest.raises(precast.Error, match=r"`1` runs float32, and its parameter `weight` is stored in bfloat16"):
        plan.apply(model)


def test_threads_have_regions_of_their_own() -> None:
    model, x = networks.mlp().eval(), torch.randn(8, 64)
    low = precast.Policy("O2", "bfloat16").plan(model).apply(model)(x)
    met = []
    threads = [threading.Thread(target=lambda: met.append(model(x))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(met) == 4 and all(torch.equal(one, low) for one in met)
    assert not torch.is_autocast_enabled("cpu")


def test_an_error_inside_leaves_no_region_behind() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("inside")

    model = nn.Sequential(Fails())
    precast.Policy("O2", "bfloat16").plan(model).apply(model)
    with pytest.raises(RuntimeError, match="inside"):
        model(torch.ones(1))
    assert not torch.is_autocast_enabled("cpu")


def test_an_autocast_around_a_plan_does_not_reach_float32_modules() -> None:
    model, x = networks.mlp(), torch.randn(8, 64)
    plan = precast.Policy("O2", "bfloat16", rules=[{"path": "6", "run": "float32"}]).plan(model)
    plan.apply(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(x).dtype is torch.float32
        assert F.linear(x, model[0].weight).dtype is torch.bfloat16


def test_a_planned_network_runs_on_meta() -> None:
    with torch.device("meta"):
        model = networks.Gpt()
    plan = precast.Policy("O2", "bfloat16").plan(model)
    with plan.applied(model):
        assert model(torch.empty(2, 16, dtype=torch.int64, device="meta")).device.type == "meta"


def test_a_thousand_applies_leave_nothing() -> None:
    model = networks.Gpt()
    plan = precast.Policy("O2", "bfloat16").plan(model)
    plan.undo(plan.apply(model))
    before = _state(model)
    gc.collect()
    objects = len(gc.get_objects())
    for _ in range(1000):
        plan.undo(plan.apply(model))
    gc.collect()
    assert _state(model) == before
    # The allocator of Python may keep a few of its own.
    assert len(gc.get_objects()) - objects < 50
