"""Hazards of a network under a plan, found by one call without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ._apply import is_called, regions, restore
from ._outline import network, outline
from ._trace import tensors, untouched, watched

if TYPE_CHECKING:
    from ._plan import Plan

_LOW = (torch.float16, torch.bfloat16)


def lint(plan: Plan, model: nn.Module, batch: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Lists what endangers a network under a plan."""
    inner = network(model)
    decisions = {decision.path: decision for decision in plan.decisions}
    low = getattr(torch, plan._engine.dtype)
    largest, smallest = torch.finfo(low).max, torch.finfo(low).smallest_normal * torch.finfo(low).eps
    found: dict[tuple[str, str], str] = {}

    def say(path: str, rule: str, words: str) -> None:
        found.setdefault((path, rule), f"`{path or '(root)'}`: {words}")

    def is_low(path: str) -> bool:
        return decisions[path].dtype == plan._engine.dtype

    called: set[str] = set()

    def on_module(path: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
        called.add(path)
        for value in tensors(output) if is_low(path) else []:
            if value.is_floating_point() and value.numel() and value.abs().max().item() > largest:
                say(path, "range", f"its output reaches {value.abs().max().item():.3g}; {low} ends at {largest:g}")

    def on_op(path: str, op: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        if any(value.dtype in _LOW for value in outputs) and not any(value.dtype in _LOW for value in inputs):
            say(path, "cast", f"its code casts to 16 bits by itself (`{op}`), whatever a plan says")
        if op == "binary_cross_entropy" and decisions[path].run != "as is":
            say(
                path,
                op,
                "`binary_cross_entropy` is an error in autocast on CUDA; use `binary_cross_entropy_with_logits`",
            )

    read = outline(inner)
    before = regions(inner)
    restore(inner, {})
    try:
        with untouched(inner), torch.no_grad(), watched(inner, on_op, on_module):
            inner(*batch, **kwargs)
    finally:
        restore(inner, before)
    for module, path in zip(read.modules, read.paths, strict=True):
        if module._forward_hooks or module._forward_pre_hooks:
            say(path, "hooks", "it has hooks; `torch.compile` ignores those that are added after it has compiled")
        for name, value in module._parameters.items():
            if value is None or not value.is_floating_point() or value.device.type == "meta" or not value.numel():
                continue
            if value.dtype in _LOW:
                say(path, f"stored {name}", f"`{name}` is stored in 16 bits; small updates are lost in it")
            elif is_low(path) and 0 < value.detach().abs().max().item() < smallest:
                say(path, f"small {name}", f"all of `{name}` is 0 in {low}")
            elif is_low(path) and value.detach().abs().max().item() > largest:
                say(path, f"large {name}", f"`{name}` is beyond {low}, which ends at {largest:g}")
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.dtype in _LOW and decisions[path].dtype == "float32":
                say(path, f"stored {name}", f"its buffer `{name}` is stored in 16 bits, and it runs float32")
        eps = getattr(module, "eps", None)
        if isinstance(eps, float) and is_low(path) and 0 < eps < smallest:
            say(path, "eps", f"its eps of {eps:g} is 0 in {low}")
        if decisions[path].outward is not None and is_called(module) and path not in called:
            say(
                path,
                "called",
                "it is planned to cast and was not called: code may read its parameters without calling it",
            )
    return list(found.values())
