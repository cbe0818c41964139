"""Whole models: ONNX, torch and Relax in, tuning tasks, and the tuned module out."""
