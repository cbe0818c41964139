"""What to compute: index expressions, tensors, workloads, and a slow evaluator that is the oracle of every test."""
