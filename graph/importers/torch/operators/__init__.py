"""Functions that make operators of ONNX, and of ours, by operators of torch."""
