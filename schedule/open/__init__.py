"""Programs of open sizes: one loop tree for all values of a workload's dims.

A config is lowered at some sizes. Where the trees agree but for numbers, each number that differs
becomes a formula of the dims, so that one tree stands for all (anti-unification).
"""
