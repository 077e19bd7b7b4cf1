"""Weights of torch's layers with their results, for `tests/goldens-extra/torch/weights`: `python weights.py FOLDER`.

Of each network there are `NAME.safetensors`, its state dict as it is, and `NAME-call.safetensors`, an input `x`, the
output `y` in evaluation and the gradient `dx` of half the sum of its squares. A decoder has a `memory` beside `x`; a
`mask` says which positions are seen. The format is written by hand, so that torch is all that is needed."""

import json
import struct
import sys
from pathlib import Path

import torch
from torch import nn

DTYPES = {torch.float32: "F32", torch.int64: "I64", torch.bool: "BOOL"}


Encoder, Decoder = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        conv = nn.Conv2d(2, 4, 3, padding=1)
        other = nn.Conv2d(4, 6, 3, stride=2, bias=False)
        self.features = nn.Sequential(conv, nn.BatchNorm2d(4), nn.ReLU(), other, nn.BatchNorm2d(6))
        self.head = nn.Linear(6 * 2 * 2, 3)

    def forward(self, x):
        return self.head(self.features(x).relu().flatten(1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attn(y, y, y, need_weights=False)[0]


class Tagger(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.lstm = nn.LSTM(3, 5, batch_first=True, **options)
        self.head = nn.Linear(10 if options else 5, 2)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


def transformer(kind, **options):
    """A layer of an encoder or a decoder."""
    return kind(8, 2, dim_feedforward=12, batch_first=True, **options)


class Masked(nn.Module):
    """A layer called with the mask of what is seen: torch's masks say what is not."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, mask):
        return self.layer(x, src_key_padding_mask=~mask[:, 0, 0])


def write(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.detach().contiguous().numpy().tobytes()
        place = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        data += raw
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def layers():
    return {
        "convnet": (ConvNet(), [3, 2, 6, 6]),
        "attention": (Block(), [2, 4, 8]),
        "tagger": (Tagger(num_layers=2, bidirectional=True), [2, 4, 3]),
        "small-tagger": (Tagger(), [2, 4, 3]),
    }


def transformers():
    stack = transformer(Encoder, norm_first=True)
    networks = {
        "encoder-layer": transformer(Encoder),
        "encoder-layer-gelu": transformer(Encoder, activation="gelu", layer_norm_eps=1e-3, bias=False),
        "encoder-layer-norm-first": transformer(Encoder, norm_first=True),
        "encoder-layer-masked": Masked(transformer(Encoder, norm_first=True, activation="gelu")),
        "encoder": nn.TransformerEncoder(stack, 2, nn.LayerNorm(8), enable_nested_tensor=False),
        "decoder-layer": transformer(Decoder),
        "decoder-layer-norm-first": transformer(Decoder, norm_first=True, activation="gelu"),
        "decoder": nn.TransformerDecoder(transformer(Decoder), 2),
        "rms-norm": nn.RMSNorm(8),
    }
    return {name: (net, [2, 4, 8]) for name, net in networks.items()}


def second_input(name):
    if "decoder" in name:
        return {"memory": torch.randn(2, 3, 8)}
    if "masked" in name:
        return {"mask": torch.tensor([[True, True, True, False], [True, True, False, False]]).reshape(2, 1, 1, 4)}
    return {}


def main(folder):
    torch.manual_seed(5)
    torch.set_num_threads(1)
    for networks in (layers, transformers):
        for name, (net, shape) in networks().items():
            more = second_input(name)
            # Biases begin at 0 and scales at 1 in some layers; running statistics have to move, too.
            for parameter in net.parameters():
                parameter.data += 0.1 * torch.randn_like(parameter)
            net.train()
            for _ in range(3):
                net(1.0 + 2.0 * torch.randn(shape), *more.values())
            net.eval()
            x = torch.randn(shape, requires_grad=True)
            y = net(x, *more.values())
            (0.5 * (y * y).sum()).backward()
            write(folder / f"{name}.safetensors", net.state_dict())
            write(folder / f"{name}-call.safetensors", {"x": x, "y": y, "dx": x.grad, **more})


main(Path(sys.argv[1]))
