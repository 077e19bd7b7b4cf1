"""torch's side of `cargo xtask peers`. Both sides write messages: a line of JSON with the lengths of the arrays that follow,
and the arrays as little-endian f64, which holds every number of every dtype exactly."""

import json
import sys

import numpy
import torch

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


def moved(x, signs):
    return (x.detach() * (1 + EPS * signs)).requires_grad_(x.requires_grad) if x.is_floating_point() else x


def sizes(kind, f, inputs, seed, through, out, grads):
    """For each number of the results and gradients, the size of the terms that it is a sum of."""
    if kind == "products":
        positive = [x.detach().abs().requires_grad_(x.requires_grad) if x.is_floating_point() else x for x in inputs]
        terms = results(f, positive, None if seed is None else seed.abs(), through)
        return [y.double().abs() for y in terms[0]], [g.abs() for g in terms[1]]
    if kind == "elementwise":
        if not grads:
            return [y.double().abs() for y in out], []
        shape = out[through].shape
        wide = [
            x.detach().expand(shape).clone().requires_grad_(x.requires_grad)
            if x.dim() <= len(shape) and torch.broadcast_shapes(x.shape, shape) == shape else x for x in inputs
        ]
        _, terms = results(f, wide, seed, through)
        return [y.double().abs() for y in out], [t.abs().sum_to_size(g.shape) for t, g in zip(terms, grads)]
    # What a relative move of each input does, the largest of a few random ones.
    random = torch.Generator().manual_seed(7)
    most = [[y.double().abs() for y in out], [g.abs() for g in grads]]
    for _ in range(6):
        signs = lambda x: torch.randint(0, 2, x.shape, generator=random).double() * 2 - 1
        near = results(f, [moved(x, signs(x)) for x in inputs], None if seed is None else moved(seed, signs(seed)), through)
        for all_, before, after in zip(most, (out, grads), near):
            for i, (a, b) in enumerate(zip(before, after)):
                if a.is_floating_point():
                    all_[i] = torch.maximum(all_[i], (a - b).abs().detach() / EPS)
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
    answers = {"op": answer_op, "layer": layers.answer, "train": training.answer}
    write({"version": torch.__version__, "vectors": torch.backends.cpu.get_cpu_capability()})
    while True:
        head, arrays = read()
        try:
            write(*answers[head["ask"]](head, arrays))
        except Exception as error:  # told to the other side, which knows which case it was
            write({"error": f"{type(error).__name__}: {error}"})


main()
