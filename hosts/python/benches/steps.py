"""Times of plans: `python benches/steps.py [SECONDS] [compiled]`. With `compiled`, steps are those of `torch.compile`,
which needs a C++ compiler. Each figure is the least of interleaved runs, in processor time
of one thread, so that other work on the machine shows less."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import precast
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import networks

COMPILED = "compiled" in sys.argv
SECONDS = next((float(word) for word in sys.argv[1:] if word != "compiled"), 20.0)


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        fits = stride == 1 and inputs == outputs
        self.down = (
            None if fits else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        return self.relu(y + (x if self.down is None else self.down(x)))


def resnet50() -> nn.Module:
    """ResNet-50 of torchvision."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def gpt2() -> nn.Module:
    """A third of the layers of GPT-2 small, with a small vocabulary."""
    return networks.Gpt(vocabulary=2048, width=768, heads=12, blocks=4, context=64)


def step(model: nn.Module, x: Tensor, around: Callable[[], object]) -> Callable[[], None]:
    """Returns a training step."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    called = torch.compile(model) if COMPILED else model

    def run() -> None:
        optimizer.zero_grad()
        with around():  # type: ignore[attr-defined]
            output = called(x)
        output.float().pow(2).mean().backward()
        optimizer.step()

    return run


def compared(runs: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Returns the least seconds of each, run in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for name, run in runs.items():
            began = time.process_time()
            run()
            times[name].append(time.process_time() - began)
    return {name: min(of) for name, of in times.items()}


def autocast() -> object:
    """Returns torch's own region."""
    return torch.autocast("cpu", dtype=torch.bfloat16)


def steps(title: str, make: Callable[[], nn.Module], x: Tensor) -> None:
    """Prints steps under plans next to `torch.autocast`."""
    runs = {"torch.autocast": step(make(), x, autocast), "float32": step(make(), x, nullcontext)}
    for level in ("auto", "O1", "O2"):
        model = make()
        precast.Policy(level, "bfloat16").plan(model).apply(model)
        runs[f"plan {level}"] = step(model, x, nullcontext)
    times = compared(runs)
    for name, seconds in times.items():
        print(f"| {title}, {name} | {seconds * 1e3:.1f} ms | {seconds / times['torch.autocast']:.3f} |", flush=True)


class Nothing(nn.Module):
    """A module that does nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def calls() -> None:
    """Prints the cost of a module's call under a plan."""
    from precast._forward import Region, put

    low = torch.bfloat16
    x = torch.ones(4)
    regions = {
        "as written": None,
        "region as around it": Region(False, low, torch.float32, torch.float32, False),
        "region entered": Region(True, low, None, None, False),
        "casts in and out": Region(True, low, low, torch.float32, False),
    }
    runs: dict[str, Callable[[], None]] = {}
    for name, region in regions.items():
        module = Nothing()
        if region is not None:
            put(module, region)

        def run(module: nn.Module = module) -> None:
            for _ in range(1000):
                module(x)

        runs[name] = run

    def casts() -> None:
        for _ in range(1000):
            x.to(low).to(torch.float32)

    runs["the two casts alone"] = casts
    times = compared(runs)
    for name, seconds in times.items():
        print(
            f"| a call, {name} | {seconds * 1e3:.2f} us | +{(seconds - times['as written']) * 1e3:.2f} us |", flush=True
        )


def plans() -> None:
    """Prints the time of a plan of 10,000 modules."""
    with torch.device("meta"):
        model = nn.ModuleList(networks.Block(16, 2) for _ in range(1428))
    policy = precast.Policy("O2", "bfloat16", rules=[{"path": "**.up", "run": "float32"}])
    times = compared({"plan": lambda: policy.plan(model) and None})
    modules = sum(1 for _ in model.modules())
    print(f"| a plan of {modules} modules | {times['plan'] * 1e3:.1f} ms | |", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print("| what | least | beside the first |\n| --- | --- | --- |")
    if not COMPILED:
        with torch.no_grad():
            plans()
            calls()
    steps("GPT-2, 4 layers", gpt2, torch.randint(2048, (2, 64)))
    steps("ResNet-50, 64 x 64", resnet50, torch.randn(4, 3, 64, 64))
