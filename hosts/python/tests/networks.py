"""Networks of tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def mlp() -> nn.Module:
    """The built-in `mlp` of the command."""
    return nn.Sequential(
        nn.Linear(64, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def lenet5_bn() -> nn.Module:
    """The built-in `lenet5_bn` of the command."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def encoder() -> nn.Module:
    """The network of `data/encoder.yaml`."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.Sequential(
        nn.Linear(8, 16),
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.LayerNorm(16),
        nn.Linear(16, 4),
    )


class Block(nn.Module):
    """A block of a transformer, as most code writes it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """A language model with a tied head."""

    def __init__(
        self, vocabulary: int = 64, width: int = 32, heads: int = 4, blocks: int = 2, context: int = 16
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


CASES = {
    "mlp": (mlp, lambda: torch.randn(8, 64)),
    "lenet5_bn": (lenet5_bn, lambda: torch.randn(4, 1, 28, 28)),
    "encoder": (encoder, lambda: torch.randn(2, 5, 8)),
    "gpt": (Gpt, lambda: torch.randint(64, (2, 16))),
}
"""For each network, the function that makes it and that which makes an input."""
