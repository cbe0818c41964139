"""Context relation features and what goes with them: a vector of one length for any program.

    names            columns                                                 transform log₂(1 + x)

**Relations** (section 4 of Chen et al. 2018): for two columns i and j of the loops' context
vectors Z and log₂-spaced thresholds β_t,

    R_t^(ij) = max over {k : Z_kj < β_t} of Z_ki        (0 where no loop k qualifies)

Here j is always the *footprint*, the bytes of all cache lines that one run of the loop touches
outside of registers, and i is one of

    inside           stores executed by one run of the loop
    <role>.reuse     accesses for each cache line touched, for the roles written, vector,
                     broadcast; on a GPU, for those written, shared and global

so that R_t says what a cache of β_t bytes is good for: how much work fits it, and how often what
it holds is used again. β runs from 2^8.5 to 2^23.5 bytes, each 2^1.5 times the one before; the
half exponents keep round footprints from standing on a threshold.

**Traffic**: cache lines that a cache of β bytes must fetch in all, if it keeps what one run of a
loop touches wherever that is less than β:

    traffic(loop) = lines(loop) where footprint(loop) < β, else extent · Σ traffic(inside)

for the same kind of thresholds, and for the target's first- and second-level caches.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from loopwright.costmodel.features.access import GPU_ROLES, LINE, MEMORY, ROLES
from loopwright.costmodel.features.batch_arithmetic import (
    Mask,
    Real,
    both,
    most,
    real,
    times,
    total,
    where,
)
from loopwright.costmodel.features.context import Context, LoopContext

BETAS = tuple(2.0 ** (8.5 + 1.5 * t) for t in range(11))
_BETAS = np.array(BETAS, np.float32)[:, None]
COLUMNS = ("inside", *(f"{ROLES[r]}.reuse" for r in MEMORY))
GPU_COLUMNS = ("inside", *(f"{GPU_ROLES[r]}.reuse" for r in MEMORY))


def relation_names(gpu: bool = False) -> tuple[str, ...]:
    """Names of the rows of `relations`."""
    columns = GPU_COLUMNS if gpu else COLUMNS
    return tuple(f"max {c} below 2^{np.log2(b):.1f}B" for c in columns for b in BETAS)


def relations(nodes: Iterable[Context]) -> list[Real]:
    """R_t^(ij) for every i of `COLUMNS` over the loops in `nodes`: shape (thresholds, n) or
    (thresholds, 1) each."""
    known: list[tuple[Real, ...]] = [(0.0,) * (1 + len(COLUMNS))]
    found = _relations(nodes, True, known)
    lines, *columns = np.array(known, np.float32).T
    fits = lines * LINE < _BETAS
    same = [(fits * column).max(axis=1, keepdims=True) for column in columns]
    return [most(*pair) for pair in zip(same, found, strict=True)] if found else same


def _relations(nodes: Iterable[Context], runs: Mask, known: list[tuple[Real, ...]]) -> list[Real]:
    """The same of those loops that are not the same for all configs, where the loop around
    `runs`; nothing if there are none. Lines and columns of the others are added to `known`."""
    every = (_of_loop(node, runs, known) for node in nodes if isinstance(node, LoopContext))
    found = [columns for columns in every if columns]
    return [functools.reduce(most, columns) for columns in zip(*found, strict=True)]


def _of_loop(loop: LoopContext, runs: Mask, known: list[tuple[Real, ...]]) -> list[Real]:
    """Relations of a loop and all inside of it; inner loops, of fewer knobs, come first."""
    loop = loop.same or loop
    runs, row = both(runs, loop.extent > 0.0), _row(loop)
    found = _relations(loop.children, runs, known)
    if runs is True and all(isinstance(x, float) for x in (loop.lines, *row)):
        known.append((loop.lines, *row))
        return found
    fits = real(both(loop.lines * LINE < _BETAS, runs))
    own = [times(fits, z) for z in row]
    return [most(*pair) for pair in zip(found, own, strict=True)] if found else own


def _row(loop: LoopContext) -> tuple[Real, ...]:
    reuse = (t.uses / most(t.lines, 1e-3) for t in (loop.touch[r] for r in MEMORY))
    return (loop.inside, *reuse)


def traffic(node: Context, beta: Real) -> Real:
    """Lines fetched by one run of a node, for a threshold in bytes or several of shape (β, 1)."""
    if not isinstance(node, LoopContext):
        return node.lines
    node = node.same or node
    fetched = node.lines
    inner = node.extent * total([traffic(child, beta) for child in node.children])
    return where(fetched * LINE < beta, fetched, inner)
