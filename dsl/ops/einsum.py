"""Einsum strings: `einsum("bij,bjk->bik", A, B)` with NumPy's meaning, as definitions.

More than two operands become a chain of two-operand definitions in the order that opt_einsum
finds cheapest.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.dsl.dtypes import numpy_dtype
from loopwright.dsl.errors import NotationError, RangeError
from loopwright.dsl.expr import Expr, Reduce
from loopwright.dsl.functions import cast
from loopwright.dsl.index import Index
from loopwright.dsl.size import largest
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import brief

_OPTIMAL = 6  # operands up to which every order is tried: a few milliseconds


def einsum(spec: str, *tensors: Tensor) -> Tensor:
    """Multiply tensors and sum over indices, as `numpy.einsum` does.

    Parameters
    ----------
    spec: subscripts, e.g. "ij,jk->ik". Without "->" the result has the indices that occur once,
        in alphabetical order. "..." stands for any further axes, which broadcast. An index twice
        in one operand is its diagonal; an index that is absent in the result is summed; an axis
        of extent 1 broadcasts against the same index of another operand.
    tensors: one for each part between commas, of any number of axes and of dtypes that NumPy can
        promote to one that Loopwright has. Truth values multiply by "and" and add by "or".

    Returns
    -------
    The result as a new tensor, of shape () if no index is left.

    Raises `NotationError` for a spec that cannot be read or does not fit the tensors, and
    `RangeError` for extents that disagree.
    """
    if not isinstance(spec, str):
        raise NotationError(f"einsum: its first argument is {brief(spec)}; give a string, 'ij,jk'")
    equation = parse(spec)
    factors, result = _resolve(equation, tensors)
    dtype = _promote(spec, tensors)
    if len(factors) > 1 and not any(0 in f.shape for f in factors):
        factors = _sum_lone_indices(factors, result, dtype)
    *steps, last = _path(factors, result)
    for positions in steps:
        group = [factors[p] for p in positions]
        rest = [f for p, f in enumerate(factors) if p not in positions]
        wanted = {*result, *(label for f in rest for label in f.labels)}
        kept = tuple(label for label in _distinct(group) if label in wanted)
        factors = [*rest, _contract("einsum_step", group, kept, dtype)]
    out = _contract("einsum", [factors[p] for p in last], result, dtype).tensor
    out.operands = tensors
    return out


@dataclass(frozen=True)
class Subscripts:
    """The indices of an operand or of the result: `ab...c` has before "ab" and after "c"."""

    before: str
    after: str
    ellipsis: bool

    @property
    def letters(self) -> str:
        return self.before + self.after


@dataclass(frozen=True)
class Equation:
    """An einsum string, parsed; the output is there even if the string leaves it out."""

    spec: str
    operands: tuple[Subscripts, ...]
    result: Subscripts


@dataclass(frozen=True, eq=False)
class _Factor:
    """A tensor and a label for each axis of it: a letter, or e0, e1, … under the ellipsis."""

    tensor: Tensor
    labels: tuple[str, ...]
    first: int  # the number of the first operand in it, so that products keep their order

    @property
    def shape(self) -> tuple[int, ...]:
        assert self.tensor.shape is not None
        return self.tensor.shape


@functools.lru_cache(maxsize=1024)
def parse(spec: str) -> Equation:
    """Read an einsum string; `NotationError` says what is wrong with it and what is allowed."""
    left, arrow, right = spec.partition("->")
    operands = tuple(
        _parse_part(spec, part, f"operand {n}") for n, part in enumerate(left.split(","))
    )
    result = _parse_part(spec, right, "the output") if arrow else _implied(operands)
    _check_result(spec, operands, result)
    return Equation(spec, operands, result)


def _parse_part(spec: str, text: str, place: str) -> Subscripts:
    before, dots, after = text.partition("...")
    part = Subscripts(before.replace(" ", ""), after.replace(" ", ""), bool(dots))
    for character in part.letters:
        if not (character.isascii() and character.isalpha()):
            raise NotationError(
                f"einsum {spec!r}: {character!r} in {place} {text!r}; a part is made of letters "
                "and at most one '...', parts are divided by ',' and the output follows one '->'"
            )
    return part


def _implied(operands: tuple[Subscripts, ...]) -> Subscripts:
    letters = "".join(part.letters for part in operands)
    once = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return Subscripts("", once, any(part.ellipsis for part in operands))


def _check_result(spec: str, operands: tuple[Subscripts, ...], result: Subscripts) -> None:
    known = "".join(part.letters for part in operands)
    for letter in result.letters:
        if letter not in known:
            raise NotationError(
                f"einsum {spec!r}: index {letter!r} of the output is in no operand; the operands "
                f"have {', '.join(sorted(set(known))) or 'none'}"
            )
        if result.letters.count(letter) > 1:
            raise NotationError(
                f"einsum {spec!r}: index {letter!r} stands twice in the output; name it once"
            )


def _resolve(
    equation: Equation, tensors: Sequence[Tensor]
) -> tuple[list[_Factor], tuple[str, ...]]:
    """Label every axis of the operands and of the result, and check that the extents agree."""
    spec, parts = equation.spec, equation.operands
    if len(parts) != len(tensors):
        raise NotationError(
            f"einsum {spec!r} names {len(parts)} operands but is given {len(tensors)} tensors"
        )
    hidden = [_hidden_axes(spec, *pair) for pair in enumerate(zip(parts, tensors, strict=True))]
    width = max(hidden)
    factors = [
        _Factor(tensor, _labels(part, width, count), number)
        for number, (part, tensor, count) in enumerate(zip(parts, tensors, hidden, strict=True))
    ]
    _check_extents(spec, factors)
    if width and not equation.result.ellipsis:
        raise NotationError(
            f"einsum {spec!r}: '...' stands for {width} axes, which the output lacks; write '...' "
            "in the output too"
        )
    return factors, _labels(equation.result, width, width)


def _hidden_axes(spec: str, number: int, operand: tuple[Subscripts, Tensor]) -> int:
    """Number of axes of an operand that its ellipsis stands for."""
    part, tensor = operand
    if not isinstance(tensor, Tensor) or tensor.shape is None:
        raise NotationError(
            f"einsum {spec!r}: operand {number} is {brief(tensor)}; give a tensor that has a shape"
        )
    hidden = len(tensor.shape) - len(part.letters)
    if hidden < 0 or (hidden and not part.ellipsis):
        hint = "" if part.ellipsis or hidden < 0 else ", or write '...' for the rest"
        raise NotationError(
            f"einsum {spec!r}: operand {number} ({tensor.name}) has {len(tensor.shape)} axes, "
            f"shape {tensor.shape}, but {len(part.letters)} indices; name each axis{hint}"
        )
    return hidden


def _labels(part: Subscripts, width: int, hidden: int) -> tuple[str, ...]:
    """One label an axis; axes under an ellipsis align at the right, as in broadcasting."""
    dots = (f"e{d}" for d in range(width - hidden, width)) if part.ellipsis else ()
    return (*part.before, *dots, *part.after)


def _check_extents(spec: str, factors: list[_Factor]) -> None:
    """One index has one extent; only between different operands may it also be 1."""
    seen: dict[str, tuple[int, str]] = {}
    for number, factor in enumerate(factors):
        own: dict[str, tuple[int, str]] = {}
        for axis, (label, extent) in enumerate(zip(factor.labels, factor.shape, strict=True)):
            place = f"axis {axis} of operand {number} ({factor.tensor.name})"
            if own.setdefault(label, (extent, place))[0] != extent:
                raise _disagreement(spec, label, own[label], (extent, place), "equal")
            known = seen.get(label, (1, place))[0]
            if 1 not in (known, extent) and known != extent:
                rule = "equal, or one of them 1"
                raise _disagreement(spec, label, seen[label], (extent, place), rule)
            if known == 1:
                seen[label] = (extent, place)


def _disagreement(
    spec: str, label: str, one: tuple[int, str], two: tuple[int, str], rule: str
) -> RangeError:
    what = "an axis of '...'" if len(label) > 1 else f"index {label!r}"
    return RangeError(
        f"einsum {spec!r}: {what} has extent {one[0]} by {one[1]} but {two[0]} by {two[1]}; "
        f"the extents must be {rule}"
    )


def _promote(spec: str, tensors: Sequence[Tensor]) -> str:
    """The dtype that NumPy computes in, for operands of these dtypes."""
    found = ", ".join(f"{t.name} {t.dtype}" for t in tensors)
    try:
        return np.result_type(*(numpy_dtype(t.dtype) for t in tensors)).name
    except TypeError as error:
        raise NotationError(
            f"einsum {spec!r}: the dtypes ({found}) have no common type; lw.cast the operands"
        ) from error


def _sum_lone_indices(
    factors: list[_Factor], result: tuple[str, ...], dtype: str
) -> list[_Factor]:
    """Sum an index that one operand alone has before the product: i·j + i·k steps, not i·j·k."""
    done = []
    for factor in factors:
        wanted = {*result, *(label for f in factors if f is not factor for label in f.labels)}
        kept = tuple(label for label in _distinct([factor]) if label in wanted)
        lone = [
            n for label, n in zip(factor.labels, factor.shape, strict=True) if label not in kept
        ]
        # Extents of 1 are nothing to sum: the product takes them along.
        summed = math.prod(lone) > 1
        done.append(_contract("einsum_step", [factor], kept, dtype) if summed else factor)
    return done


def _path(factors: list[_Factor], result: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Contraction path: factors to multiply in each step; a product goes to the list's end."""
    if len(factors) <= 2 or any(0 in f.shape for f in factors):
        return [tuple(range(len(factors)))]
    import opt_einsum

    symbol = {label: opt_einsum.get_symbol(n) for n, label in enumerate(_distinct(factors))}
    parts = ["".join(symbol[label] for label in labels) for labels in (f.labels for f in factors)]
    text = f"{','.join(parts)}->{''.join(symbol[label] for label in result)}"
    effort = "optimal" if len(factors) <= _OPTIMAL else "auto"
    shapes = (tuple(map(largest, f.shape)) for f in factors)
    path, _ = opt_einsum.contract_path(text, *shapes, shapes=True, optimize=effort)
    return [tuple(step) for step in path]


