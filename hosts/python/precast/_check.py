"""Dtypes of a call under a plan, compared with the plan and with compiled code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ._apply import is_called
from ._error import error
from ._forward import CASTABLE
from ._outline import network
from ._trace import name_of, tensors, untouched, watched

if TYPE_CHECKING:
    from ._plan import Decision, Plan

Ops = dict[str, list[tuple[str, str]]]
"""Names of ops with the dtypes of their results, in order, by the path of their module."""


@dataclass
class Report:
    """Deviations of a call from its plan."""

    differences: list[str] = field(default_factory=list)
    """Sentences, in the order of the call; each begins with the path of a module."""
    notes: list[str] = field(default_factory=list)
    """Ops in low modules that ran in float32: by the lists of `torch.autocast`, or for a float32 input. And why code
    was not compiled, if it was not."""
    modules: int = 0
    """Number of calls of modules that were compared with the plan."""
    ops: int = 0
    """Number of ops whose compiled dtypes were compared with eager ones."""

    def raise_first(self) -> None:
        """Raises the first difference.

        Raises:
            Error: There is a difference.
        """
        if self.differences:
            raise error("Plan", self.differences[0])

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        compared = f"{self.modules} calls of modules, {self.ops} compiled ops"
        lines = [*self.differences, *(f"note: {note}" for note in self.notes)]
        return "\n".join([f"{len(self.differences)} differences in {compared}", *lines])


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _floats(values: Any) -> list[torch.dtype]:
    return [tensor.dtype for tensor in tensors(values) if tensor.dtype in CASTABLE]


def _planned(decision: Decision) -> str | None:
    """Returns the dtype of the outputs of a module; `None` where ops decide."""
    if decision.outward is not None:
        return decision.outward
    return decision.dtype if decision.run in ("fixed", "except") else None


class _Watcher:
    """Compares modules and ops with their decisions."""

    def __init__(self, plan: Plan, report: Report) -> None:
        self.decisions = {decision.path: decision for decision in plan.decisions}
        self.report = report
        self.ops: Ops = {}
        self.called: set[str] = set()
        self._low = plan._engine.dtype
        self._wide: set[tuple[str, str]] = set()

    def on_module(self, path: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
        """Receives a call of a module."""
        self.called.add(path)
        decision = self.decisions[path]
        planned, met = _planned(decision), {_short(dtype) for dtype in _floats(output)}
        if planned is None or not met:
            return
        self.report.modules += 1
        if met != {planned}:
            returned = ", ".join(sorted(met))
            words = f"`{path or '(root)'}` ({decision.kind}) is planned to return {planned} and returned {returned}"
            if words not in self.report.differences:
                self.report.differences.append(words)

    def on_op(self, path: str, op: str, _inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """Receives an op."""
        floats = _floats(outputs)
        if not floats:
            return
        met = _short(floats[0])
        self.ops.setdefault(path, []).append((op, met))
        decision = self.decisions[path]
        if decision.run != "fixed" or op in ("to", "float", "half", "bfloat16", "type"):
            return
        if decision.dtype == "float32" and met == self._low:
            words = f"`{path}` ({decision.kind}) is planned to run float32, and `{op}` returned {met}"
            if words not in self.report.differences:
                self.report.differences.append(words)
        elif decision.dtype == self._low and met == "float32" and (path, op) not in self._wide:
            self._wide.add((path, op))


def check(plan: Plan, model: nn.Module, batch: tuple[Any, ...], kwargs: dict[str, Any], compiled: bool) -> Report:
    """Compares the dtypes of a call with a plan, and those of compiled code with those of eager code."""
    report = Report()
    watcher = _Watcher(plan, report)
    inner = network(model)
    with plan.applied(inner), untouched(inner), torch.no_grad():
        with watched(inner, watcher.on_op, watcher.on_module):
            inner(*batch, **kwargs)
        if compiled:
            _compare(watcher, inner, batch, kwargs)
    for path, decision in watcher.decisions.items():
        if decision.outward is not None and path not in watcher.called and is_called(inner.get_submodule(path)):
            report.differences.append(
                f"`{path}` ({decision.kind}) is planned to cast and was never called: either the batch does "
                "not reach it, or code reads its parameters without calling it"
            )
    ops: dict[str, list[str]] = {}
    for path, op in sorted(watcher._wide):
        ops.setdefault(op, []).append(path)
    for op, where in ops.items():
        some = f"`{where[0] or '(root)'}`" + (f" and {len(where) - 1} more" if len(where) > 1 else "")
        report.notes.append(f"`{op}` returned float32 in {some}, which runs {watcher._low}")
    return report


_STEP = re.compile(r"\._modules\['([^']+)'\]|\['([^']+)'\]|\[(\d+)\]|\.(\w+)")


def _path_of(source: str) -> str:
    """Returns the path of a module from its source in Python: `L['self'].layers[0].fc`."""
    source = re.sub(r"^L\['\w+'\]", "", source)
    return ".".join(next(filter(None, found)) for found in _STEP.findall(source))


def _called(model: nn.Module, *batch: Any, **kwargs: Any) -> Any:
    return model(*batch, **kwargs)


def _compare(watcher: _Watcher, model: nn.Module, batch: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Compiles a call, and compares the dtypes of its ops with those of the eager call."""
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _example: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    try:
        # A function is compiled, as a module would keep a mark of it.
        torch.compile(_called, backend=keep)(model, *batch, **kwargs)
    except Exception as failed:  # Any may come from the tracer, and eager code is compared without it.
        watcher.report.notes.append(f"not compiled: {str(failed).partition(chr(10))[0]}")
        return
    finally:
        torch._dynamo.reset()
    compiled: Ops = {}
    for path, op, dtype in _compiled_ops(graphs):
        compiled.setdefault(path, []).append((op, dtype))
    report = watcher.report
    for path, eager in watcher.ops.items():
        there = compiled.get(path, [])
        # Only results that both have: compiled code leaves out some ops, such as casts that change nothing.
        report.ops += len(there)
        kinds = {op for op, _ in there} & {op for op, _ in eager}
        met = [[entry for entry in ops if entry[0] in kinds] for ops in (eager, there)]
        for (op, here), (other, dtype) in zip(*met, strict=False):
            if op == other and here != dtype:
                report.differences.append(
                    f"`{path}`: `{op}` returned {here} in eager code and {dtype} in compiled code"
                )
                break


def _compiled_ops(graphs: list[torch.fx.GraphModule]) -> Iterator[tuple[str, str, str]]:
    for graph in graphs:
        for node in graph.graph.nodes:
            value = node.meta.get("example_value")
            floats = _floats(value) if node.op in ("call_function", "call_method") else []
            if not floats:
                continue
            stack = list((node.meta.get("nn_module_stack") or {}).values())
            op = node.target if isinstance(node.target, str) else name_of(node.target)
            yield _path_of(stack[-1][0]) if stack else "", op, _short(floats[0])
