"""Operators of the domain ai.onnx.ml, as scikit-learn and boosted trees are written."""

from loopwright.graph.importers.onnx.estimators import columns, models, trees