def _contract(name: str, group: Sequence[_Factor], labels: tuple[str, ...], dtype: str) -> _Factor:
    """Multiply a group of factors and sum over every index that is not in `labels`."""
    group = sorted(group, key=lambda factor: factor.first)
    extents: dict[str, int] = {}
    for factor in group:
        for label, extent in zip(factor.labels, factor.shape, strict=True):
            extents[label] = extent if extent != 1 else extents.get(label, 1)
    indices = {label: Index(label, extent) for label, extent in extents.items()}
    reads = []
    for factor in group:
        pairs = zip(factor.labels, factor.shape, strict=True)
        read = factor.tensor[tuple(indices[a] if n == extents[a] else 0 for a, n in pairs)]
        reads.append(cast(read, dtype))
    axes = tuple(indices[label] for label in labels)
    out = Tensor(name)
    if dtype == "bool":
        summed = [extents[label] for label in extents if label not in labels]
        _define_bool(out, axes, reads, summed)
    else:
        out[axes] = Reduce("sum", functools.reduce(operator.mul, reads))
    return _Factor(out, labels, group[0].first)


def _define_bool(
    out: Tensor, axes: tuple[Index, ...], reads: list[Expr], summed: list[int]
) -> None:
    """Products are "and", sums are "or", which is the maximum of bytes 0 and 1; of none, false."""
    body = functools.reduce(operator.and_, reads)
    if summed:
        most = Tensor("einsum_or")
        most[axes] = Reduce("max" if all(summed) else "sum", cast(body, "uint8"))
        body = cast(most[axes], "bool")
    out[axes] = body


def _distinct(factors: Sequence[_Factor]) -> tuple[str, ...]:
    """The labels of some factors in order of first appearance."""
    return tuple(dict.fromkeys(label for f in factors for label in f.labels))
