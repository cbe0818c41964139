"""Random small torch networks: layers, functions, views and reductions in varied types."""

import numpy as np
import torch
from torch import nn

F = nn.functional

FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.float16)
WHOLE = (torch.int64, torch.int32, torch.uint8, torch.int8)
ONE = (
    torch.relu, torch.sigmoid, torch.tanh, torch.sin, torch.cos, torch.abs, torch.neg, torch.erf,
    torch.atan, torch.floor, torch.sign, torch.square, torch.reciprocal, torch.log1p, torch.exp,
    F.gelu, F.silu, F.elu, F.softplus, F.hardtanh, F.hardswish, F.mish, F.relu6, F.leaky_relu,
    F.logsigmoid, F.softsign, F.tanhshrink, F.selu, F.hardsigmoid, torch.frac, torch.trunc,
)  # fmt: skip
BOUNDED = (torch.exp, torch.reciprocal, torch.log1p)  # what is read as a number near 1


class Net(nn.Module):
    """A network of `most` steps at most, drawn from a seed.

    Each step is a function and the numbers of the values that it reads; the inputs come first.
    `bits` are those of the narrowest floating type, whose rounding all results may have.
    """

    def __init__(self, seed, most):
        super().__init__()
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.steps, self.names, self.layers = [], [], nn.ModuleList()
        self.inputs = [self.array(self.shape(), self.pick(*FLOATS)) for _ in range(self.count(2))]
        if self.rng.random() < 0.4:
            self.inputs.append(self.array(self.shape(), self.pick(*WHOLE)))
        values = list(self.inputs)
        self.bits = min([torch.finfo(x.dtype).bits for x in values if x.is_floating_point()])
        for _ in range(3 + self.count(most - 3)):
            # Later values are read more often: chains get long, and early ones are read again.
            at = len(values) - 1 - min(int(self.rng.exponential(2)), len(values) - 1)
            draw = self.pick(*KINDS)
            found = draw(self, values[at])
            if found is None:
                continue
            function, *others = found
            others = [self.like(values, values[at]) if o == "like" else o for o in others]
            self.add(values, draw.__name__, function, (at, *others))
        last = len(values) - 1
        self.outputs = sorted({last, *(int(self.rng.integers(last + 1)) for _ in range(2))})
        if self.rng.random() < 0.2:
            self.outputs.append(last)
        self.eval()

    def add(self, values, name, function, at):
        try:
            with torch.no_grad():
                made = function(*(values[n] for n in at))
        except (RuntimeError, IndexError):  # torch has no such step
            return
        for number in range(len(made)) if isinstance(made, tuple) else [None]:
            value = made if number is None else made[number]
            if 0 < value.numel() <= 20_000 and _tame(value):
                self.steps.append((function, at, number))
                self.names.append(name)
                values.append(value)
                if value.is_floating_point():
                    self.bits = min(self.bits, torch.finfo(value.dtype).bits)

    def forward(self, *inputs):
        values = list(inputs)
        for function, at, number in self.steps:
            made = function(*(values[n] for n in at))
            values.append(made if number is None else made[number])
        found = [values[n] for n in self.outputs]
        return found[0] if len(found) == 1 else tuple(found)

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def count(self, most):
        return 1 + int(self.rng.integers(most))

    def shape(self):
        return self.pick((2, 3, 8), (1, 6), (1, 4, 6, 7), (5,), (2, 4, 5), (3, 1, 4))

    def array(self, shape, dtype):
        if dtype.is_floating_point:
            return torch.randn(shape).to(dtype)
        return torch.randint(0, 5, shape).to(dtype)

    def again(self):
        """Other inputs of the same shapes."""
        return [self.array(x.shape, x.dtype) for x in self.inputs]

    def axis(self, x):
        return int(self.rng.integers(x.dim()))

    def like(self, values, x):
        """The number of a value that broadcasts with one, of any type."""
        found = [n for n, v in enumerate(values) if _joins(v, x)]
        return found[self.rng.integers(len(found))]

    def layer(self, module, x):
        module = module.to(x.dtype)
        self.layers.append(module)
        return module


def _joins(a, b):
    return all(n == m or 1 in (n, m) for n, m in zip(a.shape[::-1], b.shape[::-1]))


def _tame(x):
    """Whether numbers are so small that errors of halves stay small."""
    return bool((x.to(torch.float64).abs() < 100).all())


