"""Workloads to learn from: of every kind, at drawn sizes, none of which a table measures.

Sizes are those that networks have, and now and then odd ones. The same seed gives the same
workloads, and a longer list begins like a shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

import loopwright as lw
from loopwright.dsl.workload import tensor_shape
from suites.row import Row

LEAST, MOST = 1e4, 5e8
"""FLOPs of a drawn workload, or elements of its result where these are more: what one call does in
less than a tenth of a second or so."""

Draw = Callable[["Sizes"], tuple[str, tuple[str, ...]]]


class Sizes:
    """Draws numbers."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def of(self, *choices: int) -> int:
        """One of the choices."""
        return int(self._rng.choice(choices))

    def about(self, low: int, high: int) -> int:
        """From low to high, evenly on a log scale; three of four are multiples of 8."""
        drawn = round(float(np.exp(self._rng.uniform(np.log(low), np.log(high)))))
        return max(low, (drawn + 4) // 8 * 8) if drawn > 8 and self._rng.random() < 0.75 else drawn


def drawn(count: int, seed: int, others: Sequence[Row] = ()) -> list[Row]:
    """`count` workloads, the kinds in turns, all different and different from `others`."""
    known = {row.request.workload.key for row in others}
    rows: list[Row] = []
    for row in _endless(np.random.default_rng(seed)):
        if len(rows) == count:
            break
        work = row.request.workload
        if work.key not in known and LEAST <= _size(work) <= MOST:
            known.add(work.key)
            rows.append(row)
    return rows


def _size(work: lw.Workload) -> int:
    return max(work.flops, *(math.prod(tensor_shape(out)) for out in work.outputs), 0)


def _endless(rng: np.random.Generator) -> Iterator[Row]:
    sizes = Sizes(rng)
    while True:
        for kind, draw in KINDS:
            what, settings = draw(sizes)
            yield Row(f"{kind} {' '.join(settings)}", "drawn", what, settings)


def _conv(s: Sizes, window: int, stride: int = 1, **options: int | str) -> tuple[str, ...]:
    h = s.of(7, 10, 13, 14, 17, 20, 24, 28, 32, 40, 48, 56, 75, 80, 112)
    i, o = s.about(24, 512), s.about(24, 512)
    settings = (f"x=1,{i},{h},{h}", f"w={o},{i},{window},{window}:constant")
    return _with(settings, stride=stride, padding=window // 2, **options)


def _with(settings: tuple[str, ...], **options: int | str) -> tuple[str, ...]:
    given = (
        f"{n}={v}" for n, v in options.items() if (n, v) not in (("stride", 1), ("padding", 0))
    )
    return (*settings, *given)


def _stem(s: Sizes) -> tuple[str, tuple[str, ...]]:
    h, o, window = s.of(96, 112, 128, 160, 192), s.of(16, 24, 32, 48, 64), s.of(3, 5, 7)
    settings = (f"x=1,3,{h},{h}", f"w={o},3,{window},{window}:constant")
    return "conv2d", _with(settings, stride=2, padding=window // 2)


def _last(s: Sizes, windows: Sequence[int]) -> tuple[str, tuple[str, ...]]:
    """Channels last, with a bias, and mostly with what follows it in networks."""
    h, i, o, window = (
        s.of(7, 14, 20, 28, 40, 56),
        s.about(16, 512),
        s.about(16, 512),
        s.of(*windows),
    )
    settings = (f"x=1,{h},{h},{i}", f"w={window},{window},{i},{o}:constant", f"bias={o}:constant")
    made = _with(settings, stride=s.of(1, 1, 2), padding=window // 2, layout="NHWC")
    return "conv2d", (*made, *_function(s))


def _depthwise_last(s: Sizes) -> tuple[str, tuple[str, ...]]:
    h, c, window = s.of(7, 10, 14, 19, 20, 28, 40, 56, 80, 112), s.about(16, 1024), s.of(3, 3, 5)
    settings = (f"x=1,{h},{h},{c}", f"w={window},{window},1,{c}:constant", f"bias={c}:constant")
    made = _with(settings, stride=s.of(1, 1, 2), padding=window // 2, layout="NHWC")
    return "depthwise_conv2d", (*made, *_function(s))


def _function(s: Sizes) -> tuple[str, ...]:
    chosen = ("", "relu", "relu", "silu", "sigmoid", "gelu")[s.of(*range(6))]
    return (f"then={chosen}",) if chosen else ()


def _grouped(s: Sizes) -> tuple[str, tuple[str, ...]]:
    h, groups, each = s.of(7, 14, 28, 56), s.of(2, 4, 8, 32), s.of(4, 8, 16)
    c = groups * each
    settings = (f"x=1,{c},{h},{h}", f"w={c},{each},3,3:constant")
    return "conv2d", _with(settings, padding=1, groups=groups)


def _depthwise(s: Sizes) -> tuple[str, tuple[str, ...]]:
    h, c, window = s.of(7, 10, 14, 19, 20, 28, 40, 56, 80, 112), s.about(16, 1024), s.of(3, 3, 5)
    settings = (f"x=1,{c},{h},{h}", f"w={c},1,{window},{window}:constant")
    return "depthwise_conv2d", _with(settings, stride=s.of(1, 1, 2), padding=window // 2)


def _transposed(s: Sizes) -> tuple[str, tuple[str, ...]]:
    h, i, o = s.of(4, 7, 8, 12, 16, 20), s.about(16, 512), s.about(8, 256)
    settings = (f"x=1,{i},{h},{h}", f"w={i},{o},4,4:constant")
    return "conv2d_transpose", _with(settings, stride=2, padding=1)


def _conv1d(s: Sizes) -> tuple[str, tuple[str, ...]]:
    n, i, o = s.about(64, 2048), s.about(16, 256), s.about(16, 256)
    window = s.of(3, 5, 9)
    return "conv1d", _with((f"x=1,{i},{n}", f"w={o},{i},{window}:constant"), padding=window // 2)


def _dense(s: Sizes, n: int) -> tuple[str, tuple[str, ...]]:
    k, o = s.about(64, 4096), s.about(32, 4096)
    settings = (f"x={n},{k}", f"w={o},{k}:constant", f"bias={o}:constant")
    return "dense", (*settings, *_function(s))


def _matmul(s: Sizes) -> tuple[str, tuple[str, ...]]:
    m, n, k = (s.about(64, 1024) for _ in range(3))
    return "matmul", (f"a={m},{k}", f"b={k},{n}")


def _batched(s: Sizes) -> tuple[str, tuple[str, ...]]:
    b, m, n, k = s.of(2, 4, 8, 12, 16, 32), s.about(32, 256), s.about(32, 256), s.about(16, 256)
    if s.of(0, 1):
        return "batch_matmul", (f"a={b},{m},{k}", f"b={b},{n},{k}", "transpose_b=True")
    return "batch_matmul", (f"a={b},{m},{k}", f"b={b},{k},{n}")


_EQUATIONS = (
    "cbd,dca->abc", "dcb,da->abcd", "bda,dc->abc", "ca,bdc->abd", "dab,dac->bc", "aecb,edc->abd",
    "ab,cb->ca", "eda,cbe->abcd", "ab,b->a", "ba,b->a", "abc,abd->acd", "adbe,cde->acb",
)  # fmt: skip


def _contraction(s: Sizes) -> tuple[str, tuple[str, ...]]:
    equation = _EQUATIONS[s.of(*range(len(_EQUATIONS)))]
    letters = sorted({c for c in equation if c.isalpha()})
    most = {2: 1024, 3: 384, 4: 96}.get(len(letters), 40)
    return equation, tuple(f"{c}={s.about(8, most)}" for c in letters)


def _attention(s: Sizes) -> tuple[str, tuple[str, ...]]:
    b, n, d = s.of(2, 4, 8, 12), s.about(32, 256), s.of(32, 48, 64, 80)
    return "attention", tuple(f"{name}={b},{n},{d}" for name in "qkv")


def _softmax(s: Sizes) -> tuple[str, tuple[str, ...]]:
    return "softmax", (f"x={s.about(8, 1024)},{s.about(32, 4096)}",)


def _norm(s: Sizes) -> tuple[str, tuple[str, ...]]:
    n, c = s.about(8, 1024), s.about(64, 2048)
    return "layer_norm", (f"x={n},{c}", f"scale={c}:constant", f"shift={c}:constant")


def _pool(s: Sizes, name: str) -> tuple[str, tuple[str, ...]]:
    h, c, window = s.of(14, 20, 28, 40, 56, 75, 112), s.about(16, 256), s.of(2, 3)
    settings = (f"x=1,{c},{h},{h}", f"window={window}", "stride=2")
    return name, _with(settings, padding=window // 2 if window == 3 else 0)


def _global(s: Sizes) -> tuple[str, tuple[str, ...]]:
    h = s.of(4, 7, 8, 10, 14)
    return "global_avg_pool2d", (f"x={s.of(1, 8)},{s.about(128, 2048)},{h},{h}",)


def _elementwise(s: Sizes) -> tuple[str, tuple[str, ...]]:
    name = ("relu", "gelu", "tanh", "silu")[s.of(0, 1, 2, 3)]
    return name, (f"x={s.about(16, 1024)},{s.about(64, 4096)}",)


def _turned(s: Sizes) -> tuple[str, tuple[str, ...]]:
    """A copy to another layout."""
    equation = ("ab->ba", "abc->acb", "abc->bac", "abc->cab", "abcd->acbd")[s.of(*range(5))]
    most = {2: 2048, 3: 128, 4: 48}[equation.index("-")]
    return equation, tuple(f"{c}={s.about(4, most)}" for c in equation[: equation.index("-")])


def _two(s: Sizes) -> tuple[str, tuple[str, ...]]:
    """Two tensors of one shape, and functions of their sum or product."""
    name, shape = ("add", "mul")[s.of(0, 1)], f"{s.of(1, 1, s.about(4, 512))},{s.about(512, 8192)}"
    then = ("sigmoid", "tanh", "relu", "sigmoid,tanh")[s.of(0, 1, 2, 3)]
    return name, (f"x={shape}", f"y={shape}", f"then={then}")


def _bias(s: Sizes) -> tuple[str, tuple[str, ...]]:
    c, h = s.about(16, 512), s.of(7, 14, 28, 56, 80)
    return "bias_add", (f"x=1,{c},{h},{h}", f"bias={c}:constant")


KINDS: tuple[tuple[str, Draw], ...] = (
    ("conv 3x3", lambda s: ("conv2d", _conv(s, 3))),
    ("matmul", _matmul),
    ("conv 1x1", lambda s: ("conv2d", _conv(s, 1))),
    ("depthwise", _depthwise),
    ("dense", lambda s: _dense(s, 1)),
    ("softmax", _softmax),
    ("conv 3x3 /2", lambda s: ("conv2d", _conv(s, 3, 2))),
    ("batch matmul", _batched),
    ("layer norm", _norm),
    ("max pool", lambda s: _pool(s, "max_pool2d")),
    ("conv 1x1 /2", lambda s: ("conv2d", _conv(s, 1, 2))),
    ("dense batch", lambda s: _dense(s, s.of(8, 16, 24, 64, 100))),
    ("contraction", _contraction),
    ("transposed", _transposed),
    ("conv 3x3", lambda s: ("conv2d", _conv(s, 3))),
    ("elementwise", _elementwise),
    ("depthwise", _depthwise),
    ("matmul", _matmul),
    ("turned", _turned),
    ("conv 1x1 last", lambda s: _last(s, (1,))),
    ("conv stem", _stem),
    ("avg pool", lambda s: _pool(s, "avg_pool2d")),
    ("contraction", _contraction),
    ("conv 5x5", lambda s: ("conv2d", _conv(s, 5))),
    ("depthwise last", _depthwise_last),
    ("two", _two),
    ("conv last", lambda s: _last(s, (3,))),
    ("global pool", _global),
    ("attention", _attention),
    ("conv grouped", _grouped),
    ("bias add", _bias),
    ("conv1d", _conv1d),
    ("turned", _turned),
)
"""Kinds, in the order of their turns; common ones come twice."""
