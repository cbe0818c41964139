"""The workloads of the tables: suites of rows, and the goals that they must meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from suites import networks, products
from suites.row import Row

SUITES: dict[str, Callable[[], list[Row]]] = {
    "resnet": networks.resnet,
    "mobilenet": networks.mobilenet,
    "dense": networks.dense,
    "matmul": products.matmul,
    "looptune": products.looptune,
    "bert": networks.bert,
    "rowwise": networks.rowwise,
    "pooling": networks.pooling,
    "dcgan": networks.dcgan,
    "tccg": products.tccg,
}


@dataclass(frozen=True)
class Goal:
    """What ratios to the best peer must reach: their geometric mean, and each."""

    mean: float
    least: float


RESNET, OTHERS = Goal(1.6, 1.1), Goal(1.2, 0.95)


def goal(suite: str) -> Goal:
    return RESNET if suite == "resnet" else OTHERS


def select(suites: Sequence[str], names: Sequence[str]) -> list[Row]:
    """The rows of the suites, only those named if names are given. A name is that of a row, or
    SUITE:ROW where two suites have one of that name. Raises `ValueError`, saying what there is."""
    unknown = [s for s in suites if s not in SUITES]
    if unknown:
        raise ValueError(f"no suite is called {unknown[0]!r}; there are {', '.join(SUITES)}")
    rows = [row for suite in suites for row in SUITES[suite]()]
    missing = [n for n in names if not any(n in _names(r) for r in rows)]
    if missing:
        raise ValueError(f"no row is called {missing[0]!r} in {', '.join(suites)}")
    return [r for r in rows if not names or any(n in names for n in _names(r))]


def _names(row: Row) -> tuple[str, str]:
    return row.name, f"{row.suite}:{row.name}"
