"""Times training steps of torch for `cargo bench --bench steps`, which starts this and asks for one measurement a line.

A line is `THREADS STEPS NET MODE`; the answer is seconds per step, or `error` and why. Nothing else is written, so the two
libraries can take turns on one machine. With the arguments `memory THREADS STEPS NET MODE` it tells what memory that takes, and
ends. Needs torch from PyPI.
"""

import sys
from contextlib import nullcontext

import torch
from answer import answer
from torch import nn
from torch.nn import functional as F


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.project = None
        if stride != 1 or inputs != outputs:
            self.project = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + (x if self.project is None else self.project(x)))


def resnet18(width=32):
    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for stage in range(4):
        for block in range(2):
            outputs = width << stage
            layers.append(Residual(inputs, outputs, 2 if stage > 0 and block == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(256, 256, 2, batch_first=True)
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary=256, width=128, heads=4, layers=4, length=64):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.embedding(ids) + self.position))).flatten(0, 1)


def sgd(params):
    return torch.optim.SGD(params, lr=0.01, momentum=0.9)


NETS = {
    "lenet5": (lenet5, lambda: (torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,))), sgd),
    "mlp": (mlp, lambda: (torch.randn(64, 784), torch.randint(0, 10, (64,))), sgd),
    "resnet18": (resnet18, lambda: (torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))), sgd),
    "lstm": (Lstm, lambda: (torch.randn(16, 32, 256), torch.randint(0, 10, (16,))), sgd),
    "gpt": (
        Gpt,
        lambda: (torch.randint(0, 256, (8, 64)), torch.randint(0, 256, (8 * 64,))),
        lambda params: torch.optim.AdamW(params, lr=1e-3),
    ),
}
LOW = {"f16": torch.float16, "bf16": torch.bfloat16}
ready = {}


def step_of(net, mode):
    """The training step of a network, made and done once."""
    if (net, mode) not in ready:
        step = stepper(net, mode)
        step()
        ready[net, mode] = step
    return ready[net, mode]


def stepper(net, mode):
    """A training step, of as many samples as asked for: `f32`, or autocast in `f16` (with a scaler) or `bf16`."""
    torch.manual_seed(0)
    make, batch, optimizer = NETS[net]
    model, (x, y) = make().train(), batch()
    optimizer = optimizer(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=mode == "f16")

    def step(samples=len(x)):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=LOW[mode]) if mode in LOW else nullcontext():
            loss = F.cross_entropy(model(x[:samples]), y[: len(y) // len(x) * samples])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def memory(threads, steps, net, mode):
    """Prints what `steps/memory.rs` asks for: 0, and resident bytes."""

    def resident(field):
        with open("/proc/self/status") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith(field))

    torch.set_num_threads(int(threads))
    step = stepper(net, mode)
    figures = [0, resident("VmRSS")]
    for _ in range(int(steps)):
        step(1)
    figures.append(resident("VmRSS"))
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    for _ in range(int(steps)):
        step()
    print(*figures, resident("VmHWM"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["memory"]:
        memory(*sys.argv[2:])
    else:
        answer(step_of)
