"""Operators on complex numbers that the exporter lacks, by their real and imaginary parts."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from loopwright.packages import aten, torch


def has_complexes(program: Any) -> bool:
    """Return whether a program has one of these operators, on complex numbers."""
    table = complexes()
    values = (n.meta.get("val") for n in program.graph.nodes)
    if not any(_is_complex(x) for x in values):
        return False
    return any(node.target in table or _writes(node) for node in program.graph.nodes)


def complexes() -> dict[Any, Callable[..., Any]]:
    """What makes these operators of others, by torch's operator; `NotImplemented` of real ones."""
    names = (
        *("copy", "cumsum", "expand", "gather", "index_select", "repeat", "select_scatter"),
        *("slice_scatter", "split_with_sizes", "unsqueeze", "zeros_like"),
    )
    linear = (
        *(getattr(aten, name).default for name in names),
        *(aten.index.Tensor, aten.select.int, aten.split.Tensor, aten.where.self),
    )
    return {
        **{each: functools.partial(_by_parts, each) for each in linear},
        aten.bmm.default: lambda x, y: _einsum("bij,bjk->bik", (x, y)),
        aten.einsum.default: _einsum,
        aten.exp.default: _exponential,
        aten.full.default: _filled,
        aten.log.default: _logarithm,
        aten.mm.default: lambda x, y: _einsum("ij,jk->ik", (x, y)),
        aten.pad.default: _padded,
        aten.pow.Tensor_Scalar: _power,
        aten.sqrt.default: lambda x: _power(x, 0.5),
        aten.zeros.default: _filled,
    }


def _writes(node: Any) -> bool:
    """Return whether an operator writes to a tensor, which a scatter takes the place of."""
    return str(node.target).startswith("aten.copy_")


def _is_complex(x: Any) -> bool:
    return "complex" in str(getattr(x, "dtype", ""))


def _by_parts(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A function that computes with both parts alike."""
    if not any(map(_is_complex, args)) or options.get("dtype") is not None:
        return NotImplemented

    def part(number: int) -> Any:
        own = (_part(x, number) if hasattr(x, "is_floating_point") else x for x in args)
        return function(*own, **options)

    real, imaginary = part(0), part(1)
    if isinstance(real, (list, tuple)):
        return [torch.complex(*both) for both in zip(real, imaginary)]
    return torch.complex(real, imaginary)


def _part(x: Any, number: int) -> Any:
    """The real part of a tensor, or the imaginary one, 0 of real numbers; indices stay."""
    if _is_complex(x):
        return x.imag if number else x.real
    return x.new_zeros(()).expand(x.shape) if number and x.is_floating_point() else x


def _einsum(equation: str, tensors: Sequence[Any], path: Any = None) -> Any:
    """A sum of products: a product of parts counts as many times i as imaginary ones are in it."""
    if not any(map(_is_complex, tensors)):
        return NotImplemented
    sums: list[Any] = [None, None]
    for numbers in itertools.product(*((0, 1) if _is_complex(x) else (0,) for x in tensors)):
        term = torch.einsum(equation, *map(_part, tensors, numbers))
        turns = sum(numbers)
        term, before = -term if turns % 4 > 1 else term, sums[turns % 2]
        sums[turns % 2] = term if before is None else before + term
    return torch.complex(*sums)


def _exponential(x: Any) -> Any:
    if not _is_complex(x):
        return NotImplemented
    size = torch.exp(x.real)
    return torch.complex(size * torch.cos(x.imag), size * torch.sin(x.imag))


def _logarithm(x: Any) -> Any:
    return torch.complex(x.abs().log(), x.angle()) if _is_complex(x) else NotImplemented


def _power(x: Any, exponent: float) -> Any:
    """A power with a real exponent, by the size and the angle; a square is a product."""
    if not _is_complex(x) or isinstance(exponent, complex):
        return NotImplemented
    if exponent == 2:
        return x * x
    size, angle = x.abs() ** exponent, x.angle() * exponent
    return torch.complex(size * torch.cos(angle), size * torch.sin(angle))


def _filled(shape: Any, number: complex = 0, *, dtype: Any = None, **_: Any) -> Any:
    """A tensor of one number."""
    if dtype is None and isinstance(number, complex):
        dtype = torch.get_default_dtype().to_complex()
    if dtype is None or not dtype.is_complex:
        return NotImplemented
    number, own = complex(number), dtype.to_real()
    return torch.complex(*(torch.full(shape, x, dtype=own) for x in (number.real, number.imag)))


def _padded(x: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    import torch

    if not _is_complex(x):
        return NotImplemented
    return torch.complex(
        aten.pad.default(x.real, pad, mode, value), aten.pad.default(x.imag, pad, mode)
    )
