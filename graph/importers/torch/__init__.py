"""Torch modules and programs of torch.export in, as ONNX."""
