"""Operators, each a few lines of the notation."""
