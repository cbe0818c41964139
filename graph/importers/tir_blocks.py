"""The blocks of a TIR function that has not been scheduled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from loopwright.dsl.index import Index
from loopwright.graph.errors import UnsupportedOperator


@dataclass(frozen=True, eq=False)
class Block:
    """One block: what it computes at every point of its `indices`, one for each block variable, of
    which `reduce` are reduced over."""

    name: str
    indices: dict[Any, Index]
    reduce: tuple[Index, ...]
    body: Any
    init: Any

    @property
    def reduces(self) -> bool:
        """Return whether anything is reduced over."""
        return bool(self.reduce)


def blocks_of(func: Any) -> tuple[list[Any], list[Block]]:
    """The buffers that a function allocates, and its blocks in order."""
    body = func.body
    if not isinstance(body, s_tir.SBlockRealize):
        raise UnsupportedOperator("it has no blocks: it is lowered already, or written by hand")
    root = body.block
    if len(root.iter_vars) or root.init is not None:
        return [], [_block(body, {})]
    return list(root.alloc_buffers), list(_walk(root.body, {}))


def extent(value: Any) -> int:
    """A fixed extent; `UnsupportedOperator` for one that is known at run time only."""
    if not isinstance(value, tirx.IntImm):
        raise UnsupportedOperator(f"the extent {value} is not fixed")
    return int(value)


def stores_of(body: Any) -> tuple[dict[Any, Any], list[Any]]:
    """The names that a block's body gives to values, and its stores."""
    lets: dict[Any, Any] = {}
    stores: list[Any] = []
    for stmt in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        if isinstance(stmt, tirx.Bind):
            lets[stmt.var] = stmt.value
        elif isinstance(stmt, tirx.BufferStore):
            stores.append(stmt)
        else:
            raise UnsupportedOperator(f"a block has the statement {type(stmt).__name__}")
    return lets, stores


def _walk(stmt: Any, loops: dict[Any, int]) -> Iterator[Block]:
    if isinstance(stmt, tirx.SeqStmt):
        for each in stmt.seq:
            yield from _walk(each, loops)
    elif isinstance(stmt, tirx.For):
        if stmt.kind != tirx.ForKind.SERIAL or extent(stmt.min):
            raise UnsupportedOperator(
                "a loop is not serial: it is scheduled already, or made by hand"
            )
        yield from _walk(stmt.body, {**loops, stmt.loop_var: extent(stmt.extent)})
    elif isinstance(stmt, s_tir.SBlockRealize):
        yield _block(stmt, loops)
    else:
        raise UnsupportedOperator(f"it has the statement {type(stmt).__name__} outside of blocks")


def _block(realize: Any, loops: dict[Any, int]) -> Block:
    """A block whose variables are the loops around it, each one once and whole."""
    block = realize.block
    name = str(block.name_hint)
    if not isinstance(realize.predicate, tirx.IntImm) or len(block.alloc_buffers):
        raise UnsupportedOperator(f"block {name} is scheduled already")
    left = dict(loops)
    indices: dict[Any, Index] = {}
    reduce: list[Index] = []
    for number, (var, value) in enumerate(zip(block.iter_vars, realize.iter_values)):
        size = extent(var.dom.extent)
        bound = value in left if isinstance(value, tirx.Var) else size == 1
        if not bound or (isinstance(value, tirx.Var) and left.pop(value) != size):
            raise UnsupportedOperator(f"block {name} is scheduled already: {var.var} is {value}")
        index = Index(f"{'r' if var.iter_type == tirx.IterVar.CommReduce else 'i'}{number}", size)
        indices[var.var] = index
        if var.iter_type == tirx.IterVar.CommReduce:
            reduce.append(index)
        elif var.iter_type != tirx.IterVar.DataPar:
            raise UnsupportedOperator(f"block {name} has an ordered axis, {var.var}")
    if any(size > 1 for size in left.values()):
        raise UnsupportedOperator(f"block {name} runs several times")
    return Block(name, indices, tuple(reduce), block.body, block.init)
