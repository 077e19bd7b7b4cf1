"""Calls of a network, watched: which module runs, and which op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves

from ._outline import network, outline

OnOp = Callable[[str, str, list[torch.Tensor], list[torch.Tensor]], None]
"""Receiver of an op: path of its module, name, inputs, outputs."""


def tensors(values: Any) -> list[torch.Tensor]:
    """Returns the tensors in nested values."""
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


class Watch(TorchFunctionMode):
    """The modules that are running, and a receiver of ops."""

    def __init__(self, on_op: OnOp | None = None) -> None:
        super().__init__()
        self.paths: list[str] = []
        self._on_op = on_op

    @property
    def path(self) -> str:
        """Path of the innermost module that runs."""
        return self.paths[-1] if self.paths else ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._on_op is not None and getattr(func, "__name__", "") not in ("__get__", "__set__"):
            outputs = tensors(result)
            if outputs:
                self._on_op(self.path, name_of(func), tensors((args, kwargs)), outputs)
        return result


def name_of(func: Any) -> str:
    """Returns the name of an op: `linear` of `torch.nn.functional.linear`."""
    name: str = resolve_name(func) or getattr(func, "__name__", str(func))
    return name.rpartition(".")[2]


@contextmanager
def watched(
    model: nn.Module,
    on_op: OnOp | None = None,
    on_module: Callable[[str, nn.Module, Any, Any], None] | None = None,
) -> Iterator[Watch]:
    """Watches the calls of a network in a `with` block. `on_module` receives path, module, inputs and outputs of each
    call."""
    watch, hooks = Watch(on_op), []
    read = outline(model)
    for module, path in zip(read.modules, read.paths, strict=True):

        def enter(_module: nn.Module, _args: Any, path: str = path) -> None:
            watch.paths.append(path)

        def leave(module: nn.Module, args: Any, kwargs: Any, output: Any, path: str = path) -> None:
            if watch.paths and watch.paths[-1] == path:
                watch.paths.pop()
            if output is not None and on_module is not None:
                on_module(path, module, (args, kwargs), output)

        hooks.append(module.register_forward_pre_hook(enter, prepend=True))
        hooks.append(module.register_forward_hook(leave, with_kwargs=True, always_call=True))
    try:
        with watch:
            yield watch
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Restores buffers, gradients and the state of random numbers of a network behind a `with` block."""
    inner = network(model)
    buffers = [(buffer, buffer.detach().clone()) for buffer in inner.buffers()]
    grads = [(parameter, parameter.grad) for parameter in inner.parameters()]
    for parameter, _ in grads:
        parameter.grad = None
    devices = sorted({parameter.device.index for parameter, _ in grads if parameter.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
            for parameter, grad in grads:
                parameter.grad = grad
