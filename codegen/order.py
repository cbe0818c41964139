"""Calls of the run-time's `lw_order`, which tells the places of a row's elements in order."""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.dsl.dtypes import item_bytes
from loopwright.schedule.tree.grammar import Buffer, Column, Linear, Loop, Var, flat
from loopwright.schedule.tree.parts import order_parts

KINDS = (
    *("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "bfloat16", "float32"),
    *("uint64", "int64", "float64"),
)
"""Types by the numbers that order.c has for them."""


def words(dtype: str) -> int:
    """Words of 8 bytes that a call needs for each element."""
    return 4 if item_bytes(dtype) == 8 else 2


@dataclass(frozen=True)
class Row:
    """A buffer that a call walks along: where it begins, and the step in elements."""

    buffer: Buffer
    index: tuple[Linear, ...]
    step: Column

    @staticmethod
    def of(buffer: Buffer, index: tuple[Linear, ...], along: Var) -> Row:
        """The accesses `buffer[index]` of a loop."""
        start = tuple(
            Linear(tuple((t, c) for t, c in p.terms if t is not along), p.const) for p in index
        )
        return Row(buffer, start, dict(flat(buffer, index).terms).get(along, 0))


@dataclass(frozen=True)
class OrderCall:
    """A call: the places that it writes and how many, and the elements that it reads. Between
    them it keeps items in an array of its own."""

    places: Row
    wanted: Column
    elements: Row
    extent: Column
    items: Buffer
    kind: int
    greatest: bool

    @staticmethod
    def of(loop: Loop) -> OrderCall:
        """The call that a loop of the tree is."""
        parts = order_parts(loop)
        assert parts is not None, loop
        along, store, load = parts
        size = along.extent * words(load.dtype)
        items = Buffer(f"{store.buffer.name}.items", (size,), "uint64", "heap")
        return OrderCall(
            Row.of(store.buffer, store.index, loop.var),
            loop.extent,
            Row.of(load.buffer, load.index, along.var),
            along.extent,
            items,
            KINDS.index(load.dtype),
            loop.kind == "greatest",
        )
