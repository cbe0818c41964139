"""Products of matrices and tensors, of which nothing is constant."""

from __future__ import annotations

import itertools

import numpy as np

from suites.row import Row


def matmul() -> list[Row]:
    """Powers of two, and odd ones."""
    return [_matmul("matmul", n, n, n) for n in (64, 128, 256, 512, 1024, 100, 333, 500, 1000)]


def looptune() -> list[Row]:
    """A sample of 100 of the 2197 products that LoopTune is measured on (Grubisic et al. 2023):
    M, N and K from 64 to 256 in steps of 16."""
    every = list(itertools.product(range(64, 257, 16), repeat=3))
    chosen = np.random.default_rng(0).choice(len(every), 100, replace=False)
    return [_matmul("looptune", *every[n]) for n in sorted(chosen)]


def tccg() -> list[Row]:
    """The 48 contractions of the benchmark of the Tensor Contraction Code Generator (Springer and
    Bientinesi 2018, *Design of a high-performance GEMM-like tensor-tensor multiplication*;
    github.com/HPAC/tccg), from quantum chemistry: result, left, right.

    There the first index of a tensor is the contiguous one, so the letters of each are reversed
    here. Sizes are smaller, so that one takes milliseconds, but made alike: contiguous axes are
    longer, those of a thin matrix that transforms one axis are 24.
    """
    return [row for group in _TCCG for row in _contractions(*group)]


_THIN = 24
_TCCG = (
    ("abc-bda-dc abc-dca-bd", 160, 152, _THIN),
    ("abcd-dbea-ec abcd-deca-be abcd-ebad-ce", 48, 40, _THIN),
    ("abcde-efbad-cf abcde-ecbfa-fd abcde-efcad-bf", 24, 16, _THIN),
    ("abcd-ea-ebcd abcd-eb-aecd abcd-ec-abed", 48, 36, None),
    ("ab-ac-cb", 480, 476, None),
    ("ab-acd-dbc ab-cad-dcb abc-acd-db abc-ad-bdc abc-adc-bd abc-adc-db", 96, 92, None),
    ("abc-adec-ebd", 48, 36, None),
    ("abcd-aebf-dfce abcd-aebf-fdec abcd-aecf-bfde abcd-aecf-fbed", 24, 20, None),
    ("abcd-aedf-bfce abcd-aedf-fbec abcd-aefb-fdce abcd-aefc-fbed", 24, 20, None),
    ("abcd-eafb-fdec abcd-eafc-bfde abcd-eafd-fbec", 24, 20, None),
    ("abcdef-dega-gfbc abcdef-degb-gfac abcdef-degc-gfab", 16, 12, None),
    ("abcdef-dfga-gebc abcdef-dfgb-geac abcdef-dfgc-geab", 16, 12, None),
    ("abcdef-efga-gdbc abcdef-efgb-gdac abcdef-efgc-gdab", 16, 12, None),
    ("abcdef-gdab-efgc abcdef-gdac-efgb abcdef-gdbc-efga", 16, 12, None),
    ("abcdef-geab-dfgc abcdef-geac-dfgb abcdef-gebc-dfga", 16, 12, None),
    ("abcdef-gfab-degc abcdef-gfac-degb abcdef-gfbc-dega", 16, 12, None),
)
"""Contractions; the extents of contiguous axes, of others, and of a thin matrix's new axis."""


def _contractions(names: str, wide: int, narrow: int, thin: int | None) -> list[Row]:
    rows = []
    for name in names.split():
        result, left, right = name.split("-")
        contiguous = {result[0], left[0], right[0]}
        sizes = {c: wide if c in contiguous else narrow for c in sorted({*result, *left, *right})}
        if thin is not None:
            sizes |= dict.fromkeys(set(right) - set(left), thin)
        what = f"{left[::-1]},{right[::-1]}->{result[::-1]}"
        rows.append(Row(name, "tccg", what, tuple(f"{c}={n}" for c, n in sizes.items())))
    return rows


def _matmul(suite: str, m: int, n: int, k: int) -> Row:
    name = str(m) if m == n == k else f"{m}x{n}x{k}"
    return Row(name, suite, "matmul", (f"a={m},{k}", f"b={k},{n}"))
