"""ONNX in: operators straight into the notation, by a table."""
