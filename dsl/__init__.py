"""What to compute: index expressions, tensors, workloads, and the oracle of every test."""
