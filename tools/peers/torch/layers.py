"""The layers of architecture files as torch.nn has them, with the parameters that the other side sends."""

import torch
from torch import nn


class RmsNorm(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_features))
        self.eps = eps

    def forward(self, x):
        return nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)


class Attention(nn.Module):
    """torch's MultiheadAttention, whose projections of queries, keys and values are one parameter there."""

    def __init__(self, embed_dim, num_heads, bias=True, causal=False):
        super().__init__()
        self.inner = nn.MultiheadAttention(embed_dim, num_heads, bias=bias, batch_first=True)
        self.causal = causal

    def forward(self, q, k=None, v=None):
        k, v = (q, q) if k is None else (k, v)
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(1) if self.causal else None
        return self.inner(q, k, v, need_weights=False, attn_mask=mask)[0]


def recurrent(make):
    class Recurrent(nn.Module):
        def __init__(self, relu=False, **options):
            super().__init__()
            more = {"nonlinearity": "relu"} if relu else {}
            self.inner = make(batch_first=True, **options, **more)

        def forward(self, x, *states):
            given = None if not states else states if isinstance(self.inner, nn.LSTM) else states[0]
            y, last = self.inner(x, given)
            return (y, *last) if isinstance(last, tuple) else (y, last)

    return Recurrent


class LSTMCell(nn.LSTMCell):
    def forward(self, x, h, c):
        return super().forward(x, (h, c))



def renamed(kind, **names):
    """A layer some of whose options are called otherwise in architecture files."""
    return lambda **options: kind(**{names.get(name, name): value for name, value in options.items()})


def prelu(channels, slope=0.25):
    return nn.PReLU(channels, slope)


KINDS = {
    "Dense": nn.Linear, "RmsNorm": RmsNorm, "MultiheadAttention": Attention, "PReLU": prelu,
    "LayerNorm": renamed(nn.LayerNorm, affine="elementwise_affine"), "GroupNorm": nn.GroupNorm,
    "Embedding": renamed(nn.Embedding, vocab_size="num_embeddings", embedding_size="embedding_dim"),
    "RNN": recurrent(nn.RNN), "GRU": recurrent(nn.GRU), "LSTM": recurrent(nn.LSTM),
    "RNNCell": nn.RNNCell, "GRUCell": nn.GRUCell, "LSTMCell": LSTMCell,
    "ReLU": nn.ReLU, "ReLU6": nn.ReLU6, "SiLU": nn.SiLU, "Sigmoid": nn.Sigmoid, "Tanh": nn.Tanh,
    "Softplus": nn.Softplus, "HSigmoid": nn.Hardsigmoid, "HSwish": nn.Hardswish, "HardTanh": nn.Hardtanh,
    "LeakyReLU": renamed(nn.LeakyReLU, slope="negative_slope"), "ELU": nn.ELU,
    "GELU": lambda approximate=False: nn.GELU("tanh" if approximate else "none"),
    "Softmax": lambda axis=-1: nn.Softmax(axis), "LogSoftmax": lambda axis=-1: nn.LogSoftmax(axis),
    "Flatten": renamed(nn.Flatten, start_axis="start_dim"),
}
for n in (1, 2, 3):
    KINDS[f"Conv{n}d"] = getattr(nn, f"Conv{n}d")
    KINDS[f"Conv{n}dTranspose"] = getattr(nn, f"ConvTranspose{n}d")
    KINDS[f"MaxPool{n}d"] = renamed(getattr(nn, f"MaxPool{n}d"), ceil="ceil_mode")
    KINDS[f"AvgPool{n}d"] = renamed(getattr(nn, f"AvgPool{n}d"), ceil="ceil_mode")
    KINDS[f"AdaptiveAvgPool{n}d"] = getattr(nn, f"AdaptiveAvgPool{n}d")
    KINDS[f"BatchNorm{n}d"] = getattr(nn, f"BatchNorm{n}d")
    KINDS[f"InstanceNorm{n}d"] = getattr(nn, f"InstanceNorm{n}d")


def build(description):
    options = dict(description)
    kind = options.pop("kind")
    if kind == "Sequential":
        return nn.Sequential(*(build(cell) for cell in options["cells"]))
    return KINDS[kind](**options)


def projections(path):
    """Which rows of torch's joined projections a parameter of ours is."""
    name, _, leaf = path.partition(".")
    place = ["q_proj", "k_proj", "v_proj"].index(name) if name in ("q_proj", "k_proj", "v_proj") else None
    return place, leaf


def find(module, path):
    """The parameter or buffer of a path, and the rows of it that are meant."""
    if isinstance(module, Attention):
        place, leaf = projections(path)
        if place is None:
            return module.inner.get_parameter(path), slice(None)
        joined = module.inner.get_parameter(f"in_proj_{leaf}")
        return joined, slice(place * len(joined) // 3, (place + 1) * len(joined) // 3)
    if isinstance(module, (nn.Sequential,)):
        place, _, rest = path.partition(".")
        return find(module[int(place)], rest)
    inner = getattr(module, "inner", module)
    path = path.split(".")[-1]
    held = dict(inner.named_parameters()) | dict(inner.named_buffers())
    return held[path], slice(None)


def load(module, abouts, arrays):
    with torch.no_grad():
        for about, array in zip(abouts, arrays):
            there, rows = find(module, about["path"])
            there[rows] = array.reshape(about["shape"]).to(there.dtype)


def run(head, arrays, dtype):
    module = build(head["layer"]).to(dtype).train(head["training"])
    count = len(head["parameters"])
    load(module, head["parameters"], arrays[:count])
    rest = arrays[count:]
    inputs = [
        (a.long() if about["dtype"] == "i64" else a.to(dtype)).reshape(about["shape"]).requires_grad_(about["grad"])
        for a, about in zip(rest, head["inputs"])
    ]
    out = module(*inputs)
    out = list(out) if isinstance(out, tuple) else [out]
    seeds = rest[len(inputs):]
    sum((y * s.to(dtype).reshape(y.shape)).sum() for y, s in zip(out, seeds)).backward()
    results = out + [x.grad for x in inputs if x.requires_grad]
    for about in head["parameters"]:
        there, rows = find(module, about["path"])
        results.append((there.grad if about["trained"] else there)[rows])
    return results


def answer(head, arrays):
    return {}, run(head, arrays, torch.float64) + run(head, arrays, torch.float32)
