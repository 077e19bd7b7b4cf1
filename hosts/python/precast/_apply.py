"""Plans on a network: which modules get a `forward` that casts, and which."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
from torch import nn

from . import _engine
from ._error import error
from ._forward import Region, put, region_of, take
from ._outline import Outline, network, outline

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

_PRODUCTS = frozenset({"Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"})
"""Classes that return the low dtype in `torch.autocast` for any input, on every device."""


def is_called(module: nn.Module) -> bool:
    """Returns whether a module has a `forward`: a `ModuleList` has none."""
    return type(module).forward is not nn.Module.forward


def _check(read: Outline, plan: _engine.Plan) -> None:
    """Checks that the modules are those of the plan."""
    planned = plan.cells()
    met = [(path, read.classes[place][0]) for path, place in zip(read.paths, read.places, strict=True)]
    if planned == met:
        return
    for path, kind in planned:
        if (path, kind) not in met:
            there = dict(met).get(path)
            got = "no such module" if there is None else f"a {there}"
            raise error(
                "Path", f"the plan has a {kind} at `{path or '(root)'}`, and the network has {got}: plan it again"
            )
    new = next(path for path, kind in met if (path, kind) not in planned)
    raise error("Path", f"the network has a module `{new}` that the plan does not have: plan it again")


def _check_operands(read: Outline, plan: _engine.Plan) -> None:
    """Checks that the modules with quantized operands quantize them: torch's own do not."""
    operands = dict(plan.operands())
    for module, path in zip(read.modules, read.paths, strict=True):
        owners = {base.__module__.partition(".")[0] for base in type(module).__mro__}
        if path in operands and owners.isdisjoint(("torchao", "transformer_engine")):
            kind, remedy = type(module).__name__, "`plan.to_torchao()` or `plan.to_transformer_engine()`"
            raise error(
                "Unsupported",
                f"`{path}` has operands {operands[path]}, which a {kind} does not quantize: run the file of {remedy}, "
                "which converts it, and plan again; or write `operands: none`",
            )


def _own_floats(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in module._parameters.items():
        if value is not None and value.is_floating_point():
            yield name, value


def wanted(read: Outline, plan: _engine.Plan) -> dict[nn.Module, Region]:
    """Returns what the `forward` of each module is to do."""
    low = _DTYPES[plan.dtype]
    found: dict[nn.Module, Region] = {}
    # Adapters of modules that are never called, by their depth: their children have them.
    passed: list[tuple[int, Region]] = []
    for module, path, depth, place, (run, name, wrapped, outward, recompute) in zip(
        read.modules, read.paths, read.depths, read.places, plan.runs(), strict=True
    ):
        while passed and passed[-1][0] >= depth:
            passed.pop()
        dtype = None if name is None else _DTYPES[name]
        is_low = run in ("fixed", "except") and dtype is low
        region = Region(None, low, None, None, recompute) if recompute else None
        if wrapped:
            out = None if outward is None else _DTYPES[outward]
            region = Region(run == "lists" or is_low, low, dtype if out else None, out, recompute)
        elif passed and passed[-1][0] == depth - 1:
            region = passed[-1][1]._replace(recompute=recompute)
        elif is_low:
            kind, bases = read.classes[place]
            if _PRODUCTS.isdisjoint([kind, *bases]):
                # Its parameters are float32, its op is on a list of `torch.autocast`, a module in it runs float32, or
                # an input became float32 for such a reason; and so may be its result.
                region = Region(None, low, low if not module._modules else None, low, recompute)
        if run == "fixed" and not is_low:
            for own, value in _own_floats(module):
                if value.dtype in (torch.float16, torch.bfloat16):
                    stored = str(value.dtype).removeprefix("torch.")
                    raise error(
                        "Plan",
                        f"`{path}` runs float32, and its parameter `{own}` is stored in {stored}; a plan casts in each "
                        "call and keeps parameters float32: call `model.float()`, and the optimizer has float32, too",
                    )
        if region is None:
            continue
        if is_called(module):
            found[module] = region
        else:
            passed.append((depth, region))
    return found


def regions(model: nn.Module) -> dict[nn.Module, Region]:
    """Returns what is applied to a network."""
    met = ((module, region_of(module)) for module in network(model).modules())
    return {module: region for module, region in met if region is not None}


def restore(model: nn.Module, to: dict[nn.Module, Region]) -> None:
    """Makes exactly these modules run by these regions."""
    changed = False
    for module in network(model).modules():
        region = to.get(module)
        if region_of(module) == region:
            continue
        changed = True
        if region is None:
            take(module)
        else:
            put(module, region)
    dynamo = sys.modules.get("torch._dynamo")
    if changed and dynamo is not None:
        # Compiled code is not always compiled again by itself.
        dynamo.reset()


def apply(model: nn.Module, plan: _engine.Plan) -> None:
    """Makes a network run by a plan."""
    read = outline(model)
    _check(read, plan)
    _check_operands(read, plan)
    restore(model, wanted(read, plan))


def undo(model: nn.Module) -> None:
    """Takes back every replaced `forward`."""
    restore(model, {})
