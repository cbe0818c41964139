"""Sketches, knobs and configs: a structure, its open numbers, a choice of them."""
