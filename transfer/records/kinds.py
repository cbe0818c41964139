"""The kind of a workload, at whatever size, and the target that a record's text names."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from loopwright.dsl.expr import Binary, Cast, Const, Expr, Read, Select, Unary
from loopwright.dsl.tensor import Definition
from loopwright.dsl.traversal import children
from loopwright.dsl.workload import Workload, defined
from loopwright.schedule.target import Target, vector_registers
from loopwright.transfer.records.lookup import tells_width
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


_LEVEL = re.compile(r"L([12]) (\d+) KiB")


def target_of(text: str, machine: Mapping[str, str], threads: int) -> Target | None:
    """The target that `str` wrote, on a machine with this fingerprint; None for one of another
    kind, or whose features only a compiler knows since it has no more than a processor's name."""
    kind, triple, mcpu, *features = (*text.split(), "", "")
    features = [f for f in features if f]
    if kind not in ("llvm", "c", "builtin") or not tells_width(features):
        return None
    caches = {
        int(level): int(size) << 10 for level, size in _LEVEL.findall(machine.get("caches", ""))
    }
    return Target(
        kind,
        triple,
        "" if mcpu == "generic" else mcpu,
        tuple(features),
        *vector_registers(triple, features),
        threads,
        caches.get(1, Target.l1_bytes),
        caches.get(2, Target.l2_bytes),
    )
