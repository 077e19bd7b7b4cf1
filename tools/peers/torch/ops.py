"""What each op of the catalogue is in torch: a function of its tensors, with the options of the call. Where torch has no
such op the formula stands here."""

import torch
import torch.nn.functional as F

OPS = {}
FORMULAS = set()
# Functions in pieces, whose slope at NaN is NaN here. In torch it is that of one of the pieces.
NAN_AT_NAN = {
    "Abs", "Celu", "Clamp", "Elu", "HardSigmoid", "HardSwish", "HardTanh", "LeakyRelu", "Relu", "Relu6", "Selu", "Softshrink"
}


def op(*names):
    def known(f):
        for name in names:
            OPS[name] = f
        return f

    return known


def formula(*names):
    """An op that torch lacks, or has without all of its gradients: the formula is evaluated instead."""
    FORMULAS.update(names)
    return op(*names)


for name, f in {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin, "Asinh": torch.asinh,
    "Atan": torch.atan, "Atanh": torch.atanh, "Ceil": torch.ceil, "Cos": torch.cos, "Cosh": torch.cosh, "Erf": torch.erf,
    "Erfc": torch.erfc, "Erfinv": torch.erfinv, "Exp": torch.exp, "Expm1": torch.expm1, "Floor": torch.floor,
    "HardSigmoid": F.hardsigmoid, "HardSwish": F.hardswish, "HardTanh": F.hardtanh,
    "IsFinite": torch.isfinite, "IsInf": torch.isinf, "IsNan": torch.isnan, "Log": torch.log, "Log10": torch.log10, "Log1p": torch.log1p, "Log2": torch.log2,
    "LogSigmoid": F.logsigmoid, "LogicalNot": torch.logical_not, "Mish": F.mish, "Neg": torch.neg,
    "Reciprocal": torch.reciprocal, "Relu": F.relu, "Relu6": F.relu6, "Round": torch.round, "Rsqrt": torch.rsqrt,
    "Selu": F.selu, "Sigmoid": torch.sigmoid, "Sign": torch.sign, "Silu": F.silu, "Sin": torch.sin, "Sinh": torch.sinh,
    "Softsign": F.softsign, "Sqrt": torch.sqrt, "Square": torch.square, "Tan": torch.tan,
    "Tanh": torch.tanh, "TanhShrink": F.tanhshrink, "Trunc": torch.trunc, "Trace": torch.trace,
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div, "Maximum": torch.maximum,
    "Minimum": torch.minimum, "Atan2": torch.atan2, "Hypot": torch.hypot, "Fmod": torch.fmod, "Remainder": torch.remainder,
    "Equal": torch.eq, "NotEqual": torch.ne, "Less": torch.lt, "LessEqual": torch.le, "Greater": torch.gt,
    "GreaterEqual": torch.ge, "LogicalAnd": torch.logical_and, "LogicalOr": torch.logical_or, "Pow": torch.pow,
    "Prelu": F.prelu, "Where": torch.where, "Celu": F.celu, "Elu": F.elu, "Softshrink": F.softshrink, "Clamp": torch.clamp,
    "Addcmul": torch.addcmul, "Addcdiv": torch.addcdiv, "Lerp": torch.lerp,
    "MatMul": torch.mm, "MatMulExt": torch.matmul, "BatchMatMul": torch.bmm, "Mv": torch.mv, "Dot": torch.dot,
    "Vecdot": torch.linalg.vecdot, "Inner": torch.inner, "Ger": torch.outer, "Linear": F.linear, "Bilinear": F.bilinear,
    "Addmm": torch.addmm, "Addmv": torch.addmv, "Addr": torch.addr, "Addbmm": torch.addbmm, "Baddbmm": torch.baddbmm,
}.items():
    OPS[name] = f


@op("Softplus")
def softplus(x):
    # Beyond its threshold torch takes x for ln(1 + exp(x)).
    return F.softplus(x, threshold=700.0 if x.dtype == torch.float64 else 20.0)


@op("Gelu")
def gelu(x):
    # torch adds 1 and an error function near -1, which leaves nothing of small values, in f64 either.
    return x * torch.erfc(-x * 0.5**0.5) / 2 if x.dtype == torch.float64 else F.gelu(x)


@op("LeakyRelu")
def leaky_relu(x, slope):
    return F.leaky_relu(x, slope)


@op("MaskedFill")
def masked_fill(x, mask, value):
    return x.masked_fill(mask, value)


