"""Dumps of what modules return, and the first that differs between two."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ._error import error
from ._outline import network
from ._trace import tensors, untouched, watched

Dump = dict[str, Tensor]
"""Tensors by the path of the module that returned them, in the order of the call."""

Source = Mapping[str, Tensor] | str | os.PathLike[str]
"""A dump, or the file of one."""


@dataclass(frozen=True)
class Row:
    """The difference of one tensor."""

    name: str
    """Path of its module; with `[1]` behind it for a further output, and `#2` for a second call."""
    relative: float
    """Norm of the difference beside that of the first tensor; infinite where one has other NaN or inf, or another
    shape."""
    steps: float
    """Largest difference in steps of the coarser dtype at the largest magnitude: `eps * max(abs(a))`."""
    dtypes: tuple[torch.dtype, torch.dtype]
    """Dtypes in both."""
    shapes: tuple[list[int], list[int]]
    """Shapes in both."""

    def __str__(self) -> str:
        of = " and ".join(dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in self.dtypes))
        if self.shapes[0] != self.shapes[1]:
            return f"`{self.name}` ({of}) has the shapes {self.shapes[0]} and {self.shapes[1]}"
        if self.relative == float("inf"):
            return f"`{self.name}` ({of}) has NaN or inf where the other has none"
        return f"`{self.name}` ({of}) differs by {self.relative:.2g} of its norm, and by {self.steps:.3g} steps at most"


@dataclass(frozen=True)
class Comparison:
    """Two dumps, tensor by tensor. It is true if none differs by more than the bound."""

    rows: list[Row]
    """The tensors of both, in the order of the first dump."""
    within: float
    """Bound of `relative`."""
    only: tuple[list[str], list[str]]
    """Names that one dump alone has."""

    @property
    def first(self) -> Row | None:
        """The first tensor that differs by more than the bound."""
        return next((row for row in self.rows if not row.relative <= self.within), None)

    def raise_first(self) -> None:
        """Raises the first difference.

        Raises:
            Error: There is a difference.
        """
        if self.first is not None:
            raise error("Value", str(self.first))

    def __bool__(self) -> bool:
        return self.first is None

    def __str__(self) -> str:
        beyond = [row for row in self.rows if not row.relative <= self.within]
        lines = [f"{len(beyond)} of {len(self.rows)} tensors differ by more than {self.within:g} of their norm"]
        if beyond:
            place = self.rows.index(beyond[0])
            lines += [f"before: {row}" for row in self.rows[place - 1 : place]]
            lines += [f"first: {beyond[0]}"]
            worst = max(beyond, key=lambda row: row.relative)
            lines += [f"largest: {worst}"] if worst is not beyond[0] else []
        for names, which in zip(self.only, ("first", "second"), strict=True):
            some = ", ".join(f"`{name}`" for name in names[:3]) + (" and others" if len(names) > 3 else "")
            lines += [f"in the {which} alone: {some}"] if names else []
        return "\n".join(lines)


def dump(model: nn.Module, *batch: Any, **kwargs: Any) -> Dump:
    """Calls a network and returns what its modules return, by their paths in the order in which they return, on the
    CPU. `torch.save` writes it.

        with plan.applied(model):
            torch.save(precast.dump(model, ids), "here.pt")

    Args:
        model: The network, with or without a plan. It is left as it was.
        batch: Inputs of a call, which are in the dump, too.
        kwargs: Inputs by name.

    Raises:
        Error: The network is one of `torch.compile(model)`.
    """
    found: Dump = {}
    calls: dict[str, int] = {}

    def keep(name: str, values: Any) -> None:
        for place, tensor in enumerate(tensors(values)):
            # A copy, as what follows may work in place.
            found[name if place == 0 else f"{name}[{place}]"] = tensor.detach().to("cpu", copy=True)

    def on_module(path: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
        calls[path] = calls.get(path, 0) + 1
        keep((path or "(root)") + (f"#{calls[path]}" if calls[path] > 1 else ""), output)

    for place, value in [*enumerate(batch), *kwargs.items()]:
        keep(f"(input {place})", value)
    if type(model).__name__ == "OptimizedModule":
        words = "a dump runs the modules of a network, which `torch.compile(model)` replaces"
        raise error("Unsupported", f"{words}: `model.compile()` compiles them in place, so that a dump is of its code")
    inner = network(model)
    with untouched(inner), torch.no_grad(), watched(inner, on_module=on_module):
        inner(*batch, **kwargs)
    return found


def compare(a: Source, b: Source, within: float = 0.0) -> Comparison:
    """Compares two dumps, of two runs, devices, versions or libraries, and names the first module that differs.

    Args:
        a: Tensors by name, in the order of their calls, or the file of `torch.save`.
        b: The other ones. Names that one alone has are listed, and not compared.
        within: Bound of the norm of a difference beside that of the first tensor. Default: 0.0, equal numbers.

    Raises:
        Error: A file holds no dump, or they have no name in common.
    """
    here, there = _read(a), _read(b)
    both = [name for name in here if name in there]
    if not both:
        names = [next(iter(of), "nothing") for of in (here, there)]
        words = f"the first begins with `{names[0]}`, the second with `{names[1]}`"
        raise error("Value", f"the dumps have no name in common: {words}")
    rows = [_row(name, here[name], there[name]) for name in both]
    only = ([name for name in here if name not in there], [name for name in there if name not in here])
    return Comparison(rows, within, only)


def _read(of: Source) -> Mapping[str, Tensor]:
    read = of if isinstance(of, Mapping) else torch.load(of, map_location="cpu", weights_only=True)
    if not isinstance(read, Mapping) or not all(isinstance(value, Tensor) for value in read.values()):
        met = "a dict with other values" if read is of else f"the file {os.fspath(of)}"  # type: ignore[arg-type]
        raise error("Value", f"a dump is a dict of tensors by name, got {met}")
    return read


def _row(name: str, a: Tensor, b: Tensor) -> Row:
    dtypes, shapes = (a.dtype, b.dtype), (list(a.shape), list(b.shape))
    inf = float("inf")
    if shapes[0] != shapes[1]:
        return Row(name, inf, inf, dtypes, shapes)
    eps = max((torch.finfo(dtype).eps for dtype in dtypes if dtype.is_floating_point), default=1.0)
    x, y = a.to("cpu", torch.float64), b.to("cpu", torch.float64)
    # NaN is equal to NaN here, and inf to inf.
    same = (x == y) | (x.isnan() & y.isnan())
    counted = ~same | x.isfinite()
    x, y = x[counted], y[counted]
    if not (x.isfinite().all() and y.isfinite().all()):
        return Row(name, inf, inf, dtypes, shapes)
    norm, off = x.norm().item(), (x - y).norm().item()
    if off == 0.0:
        return Row(name, 0.0, 0.0, dtypes, shapes)
    largest, most = x.abs().max().item(), (x - y).abs().max().item()
    return Row(name, off / norm if norm else inf, most / (eps * largest) if largest else inf, dtypes, shapes)
