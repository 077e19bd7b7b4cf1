"""Times steps of torch's fused optimizers for `cargo bench --bench optimizers`, which starts this and asks for one measurement
a line: `THREADS REPEATS OPTIMIZER MODE`. The mode `update` is the step alone, `whole` is the step of a scaler, which unscales
and checks the gradients. Needs torch from PyPI."""

import time

import torch
from answer import answer

TENSORS, SHAPE = 24, (1024, 1024)
OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=1e-3, momentum=0.9, fused=True),
    "adam": lambda params: torch.optim.Adam(params, lr=1e-3, fused=True),
    "adamw": lambda params: torch.optim.AdamW(params, lr=1e-3, fused=True),
}
ready = {}


def find(name, mode):
    if name not in ready:
        ready.clear()
        params = [torch.nn.Parameter(torch.full(SHAPE, 0.5)) for _ in range(TENSORS)]
        for param in params:
            param.grad = torch.rand(SHAPE) - 0.5
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=10**9)
        scaler.scale(torch.ones(()))  # makes the scale
        ready[name] = OPTIMIZERS[name](params), scaler
        ready[name][0].step()
    optimizer, scaler = ready[name]

    def whole():
        scaler.step(optimizer)
        scaler.update()
        # Gradients were divided by it in place: every other step multiplies them again.
        scaler._scale.fill_(0.5 if scaler.get_scale() > 1 else 2.0)

    return optimizer.step if mode == "update" else whole


# The time at work, not that of a wall: what else the machine does is left out.
answer(find, clock=time.process_time)
