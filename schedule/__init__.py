"""Schedules: the loop tree, the space derived from a workload and a target, lowering."""
