"""The loss scale: in place of `torch.amp.GradScaler`, with a floor, a ceiling, and the cause of each skipped step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import _engine

if TYPE_CHECKING:
    import torch


class LossScale:
    """The factor of a loss before its backward pass, so that small gradients do not underflow in 16 bits.

    It is used as `torch.amp.GradScaler`:

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    A step is skipped if the loss or a gradient is not finite; `outcome` then names the first parameter. A loss that
    is not finite by itself leaves the scale as it is, as a smaller one would not help.
    """

    def __init__(self, machine: _engine.ScaleMachine, names: Iterable[tuple[str, torch.nn.Parameter]] = ()) -> None:
        self._machine = machine
        self._names = {id(parameter): name for name, parameter in names}
        self._losses: list[torch.Tensor] = []
        self._unscaled: dict[int, str | None] = {}
        self._outcome = "no step was taken"
        self._stalled = False

    @property
    def value(self) -> float:
        """Factor of the next loss."""
        return self._machine.value

    @property
    def outcome(self) -> str:
        """Words for the last step: `the parameters were updated`, or `skipped: ` and the cause."""
        return self._outcome

    @property
    def stalled(self) -> bool:
        """`True` after 20 skipped steps in a row with a scale that cannot fall further: training will not recover by
        itself."""
        return self._stalled

    def get_scale(self) -> float:
        """Returns the factor of the next loss, as `GradScaler` does."""
        return self.value

    def is_enabled(self) -> bool:
        """Returns whether losses are scaled. Steps that are not finite are skipped in any case."""
        return self._machine.scales

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Multiplies a loss by the scale, in float32, in which 65536 times a loss fits."""
        self._losses.append(loss.detach())
        return loss.float() * self.value if self._machine.scales else loss

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients by the scale, once a step: before they are clipped. `step` does it otherwise."""
        import torch

        if id(optimizer) in self._unscaled:
            return
        grads = [grad for _, grad in _grads(optimizer)]
        if self._machine.scales and grads:
            torch._foreach_mul_(grads, 1.0 / self.value)
        self._unscaled[id(optimizer)] = self._first_non_finite(optimizer, grads)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Updates the parameters, unless the loss or a gradient is not finite. Further arguments are the optimizer's.

        Returns:
            What `optimizer.step` returns; `None` for a step that is skipped.
        """
        self.unscale_(optimizer)
        if self._unscaled[id(optimizer)] is not None or not self._finite_losses():
            return None
        return optimizer.step(*args, **kwargs)

    def update(self) -> None:
        """Sets the scale of the next step. Call it once, after the steps of all optimizers."""
        first = next((first for first in self._unscaled.values() if first is not None), None)
        _, self._stalled, self._outcome = self._machine.judge(self._finite_losses(), first)
        self._unscaled.clear()
        self._losses.clear()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, for a checkpoint."""
        state: dict[str, Any] = json.loads(self._machine.state())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state.

        Raises:
            Error: This scale cannot reach the state, such as one above its largest scale.
        """
        self._machine.restore(json.dumps(state))

    def _finite_losses(self) -> bool:
        return all(bool(loss.isfinite().all()) for loss in self._losses)

    def _first_non_finite(self, optimizer: torch.optim.Optimizer, grads: list[torch.Tensor]) -> str | None:
        import torch

        if not grads or math.isfinite(torch.nn.utils.get_total_norm(grads, norm_type=math.inf).item()):
            return None
        for place, (parameter, grad) in enumerate(_grads(optimizer)):
            if not bool(grad.isfinite().all()):
                return self._names.get(id(parameter), f"parameter {place} of the optimizer")
        return None


def _grads(optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                yield parameter, parameter.grad
