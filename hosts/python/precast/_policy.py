"""Policies: the requested precision of a network."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from . import _engine
from ._plan import Plan

if TYPE_CHECKING:
    import torch


class Policy:
    """The requested precision of a network: a level, a low dtype, and rules for modules by path or class.

    The keys are those of policy files, which `load` reads: `Policy("O2", "bfloat16", rules=[{"path": "head", "run":
    "float32"}])`.

    Args:
        level: The part of the network that runs low. `O0`: nothing; `O1`: products and convolutions; `O2`: all but
        the norms;
            `O3`: all; `auto`: each op by lists.
        dtype: The low dtype, `bfloat16` or `float16`.
        rules: Rules in order, each with the keys of a file: `path` (`encoder.layers.*.norm`) or `kind` (the name of a
        class or
            of a base), `run` (`float32`, `float32-inside`, `low`, `inherit`), `because`, `expect`, `checkpoint`,
            `until`.
        keys: Further keys of a file, such as `pack`, `name`, `loss_scale`, `cells`.

    Raises:
        Error: A key, a value or a rule is wrong; the words have its place.
    """

    def __init__(self, level: str, dtype: str, rules: Iterable[Mapping[str, object]] = (), **keys: object) -> None:
        # Of a file, too, a value may be JSON. One line for each rule, so that an error shows it.
        lines = ["version: 1", f"level: {_json(level)}", f"dtype: {_json(dtype)}"]
        lines += [f"{key}: {_json(value)}" for key, value in keys.items()]
        written = [f"  - {_json(rule)}" for rule in rules]
        lines += ["rules:", *written] if written else []
        self._inner = _engine.Policy.parse("\n".join(lines) + "\n", "Policy(..)")

    @classmethod
    def _of(cls, policy: _engine.Policy) -> Policy:
        made = cls.__new__(cls)
        made._inner = policy
        return made

    @classmethod
    def parse(cls, text: str, name: str = "policy") -> Policy:
        """Reads the text of a policy file.

        Args:
            text: The text.
            name: Name of the file in errors and reasons.

        Raises:
            Error: The text is not a policy; the words have line and column.
        """
        return cls._of(_engine.Policy.parse(text, name))

    @classmethod
    def named(cls, name: str) -> Policy:
        """Returns a policy that ships: `o0`, `o1`, `o2`, `o3`, `auto`, and with `-bf16` behind them those in bfloat16.

        Raises:
            Error: No policy has that name.
        """
        return cls._of(_engine.Policy.named(name))

    @property
    def level(self) -> str:
        """Level, such as `O2`."""
        return self._inner.level

    @property
    def dtype(self) -> str:
        """Low dtype: `bfloat16` or `float16`."""
        return self._inner.dtype

    @property
    def pack(self) -> str | None:
        """Name of the pack of lists, such as `precast-1`."""
        return self._inner.pack

    @property
    def ends(self) -> list[int]:
        """Numbers of steps after which rules with `until` end. Plan and apply `after_steps(n)` then."""
        return self._inner.ends()

    def after_steps(self, steps: int) -> Policy:
        """Returns the policy after a number of training steps: without the rules that have ended."""
        return Policy._of(self._inner.after_steps(steps))

    def to_yaml(self) -> str:
        """Returns the text of an equivalent policy file."""
        return self._inner.to_yaml()

    def plan(self, model: torch.nn.Module) -> Plan:
        """Decides for every module of a network, and changes nothing.

        Args:
            model: The network, on any device. Only its modules are read, so `meta` suffices.

        Raises:
            Error: A rule matches no module or decides nothing, a list names a class that is not there, or a rule asks
                for what torch cannot do; the words have the place of the rule.
            ImportError: torch is not installed.
            TypeError: It is not a module.
        """
        try:
            from ._outline import outline
        except ModuleNotFoundError as missing:
            raise ImportError(
                "a plan reads the modules of torch, which is not installed; `pip install torch` installs it"
            ) from missing

        read = outline(model)
        return Plan(
            self._inner.plan(read.classes, (read.paths, read.depths, read.places, read.weights)),
            self._inner,
            read.classes,
            read.notes,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self._inner == other._inner

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(self._inner)

    def __repr__(self) -> str:
        return f"<precast.Policy {self}>"


def load(path: str | os.PathLike[str]) -> Policy:
    """Reads a policy file, as the Rust library and the command do.

    Raises:
        Error: The file cannot be read or is not a policy; the words begin with `file:line:column`.
    """
    return Policy._of(_engine.Policy.load(path))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a policy has text, numbers, lists and dicts, got {type(value).__name__}")
