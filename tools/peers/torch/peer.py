"""torch's side of `cargo xtask peers`. Both sides write messages: a line of JSON with the lengths of the arrays that follow,
and the arrays as little-endian f64, which holds every number of every dtype exactly."""

import json
import sys

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import data_parallel
import layers
import ops
import training

FLOATS = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
EPS = 2.0**-26


def read():
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit()
    head = json.loads(line)
    return head, [torch.from_numpy(numpy.frombuffer(sys.stdin.buffer.read(8 * n), "<f8").copy()) for n in head["lengths"]]


def write(head, arrays=()):
    arrays = [a.detach().to(torch.float64).reshape(-1).numpy().astype("<f8") for a in arrays]
    line = json.dumps(head | {"lengths": [len(a) for a in arrays]})
    sys.stdout.buffer.write(line.encode() + b"\n" + b"".join(a.tobytes() for a in arrays))
    sys.stdout.buffer.flush()


def tensors(head, arrays, dtype):
    """The inputs of a call: floating ones in a dtype, and with gradients where they are wanted."""
    made = []
    for array, about in zip(arrays, head["inputs"]):
        kind = about["dtype"]
        to = dtype if kind in FLOATS else {"i64": torch.int64, "bool": torch.bool}[kind]
        made.append(array.to(to).reshape(about["shape"]).requires_grad_(about["grad"]))
    return made


def results(f, inputs, seed, through):
    """The results of a call, and the gradients of the inputs when the seed comes back to one of the results."""
    out = f(inputs)
    out = list(out) if isinstance(out, (tuple, list)) else [out]
    wanted = [x for x in inputs if x.requires_grad]
    if seed is None or not wanted:
        return out, []
    if not out[through].requires_grad:
        return out, [torch.zeros_like(x) for x in wanted]
    grads = torch.autograd.grad(out[through], wanted, seed.to(out[through].dtype).reshape(out[through].shape), allow_unused=True)
    return out, [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, grads)]


class Noise(TorchDispatchMode):
    """Moves every number that is computed by a relative amount, up or down at random, as a rounding of it would."""

    def __init__(self, sample):
        super().__init__()
        self.sample = sample
        self.random = torch.Generator().manual_seed(sample)

    def move(self, x, by=None):
        """Numbers side by side move apart in the first samples, those further away in later ones, and then any."""
        if by is None and self.sample < 6:
            signs = 1.0 - 2.0 * (torch.arange(x.numel()).reshape(x.shape) >> self.sample & 1).double()
            return x * (1 + EPS * signs)
        signs = torch.randint(0, 2, x.shape, generator=self.random).double() * 2 - 1
        return x * (1 + EPS * signs) if by is None else x + EPS * signs * by

    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        out = f(*args, **(kwargs or {}))
        if any(result.alias_info for result in f._schema.returns):
            return out
        with torch.utils._python_dispatch._disable_current_modes():
            if f is torch.ops.aten._log_softmax.default:
                # The difference of x and the logarithm of the sum: each is rounded.
                return self.move(out, args[0].abs().amax(args[1], keepdim=True).expand_as(out) + out.abs())
            if f is torch.ops.aten.multilabel_margin_loss_forward.default:
                return (self.move(out[0]), *out[1:])  # the second is not a result, but a mark of the right classes
            moved = lambda x: self.move(x) if isinstance(x, torch.Tensor) and x.dtype == torch.float64 else x
            return tuple(map(moved, out)) if isinstance(out, tuple) else moved(out)


def sizes(kind, f, inputs, seed, through, out, grads):
    """For each number of the results and gradients, the size of the terms that it is a sum of."""
    detached = lambda x, change: change(x.detach()).requires_grad_(x.requires_grad) if x.is_floating_point() else x
    if kind == "products":
        terms = results(f, [detached(x, torch.abs) for x in inputs], None if seed is None else seed.abs(), through)
        return [y.double().abs() for y in terms[0]], [g.abs() for g in terms[1]]
    if kind in ("elementwise", "activation"):
        if not grads:
            return [y.double().abs() for y in out], []
        if kind == "activation":
            return [y.abs() for y in out], [seed.abs().reshape(g.shape) for g in grads]
        shape = out[through].shape
        stretches = lambda x: x.dim() <= len(shape) and torch.broadcast_shapes(x.shape, shape) == shape
        wide = [detached(x.expand(shape), torch.clone) if stretches(x) else x for x in inputs]
        _, terms = results(f, wide, seed, through)
        return [y.double().abs() for y in out], [t.abs().sum_to_size(g.shape) for t, g in zip(terms, grads)]
    most = [[y.double().abs() for y in out], [g.abs() for g in grads]]
    for sample in range(10):
        noise = Noise(sample)
        near = [detached(x, noise.move) for x in inputs]
        with noise:
            near = results(f, near, None if seed is None else noise.move(seed), through)
        for all_, before, after in zip(most, (out, grads), near):
            for i, (a, b) in enumerate(zip(before, after)):
                if a.is_floating_point():
                    all_[i] = torch.maximum(all_[i], ((a - b).abs().detach() / EPS).nan_to_num(0))
    return most


def answer_op(head, arrays):
    f = ops.OPS.get(head["op"])
    if f is None:
        return {"unknown": head["op"]}, []
    call = lambda x: f(*x, **head["options"])
    seed = arrays.pop() if head["seeded"] else None
    dtype = FLOATS[head["dtype"]]
    through = head["through"]
    inputs = tensors(head, arrays, torch.float64)
    out, grads = results(call, inputs, seed, through)
    if head["op"] in ops.NAN_AT_NAN:
        grads = [torch.where(inputs[0].isnan(), inputs[0].detach(), g) for g in grads]
    out_sizes, grad_sizes = sizes(head["terms"], call, inputs, seed, through, out, grads)
    reply = {"shapes": [list(y.shape) for y in out], "formula": head["op"] in ops.FORMULAS}
    try:
        own_out, own_grads = results(call, tensors(head, arrays, dtype), seed, through)
    except (RuntimeError, NotImplementedError) as error:
        reply["lacks"] = str(error).split("\n")[0][:120]
        own_out, own_grads = [], []
    return reply | {"own": len(own_out) > 0}, [*out, *grads, *out_sizes, *grad_sizes, *own_out, *own_grads]


def main():
    torch.set_num_threads(1)
    answers = {"op": answer_op, "layer": layers.answer, "train": training.answer, "data parallel": data_parallel.answer}
    write({"version": torch.__version__, "vectors": torch.backends.cpu.get_cpu_capability()})
    while True:
        head, arrays = read()
        try:
            write(*answers[head["ask"]](head, arrays))
        except Exception as error:  # told to the other side, which knows which case it was
            write({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":  # the processes of `data_parallel` import this file
    main()
