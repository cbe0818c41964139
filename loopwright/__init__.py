"""Loopwright: from Einstein notation to the fastest code it can find for the machine at hand."""

__version__ = "0.1.0"
