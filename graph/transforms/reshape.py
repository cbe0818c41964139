"""Views: workloads whose result lies in their input as it is, such as a reshape or a first row."""

from __future__ import annotations

import math
from collections.abc import Mapping

from loopwright.dsl.expr import Read
from loopwright.dsl.index import Affine, Index, Quotient
from loopwright.dsl.workload import Workload, defined, tensor_shape


def only_reshapes(workload: Workload) -> bool:
    """Return whether a workload is a reshape, or an axis of extent 1 more or less."""
    if len(workload.stages) != 1 or len(workload.inputs) != 1:
        return False
    (out,), (source,) = workload.stages, workload.inputs
    sizes = [math.prod(tensor_shape(t)) for t in (out, source)]
    return sizes[0] == sizes[1] and view_offset(workload) == 0


def view_offset(workload: Workload) -> int | None:
    """The number of elements before a result that is a part of the input without a gap, its
    elements in their order; None for any other workload."""
    if len(workload.stages) != 1 or len(workload.inputs) != 1:
        return None
    (out,), (source,) = workload.stages, workload.inputs
    definition = defined(out)
    body, shape = definition.body, tensor_shape(out)
    if definition.reducer is not None or not isinstance(body, Read):
        return None
    place, number = Affine((), 0), Affine((), 0)
    for form, extent in zip(body.index, tensor_shape(source)):
        place = place * extent + form
    for axis, extent in zip(definition.axes, shape):
        number = number * extent + axis
    extents = dict(zip(definition.axes, shape))
    apart = without_remainders(place - number, extents)
    return None if apart.terms else apart.const


def without_remainders(form: Affine, extents: Mapping[Index, int]) -> Affine:
    """An equal expression in quotients of indices alone, which are fewer where they cancel out.

    `(i // 6)*6 + (i // 2 % 3)*2 + i % 2  ↦  i`
    """
    total = Affine((), form.const)
    for atom, coefficient in form.terms:
        if isinstance(atom, Index):
            total += atom * (coefficient if extents[atom] > 1 else 0)
            continue
        value = without_remainders(atom.value, extents)
        quotient = _quotient(value, atom.divisor, extents)
        part = quotient if isinstance(atom, Quotient) else value - quotient * atom.divisor
        total += part * coefficient
    return total


def _quotient(value: Affine, divisor: int, extents: Mapping[Index, int]) -> Affine:
    """⌊value / divisor⌋, where a quotient of a quotient is one, and what changes nothing goes.

    `(4*i + j) // 8  ↦  i // 2`  for j < 4.
    """
    for factor in sorted({math.gcd(c, divisor) for _, c in value.terms}, reverse=True):
        rest = Affine(tuple(t for t in value.terms if t[1] % factor), value.const % factor)
        low, high = rest.bounds(extents)
        if factor > 1 and low >= 0 and high < factor:
            return _quotient((value - rest) // factor, divisor // factor, extents)
    for atom, coefficient in value.terms:
        if isinstance(atom, Quotient) and coefficient == 1:
            whole = (value - Affine(((atom, 1),), 0)) * atom.divisor + atom.value
            return _quotient(whole, atom.divisor * divisor, extents)
    low, high = value.bounds(extents)
    if low // divisor == high // divisor:
        return Affine((), low // divisor)
    whole = Affine.of(tuple((a, c // divisor) for a, c in value.terms), value.const // divisor)
    return whole + (value - whole * divisor) // divisor
