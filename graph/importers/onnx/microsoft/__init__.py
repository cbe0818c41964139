"""Operators of the domain com.microsoft, which onnxruntime's optimizer and quantizer write."""

from loopwright.graph.importers.onnx.microsoft import (  # noqa: F401 - each fills the table
    attention,
    decoders,
    fused,
    matrices,
    packed,
    quantized,
)