@formula("Dropout")
def dropout(x, kept, p):
    return torch.where(kept, x / (1 - p), torch.zeros_like(x))


@formula("RotaryEmbedding")
def rotary_embedding(x, base, offset, interleaved):
    length, features = x.shape[-2:]
    steps = torch.arange(features // 2, dtype=torch.float64)
    positions = offset + torch.arange(length, dtype=torch.float64)
    angles = positions[:, None] * base ** (-2 * steps / features)
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = x.unflatten(-1, (-1, 2)) if interleaved else x.unflatten(-1, (2, -1)).transpose(-1, -2)
    wide = torch.view_as_complex(pairs.contiguous().double()) * turns
    rotated = torch.view_as_real(wide).to(x.dtype)
    return (rotated if interleaved else rotated.transpose(-1, -2)).flatten(-2)


@op("Cast")
def cast(x, to):
    # The result is rounded by whoever compares it, to the dtype of ours.
    return x if x.dtype == torch.float64 else x.to({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[to])


@op("MultiDot")
def multi_dot(*matrices):
    return torch.linalg.multi_dot(matrices)


@formula("BiasAdd")
def bias_add(x, bias):
    return x + bias.reshape(1, -1, *[1] * (x.dim() - 2))


@op("Tensordot")
def tensordot(a, b):
    return torch.tensordot(a, b, dims=([0, 2], [2, 0]))


@op("Einsum")
def einsum(a, b, equation):
    return torch.einsum(equation, a, b)


@op("Cross")
def cross(a, b):
    return torch.linalg.cross(a, b, dim=1)


# Places


@op("Broadcast")
def broadcast(x, shape):
    return x.expand(shape)


@op("Concat")
def concat(*x, axis):
    return torch.cat(x, axis)


@op("Stack")
def stack(*x, axis):
    return torch.stack(x, axis)


@op("Split")
def split(x, lengths, axis):
    return torch.split(x, lengths, axis)


@op("Slice")
def slice_(x, axis, start, end):
    return x.narrow(axis, start, end - start)


@op("Reshape", "Flatten")
def reshape(x, shape):
    return x.reshape(shape)


@op("Squeeze")
def squeeze(x, axis):
    return x.squeeze(axis)


@op("Unsqueeze")
def unsqueeze(x, axis):
    return x.unsqueeze(axis)


@op("Transpose")
def transpose(x, a, b):
    return x.transpose(a, b)


@op("Reverse")
def flip(x, axes):
    return x.flip(axes)


@op("Roll")
def roll(x, shifts, axes):
    return x.roll(shifts, axes) if axes else x.clone()


@op("Tile")
def tile(x, repeats):
    return x.tile(repeats)


@op("Tril")
def tril(x, diagonal):
    return x.tril(diagonal)


@op("Triu")
def triu(x, diagonal):
    return x.triu(diagonal)


@op("OneHot")
def one_hot(x, classes):
    return F.one_hot(x, classes)


@op("Gather")
def gather(x, index, axis):
    return x.gather(axis, index)


@op("IndexSelect")
def index_select(x, index, axis):
    return x.index_select(axis, index)


@op("Embedding")
def embedding(ids, table):
    return F.embedding(ids, table)


@op("Scatter")
def scatter(x, index, values, axis):
    return x.scatter(axis, index, values)


@op("ScatterAdd")
def scatter_add(x, index, values, axis):
    return x.scatter_add(axis, index, values)


@op("IndexAdd")
def index_add(x, index, values, axis):
    return x.index_add(axis, index, values)


@op("IndexCopy")
def index_copy(x, index, values, axis):
    return x.index_copy(axis, index, values)


@op("IndexPut")
def index_put(x, index, values, accumulate):
    return x.index_put((index,), values, accumulate)


def flat(pairs):
    """Pairs for each axis as torch wants them: the last axis first."""
    return [n for pair in reversed(pairs) for n in pair]


@op("Pad")
def pad(x, pairs, value):
    return F.pad(x, flat(pairs), value=value)


@op("ReflectionPad")
def reflection_pad(x, pairs):
    return F.pad(x, flat(pairs[2:]), mode="reflect")


@op("ReplicationPad")
def replication_pad(x, pairs):
    return F.pad(x, flat(pairs[2:]), mode="replicate")


@op("PixelShuffle")
def pixel_shuffle(x, r):
    return F.pixel_shuffle(x, r)


@op("SpaceToDepth")
def pixel_unshuffle(x, r):
    return F.pixel_unshuffle(x, r)


def all_axes(x, axes):
    return axes or list(range(x.dim()))


@op("Max")
def amax(x, axes, keep):
    return x.amax(all_axes(x, axes), keep)


@op("Min")
def amin(x, axes, keep):
    return x.amin(all_axes(x, axes), keep)


@op("ArgMax")
def argmax(x, axis, keep):
    return x.argmax(axis, keep)


@op("ArgMin")
def argmin(x, axis, keep):
    return x.argmin(axis, keep)


@op("Sort")
def sort(x, axis, descending):
    return torch.sort(x, dim=axis, descending=descending, stable=True)


@op("TopK")
def topk(x, k, axis, largest):
    # torch.topk says nothing of the order of equal elements.
    values, places = torch.sort(x, dim=axis, descending=largest, stable=True)
    return values.narrow(axis, 0, k), places.narrow(axis, 0, k)


# Windows


def convolution(axes):
    def conv(x, weight, bias=None, **options):
        return [F.conv1d, F.conv2d, F.conv3d][axes - 1](x, weight, bias, **options)

    def transposed(x, weight, bias=None, **options):
        return [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][axes - 1](x, weight, bias, **options)

    def max_pool(x, kernel, stride, padding, ceil, include):
        return [F.max_pool1d, F.max_pool2d, F.max_pool3d][axes - 1](x, kernel, stride, padding, ceil_mode=ceil)

    def avg_pool(x, kernel, stride, padding, ceil, include):
        return [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][axes - 1](x, kernel, stride, padding, ceil, include)

    def adaptive_avg(x, output):
        return [F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d][axes - 1](x, output)

    def adaptive_max(x, output):
        return [F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d][axes - 1](x, output)

    OPS[f"Conv{axes}d"] = conv
    OPS[f"ConvTranspose{axes}d"] = transposed
    OPS[f"MaxPool{axes}d"] = max_pool
    OPS[f"AvgPool{axes}d"] = avg_pool
    OPS[f"AdaptiveAvgPool{axes}d"] = adaptive_avg
    OPS[f"AdaptiveMaxPool{axes}d"] = adaptive_max


for axes in (1, 2, 3):
    convolution(axes)


@op("Interpolate")
def interpolate(x, mode, corners, size):
    align = None if mode == "nearest" else corners
    if size is None:
        return F.interpolate(x, scale_factor=2.0, mode=mode, align_corners=align)
    return F.interpolate(x, size=size, mode=mode, align_corners=align)


@op("GridSampler2d", "GridSampler3d")
def grid_sample(x, grid, mode, padding, corners):
    return F.grid_sample(x, grid, mode, padding, corners)


@op("AffineGrid")
def affine_grid(x, size, corners):
    return F.affine_grid(x, size, corners)


# Reductions


@op("Sum")
def sum_(x, axes, keep):
    return x.sum(all_axes(x, axes), keep)


@op("Mean")
def mean(x, axes, keep):
    return x.mean(all_axes(x, axes), keep)


@op("CumSum")
def cumsum(x, axis):
    return x.cumsum(axis)


@op("CumProd")
def cumprod(x, axis):
    return x.cumprod(axis)


@op("Prod")
def prod(x, axes, keep):
    # torch's product takes one axis at a time.
    for axis in sorted((a % x.dim() for a in all_axes(x, axes)), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


@op("Var")
def var(x, axes, correction, keep):
    return x.var(all_axes(x, axes), correction=correction, keepdim=keep)


@op("Std")
def std(x, axes, correction, keep):
    return x.std(all_axes(x, axes), correction=correction, keepdim=keep)


@op("Norm")
def norm(x, p, axes, keep):
    return torch.linalg.vector_norm(x, float(p), all_axes(x, axes), keep)


@op("Dist")
def dist(a, b, p):
    return torch.dist(a, b, float(p))


@op("Cdist")
def cdist(a, b, p):
    return torch.cdist(a, b, float(p), compute_mode="donot_use_mm_for_euclid_dist")


@op("Pdist")
def pdist(x, p):
    return F.pdist(x, float(p))


@op("Renorm")
def renorm(x, p, axis, most):
    return torch.renorm(x, p, axis, most)


@op("CosineSimilarity")
def cosine_similarity(a, b, axis):
    return F.cosine_similarity(a, b, axis)


@op("LogSumExp")
def logsumexp(x, axes, keep):
    return x.logsumexp(all_axes(x, axes), keep)


@op("Softmax")
def softmax(x, axis):
    return x.softmax(axis)


@op("LogSoftmax")
def log_softmax(x, axis):
    return x.log_softmax(axis)


@op("Softmin")
def softmin(x, axis):
    return F.softmin(x, axis)


@op("Glu")
def glu(x, axis):
    return F.glu(x, axis)


# Norms and attention


def normalized(x, axes, weight, bias, shape):
    """The norms in f64, number by number, as of a recurrent cell."""
    moved = x - x.mean(axes, keepdim=True)
    y = moved / ((moved * moved).mean(axes, keepdim=True) + 1e-5).sqrt()
    return y if weight is None else y * weight.reshape(shape) + bias.reshape(shape)


def channels(x):
    return [1, -1] + [1] * (x.dim() - 2)


@op("LayerNorm")
def layer_norm(x, weight=None, bias=None):
    if x.dtype == torch.float64:
        return normalized(x, [-1], weight, bias, [-1])
    return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


@op("RmsNorm")
def rms_norm(x, weight=None):
    if x.dtype == torch.float64:
        y = x / ((x * x).mean(-1, keepdim=True) + 1e-5).sqrt()
        return y if weight is None else y * weight
    return F.rms_norm(x, x.shape[-1:], weight, 1e-5)


@op("GroupNorm")
def group_norm(x, weight=None, bias=None, *, groups):
    if x.dtype == torch.float64:
        y = normalized(x.reshape(len(x), groups, -1), [-1], None, None, None).reshape(x.shape)
        return y if weight is None else y * weight.reshape(channels(x)) + bias.reshape(channels(x))
    return F.group_norm(x, groups, weight, bias, 1e-5)


@op("InstanceNorm")
def instance_norm(x, weight=None, bias=None):
    if x.dtype == torch.float64:
        return normalized(x, [-1], weight, bias, channels(x))
    return F.instance_norm(x, weight=weight, bias=bias, eps=1e-5)


@formula("BatchNorm")
def batch_norm(x, *rest, training):
    # With statistics that are given, those have gradients as well: torch's have none.
    if training:
        if x.dtype == torch.float64:
            return normalized(x, [0, 2], *(rest or (None, None)), channels(x))
        return F.batch_norm(x, None, None, *rest, training=True, eps=1e-5)
    mean, var, *affine = (v.reshape(1, -1, 1) for v in rest)
    y = (x - mean) / torch.sqrt(var + 1e-5)
    return y * affine[0] + affine[1] if affine else y


@op("ScaledDotProductAttention")
def attention(q, k, v, mask=None, *, causal, scale):
    if q.dtype != torch.float64:
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)
    # In f64 the formula, number by number, as of a recurrent cell.
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores + mask
    if causal:
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(unseen, float("-inf"))
    return scores.softmax(-1) @ v


# Losses


@op("MseLoss")
def mse_loss(x, t, number, reduction):
    return F.mse_loss(x, t, reduction=reduction)


@op("L1Loss")
def l1_loss(x, t, number, reduction):
    return F.l1_loss(x, t, reduction=reduction)


@op("SmoothL1Loss")
def smooth_l1_loss(x, t, number, reduction):
    return F.smooth_l1_loss(x, t, beta=number, reduction=reduction)


@op("HuberLoss")
def huber_loss(x, t, number, reduction):
    return F.huber_loss(x, t, delta=number, reduction=reduction)


@op("PoissonNllLoss")
def poisson_nll_loss(x, t, number, reduction):
    return F.poisson_nll_loss(x, t, log_input=number > 1, reduction=reduction)


@op("BceWithLogits")
def bce_with_logits(x, t, reduction):
    return F.binary_cross_entropy_with_logits(x, t, reduction=reduction)


def reduced(x, reduction):
    return {"mean": x.mean, "sum": x.sum, "none": lambda: x}[reduction]()


@formula("BinaryCrossEntropy")
def binary_cross_entropy(x, t, reduction):
    # torch's has no gradient of the target.
    return reduced(-t * x.log().clamp(-100) - (1 - t) * (1 - x).log().clamp(-100), reduction)


@op("KlDiv")
def kl_div(x, t, reduction):
    return F.kl_div(x, t, reduction=reduction)


@op("SoftMarginLoss")
def soft_margin_loss(x, t, number, reduction):
    return F.soft_margin_loss(x, t, reduction=reduction)


@op("HingeEmbeddingLoss")
def hinge_embedding_loss(x, t, number, reduction):
    return F.hinge_embedding_loss(x, t, number, reduction=reduction)


@op("GaussianNllLoss")
def gaussian_nll_loss(x, t, var, reduction):
    return F.gaussian_nll_loss(x, t, var, eps=1e-6, reduction=reduction)


@op("MarginRankingLoss")
def margin_ranking_loss(a, b, t, number, reduction):
    return F.margin_ranking_loss(a, b, t, number, reduction=reduction)


@op("CosineEmbeddingLoss")
def cosine_embedding_loss(a, b, t, reduction):
    return F.cosine_embedding_loss(a, b, t, 0.25, reduction=reduction)


@op("TripletMarginLoss")
def triplet_margin_loss(a, p, n, number, reduction):
    return F.triplet_margin_loss(a, p, n, number, reduction=reduction)


@op("MultiMarginLoss")
def multi_margin_loss(x, t, number, p, reduction):
    return F.multi_margin_loss(x, t, p, number, reduction=reduction)


@op("MultilabelMarginLoss")
def multilabel_margin_loss(x, t, reduction):
    return F.multilabel_margin_loss(x, t, reduction=reduction)


@op("NllLoss")
def nll_loss(x, t, reduction):
    return F.nll_loss(x, t, reduction=reduction)


@op("CrossEntropy")
def cross_entropy(x, t, smoothing, ignored, reduction):
    return F.cross_entropy(
        x, t, label_smoothing=smoothing, ignore_index=-100 if ignored is None else ignored, reduction=reduction
    )


@formula("CtcLoss")
def ctc_loss(x, targets, lengths, counts, reduction):
    """The sum over all alignments. torch's own gradient is that of numbers before a log_softmax."""
    losses = []
    for n, (length, count) in enumerate(zip(lengths.tolist(), counts.tolist())):
        labels = [0] + [c for label in targets[n, :count].tolist() for c in (label, 0)]
        paths = {s: x[0, n, labels[s]] for s in range(min(2, len(labels)))}
        for t in range(1, length):
            before, paths = paths, {}
            for s, label in enumerate(labels):
                skips = s > 1 and label not in (0, labels[s - 2])
                terms = [before[p] for p in (s, s - 1, s - 2)[: 3 if skips else 2] if p in before]
                if terms:
                    paths[s] = torch.logsumexp(torch.stack(terms), 0) + x[t, n, label]
        ends = [paths[s] for s in {len(labels) - 1, max(len(labels) - 2, 0)} if s in paths]
        loss = -torch.logsumexp(torch.stack(ends), 0) if ends else (x[0, n, 0] * 0)
        losses.append(loss / max(count, 1) if reduction == "mean" else loss)
    return reduced(torch.stack(losses), reduction)


# Recurrent


def step(kind, x, states, ih, hh, b_ih=None, b_hh=None):
    """One step of a cell, and its next states. In f64 it is the formula, number by number: the size of a gradient's terms is
    found by moving each number on the way."""
    if x.dtype != torch.float64:
        if kind == "lstm":
            return torch.lstm_cell(x, states, ih, hh, b_ih, b_hh)
        cell = {"gru": torch.gru_cell, "tanh": torch.rnn_tanh_cell, "relu": torch.rnn_relu_cell}[kind]
        return (cell(x, states[0], ih, hh, b_ih, b_hh),)
    h = states[0]
    from_input, from_state = F.linear(x, ih, b_ih), F.linear(h, hh, b_hh)
    if kind == "lstm":
        i, f, g, o = (from_input + from_state).chunk(4, -1)
        c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    if kind == "gru":
        (i_r, i_z, i_n), (h_r, h_z, h_n) = from_input.chunk(3, -1), from_state.chunk(3, -1)
        z = (i_z + h_z).sigmoid()
        n = (i_n + (i_r + h_r).sigmoid() * h_n).tanh()
        return ((1 - z) * n + z * h,)
    return ({"tanh": torch.tanh, "relu": torch.relu}[kind](from_input + from_state),)


@op("RnnCell", "GruCell", "LstmCell", "FusedRnn")
def recurrent(x, *rest, kind, whole, reverse):
    count = 2 if kind == "lstm" else 1
    states, weights = rest[:count], rest[count:]
    if not whole:
        return step(kind, x, states, *weights)
    outputs = []
    times = range(x.shape[1])
    for t in reversed(times) if reverse else times:
        states = step(kind, x[:, t], states, *weights)
        outputs.append(states[0])
    return (torch.stack(outputs[::-1] if reverse else outputs, 1), *states)
