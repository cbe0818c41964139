"""Layers of networks, batch 1: ResNet-18, MobileNet, DCGAN, BERT-base, dense layers, pooling."""

from __future__ import annotations

from suites.row import Row


def resnet() -> list[Row]:
    """C1 to C12 of ResNet-18: Table 1 of Chen et al. 2018, *Learning to optimize tensor programs*:
    height and width, channels in and out, kernel, stride; padding as in the network."""
    table = [
        (224, 3, 64, 7, 2),
        (56, 64, 64, 3, 1),
        (56, 64, 64, 1, 1),
        (56, 64, 128, 3, 2),
        (56, 64, 128, 1, 2),
        (28, 128, 128, 3, 1),
        (28, 128, 256, 3, 2),
        (28, 128, 256, 1, 2),
        (14, 256, 256, 3, 1),
        (14, 256, 512, 3, 2),
        (14, 256, 512, 1, 2),
        (7, 512, 512, 3, 1),
    ]
    return [_conv(f"C{n}", "resnet", *layer) for n, layer in enumerate(table, 1)]


def mobilenet() -> list[Row]:
    """The depthwise and pointwise layers of MobileNet (Howard et al. 2017, Table 1), and those of
    MobileNetV2's inverted residuals (Sandler et al. 2018, Table 2) whose shapes are new."""
    depthwise = [
        (112, 32, 1), (112, 64, 2), (56, 128, 1), (56, 128, 2), (28, 256, 1), (28, 256, 2),
        (14, 512, 1), (14, 512, 2), (7, 1024, 1),
        (112, 96, 2), (56, 144, 1), (56, 144, 2), (28, 192, 1), (14, 384, 1), (14, 576, 2),
        (7, 960, 1),
    ]  # fmt: skip
    pointwise = [
        (112, 32, 64), (56, 64, 128), (56, 128, 128), (28, 128, 256), (28, 256, 256),
        (14, 256, 512), (14, 512, 512), (7, 512, 1024), (7, 1024, 1024),
        (112, 16, 96), (56, 96, 24), (56, 24, 144), (28, 144, 32), (28, 32, 192), (14, 64, 384),
        (14, 576, 96), (7, 160, 960), (7, 320, 1280),
    ]  # fmt: skip
    rows = [_depthwise(*layer) for layer in depthwise]
    return rows + [_conv(f"pw {i}->{o} @{h}", "mobilenet", h, i, o, 1, 1) for h, i, o in pointwise]


def dcgan() -> list[Row]:
    """The transposed convolutions of DCGAN's generator (Radford et al. 2016, Figure 1), with
    windows of 4 as implementations have them."""
    layers = [(4, 1024, 512), (8, 512, 256), (16, 256, 128), (32, 128, 3)]
    return [
        Row(
            f"{i}->{o} @{h}",
            "dcgan",
            "conv2d_transpose",
            (f"x=1,{i},{h},{h}", f"w={i},{o},4,4:constant", "stride=2", "padding=1"),
        )
        for h, i, o in layers
    ]


def dense() -> list[Row]:
    """Classifiers of ResNet-18, ResNet-50 and VGG, and BERT-base's feed-forward pair."""
    layers = [(512, 1000), (2048, 1000), (4096, 4096), (768, 3072), (3072, 768)]
    return [
        Row(f"{k}->{o} x{n}", "dense", "dense", (f"x={n},{k}", f"w={o},{k}:constant"))
        for n in (1, 32)
        for k, o in layers
    ]


def bert() -> list[Row]:
    """BERT-base on 128 tokens: 12 heads of 64. Its products alone, and the attention of both."""
    q, scores = "12,128,64", "12,128,128"
    return [
        Row("q k", "bert", "batch_matmul", (f"a={q}", f"b={q}", "transpose_b=True")),
        Row("scores v", "bert", "batch_matmul", (f"a={scores}", f"b={q}")),
        Row("attention", "bert", "attention", (f"q={q}", f"k={q}", f"v={q}")),
    ]


def rowwise() -> list[Row]:
    """Softmax of BERT's scores, a classifier's and a wide one; layer norms of BERT and GPT-2."""
    softmax = ["12,128,128", "1,1000", "128,30522"]
    norm = [(128, 768), (1024, 1024)]
    rows = [Row(f"softmax {s}", "rowwise", "softmax", (f"x={s}",)) for s in softmax]
    return rows + [
        Row(
            f"layer norm {n},{c}",
            "rowwise",
            "layer_norm",
            (f"x={n},{c}", f"scale={c}:constant", f"shift={c}:constant"),
        )
        for n, c in norm
    ]


def pooling() -> list[Row]:
    """ResNet's and VGG's max pooling, DenseNet's average pooling, the global ones of ResNets."""
    return [
        _pool("max 3/2 64@112", "max_pool2d", "1,64,112,112", "window=3", "stride=2", "padding=1"),
        _pool("max 2/2 64@224", "max_pool2d", "1,64,224,224", "window=2"),
        _pool("avg 2/2 128@56", "avg_pool2d", "1,128,56,56", "window=2"),
        _pool("avg 3/1 192@28", "avg_pool2d", "1,192,28,28", "window=3", "stride=1", "padding=1"),
        _pool("global 512@7", "global_avg_pool2d", "1,512,7,7"),
        _pool("global 2048@7", "global_avg_pool2d", "1,2048,7,7"),
    ]


def _conv(name: str, suite: str, h: int, i: int, o: int, window: int, stride: int) -> Row:
    return Row(
        name,
        suite,
        "conv2d",
        (
            f"x=1,{i},{h},{h}",
            f"w={o},{i},{window},{window}:constant",
            f"stride={stride}",
            f"padding={window // 2}",
        ),
    )


def _depthwise(h: int, c: int, stride: int) -> Row:
    settings = (f"x=1,{c},{h},{h}", f"w={c},1,3,3:constant", f"stride={stride}", "padding=1")
    return Row(f"dw {c} /{stride} @{h}", "mobilenet", "depthwise_conv2d", settings)


def _pool(name: str, operator: str, shape: str, *settings: str) -> Row:
    return Row(name, "pooling", operator, (f"x={shape}", *settings))
