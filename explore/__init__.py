"""Search: the tuning loop, annealing, diverse batches, black-box baselines."""
