"""The loop tree: its grammar, printer, verifiers, and the analysis of its subscripts."""
