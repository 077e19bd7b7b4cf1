"""Dumps of two runs, and the first module that differs."""

from __future__ import annotations

import math
from pathlib import Path

import networks
import precast
import pytest
import torch
from torch import Tensor, nn


def test_the_first_module_that_differs_is_named(tmp_path: Path) -> None:
    model, ids = networks.Gpt().eval(), torch.randint(64, (2, 16))
    file = tmp_path / "wide.pt"
    torch.save(precast.dump(model, ids), file)
    assert precast.compare(str(file), precast.dump(model, ids))
    with torch.no_grad():
        model.blocks[1].up.weight[3] *= 1.01
    there = precast.dump(model, ids)
    found = precast.compare(file, there)
    assert found.first is not None and found.first.name == "blocks.1.up"
    # Of 128 outputs one is larger by a hundredth.
    a, b = torch.load(file)["blocks.1.up"], there["blocks.1.up"]
    assert math.isclose(found.first.relative, ((a - b).double().norm() / a.double().norm()).item(), rel_tol=1e-6)
    lines = str(found).splitlines()
    assert lines[1] == "before: `blocks.1.norm2` (float32) differs by 0 of its norm, and by 0 steps at most"
    assert lines[2].startswith("first: `blocks.1.up` (float32) differs by ")
    with pytest.raises(precast.Error, match=r"`blocks\.1\.up` \(float32\) differs by"):
        found.raise_first()
    # A module that adds it to much else differs by less.
    assert [row.name for row in found.rows if row.relative > 0] == [
        "blocks.1.up",
        "blocks.1.down",
        "blocks.1",
        "norm",
        "head",
        "(root)",
    ]


def test_a_plan_is_compared_with_float32_in_steps_of_the_low_dtype() -> None:
    model, x = networks.mlp().eval(), torch.randn(8, 64)
    wide = precast.dump(model, x)
    with precast.Policy("O2", "bfloat16").plan(model).applied(model):
        low = precast.dump(model, x)
    found = precast.compare(wide, low, within=0.02)
    assert found, str(found)
    assert not precast.compare(wide, low)
    row = next(row for row in found.rows if row.name == "0")
    assert row.dtypes == (torch.float32, torch.bfloat16)
    # The sum of rounded products, rounded again.
    assert 0.1 < row.steps < 4
    assert [row.relative for row in found.rows if row.name == "(input 0)"] == [0.0]


def test_calls_outputs_and_what_is_not_finite() -> None:
    class Twice(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.act, self.factor = nn.ReLU(), factor

        def forward(self, x: Tensor, *, mask: Tensor) -> tuple[Tensor, Tensor]:
            return self.act(x), self.act(mask * self.factor).log()

    x, mask = torch.ones(3), torch.tensor([0.0, 1.0, 2.0])
    a, b = (precast.dump(Twice(factor), x, mask=mask) for factor in (1.0, -1.0))
    assert list(a) == ["(input 0)", "(input mask)", "act", "act#2", "(root)", "(root)[1]"]
    # The logarithm of 0 is -inf in both.
    assert precast.compare(a, a)
    rows = {row.name: row for row in precast.compare(a, b).rows}
    assert (rows["act"].relative, rows["act#2"].relative, rows["(root)[1]"].relative) == (0.0, 1.0, math.inf)
    assert "NaN or inf where the other has none" in str(rows["(root)[1]"])
    shapes = precast.compare(a, {"act": torch.ones(4), "more": x})
    assert str(shapes.first) == "`act` (float32) has the shapes [3] and [4]"
    assert "in the second alone: `more`" in str(shapes)


def test_what_is_no_dump_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(precast.Error, match="no name in common: the first begins with `a`, the second with `b`"):
        precast.compare({"a": torch.ones(1)}, {"b": torch.ones(1)})
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(precast.Error, match=r"a dump is a dict of tensors by name, got the file .*list\.pt"):
        precast.compare({"a": torch.ones(1)}, str(tmp_path / "list.pt"))
