"""Trajectories of torch's optimizers, for `tests/goldens-extra/torch/optimizers.json`: `python optimizers.py > FILE`.

Each case trains a matrix and a vector (Muon: the matrix) for 100 steps by gradients that both sides draw alike, in f64 and in
f32. torch's Muon computes in bfloat16, which is another algorithm to the last bits; here it is told to keep the dtype."""

import inspect
import json

import torch
import torch.optim._muon as muon

SHAPES = {"matrix": [5, 3], "vector": [4]}
STEPS = [1, 2, 5, 10, 20, 50, 100]

CASES = [
    ("SGD", {"lr": 0.05}),
    ("SGD", {"lr": 0.05, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.02, "momentum": 0.9}),
    ("SGD", {"lr": 0.02, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.02, "momentum": 0.8, "nesterov": True, "weight_decay": 0.05}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-4, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "amsgrad": True}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.2, "amsgrad": True}),
    ("Adagrad", {"lr": 0.05}),
    ("Adagrad", {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.05, "initial_accumulator_value": 0.5, "eps": 1e-6}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.05}),
    ("RMSprop", {"lr": 0.005, "momentum": 0.9}),
    ("RMSprop", {"lr": 0.005, "centered": True}),
    ("RMSprop", {"lr": 0.002, "momentum": 0.9, "centered": True, "alpha": 0.95}),
    ("Adafactor", {"lr": 0.02}),
    ("Adafactor", {"lr": 0.5, "beta2_decay": -0.5, "eps": [1e-6, 1e-2], "d": 1.5, "weight_decay": 0.02}),
    ("Muon", {"lr": 0.02}),
    ("Muon", {"lr": 0.02, "momentum": 0.8, "nesterov": False, "weight_decay": 0.0, "ns_steps": 3}),
    ("Muon", {"lr": 0.002, "adjust_lr_fn": "match_rms_adamw"}),
]


class Draw:
    """A linear congruential generator. Its numbers are exact in f32."""

    def __init__(self):
        self.state = 1

    def number(self):
        self.state = (1664525 * self.state + 1013904223) % 2**32
        return (self.state >> 8) / 2**24 - 0.5

    def tensor(self, shape, dtype):
        count = torch.Size(shape).numel()
        return torch.tensor([self.number() for _ in range(count)], dtype=torch.float64).to(dtype).reshape(shape)


def keep_dtype():
    source = inspect.getsource(muon._zeropower_via_newtonschulz)
    assert "dtype=torch.bfloat16" in source
    exec(source.replace("dtype=torch.bfloat16", "dtype=grad.dtype"), muon.__dict__)


def trajectory(kind, options, dtype):
    draw = Draw()
    shapes = [SHAPES["matrix"]] if kind == "Muon" else list(SHAPES.values())
    params = [torch.nn.Parameter(draw.tensor(shape, dtype)) for shape in shapes]
    optimizer = getattr(torch.optim, kind)(params, **options)
    found = []
    for step in range(1, STEPS[-1] + 1):
        for param in params:
            param.grad = draw.tensor(param.shape, dtype) * 2.0 ** (step % 7 - 3)
        optimizer.step()
        if step in STEPS:
            found.append([x for param in params for x in param.detach().flatten().tolist()])
    return found


def main():
    torch.set_num_threads(1)
    keep_dtype()
    cases = []
    for kind, options in CASES:
        f64, f32 = (trajectory(kind, options, dtype) for dtype in (torch.float64, torch.float32))
        cases.append({"optimizer": kind, "options": options, "f64": f64, "f32": f32})
    head = {"version": torch.__version__, "shapes": SHAPES, "steps": STEPS}
    # A case a line, so that differences can be read.
    lines = ",\n".join(json.dumps(case) for case in cases)
    print(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}")


if __name__ == "__main__":
    main()