def element(net, x):
    if not x.is_floating_point():
        return (lambda v: v.to(torch.float32) * 0.5,)
    function = net.pick(*ONE)
    if function in BOUNDED:
        return (lambda v: function(v.tanh() + 1.5),)
    return (function,)


def pair(net, x):
    function = net.pick(torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.where)
    if function is torch.where:
        return (lambda a, b: torch.where(a > b, a, b), "like")
    if x.dtype == torch.bool:
        return (torch.logical_or, "like")
    if function is torch.sub or x.dtype == torch.bool:
        return (lambda a, b: a - 0.5 * b, "like")
    return (function, "like")


def compare(net, x):
    function = net.pick(torch.gt, torch.le, torch.eq, torch.ne)
    return (function, "like")


def number(net, x):
    value = net.pick(2, 3, 0.5, -1.5)
    function = net.pick(
        lambda v: v * value,
        lambda v: v + value,
        lambda v: value - v if v.dtype != torch.bool else v,
        lambda v: v / value,
        lambda v: v.clamp(-1, 1) if v.dtype not in (torch.bool, torch.uint8) else v,
        lambda v: torch.remainder(v, 3) if v.dtype != torch.bool else v,
        lambda v: torch.div(v, 2, rounding_mode="floor") if v.dtype != torch.bool else v,
    )
    return (function,)


def cast(net, x):
    dtype = net.pick(*FLOATS, *WHOLE, torch.bfloat16, torch.bool)
    if not dtype.is_floating_point and dtype != torch.bool:
        return (lambda v: v.to(torch.float32).abs().to(dtype),)  # whose range holds all
    return (lambda v: v.to(dtype),)


def view(net, x):
    if not x.dim():
        return (lambda v: v[None],)
    d, order = net.axis(x), [int(n) for n in net.rng.permutation(x.dim())]
    n = x.shape[d]
    start, step = int(net.rng.integers(n)), net.count(3)
    factors = [m for m in range(1, n + 1) if n % m == 0]
    split = [*x.shape[:d], net.pick(*factors), -1, *x.shape[d + 1 :]]
    return (
        net.pick(
            lambda v: v.permute(order),
            lambda v: v.flatten(d),
            lambda v: v.reshape(split) if v.dim() < 6 else v,
            lambda v: v.narrow(d, start, n - start),
            lambda v: v.select(d, start),
            lambda v: v.unsqueeze(d) if v.dim() < 6 else v,
            lambda v: v.squeeze(),
            lambda v: v.transpose(0, -1).contiguous().view(-1),
            lambda v: v[(slice(None),) * d + (slice(start, None, step),)],
            lambda v: v.unsqueeze(d).expand(*v.shape[:d], 2, *v.shape[d:]) if v.dim() < 6 else v,
            lambda v: v.unfold(d, 2, 1) if n > 1 and v.dim() < 6 else v,
            lambda v: v.diagonal(0, 0, 1) if v.dim() > 1 else v,
        ),
    )


