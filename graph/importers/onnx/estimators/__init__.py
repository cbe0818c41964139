"""Operators of the domain ai.onnx.ml, as scikit-learn and boosted trees are written."""

from loopwright.graph.importers.onnx.estimators import (  # noqa: F401 - each fills the table
    columns,
    models,
    trees,
)
