"""How to compute it: the loop tree, the space of programs derived from a workload and a target, and lowering."""
