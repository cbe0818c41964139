"""What GPUs are measured on: ResNet-18, matrix products, BERT-base, depthwise convolutions."""

from __future__ import annotations

from collections.abc import Callable

from suites import networks
from suites.row import Row

HALF = ("float16", ("accumulate=float32", "result=float16"))
"""Factors in float16, sums in float32 as tensor cores make them, the result in float16."""
SINGLE = ("float32", ())


def matmul() -> list[Row]:
    """Square products in float32."""
    return [_matmul("matmul", n, *SINGLE) for n in (512, 1024, 2048, 4096)]


def matmul_half() -> list[Row]:
    """The same in float16."""
    return [_matmul("matmul-half", n, *HALF) for n in (512, 1024, 2048, 4096)]


def bert() -> list[Row]:
    """BERT-base on 128 tokens: its layers in float32."""
    scores, norm = "12,128,128", ("x=128,768", "scale=768:constant", "shift=768:constant")
    return [
        *_products("bert", *SINGLE),
        Row("softmax", "bert", "softmax", (f"x={scores}",)),
        Row("layer norm", "bert", "layer_norm", norm),
        *(row for row in networks.bert() if row.name == "attention"),
    ]


def bert_half() -> list[Row]:
    """BERT-base's products in float16."""
    return _products("bert-half", *HALF)


def depthwise() -> list[Row]:
    """MobileNet's depthwise convolutions."""
    return [
        Row(r.name, "depthwise", r.what, r.settings)
        for r in networks.mobilenet()
        if r.what == "depthwise_conv2d"
    ]


SUITES: dict[str, Callable[[], list[Row]]] = {
    "resnet": networks.resnet,
    "matmul": matmul,
    "matmul-half": matmul_half,
    "bert": bert,
    "bert-half": bert_half,
    "depthwise": depthwise,
}
GOALS = {"resnet": 1.0, "matmul": 0.9, "matmul-half": 0.8}
"""What the geometric mean of ratios to the best peer must reach."""


def _matmul(suite: str, n: int, dtype: str, more: tuple[str, ...]) -> Row:
    return Row(str(n), suite, "matmul", (f"a={n},{n}:{dtype}", f"b={n},{n}:{dtype}", *more))


def _products(suite: str, dtype: str, more: tuple[str, ...]) -> list[Row]:
    layers = [("projection", 768, 768), ("feed forward up", 768, 3072), ("down", 3072, 768)]
    rows = [
        Row(name, suite, "dense", (f"x=128,{k}:{dtype}", f"w={o},{k}:{dtype}:constant", *more))
        for name, k, o in layers
    ]
    q, scores = f"12,128,64:{dtype}", f"12,128,128:{dtype}"
    turned = (f"a={q}", f"b={q}", "transpose_b=True", *more)
    rows.append(Row("q k", suite, "batch_matmul", turned))
    return [*rows, Row("scores v", suite, "batch_matmul", (f"a={scores}", f"b={q}", *more))]
