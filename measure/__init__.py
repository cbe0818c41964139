"""Measurement of costs: builders and runners in worker processes, timing, and checking."""
