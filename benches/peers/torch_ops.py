"""Times single f32 ops of torch for `cargo bench --bench ops`, which starts this and asks for one measurement a line.

A line is `THREADS REPEATS OP SIZES...`; the answer is seconds per call, or `error` and why. Nothing else is written. Needs
torch from PyPI.
"""

import torch
from answer import answer
from torch.nn import functional as F


def matmul(m, k, n):
    a, b = torch.randn(m, k), torch.randn(k, n)
    return lambda: a @ b


def linear(m, k, n):
    x, w, b = torch.randn(m, k), torch.randn(n, k), torch.randn(n)
    return lambda: F.linear(x, w, b)


def conv(batch, inputs, side, outputs, kernel, stride, padding):
    x, w = torch.randn(batch, inputs, side, side), torch.randn(outputs, inputs, kernel, kernel)
    return lambda: F.conv2d(x, w, None, stride, padding)


def rows(op):
    def make(m, n):
        x = torch.randn(m, n)
        return lambda: op(x)

    return make


def batch_norm(batch, channels, side):
    x, mean, var = torch.randn(batch, channels, side, side), torch.zeros(channels), torch.ones(channels)
    return lambda: F.batch_norm(x, mean, var, None, None, True)


def attention(batch, heads, length, width):
    q, k, v = (torch.randn(batch, heads, length, width) for _ in range(3))
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)


def unscale(tensors, size):
    grads = [torch.randn(size) for _ in range(tensors)]
    found, inverse = torch.zeros(1), torch.ones(1)
    return lambda: torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)


def indexed(op):
    """An op that reads or writes elements by their index, forward and backward."""

    def make(n, c, m):
        index = lambda count: torch.arange(count) * 2654435761 % n
        each, one = index(m * c).view(m, c), index(m)
        rows = one[:, None].expand(m, c)
        table, values = (torch.randn(size, c, requires_grad=True) for size in (n, m))
        mask = table.detach() > 0

        def run():
            with torch.enable_grad():
                op(table, values, each, rows, one, mask).sum().backward()
            table.grad = values.grad = None

        return run

    return make


OPS = {
    "gather": indexed(lambda x, y, each, rows, one, mask: x.gather(0, each)),
    "gather_rows": indexed(lambda x, y, each, rows, one, mask: x.gather(0, rows)),
    "scatter_add": indexed(lambda x, y, each, rows, one, mask: x.scatter_add(0, each, y)),
    "scatter_add_rows": indexed(lambda x, y, each, rows, one, mask: x.scatter_add(0, rows, y)),
    "index_select": indexed(lambda x, y, each, rows, one, mask: x.index_select(0, one)),
    "index_add": indexed(lambda x, y, each, rows, one, mask: x.index_add(0, one, y)),
    "index_put": indexed(lambda x, y, each, rows, one, mask: x.index_put((one,), y, accumulate=True)),
    "masked_select": indexed(lambda x, y, each, rows, one, mask: x.masked_select(mask)),
    "slice": indexed(lambda x, y, each, rows, one, mask: x[1 : len(y)]),
    "matmul": matmul,
    "linear": linear,
    "conv": conv,
    "add": rows(lambda x: x + x),
    "relu": rows(torch.relu),
    "exp": rows(torch.exp),
    "softmax": rows(lambda x: torch.softmax(x, -1)),
    "gelu": rows(F.gelu),
    "layer_norm": rows(lambda x: F.layer_norm(x, x.shape[-1:])),
    "batch_norm": batch_norm,
    "attention": attention,
    "unscale": unscale,
}
ready = {}


def call_of(op, *sizes):
    """The op on tensors of these sizes, called once; only the last one is kept."""
    key = (op, *sizes)
    if key not in ready:
        ready.clear()
        ready[key] = OPS[op](*map(int, sizes))
    ready[key]()
    return ready[key]


if __name__ == "__main__":
    with torch.no_grad():
        answer(call_of)
