"""DistributedDataParallel in torch: local processes that exchange their gradients by gloo."""

import os
import tempfile

import torch
import torch.distributed
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

import layers


def gradients(module, about, x, y):
    """The gradients of the mean loss over the targets that count, by the paths of the other side."""
    torch.nn.functional.cross_entropy(module(x), y).backward()
    inner = getattr(module, "module", module)
    found = (layers.find(inner, parameter["path"]) for parameter in about["parameters"])
    return [there.grad[rows].clone() for there, rows in found]


def built(about, arrays, dtype):
    """The network of a run, its inputs and its targets."""
    module = layers.build(about["layer"]).to(dtype).train()
    *parameters, x, y = arrays
    layers.load(module, about["parameters"], parameters)
    return module, x.to(dtype).reshape(-1, *about["input"]), y.long()


def process(rank, size, runs, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting-{size}", rank=rank, world_size=size)
    met = []
    for about, arrays in runs:
        module, x, y = built(about, arrays, torch.float32)
        met.append(gradients(DistributedDataParallel(module), about, x.chunk(size)[rank], y.chunk(size)[rank]))
    if rank == 0:
        torch.save(met, f"{folder}/gradients-{size}")
    torch.distributed.destroy_process_group()


def answer(head, arrays):
    """For each run, the gradients of the whole batch in f64, and those of each number of processes."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rest, runs = iter(arrays), []
    for about in head["runs"]:
        runs.append((about, [next(rest) for _ in range(len(about["parameters"]) + 2)]))
    whole = [gradients(module, about, x, y) for about, of in runs for module, x, y in [built(about, of, torch.float64)]]
    with tempfile.TemporaryDirectory() as folder:
        for size in head["processes"]:
            torch.multiprocessing.spawn(process, args=(size, runs, folder), nprocs=size)
        by_size = [torch.load(f"{folder}/gradients-{size}") for size in head["processes"]]
    return {}, [grad for of_run in zip(whole, *by_size) for grads in of_run for grad in grads]
