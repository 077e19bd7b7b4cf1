"""The `forward` that a plan puts into a module.

It is a method bound to the instance, in front of that of the class. So a deep copy of the module has its own,
`torch.compile` traces it, and deleting it from the instance restores the module. Hooks would not do: `torch.compile`
ignores those that are added later, and those that enter `torch.autocast` do not compile.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint

CASTABLE = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""The dtypes that a plan casts. Integers, booleans and float64 are left as they are."""

PRIOR = "_precast_prior_forward"
"""Attribute of a module that had a `forward` of its own on the instance."""


class Region(NamedTuple):
    """Work of a replaced `forward`."""

    autocast: bool | None
    """`True` when it enters `torch.autocast`, `False` when it leaves it, `None` when it does neither."""
    low: torch.dtype
    """The low dtype of the plan."""
    inward: torch.dtype | None
    """The dtype to which inputs are cast."""
    outward: torch.dtype | None
    """The dtype to which outputs are cast."""
    recompute: bool
    """`True` when activations are computed again in the backward pass."""


def cast(value: Any, dtype: torch.dtype) -> Any:
    """Casts every tensor in nested tuples, lists, dicts and registered containers."""
    if isinstance(value, torch.Tensor):
        met = value.dtype
        if met is dtype or met not in CASTABLE:
            return value
        # Each takes half of the time of `to`.
        if dtype is torch.float32:
            return value.float()
        return value.bfloat16() if dtype is torch.bfloat16 else value.half()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return tree_map_only(torch.Tensor, lambda tensor: cast(tensor, dtype), value)


def _device(args: tuple[Any, ...], kwargs: dict[str, Any], module: torch.nn.Module) -> str:
    """Returns the type of device of the first tensor among the inputs, or else of a parameter."""
    for value in args:
        if isinstance(value, torch.Tensor):
            return value.device.type
    for value in kwargs.values():
        if isinstance(value, torch.Tensor):
            return value.device.type
    for value in module.parameters():
        return value.device.type
    return "cpu"


def _call(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the `forward` that is replaced."""
    prior = module.__dict__.get(PRIOR)
    # The class is read at each call, for FSDP2 changes it.
    return type(module).forward(module, *args, **kwargs) if prior is None else prior(*args, **kwargs)


def _recomputed(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not torch.is_grad_enabled():
        return _call(module, args, kwargs)
    return checkpoint(lambda *args, **kwargs: _call(module, args, kwargs), *args, use_reentrant=False, **kwargs)


def _run(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any]], Any],
    on: bool,
    low: torch.dtype,
) -> Any:
    """Calls a module with `torch.autocast` on or off."""
    device = _device(args, kwargs, module)
    if device == "meta":
        # It has no `torch.autocast`, and no values either.
        return call(module, args, kwargs)
    if torch.compiler.is_compiling():
        with torch.autocast(device, dtype=low, enabled=on):
            return call(module, args, kwargs)
    was_on = torch.is_autocast_enabled(device)
    if not on:
        if not was_on:
            return call(module, args, kwargs)
        torch.set_autocast_enabled(device, False)
        try:
            return call(module, args, kwargs)
        finally:
            torch.set_autocast_enabled(device, True)
    was_low = torch.get_autocast_dtype(device)
    if was_on and was_low is low:
        return call(module, args, kwargs)
    # As `torch.autocast` does, in half of its time.
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, low)
    torch.autocast_increment_nesting()
    try:
        return call(module, args, kwargs)
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled(device, was_on)
        torch.set_autocast_dtype(device, was_low)


@cache
def _method(region: Region) -> Callable[..., Any]:
    """Returns the function of all modules with the same region."""
    on, low, inward, outward, recompute = region
    call = _recomputed if recompute else _call

    def forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if inward is not None:
            args = (cast(args[0], inward),) if len(args) == 1 else tuple([cast(value, inward) for value in args])
            if kwargs:
                kwargs = {name: cast(value, inward) for name, value in kwargs.items()}
        output = call(self, args, kwargs) if on is None else _run(self, args, kwargs, call, on, low)
        return output if outward is None else cast(output, outward)

    forward.__dict__["precast"] = region
    return forward


def region_of(module: torch.nn.Module) -> Region | None:
    """Returns what the replaced `forward` of a module does; `None` for a module as it was written."""
    forward = module.__dict__.get("forward")
    function = getattr(forward, "__func__", None)
    return getattr(function, "precast", None)


def put(module: torch.nn.Module, region: Region) -> None:
    """Replaces the `forward` of a module, also one that was replaced by an earlier plan."""
    if region_of(module) is None and "forward" in module.__dict__:
        module.__dict__[PRIOR] = module.__dict__["forward"]
    module.__dict__["forward"] = types.MethodType(_method(region), module)


def take(module: torch.nn.Module) -> bool:
    """Restores the `forward` of a module, and returns whether it was replaced."""
    if region_of(module) is None:
        return False
    prior = module.__dict__.pop(PRIOR, None)
    if prior is None:
        del module.__dict__["forward"]
    else:
        module.__dict__["forward"] = prior
    return True
