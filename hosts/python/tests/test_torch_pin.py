"""Pins of the op lists of autocast."""

from __future__ import annotations

import re
import warnings

import precast
import pytest
import torch
from precast._pin import CHANGES, KNOWN

RUNNING = tuple(int(part) for part in torch.__version__.split(".")[:2])


def kernel(op: str, key: str) -> str:
    """Returns the line of the dispatcher for an op and a key."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dump = torch._C._dispatch_dump(f"aten::{op}")
    return "\n".join(line for line in dump.splitlines() if line.startswith(f"{key}"))


@pytest.mark.skipif(RUNNING < (2, 12), reason="rms_norm joined the list in torch 2.12")
@pytest.mark.parametrize(("device", "key"), [("cuda", "AutocastCUDA"), ("xpu", "AutocastXPU")])
def test_rms_norm_leaves_the_list_and_comes_back(device: str, key: str) -> None:
    before = kernel("rms_norm", key)
    with precast.pin(f"torch-2.11-{device}") as pinned:
        assert "rms_norm" in pinned.ops
        assert "fallthrough" in kernel("rms_norm", key)
        assert "fallthrough" not in before
    assert kernel("rms_norm", key) == before
    pinned.undo()


@pytest.mark.skipif(RUNNING < (2, 14), reason="linalg_matrix_sqrth joined the list in torch 2.14")
def test_a_pinned_op_runs_in_the_dtype_of_its_input() -> None:
    x = torch.eye(3, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.ops.aten.linalg_matrix_sqrth(x).dtype == torch.float32
        with precast.pin("torch-2.13-cpu"), pytest.raises(RuntimeError, match=r"(?i)bfloat16"):
            torch.ops.aten.linalg_matrix_sqrth(x)  # as without autocast
        assert torch.ops.aten.linalg_matrix_sqrth(x).dtype == torch.float32


def test_the_own_version_changes_nothing() -> None:
    own = "torch-{}.{}-cuda".format(*RUNNING)
    pinned = precast.pin(own)
    assert pinned.ops == []
    assert "nothing differs" in repr(pinned)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch-2.11", "names no lists; expected torch-VERSION-DEVICE"),
        ("torch-2.11-tpu", "names no lists"),
        ("torch-2.9-cuda", "expected a version from 2.10 to that of torch"),
        ("torch-9.0-cuda", "expected a version from 2.10 to that of torch"),
    ],
)
def test_unknown_lists_are_errors(name: str, words: str) -> None:
    with pytest.raises(precast.Error, match=re.escape(words)):
        precast.pin(name)


def test_changes_are_within_the_known_versions() -> None:
    assert all(KNOWN[0] < since <= KNOWN[1] for since, _, _ in CHANGES)
