"""Tuning of workloads with dims: one library for all sizes."""
