"""The tuning of a network: one budget over its tasks, and candidates compared inside of it."""
