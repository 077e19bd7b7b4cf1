"""The modules of a network of torch, as the engine sees them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

_ALSO = {"SyncBatchNorm": "BatchNorm2d"}
"""Classes of torch without a public base, and the class that they are like."""

_WRAPPERS = {"OptimizedModule": "_orig_mod", "DistributedDataParallel": "module", "DataParallel": "module"}
"""Classes around a whole network, and the attribute that holds it."""


class Outline(NamedTuple):
    """The modules of a network in the order of `named_modules`, each once."""

    modules: list[nn.Module]
    """The modules."""
    paths: list[str]
    """Path of each."""
    depths: list[int]
    """Number of modules above each."""
    places: list[int]
    """Place of the class of each."""
    weights: list[list[Sequence[int]]]
    """For each, the shapes of its parameters of two axes or more."""
    classes: list[tuple[str, list[str]]]
    """Names of classes with those of their bases, nearest first."""
    notes: list[str]
    """Classes that no list knows."""


def network(model: nn.Module) -> nn.Module:
    """Returns the network inside `torch.compile`, `DistributedDataParallel` and `DataParallel`.

    Raises:
        TypeError: It is not a module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"a plan is of a torch.nn.Module, got {type(model).__name__}")
    while (inner := _WRAPPERS.get(type(model).__name__)) is not None and isinstance(
        getattr(model, inner, None), nn.Module
    ):
        model = getattr(model, inner)
    return model


def class_of(kind: Any) -> tuple[str, list[str]]:
    """Returns the name of a class of modules, and those of its bases up to `Module`."""
    if kind.__module__.startswith("torch.ao.nn."):
        # The names of their text. What they have in common is that they take and return float32 or codes.
        prefix = "" if "Quant" in kind.__name__ else "Quantized"
        prefix = "Dynamic" + prefix if ".dynamic." in kind.__module__ else prefix
        return prefix + kind.__name__, ["Quantized"]
    classes = list(kind.__mro__[: kind.__mro__.index(nn.Module)])
    if any(base.__name__ == "FSDPModule" for base in classes):
        # FSDP2 puts a class of its own in front of that of each module that it shards.
        classes = [base for base in classes[1:] if base.__name__ != "FSDPModule"]
    names = [base.__name__ for base in classes]
    # A lazy norm becomes a class that is not a base of it.
    becomes = getattr(kind, "cls_to_become", None)
    names += [becomes.__name__] if becomes is not None and becomes.__name__ not in names else []
    names += [also for name in names if (also := _ALSO.get(name)) is not None]
    return (names[0] if names else "Module"), names[1:]


@cache
def known() -> dict[str, list[str]]:
    """Returns the classes of `torch.nn`, with their bases. Lists may name them in any network."""
    found: dict[str, list[str]] = {}
    for value in vars(nn).values():
        if isinstance(value, type) and issubclass(value, nn.Module) and value is not nn.Module:
            name, bases = class_of(value)
            found[name] = bases
    return found


def outline(model: nn.Module) -> Outline:
    """Reads the modules of a network.

    Raises:
        TypeError: It is not a module.
    """
    places: dict[Any, int] = {}
    classes: list[tuple[str, list[str]]] = []
    modules: list[nn.Module] = []
    paths: list[str] = []
    depths: list[int] = []
    of_class: list[int] = []
    weights: list[list[Sequence[int]]] = []
    without: list[Sequence[int]] = []
    strange: dict[str, list[str]] = {}
    of_torch = known()
    # For each class, whether it or a base is of torch.
    listed: list[bool] = []
    seen: set[int] = set()
    # Of a stack, the last child is the first to be met.
    stack: list[tuple[nn.Module, str, int]] = [(network(model), "", 0)]
    while stack:
        module, path, depth = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        children = module._modules
        if children:
            prefix, below = f"{path}." if path else "", depth + 1
            stack += [(child, prefix + name, below) for name, child in reversed(children.items()) if child is not None]
        kind = type(module)
        place = places.get(kind)
        if place is None:
            place = places[kind] = len(classes)
            name, bases = class_of(kind)
            classes.append((name, bases))
            listed.append(not of_torch.keys().isdisjoint([name, *bases]))
        matrices = without
        own = module._parameters
        if own:
            matrices = [value.shape for value in own.values() if value is not None and _axes(value) >= 2]
            if not listed[place] and any(value is not None for value in own.values()):
                strange.setdefault(classes[place][0], []).append(path or "(root)")
        modules.append(module)
        paths.append(path)
        depths.append(depth)
        of_class.append(place)
        weights.append(matrices)
    notes = [
        f"{name} has parameters of its own and no base in torch.nn, so no list decides for it: {_some(paths)}"
        for name, paths in strange.items()
    ]
    return Outline(modules, paths, depths, of_class, weights, [*classes, *of_torch.items()], notes)


def _axes(value: torch.Tensor) -> int:
    return 0 if is_lazy(value) else value.dim()


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"`{paths[0]}`{more}"
