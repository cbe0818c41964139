"""Algorithms: other programs that compute what a workload defines."""
