"""From a workload to its nests, what pays of them inlined and fused."""

from __future__ import annotations

from loopwright.dsl.expr import DIVISIONS, FLOAT_ONLY, Binary, Select, Unary
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import walk
from loopwright.dsl.workload import Workload
from loopwright.schedule.program.canonical import Program, drop_units
from loopwright.schedule.program.footprint import indices
from loopwright.schedule.program.fusion import can_inline, fuse_epilogue, inline
from loopwright.schedule.program.heuristics import PROGRAM
from loopwright.schedule.program.nest import Nest, extent, leaves, nests, scan_of
from loopwright.schedule.program.padding import is_padding
from loopwright.schedule.program.polyphase import is_spread


def combined(workload: Workload, fills: bool = False) -> Program:
    """The nests of a workload, producers and consumers fused; with `fills`, a padding of no
    elements stays a nest as any other."""
    program = tuple(drop_units(nest) for nest in nests(workload))
    return _fuse_all(_inline_all(program, workload.outputs, fills), workload.outputs)


def _inline_all(program: Program, outputs: tuple[Tensor, ...], fills: bool) -> Program:
    """From the last producer to the first, so that a chain ends in one nest in one pass."""
    for nest in reversed(program):
        if nest.out not in outputs and can_inline(program, nest):
            current = next(n for n in program if n.out is nest.out)
            if not (fills and is_padding(current)) and _pays(program, current):
                program = inline(program, current)
    return program


def _pays(program: Program, producer: Nest) -> bool:
    """Inline what costs nothing to recompute, and what is computed once either way."""
    if any(leaves(r, producer.extents) for r in producer.reads()):
        return False  # a predicate that cannot be dropped would stand in the innermost loop
    if not any(isinstance(x, (Unary, Binary, Select)) for x in walk(producer.body)):
        return True
    uses = [(n, r) for n in program for r in n.reads() if r.tensor is producer.out]
    if (
        len(uses) != 1
        or sum(1 for x in (uses[0][0].body, producer.body) for _ in walk(x))
        > PROGRAM.expression_nodes
    ):
        return False
    consumer, read = uses[0]
    if consumer.reducer is not None and is_spread(producer):
        return False  # `skip_zeros` does better
    again = set(consumer.extents)
    scan = scan_of(consumer)
    if scan is not None and extent(scan.axis) > PROGRAM.window_elements and _is_cheap(producer):
        again.remove(scan.axis)  # one loop along it reads each element once
    return again <= indices(read)


def _is_cheap(producer: Nest) -> bool:
    """Return whether an element takes no more than a few cycles where there are no vectors."""
    parts = (x for x in walk(producer.body) if isinstance(x, (Unary, Binary)))
    return all(x.op not in (*FLOAT_ONLY, *DIVISIONS, "pow") for x in parts)


def _fuse_all(program: Program, outputs: tuple[Tensor, ...]) -> Program:
    for producer in program:
        if producer.out in outputs or producer.reducer is None:
            continue
        readers = [n for n in program if any(r.tensor is producer.out for r in n.reads())]
        fused = fuse_epilogue(producer, readers[0]) if len(readers) == 1 else None
        if fused is not None:
            kept = (n for n in program if n is not producer)
            program = tuple(fused if n is readers[0] else n for n in kept)
    return program
