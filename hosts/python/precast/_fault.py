"""The first op of a step that returns inf or NaN for finite inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import Node

from ._outline import network
from ._trace import tensors, untouched, watched

if TYPE_CHECKING:
    from ._plan import Plan


class Fault(NamedTuple):
    """The first op that returned inf or NaN for finite inputs."""

    path: str
    """Path of the innermost module that ran it; empty for the network, or for code around it."""
    op: str
    """Name of the op: `exp`; in the backward pass, `backward of exp`."""
    backward: bool
    """`True` when it is in the backward pass."""
    value: str
    """`inf` or `nan`."""
    inputs: list[str]
    """Dtype, shape and largest magnitude of each input, or incoming gradient."""
    outputs: list[str]
    """The same of the outputs, or outgoing gradients; magnitudes of finite elements."""
    because: str
    """Decision of the plan for the module."""

    def __str__(self) -> str:
        where = f"`{self.path}`" if self.path else "the network"
        return (
            f"{self.op} in {where} returned {self.value}: inputs {', '.join(self.inputs) or 'none'}; "
            f"outputs {', '.join(self.outputs)}; {self.because}"
        )


def _is_bad(value: torch.Tensor) -> bool:
    floats = value.is_floating_point() or value.is_complex()
    return floats and value.device.type != "meta" and not bool(value.isfinite().all())


def _is_broken(value: torch.Tensor) -> bool:
    """Returns whether a value has NaN or +inf. -inf also marks what softmax is to leave out."""
    return _is_bad(value) and (value.is_complex() or bool(value.isnan().any() or value.isposinf().any()))


_MASKS = frozenset(
    {"fill_", "full", "full_like", "masked_fill", "masked_fill_", "new_full", "tensor", "tril", "triu", "where"}
)
"""Ops that write -inf on purpose."""


def _words(value: torch.Tensor) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    if not value.is_floating_point():
        return f"{dtype} {list(value.shape)}"
    finite = value[value.isfinite()]
    largest = f"{finite.abs().max().item():.3g}" if finite.numel() else "none finite"
    return f"{dtype} {list(value.shape)} up to {largest}"


class _Finder:
    """The first fault, and the ops that autograd's nodes belong to."""

    def __init__(self, plan: Plan) -> None:
        self.fault: Fault | None = None
        self._because = {decision.path: f"{decision.effect} ({decision.because})" for decision in plan.decisions}
        self.nodes: dict[Node, tuple[str, str]] = {}

    def on_op(self, path: str, op: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """Receives an op of the forward pass."""
        for output in outputs:
            if output.grad_fn is not None:
                self.nodes.setdefault(output.grad_fn, (path, op))
        if self.fault is not None or not any(map(_is_bad, outputs)):
            return
        if any(map(_is_broken, outputs)):
            is_fault = not any(map(_is_broken, inputs))
        else:
            is_fault = op not in _MASKS and not any(map(_is_bad, inputs))
        if is_fault:
            self.found(path, op, False, inputs, outputs)

    def found(
        self, path: str, op: str, backward: bool, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
    ) -> None:
        """Keeps a fault, if it is the first."""
        if self.fault is None:
            bad = next((output for output in outputs if _is_broken(output)), None)
            if bad is None:
                bad = next(output for output in outputs if _is_bad(output))
            value = "nan" if bool(bad.isnan().any()) else "inf"
            because = self._because.get(path, "no module of the plan")
            words = ([_words(tensor) for tensor in inputs], [_words(tensor) for tensor in outputs])
            self.fault = Fault(path, op, backward, value, *words, because)

    def watch_backward(self, loss: torch.Tensor) -> None:
        """Watches all nodes behind a loss. A node of several of an op has the op that is nearest behind it."""
        seen: set[Node] = set()
        stack: list[tuple[Node, tuple[str, str]]] = []
        if loss.grad_fn is not None:
            stack.append((loss.grad_fn, self.nodes.get(loss.grad_fn, ("", "the loss"))))
        while stack:
            node, owner = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            owner = self.nodes.get(node, owner)
            node.register_hook(self._hook(owner))
            stack.extend((behind, owner) for behind, _ in node.next_functions if behind is not None)

    def _hook(self, owner: tuple[str, str]) -> Callable[[Any, Any], None]:
        path, op = owner

        def hook(outgoing: Any, incoming: Any) -> None:
            into, out = tensors(incoming), tensors(outgoing)
            if self.fault is None and any(map(_is_bad, out)) and not any(map(_is_bad, into)):
                self.found(path, f"backward of {op}", True, into, out)

        return hook


def find(
    plan: Plan,
    model: nn.Module,
    batch: tuple[Any, ...],
    kwargs: dict[str, Any],
    loss: Callable[[Any], torch.Tensor] | None,
    scale: float,
) -> Fault | None:
    """Runs a step of a network under a plan, and returns its first fault."""
    finder = _Finder(plan)
    model = network(model)
    for place, value in enumerate(tensors((batch, kwargs))):
        if _is_broken(value):
            finder.found("", f"before any op: input {place}", False, [], [value.detach()])
            return finder.fault
    for name, value in model.named_parameters():
        if _is_bad(value):
            finder.found(name.rpartition(".")[0], f"before any op: {name}", False, [], [value.detach()])
            return finder.fault
    with plan.applied(model), untouched(model):
        with torch.set_grad_enabled(loss is not None), watched(model, finder.on_op):
            output = model(*batch, **kwargs)
            lost = None if loss is None else loss(output)
        if lost is not None and finder.fault is None:
            scaled = lost.float() * scale
            finder.watch_backward(scaled)
            if _is_bad(scaled.detach()) and not _is_bad(lost.detach()):
                finder.found("", f"the loss, times {scale:g}", False, [lost.detach()], [scaled.detach()])
            scaled.backward()  # type: ignore[no-untyped-call]
    return finder.fault
