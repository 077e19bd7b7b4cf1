"""Plans: the precision of each module of a network, decided before the run."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import _engine
from ._scale import LossScale

if TYPE_CHECKING:
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    from ._check import Report
    from ._fault import Fault

Model = TypeVar("Model", bound="torch.nn.Module")


class Decision(NamedTuple):
    """The decision for one module."""

    path: str
    """Path, as in `named_modules`; the network's own is empty."""
    kind: str
    """Name of its class."""
    run: str
    """Precision inside: `fixed` (one dtype), `lists` (each op by the lists of `torch.autocast`), `except` (one dtype,
    but for listed ops), or `as is`."""
    dtype: str | None
    """Dtype of `fixed` and `except`, low dtype of `lists`."""
    outward: str | None
    """Dtype to which outputs are cast; `None` where nothing is cast at the border."""
    recompute: bool
    """`True` when its activations are computed again in the backward pass."""
    effect: str
    """Effect in words: `runs bf16, returns f32`."""
    because: str
    """Reason."""
    overridden: list[str]
    """Claims that the reason overrides, strongest first."""


class Plan:
    """The precision of each module of a network, with the reasons. Printing it, comparing it and reading it change
    nothing.

    `print(plan)` is the tree of modules; those marked with `*` cast at their border.
    """

    notes: list[str]
    """Remarks for a reader: classes that no list knows, and lists that torch does not follow."""

    def __init__(
        self,
        plan: _engine.Plan,
        policy: _engine.Policy,
        classes: list[tuple[str, list[str]]],
        notes: list[str],
    ) -> None:
        self._engine = plan
        self._policy = policy
        self._classes = classes
        self.notes = [*notes, *self._list_notes()]

    def _list_notes(self) -> Iterator[str]:
        pack = self._engine.pack or "a list of your own"
        by_lists = sum(decision[0] in ("lists", "except") for decision in self._engine.runs())
        if by_lists and not pack.startswith("torch-"):
            yield (
                f"in {by_lists} modules each op is decided by lists: "
                f"those of torch.autocast are followed, not those of {pack}"
            )

    @cached_property
    def decisions(self) -> list[Decision]:
        """Decisions, in the order of `named_modules`."""
        return [Decision(*row) for row in self._engine.decisions()]

    def explain(self, path: str) -> str:
        """Explains the decision for one module: its reason, and the claims that it overrides.

        Args:
            path: Path of the module; empty for the network.

        Raises:
            Error: There is no such module; the words have the nearest path.
        """
        return self._engine.explain(path)

    def diff(self, other: Plan) -> _engine.Diff:
        """Compares two plans. `print` shows the changes in groups, `len` is their number, and `changes` has path,
        effect before and effect after of each. Different reasons for the same precision do not count."""
        return self._engine.diff(other._engine)

    def table(self) -> list[dict[str, Any]]:
        """Returns a row for each module, for `pandas.DataFrame(plan.table())`."""
        return [decision._asdict() for decision in self.decisions]

    def tree(self, width: int | None = None) -> str:
        """Returns the tree, in lines of at most `width` columns."""
        return self._engine.tree(width)

    def to_json(self) -> str:
        """Returns the plan as the JSON that `precast plan --format json` prints."""
        return self._engine.to_json()

    def apply(self, model: Model) -> Model:
        """Makes a network run by the plan, in place of any plan that was applied before. Applying it again changes
        nothing.

        The `forward` of modules at which the precision changes is replaced on the instance: it casts inputs, enters
        or leaves `torch.autocast`, and casts outputs. Parameters, buffers, their paths and the hooks of others are
        untouched, and compiled code is compiled again. A deep copy of the network runs by the plan, too; a network
        that was pickled does not, until the plan is applied to it.

        Args:
            model: The network, also compiled or in `DistributedDataParallel`. FSDP2 may come before or after.

        Returns:
            The network itself.

        Raises:
            Error: Its modules are not those of the plan, or a parameter that must be float32 is stored in 16 bits.
        """
        from . import _apply

        _apply.apply(model, self._engine)
        return model

    def undo(self, model: Model) -> Model:
        """Takes back every replaced `forward`, of this plan or another one, and returns the network. Nothing is
        left."""
        from . import _apply

        _apply.undo(model)
        return model

    @contextmanager
    def applied(self, model: Model) -> Iterator[Model]:
        """Applies the plan within a `with` block, and restores what was there before."""
        from . import _apply

        before = _apply.regions(model)
        try:
            yield self.apply(model)
        finally:
            _apply.restore(model, before)

    def loss_scale(self, model: torch.nn.Module | None = None) -> LossScale:
        """Returns the loss scale of the policy, to be used as `torch.amp.GradScaler`.

        Args:
            model: The network, so that a skipped step names its parameter.
        """
        return LossScale(self._policy.loss_scale(), () if model is None else model.named_parameters())

    def check(self, model: torch.nn.Module, *batch: Any, compiled: bool = True, **kwargs: Any) -> Report:
        """Calls a network under the plan and compares the dtypes of its modules and ops with the plan, and those of
        compiled code with those of eager code.

        Args:
            model: The network. It is left as it was.
            batch: Inputs of a call.
            compiled: Whether compiled code is compared, too.
            kwargs: Inputs by name.

        Returns:
            The differences; `report.raise_first()` raises the first.
        """
        from . import _check

        return _check.check(self, model, batch, kwargs, compiled)

    def find_fault(
        self,
        model: torch.nn.Module,
        *batch: Any,
        loss: Callable[[Any], torch.Tensor] | None = None,
        scale: float = 1.0,
        **kwargs: Any,
    ) -> Fault | None:
        """Runs a step under the plan and finds the first op that returns inf or NaN for finite inputs.

        Args:
            model: The network. It is left as it was, with its gradients.
            batch: Inputs of a call.
            loss: Loss of the outputs. Default: no backward pass.
            scale: Factor of the loss, such as `scaler.value`.
            kwargs: Inputs by name.

        Returns:
            The fault; `None` if everything is finite.
        """
        from . import _fault

        return _fault.find(self, model, batch, kwargs, loss, scale)

    def lint(self, model: torch.nn.Module, *batch: Any, **kwargs: Any) -> list[str]:
        """Calls a network once, without a plan, and lists what endangers it under this one, a sentence each.

        Args:
            model: The network. It is left as it was.
            batch: Inputs of a call.
            kwargs: Inputs by name.
        """
        from . import _lint

        return _lint.lint(self, model, batch, kwargs)

    def to_fsdp2(self) -> list[tuple[str, MixedPrecisionPolicy]]:
        """Returns a policy of FSDP2 for each module at which the precision changes, inner modules first, as it shards:

            for path, mixed in plan.to_fsdp2():
                fully_shard(model.get_submodule(path), mp_policy=mixed)

        Parameters are gathered in the dtype of their module, gradients are summed in float32, and ops run without
        the lists of `torch.autocast`. Modules that go by lists are left out.
        """
        import torch
        from torch.distributed.fsdp import MixedPrecisionPolicy

        found = []
        for decision in reversed(self.decisions):
            if decision.outward is not None and decision.dtype is not None:
                param, output = getattr(torch, decision.dtype), getattr(torch, decision.outward)
                mixed = MixedPrecisionPolicy(param_dtype=param, output_dtype=output, reduce_dtype=torch.float32)
                found.append((decision.path, mixed))
        return found

    def to_hf_skip_list(self) -> list[str]:
        """Returns the paths of linear layers that do not run low, for `modules_to_not_convert` of quantizers of
        transformers, which convert the others."""
        low = self._engine.dtype
        bases = {kind for kind, of in self._classes if "Linear" in (kind, *of)}
        return [decision.path for decision in self.decisions if decision.kind in bases and decision.dtype != low]

    def to_deepspeed(self) -> str:
        """Returns the fragment `torch_autocast` of a configuration of DeepSpeed, as JSON with what it lacks."""
        return self._engine.export("deepspeed", self._classes)[0]

    def to_torchao(self) -> str:
        """Returns a Python file with a function that returns a `FqnToConfig` of torchao for the layers that are
        lowered, and one that makes layers train with operands in 8 bits if rules have `operands`."""
        return self._engine.export("torchao", self._classes)[0]

    def to_transformer_engine(self) -> str:
        """Returns a Python file with a function that replaces linear layers whose rules have `operands` by those of
        Transformer Engine, in a region of their recipe."""
        return self._engine.export("transformer-engine", self._classes)[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._engine == other._engine

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return "\n".join([str(self._engine), *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"<precast.Plan of {len(self._engine.cells())} modules>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Returns the tree for a notebook: modules are opened and closed, and each has its reason."""
        return _page(str(self).partition("\n")[0], self.decisions, self.notes)


_COLOURS = {"float32": "#7a5195", "float16": "#2f7d4f", "bfloat16": "#2f7d4f"}


def _page(title: str, decisions: list[Decision], notes: list[str]) -> str:
    """Returns the tree as nested `<details>`, without a script."""
    depths = [0 if not decision.path else decision.path.count(".") + 1 for decision in decisions]
    parts = [f"<div><b>{html.escape(title)}</b>"]
    open_at: list[int] = []
    for place, (decision, depth) in enumerate(zip(decisions, depths, strict=True)):
        while open_at and open_at[-1] >= depth:
            parts.append("</details>")
            open_at.pop()
        name = html.escape(decision.path.rpartition(".")[2] or "(root)")
        colour = _COLOURS.get(decision.dtype or "", "#666") if decision.run != "lists" else "#b5651d"
        line = (
            f"<code>{name}</code> {html.escape(decision.kind)} "
            f'<span style="color:{colour}">{html.escape(decision.effect)}</span> '
            f"<small>{html.escape(decision.because)}</small>"
        )
        if depths[place + 1 : place + 2] and depths[place + 1] > depth:
            opened = " open" if depth < 2 else ""
            parts.append(f'<details{opened} style="margin-left:1em"><summary>{line}</summary>')
            open_at.append(depth)
        else:
            parts.append(f'<div style="margin-left:2em">{line}</div>')
    parts += ["</details>"] * len(open_at)
    parts += [f"<div><small>note: {html.escape(note)}</small></div>" for note in notes]
    return "".join([*parts, "</div>"])
