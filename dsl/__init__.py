"""Notation of workloads: index expressions, tensors, workloads, and the oracle of every test."""
