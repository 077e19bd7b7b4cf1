"""Tests of the Python package. Those that need torch are skipped without it."""

from __future__ import annotations

import pytest

try:
    import torch
except ModuleNotFoundError:
    collect_ignore_glob = ["test_torch_*.py"]
else:
    # As in the nightly of the library: the same bits, whatever the number of threads.
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seeds random numbers before each test."""
    try:
        import torch
    except ModuleNotFoundError:
        return
    torch.manual_seed(0)
