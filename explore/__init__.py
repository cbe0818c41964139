"""Where to look next: the tuning loop, simulated annealing, diverse batches, and the black-box baselines."""
