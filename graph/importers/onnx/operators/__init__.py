"""The table of operators: each one a few lines of the notation. `call.py` has the contract."""

from loopwright.graph.importers.onnx.operators import (  # noqa: F401 - each fills the table
    activations,
    control,
    convolution,
    elementwise,
    gather,
    linear,
    ngrams,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resize,
    sampling,
    scatter,
    shapes,
    slices,
    spectral,
)
