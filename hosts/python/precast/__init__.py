"""Policies of mixed precision for networks of torch: which module runs in which dtype, decided before the run and
explained.

    import precast

    policy = precast.load("policy.yaml")          # or precast.Policy("O2", "bfloat16")
    plan = policy.plan(model)                     # a model on the device "meta" suffices
    print(plan)                                   # the tree of modules, each with its precision and the reason
    plan.apply(model)                             # plan.undo(model) takes all of it back

torch is imported when a module is handed over, and not before.
"""

from typing import TYPE_CHECKING, Any

from ._engine import Diff, Error, __version__
from ._pin import Pin, pin
from ._plan import Decision, Plan
from ._policy import Policy, load
from ._scale import LossScale

if TYPE_CHECKING:
    from ._compare import Comparison, compare, dump

__all__ = ["Comparison", "Decision", "Diff", "Error", "LossScale", "Pin", "Plan", "Policy"]
__all__ += ["__version__", "compare", "dump", "load", "pin"]


def __getattr__(name: str) -> Any:
    # These have tensors of torch in their types.
    if name in ("Comparison", "compare", "dump"):
        from . import _compare

        return getattr(_compare, name)
    raise AttributeError(f"module 'precast' has no attribute {name!r}")
