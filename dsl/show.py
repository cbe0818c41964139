"""Printing of definitions, in the way that papers write them."""

from __future__ import annotations

from loopwright.dsl import expr as e
from loopwright.dsl.tensor import Definition, Tensor

_LEVELS = [  # Python's, loosest first
    tuple(e.COMPARISONS),
    ("or",),
    ("xor",),
    ("and",),
    ("shl", "shr"),
    ("add", "sub"),
    ("mul", "div", "floordiv", "mod"),
]
_PRECEDENCE = {op: level for level, ops in enumerate(_LEVELS) for op in ops}
_SIGNS = {**e.ARITHMETIC, **e.COMPARISONS, **e.BITWISE}
_TIGHT = 9


def show_tensor(tensor: Tensor) -> str:
    """An input: `A: float32[1024, 512]`."""
    kind = " constant" if tensor.constant else ""
    return f"{tensor.name}: {tensor.dtype}{list(tensor.shape or ())}{kind}"


def show_definition(tensor: Tensor, d: Definition) -> str:
    """A definition and its ranges: `C[i, j] += A[i, k] * B[k, j]    i < 4, j < 8, k < 2`."""
    left = f"{tensor.name}[{', '.join(i.name for i in d.axes)}]"
    right = show_expr(d.body)
    if d.reducer == "sum":
        text = f"{left} += {right}"
    else:
        text = f"{left} = {f'{d.reducer}({right})' if d.reducer else right}"
    ranges = ", ".join(f"{i.name} < {i.extent}" for i in (*d.axes, *d.reduce))
    return f"{text}    {ranges}".rstrip()


def show_expr(x: e.Expr, level: int = 0) -> str:
    """An expression with no more parentheses than it needs."""
    if isinstance(x, e.Const):
        return str(x.value)
    if isinstance(x, e.Extent):
        return str(x.size) if x.size.form.plain() or level <= 1 else f"({x.size})"
    if isinstance(x, e.Read):
        return f"{x.tensor.name}[{', '.join(map(str, x.index))}]"
    if isinstance(x, e.Gather):
        pairs = zip(x.table.index, x.at, strict=True)
        places = (str(p) if at is None else show_expr(at) for p, at in pairs)
        return f"{x.table.tensor.name}[{', '.join(places)}]"
    if isinstance(x, e.IndexValue):
        tight = x.value.plain() or not x.value.terms or level <= 1
        return str(x.value) if tight else f"({x.value})"
    if isinstance(x, e.Unary):
        sign = {"neg": "-", "not": "~"}.get(x.op)
        return f"{sign}{show_expr(x.x, _TIGHT)}" if sign else f"{x.op}({show_expr(x.x)})"
    if isinstance(x, e.Select):
        return f"where({show_expr(x.cond)}, {show_expr(x.x)}, {show_expr(x.y)})"
    if isinstance(x, e.Cast):
        return f"{x.type}({show_expr(x.x)})"
    if isinstance(x, e.Reduce):
        return f"{x.op}({show_expr(x.x)})"
    if not isinstance(x, e.Binary):
        return str(x)  # a leaf of the loop tree
    if x.op not in _SIGNS:
        return f"{x.op}({show_expr(x.x)}, {show_expr(x.y)})"
    own = _PRECEDENCE[x.op]
    left = own + (x.op in e.COMPARISONS)  # Python chains comparisons
    text = f"{show_expr(x.x, left)} {_SIGNS[x.op]} {show_expr(x.y, own + 1)}"
    return f"({text})" if own < level else text


e.Expr.shown = show_expr
