"""Emission for GPUs, and the libraries that hold their kernels."""
