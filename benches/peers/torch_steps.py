"""Times training steps of torch for `cargo bench --bench steps`, which starts this and asks for one measurement a line.

A line is `THREADS STEPS NET MODE TIMES`, with batches TIMES as large; the answer is seconds per step, or `error` and why. Nothing
else is written, so the two libraries can take turns on one machine. With the arguments `memory THREADS STEPS NET MODE TIMES`
it prints what memory that takes, and ends. Needs torch from PyPI.
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


def mlp(*sizes):
    layers = [nn.Linear(*sizes[:2])]
    for pair in zip(sizes[1:], sizes[2:]):
        layers += [nn.ReLU(), nn.Linear(*pair)]
    return nn.Sequential(*layers)


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
    return residuals([nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()], width, 10)


def picture_stem():
    return [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]


def residuals(layers, width, classes):
    inputs = width
    for stage in range(4):
        for block in range(2):
            outputs = width << stage
            layers.append(Residual(inputs, outputs, 2 if stage > 0 and block == 0 else 1))
            inputs = outputs
    return with_head(layers, inputs, classes)


def with_head(layers, inputs, classes):
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class Bottleneck(nn.Module):
    def __init__(self, inputs, middle, stride, groups):
        super().__init__()
        outputs = 4 * middle
        self.narrow, self.norm1 = nn.Conv2d(inputs, middle, 1, bias=False), nn.BatchNorm2d(middle)
        self.conv = nn.Conv2d(middle, middle, 3, stride, 1, groups=groups, bias=False)
        self.norm2 = nn.BatchNorm2d(middle)
        self.widen, self.norm3 = nn.Conv2d(middle, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.project = None
        if stride != 1 or inputs != outputs:
            self.project = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.norm1(self.narrow(x)))
        y = self.norm3(self.widen(F.relu(self.norm2(self.conv(y)))))
        return F.relu(y + (x if self.project is None else self.project(x)))


def resnet50(depthwise=False):
    layers, inputs = picture_stem(), 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        middle = 64 << stage
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(inputs, middle, stride, middle if depthwise else 1))
            inputs = 4 * middle
    return with_head(layers, inputs, 1000)


class Lstm(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.lstm = nn.LSTM(hidden, hidden, 2, batch_first=True)
        self.head = nn.Linear(hidden, 10)

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


def adamw(params):
    return torch.optim.AdamW(params, lr=1e-3)


def numbers(batch, *shape, classes=10):
    return lambda times: (torch.randn(times * batch, *shape), torch.randint(0, classes, (times * batch,)))


def tokens(batch, length, vocabulary):
    ids = lambda *shape: torch.randint(0, vocabulary, shape)
    return lambda times: (ids(times * batch, length), ids(times * batch * length))


NETS = {
    "lenet5": (lenet5, numbers(32, 1, 28, 28), sgd),
    "mlp": (lambda: mlp(784, 512, 512, 10), numbers(64, 784), sgd),
    "resnet18": (resnet18, numbers(8, 3, 32, 32), sgd),
    "lstm": (Lstm, numbers(16, 32, 256), sgd),
    "gpt": (Gpt, tokens(8, 64, 256), adamw),
    "resnet50-224": (resnet50, numbers(4, 3, 224, 224, classes=1000), sgd),
    "resnet18-224": (lambda: residuals(picture_stem(), 64, 1000), numbers(4, 3, 224, 224, classes=1000), sgd),
    "depthwise50-224": (lambda: resnet50(True), numbers(4, 3, 224, 224, classes=1000), sgd),
    "mlp-2048": (lambda: mlp(2048, 2048, 2048, 2048, 10), numbers(256, 2048), sgd),
    "gpt2-small": (lambda: Gpt(50257, 768, 12, 12, 256), tokens(2, 256, 50257), adamw),
    "gpt-4096": (lambda: Gpt(1000, 512, 8, 2, 4096), tokens(1, 4096, 1000), adamw),
    "lstm-1024": (lambda: Lstm(1024), numbers(32, 100, 1024), sgd),
}
LOW = {"f16": torch.float16, "bf16": torch.bfloat16}
ready = {}


def step_of(*words):
    """The training step of a network, made and done once."""
    if words not in ready:
        step = stepper(*words)
        step()
        ready[words] = step
    return ready[words]


def stepper(net, mode, times):
    """A training step, of as many samples as asked for: `f32`, or autocast in `f16` (with a scaler) or `bf16`."""
    torch.manual_seed(0)
    make, batch, optimizer = NETS[net]
    model, (x, y) = make().train(), batch(int(times))
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


def memory(threads, steps, net, mode, times):
    """Prints what `steps/memory.rs` asks for: 0, and resident bytes."""

    def resident(field):
        with open("/proc/self/status") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith(field))

    torch.set_num_threads(int(threads))
    step = stepper(net, mode, times)
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
