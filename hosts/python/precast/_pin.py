"""The op lists of `torch.autocast` of another version of torch.

The lists of each version are in its wheel, as the names of the functions that wrap ops: `tools/peers/torch_lists.py`
reads them, and `cargo xtask packs` compares them with the changes here.
"""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import Any

from ._error import error

#: The first and the last version whose lists are known.
KNOWN = ((2, 10), (2, 15))

#: The version in which an op joined the list of those that run in float32, and the devices.
CHANGES = [
    ((2, 12), ("cuda", "xpu"), "rms_norm"),
    ((2, 14), ("cpu", "cuda"), "linalg_matrix_sqrth"),
]

DEVICES = ("cpu", "cuda", "mps", "xpu")


class Pin:
    """Lists of `torch.autocast` that are those of an older version, until :meth:`undo`, or the end of a `with`."""

    def __init__(self, name: str, ops: list[str], libraries: list[Any]) -> None:
        self._name, self._libraries = name, libraries
        #: The ops that are on another list than before: `["rms_norm"]`.
        self.ops = ops

    def undo(self) -> None:
        """Gives autocast its own lists back. A second call does nothing."""
        for library in self._libraries:
            library._destroy()
        if self._libraries:
            _forget_compiled()
        self._libraries = []

    def __enter__(self) -> Pin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"<precast.Pin {self._name}: {', '.join(self.ops) or 'nothing differs'}>"


def pin(name: str) -> Pin:
    """Gives `torch.autocast` the op lists of another version of torch, in all threads of the process.

    Args:
        name: Version and device, such as `torch-2.11-cuda`. The version is at least 2.10, and no newer than the torch
            that runs.

    Raises:
        Error: No such version or device is known, or the torch that runs is newer than the lists that are known.
        ImportError: torch is not installed.
    """
    import torch

    met = re.fullmatch(r"torch-(\d+)\.(\d+)-(\w+)", name)
    first, last = ("{}.{}".format(*version) for version in KNOWN)
    if met is None or met[3] not in DEVICES:
        raise error("Value", f"`{name}` names no lists; expected torch-VERSION-DEVICE, with a device of {DEVICES}")
    version, device = (int(met[1]), int(met[2])), met[3]
    running = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if running > KNOWN[1]:
        raise error("Value", f"this is torch {torch.__version__}, and lists are known up to {last}")
    if not KNOWN[0] <= version <= running:
        raise error("Value", f"`{name}`: expected a version from {first} to that of torch, {torch.__version__}")
    later = [op for since, devices, op in CHANGES if device in devices and version < since <= running]
    key = f"Autocast{device.upper()}"
    libraries: list[Any] = []
    # torch declares no types for it.
    make: Any = torch.library.Library
    for op in later:
        library = make("aten", "IMPL")
        for overload in getattr(torch.ops.aten, op).overloads():
            full = f"aten::{op}" if overload == "default" else f"aten::{op}.{overload}"
            if torch._C._dispatch_has_kernel_for_dispatch_key(full, key):
                library.impl(full.removeprefix("aten::"), torch.library.fallthrough_kernel, key)
        libraries.append(library)
    if libraries:
        _forget_compiled()
    return Pin(name, later, libraries)


def _forget_compiled() -> None:
    """Drops what was compiled with other lists."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()
