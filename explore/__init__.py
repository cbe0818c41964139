"""Where to look next: the tuning loop, annealing, diverse batches, black-box baselines."""
