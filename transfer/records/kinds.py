"""The kind of a workload: what it computes, at whatever size."""

from __future__ import annotations

import functools

from loopwright.dsl.expr import Binary, Cast, Const, Expr, Read, Select, Unary
from loopwright.dsl.tensor import Definition
from loopwright.dsl.traversal import children
from loopwright.dsl.workload import Workload, defined
from loopwright.transfer.records.record import workload_of


def kind(workload: Workload) -> str:
    """A text that is equal for workloads that differ in names and numbers only.

    For each reduction: the numbers of its axes, spatial and reduced, and the operators of its
    body; where two indices move one subscript, a read is a window. Element-wise stages (padding,
    a bias) count only where there is no other. A convolution is `4 sum 3 mul(window, read)`.
    """
    stages = [defined(stage) for stage in workload.stages]
    reductions = [d for d in stages if d.reducer]
    return "; ".join(map(_stage, reductions or stages))


def _stage(d: Definition) -> str:
    reduced = f" {d.reducer} {len(d.reduce)}" if d.reducer else ""
    return f"{len(d.axes)}{reduced} {_text(d.body)}"


def _text(x: Expr) -> str:
    if isinstance(x, Read):
        return "window" if any(len(a.terms) > 1 for a in x.index) else "read"
    if isinstance(x, Select):
        return f"where({_text(x.x)}, {_text(x.y)})"
    if isinstance(x, (Const, Unary, Binary, Cast)):
        name = x.op if isinstance(x, (Unary, Binary)) else type(x).__name__.lower()
        inner = ", ".join(map(_text, children(x)))
        return f"{name}({inner})" if inner else name
    return type(x).__name__.lower()


@functools.lru_cache(maxsize=1024)
def kind_of_text(text: str) -> str:
    """The kind of a workload in JSON, as records have it."""
    return kind(workload_of(text))
