"""The figures of Chen et al. 2018: which searches each compares, and over which tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from search import Setting

from loopwright.explore.tuner import MODELLED

RANDOM = Setting("random", "random")
GENETIC = Setting("genetic", "genetic")
GBT = Setting("GBT")
TREEGRU = Setting("TreeGRU", model="treegru")

TABLES = ("C7", "C8", "matmul1024")
SOURCES = ("C1", "C2", "C3", "C4", "C5", "C6")
TARGETS = ("C7", "C8", "C9")
GEMMS = ("gemm_rtx2080ti", "gemm_rtx3090")
BRUTE_FORCED = ("gemm_rtx3090", "convolution_a4000")


@dataclass(frozen=True)
class Panel:
    """One drawing: searches of one table. `gpu` tables are not in this repository."""

    table: str
    settings: tuple[Setting, ...]
    title: str
    gpu: bool = False


@dataclass(frozen=True)
class Figure:
    title: str
    panels: tuple[Panel, ...]


def _each(tables: Sequence[str], *settings: Setting) -> tuple[Panel, ...]:
    return tuple(Panel(table, settings, table) for table in tables)


def _everywhere(*settings: Setting) -> tuple[Panel, ...]:
    """The panels of a figure that compares ways to search: our tables, and GPUs', which have no
    loops to look at, and so neither features of them nor TreeGRU."""
    blind = tuple(
        replace(s, reads="config") if s.strategy in MODELLED else s
        for s in settings
        if not s.model.startswith("treegru")
    )
    gpus = tuple(
        Panel(table, blind, f"{table}, config vector", gpu=True) for table in BRUTE_FORCED
    )
    return _each(TABLES, *settings) + gpus


def _after(setting: Setting, *sources: str) -> Setting:
    """The search again, with a global model of other tables."""
    return replace(setting, label=f"{setting.label}, transfer", sources=sources)


def _twice(setting: Setting) -> Setting:
    return replace(setting, label=f"{setting.label} × 2", times=2)


def _objective(setting: Setting) -> tuple[Setting, Setting]:
    regression = replace(
        setting, label=f"{setting.label}, regression", model=f"{setting.model}-regression"
    )
    return replace(setting, label=f"{setting.label}, rank"), regression


def _reading() -> tuple[Setting, ...]:
    labels = {"config": "config vector", "tree": "flattened tree", "relation": "context relation"}
    return tuple(Setting(label, reads=reads) for reads, label in labels.items())


def _acquiring() -> tuple[Setting, ...]:
    return tuple(
        Setting(label, model="gbt-ensemble", acquisition=name)
        for name, label in {"mean": "mean", "ei": "EI", "ucb": "UCB"}.items()
    )


def _representations() -> tuple[Panel, ...]:
    """Within a encoded, across convolutions, across operator types, across machines."""
    within = tuple(
        Panel(t, _reading(), f"{t}, nothing known before") for t in ("C7", "matmul1024")
    )
    scratch = replace(_reading()[-1], label="context relation, no transfer")
    learned = tuple(replace(s, sources=SOURCES) for s in _reading())
    across = tuple(
        Panel(table, (*learned, scratch), f"C1 to C6 → {table}")
        for table in (*TARGETS, "matmul1024")
    )
    one = replace(_reading()[0], label="config vector, no transfer")
    other = replace(one, label="config vector")
    probing = replace(one, label="transfer", strategy="transfer")
    machines = tuple(
        Panel(
            there,
            (*(replace(s, sources=(here,)) for s in (probing, other)), one),
            f"{here} → {there}",
            gpu=True,
        )
        for here, there in (GEMMS, GEMMS[::-1])
    )
    return within + across + machines


FIGURES: dict[str, Figure] = {
    "4": Figure(
        "Statistical cost models against black-box search",
        _everywhere(GBT, TREEGRU, GENETIC, _twice(GENETIC), RANDOM, _twice(RANDOM)),
    ),
    "5": Figure(
        "Rank objective against regression", _everywhere(*_objective(GBT), *_objective(TREEGRU))
    ),
    "6": Figure(
        "Diversity-aware exploration",
        _everywhere(*(Setting(f"λ = {n}", candidates=float(n)) for n in (1, 2, 4))),
    ),
    "7": Figure("Acquisition functions of a bootstrap ensemble", _everywhere(*_acquiring())),
    "8": Figure(
        "Transfer from C1 to C6",
        _each(TARGETS, GBT, _after(GBT, *SOURCES), TREEGRU, _after(TREEGRU, *SOURCES)),
    ),
    "9": Figure("Representations", _representations()),
}