def move(net, x):
    if not x.dim():
        return None
    d = net.axis(x)
    n, shift = x.shape[d], net.count(3)
    return (
        net.pick(
            lambda v: v.flip(d),
            lambda v: torch.roll(v, shift, d),
            lambda v: torch.cat([v, v.narrow(d, n - 1, 1), v], d),
            lambda v: torch.stack([v, v.flip(d)], d) if v.dim() < 6 else v,
            lambda v: v.repeat_interleave(2, d),
            lambda v: v.tile(2),
            lambda v: F.pad(v, (1, shift)) if v.dtype != torch.bool else v,
            lambda v: v.split(max(n // 2, 1), d),
            lambda v: torch.tril(v) if v.dim() > 1 else v,
            lambda v: v.chunk(2, d)[-1],
        ),
    )


def pick_elements(net, x):
    if not x.dim():
        return None
    d = net.axis(x)
    at = torch.from_numpy(net.rng.integers(-x.shape[d], x.shape[d], 3))
    return (
        net.pick(
            lambda v: v.index_select(d, at % v.shape[d]),
            lambda v: v[(slice(None),) * d + (at,)],
            lambda v: v.gather(d, v.argsort(d)),
            lambda v: v.masked_fill(v > 0, 0) if v.dtype != torch.bool else v,
            lambda v: v.sort(d)[0],
            lambda v: v.argmax(d) if v.dtype not in (torch.bool, torch.bfloat16) else v,
            lambda v: v.topk(1, d)[0] if v.dtype not in (torch.bool,) else v,
            lambda v: v.index_fill(d, at[:1] % v.shape[d], 0),
        ),
    )


def reduce(net, x):
    if not x.dim():
        return None
    d, keep = net.axis(x), bool(net.rng.integers(2))
    if not x.is_floating_point():
        whole = x.dtype != torch.bool
        return (
            net.pick(
                lambda v: v.sum(d, keepdim=keep),
                lambda v: v.amax(d, keepdim=keep) if whole else v.any(d),
                lambda v: v.cumsum(d),
                lambda v: v.all(d),
            ),
        )
    return (
        net.pick(
            lambda v: v.mean(d, keepdim=keep),
            lambda v: v.sum(),
            lambda v: v.amin(d, keepdim=keep),
            lambda v: v.max(d),
            lambda v: v.softmax(d),
            lambda v: v.log_softmax(d),
            lambda v: v.cumsum(d),
            lambda v: v.norm(dim=d),
            lambda v: v.logsumexp(d),
            lambda v: v.var(d, correction=0, keepdim=keep),
            lambda v: v.std(d, correction=0),
            lambda v: v.prod(d),
            lambda v: F.normalize(v + 2, dim=d),
        ),
    )


def product(net, x):
    if not x.is_floating_point() or x.dim() < 2:
        return None
    return (
        net.pick(
            lambda v: v @ v.transpose(-1, -2) * 0.2,
            lambda v: torch.einsum("...ij,...kj->...ik", v, v) * 0.2,
            lambda v: v @ v[..., 0, :] * 0.2,
            lambda v: F.scaled_dot_product_attention(v, v, v),
        ),
    )


def linear(net, x):
    if not x.is_floating_point() or not x.dim():
        return None
    n = x.shape[-1]
    bias = bool(net.rng.integers(2))
    return (
        net.layer(net.pick(nn.Linear(n, net.count(9), bias), nn.LayerNorm(n), nn.RMSNorm(n)), x),
    )


def spatial(net, x):
    """A layer over images, or over sequences of channels."""
    if x.dtype not in (torch.float32, torch.float64) or x.dim() not in (3, 4):
        return None
    c, rank = x.shape[1], x.dim() - 2
    if min(x.shape[2:]) < 3:
        return (lambda v: F.interpolate(v, scale_factor=2, mode="nearest"),)
    conv, back = (nn.Conv1d, nn.ConvTranspose1d) if rank == 1 else (nn.Conv2d, nn.ConvTranspose2d)
    stride, groups = net.count(2), net.pick(1, c)
    mode = "linear" if rank == 1 else "bilinear"
    made = net.pick(
        lambda: conv(c, groups * net.count(3), 3, stride, net.pick(0, 1), groups=groups),
        lambda: conv(c, 2, 2, dilation=2, padding="same"),
        lambda: conv(
            c, 3, 3, padding=1, padding_mode=net.pick("reflect", "circular", "replicate")
        ),
        lambda: back(c, net.count(4), 3, stride, 1, output_padding=stride - 1),
        lambda: (nn.BatchNorm1d if rank == 1 else nn.BatchNorm2d)(c),
        lambda: nn.GroupNorm(net.pick(1, c), c),
        lambda: (nn.MaxPool1d if rank == 1 else nn.MaxPool2d)(3, stride, 1, ceil_mode=stride > 1),
        lambda: (nn.AvgPool1d if rank == 1 else nn.AvgPool2d)(2, stride, ceil_mode=stride > 1),
        lambda: (nn.AdaptiveAvgPool1d if rank == 1 else nn.AdaptiveAvgPool2d)(net.count(4)),
        lambda: nn.Upsample(scale_factor=net.pick(2, 1.5), mode=mode),
    )()
    return (net.layer(made, x),)


def sequence(net, x):
    """A layer over sequences, or tokens looked up."""
    if x.dtype in (torch.int64, torch.int32):
        table = nn.Embedding(7, 4)
        net.layers.append(table)
        return (lambda v: table(v.clamp(0, 6)),)
    if x.dtype != torch.float32 or x.dim() != 3:
        return None
    kind, way = net.pick(nn.LSTM, nn.GRU, nn.RNN), net.pick(False, True)
    layer = net.layer(
        kind(x.shape[-1], 4, batch_first=net.pick(False, True), bidirectional=way), x
    )
    return (lambda v: layer(v)[0],)


KINDS = (
    element, element, pair, pair, compare, number, cast, view, view, view, move, move,
    pick_elements, reduce, reduce, product, linear, spatial, spatial, sequence,
)  # fmt: skip
