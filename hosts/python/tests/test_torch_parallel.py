"""Plans in two processes: FSDP2 and DistributedDataParallel over gloo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

CODE = """
import copy, os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel
import precast
sys.path.insert(0, sys.argv[1])
import networks

def step(model, ids):
    model.zero_grad()
    loss = model(ids).float().pow(2).mean()
    loss.backward()
    return loss.detach()

def full(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value

def run(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    alone = networks.Gpt()
    # The same batch for both: sums over ranks are exact means.
    ids = torch.randint(64, (2, 16))
    plan = precast.Policy("O2", "bfloat16").plan(alone)
    sharded = {}
    for when in ("before", "after"):
        model = sharded[when] = copy.deepcopy(alone)
        if when == "before":
            plan.apply(model)
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        assert isinstance(model.blocks[0], FSDPModule)
        if when == "after":
            plan.apply(model)
            # Sharded modules have classes of FSDP's own.
            assert precast.Policy("O2", "bfloat16").plan(model) == plan
    replicated = DistributedDataParallel(copy.deepcopy(alone))
    plan.apply(replicated)
    plan.apply(alone)
    loss = step(alone, ids)
    for name, model in [*sharded.items(), ("replicated", replicated)]:
        assert torch.equal(step(model, ids), loss), name
        inner = model.module if name == "replicated" else model
        for (path, one), other in zip(alone.named_parameters(), inner.parameters()):
            assert torch.allclose(one.grad, full(other.grad), rtol=1e-3, atol=1e-6), (name, path)
            assert other.dtype is torch.float32
    # FSDP2 casts by policies of its own.
    model = networks.encoder().eval()
    x = torch.randn(2, 5, 8)
    plan = precast.Policy("O2", "bfloat16").plan(model)
    with plan.applied(model), torch.no_grad():
        planned = model(x)
    dtypes = []
    for path, mixed in plan.to_fsdp2():
        fully_shard(model.get_submodule(path), mp_policy=mixed)
    model[0].register_forward_hook(lambda module, args, output: dtypes.append(output.dtype))
    model[2].register_forward_hook(lambda module, args, output: dtypes.append(output.dtype))
    with torch.no_grad():
        output = model(x)
    assert dtypes == [torch.bfloat16, torch.bfloat16] and output.dtype is torch.float32
    assert (output - planned).abs().max() < 0.1, (output - planned).abs().max()
    # Gloo aborts a rank whose peer has left before it.
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(run, args=(int(sys.argv[2]),), nprocs=2)
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_two_processes_have_the_loss_of_one(tmp_path: Path) -> None:
    file = tmp_path / "ranks.py"
    file.write_text(CODE)
    words = [sys.executable, str(file), str(Path(__file__).parent), str(_free_port())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def _free_port() -> int:
    import socket

    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return int(it.getsockname()[1])
