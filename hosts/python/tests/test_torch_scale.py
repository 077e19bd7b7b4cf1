"""The loss scale, compared with `torch.amp.GradScaler`."""

from __future__ import annotations

import math

import precast
import pytest
import torch
from torch import nn

TORCH = {"kind": "dynamic", "preset": "torch", "init": 64.0, "interval": 3}


def _pair(loss_scale: dict[str, object]) -> tuple[nn.Linear, torch.optim.SGD, precast.LossScale]:
    model = nn.Linear(2, 1)
    plan = precast.Policy("O2", "float16", loss_scale=loss_scale).plan(model)
    return model, torch.optim.SGD(model.parameters(), 0.1), plan.loss_scale(model)


def test_scales_and_steps_are_those_of_grad_scaler() -> None:
    model, optimizer, ours = _pair(TORCH)
    other = nn.Linear(2, 1)
    other.load_state_dict(model.state_dict())
    other_optimizer = torch.optim.SGD(other.parameters(), 0.1)
    theirs = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    # Inputs, the gradients of which overflow where they are inf.
    for factor in [1.0, 2.0, math.inf, 1.0, 1.0, 1.0, math.inf, math.inf, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]:
        x = torch.tensor([[1.0, -2.0]])
        for net, optim, scaler in ((model, optimizer, ours), (other, other_optimizer, theirs)):
            optim.zero_grad()
            scaler.scale(net(x).pow(2).sum()).backward()
            if math.isinf(factor):
                net.weight.grad[0, 1] = factor
            scaler.unscale_(optim)
            nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            scaler.step(optim)
            scaler.update()
        assert ours.value == theirs.get_scale() == ours.get_scale()
        assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))


def test_a_skipped_step_names_its_parameter_and_a_loss_is_no_fault_of_the_scale() -> None:
    model, optimizer, scaler = _pair({"kind": "dynamic", "init": 8.0})
    assert scaler.is_enabled()
    before = model.weight.detach().clone()
    scaler.scale(model(torch.ones(1, 2)).sum()).backward()
    model.bias.grad[0] = math.nan
    assert scaler.step(optimizer) is None
    scaler.update()
    assert scaler.outcome == "skipped: a gradient was not finite at loss scale 8, first seen in `bias`"
    assert scaler.value == 4.0
    optimizer.zero_grad()
    scaler.scale(model(torch.full((1, 2), math.inf)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.outcome == "skipped: the loss itself was not finite"
    assert scaler.value == 4.0
    assert torch.equal(model.weight, before)


def test_a_scale_has_a_floor_and_a_stall_is_reported() -> None:
    model, optimizer, scaler = _pair({"kind": "dynamic", "init": 4.0, "min": 2.0})
    for skipped in range(1, 22):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        model.weight.grad.fill_(math.inf)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.value == 2.0
        assert scaler.stalled == (skipped >= 20)


def test_its_state_is_restored() -> None:
    _, _, scaler = _pair(TORCH)
    state = scaler.state_dict()
    state["scale"], state["counter"] = 1024.0, 2
    scaler.load_state_dict(state)
    assert scaler.value == 1024.0
    assert scaler.state_dict() == state
    state["counter"] = 3
    with pytest.raises(precast.Error, match="counter of 3 cannot be restored; allowed: below 3"):
        scaler.load_state_dict(state)


def test_bfloat16_has_no_scale() -> None:
    model = nn.Linear(2, 1)
    scaler = precast.Policy("O2", "bfloat16").plan(model).loss_scale(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loss = model(torch.ones(1, 2)).sum()
    assert scaler.scale(loss) is loss
    assert (scaler.value, scaler.is_enabled()) == (1.0, False)
    loss.backward()
    model.weight.grad.fill_(math.nan)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.outcome.startswith("skipped: ")


def test_a_network_trains_in_float16() -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 1))
    x = torch.randn(64, 4)
    y = x.sum(1, keepdim=True)
    plan = precast.Policy("O2", "float16").plan(model)
    plan.apply(model)
    optimizer, scaler = torch.optim.Adam(model.parameters(), 0.01), plan.loss_scale(model)
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    assert scaler.outcome == "the parameters were updated"
