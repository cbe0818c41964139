"""Networks in: ONNX, torch, Relax and TIR, as calls of workloads."""
