"""Printing of loop trees."""

from __future__ import annotations

import numpy as np

from loopwright.dsl import expr as e
from loopwright.dsl import show as notation
from loopwright.dsl.traversal import rebuild
from loopwright.schedule.tree import grammar as g

_MARKS = {
    "serial": "",
    "parallel": "parallel ",
    "unrolled": "unrolled ",
    "vectorized": "vector ",
    "block": "block ",
    "thread": "thread ",
    "greatest": "greatest ",
    "least": "least ",
}


def show(tree: g.Tree) -> str:
    """A loop tree as text; of a batch, each number that differs shows as `least…greatest`."""
    lines = []
    if tree.prepare:
        lines.append(_head("prepare", (*tree.constants, *tree.prepared)))
        lines += _block(tree.prepare, 1)
    lines.append(_head("main", (*tree.inputs, *tree.prepared, *tree.outputs)))
    lines += _block(tree.body, 1)
    return "\n".join(lines) + "\n"


def _head(name: str, arguments: tuple[g.Buffer, ...]) -> str:
    return f"{name}({', '.join(map(_buffer, arguments))}):"


def _block(body: tuple[g.Stmt, ...], depth: int) -> list[str]:
    pad, lines = "  " * depth, []
    for stmt in body:
        if isinstance(stmt, g.Loop):
            extent = _number(stmt.extent)
            if stmt.bound is not None:
                extent = f"min({extent}, {_linear(stmt.bound)})"
            head = f"{pad}{_MARKS[stmt.kind]}for {stmt.var} < {extent}"
            lines.append(f"{head}{'' if stmt.sparse is None else _where(stmt.sparse)}:")
            lines += _block(stmt.body, depth + 1)
        elif isinstance(stmt, g.Let):
            value = f"min({_linear(stmt.value)}, {_number(stmt.limit)})"
            lines.append(f"{pad}{stmt.var} = {value}")
        elif isinstance(stmt, g.Allocate):
            lines.append(f"{pad}{stmt.buffer.scope} {_buffer(stmt.buffer)}")
        elif isinstance(stmt, g.Store):
            place = _element(stmt.buffer, stmt.index)
            lines.append(f"{pad}{place} = {show_value(stmt.value)}")
        elif isinstance(stmt, g.Prefetch):
            lines.append(f"{pad}prefetch {_element(stmt.buffer, stmt.index)}")
        else:
            lines.append(pad + _gpu(stmt))
    return lines


def _where(sparse: g.Sparse) -> str:
    rows = "".join(f" for any {var} < {_number(count)}" for var, count in sparse.over)
    return f", {_element(sparse.load.buffer, sparse.load.index)} ≠ 0{rows}"


def _gpu(stmt: g.GpuStmt) -> str:
    if isinstance(stmt, g.Barrier):
        return "barrier"
    if isinstance(stmt, g.AsyncCommit):
        return "commit"
    if isinstance(stmt, g.AsyncWait):
        return f"wait for all but {_number(stmt.pending)}"
    if isinstance(stmt, g.AsyncCopy):
        source, count = _element(stmt.source, stmt.at), _number(stmt.count)
        return f"async {_element(stmt.buffer, stmt.index)} = {source} … {count} elements"
    tile = _element(stmt.tile, stmt.index)
    if isinstance(stmt, g.MatrixFill):
        return f"matrix {tile} = {stmt.value:g}"
    if isinstance(stmt, g.MatrixLoad):
        source = _element(stmt.source, stmt.at)
        return f"matrix {tile} = {source} … rows {stmt.rows}, columns {stmt.columns}"
    if isinstance(stmt, g.MatrixStore):
        target = _element(stmt.target, stmt.at)
        return f"matrix {target} … rows {stmt.rows}, columns {stmt.columns} = {tile}"
    left, right = _element(stmt.left, stmt.left_at), _element(stmt.right, stmt.right_at)
    return f"matrix {tile} += {left} @ {right}"


def _element(buffer: g.Buffer, index: tuple[g.Linear, ...]) -> str:
    return f"{buffer.name}[{', '.join(map(_linear, index))}]"


def show_value(x: e.Expr) -> str:
    """An element expression of a tree, printed by the notation's printer."""
    return notation.show_expr(_with_names(x))


def _with_names(x: e.Expr) -> e.Expr:
    if isinstance(x, (g.Load, g.Position)):
        return _named(x)
    if isinstance(x, e.Gather):
        at = ("-" if part is None else show_value(part) for part in x.at)
        return _Text(f"{_named(x.table)} at ({', '.join(at)})")
    return rebuild(x, _with_names)


class _Text(e.Expr):
    """A leaf that is already text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def _named(leaf: e.Expr) -> e.Expr:
    if isinstance(leaf, g.Load):
        text = _element(leaf.buffer, leaf.index)
        return _Text(f"clamped {text}" if leaf.clamped else text)
    assert isinstance(leaf, g.Position), leaf
    return _Text(_linear(leaf.value) if len(leaf.value.terms) <= 1 else f"({_linear(leaf.value)})")


def _buffer(b: g.Buffer) -> str:
    return f"{b.name}: {b.dtype}[{', '.join(map(_number, b.shape))}]"


def _linear(x: g.Linear) -> str:
    parts = []
    for term, coefficient in x.terms:
        if isinstance(term, g.Var):
            name = term.name
        else:
            sign = "//" if isinstance(term, g.Quotient) else "%"
            name = f"({_linear(term.value)}) {sign} {_number(term.divisor)}"
        one = not isinstance(coefficient, np.ndarray) and coefficient == 1
        parts.append(name if one else f"{_number(coefficient)}*{name}")
    if not parts or isinstance(x.const, np.ndarray) or x.const != 0:
        parts.append(_number(x.const))
    return " + ".join(parts)


def _number(value: g.Column) -> str:
    if isinstance(value, np.ndarray):
        low, high = int(value.min()), int(value.max())
        return str(low) if low == high else f"{low}…{high}"
    return str(value)
