"""Configs that tests try: defaults, and random ones from all over a space."""

import re

import numpy as np


def default_configs(sketches):
    """The default config of the first sketch of each kind of rewrite. Two that differ in the size
    of their blocks alone are of one kind."""
    kinds = {re.sub(r"\b(rows|tiles)=\d+", r"\1", s.rewrite): s for s in reversed(sketches)}
    return [s.at(s.default) for s in kinds.values()]


def random_configs(sketches, count):
    """Random configs of random sketches, the same ones in every run."""
    rng = np.random.default_rng(0)
    chosen = [sketches[rng.integers(len(sketches))] for _ in range(count)]
    return [s.at([int(rng.integers(len(k.choices))) for k in s.knobs]) for s in chosen]
