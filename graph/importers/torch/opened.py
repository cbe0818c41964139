"""Functions of torch that torch.export traces for one size alone, as others that have any."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.torch.operators import experts, masks, statistics, windows
from loopwright.graph.importers.torch.operators.paddings import padded
from loopwright.graph.importers.torch.recurrences import step_by_step, whole_recurrences
from loopwright.packages import functional, torch

_OF_BAGS = 2
"""Axes of indices that come in bags of one length."""


def for_all_sizes() -> Any:
    """A mode of torch in which these functions are replaced."""
    own: dict[Any, Callable[..., Any]] = {
        torch.cdist: _distances,
        torch.linspace: _linspace,
        functional.embedding_bag: _embedding_bag,
        torch.max_pool1d: _max_pool1d,
        functional.max_pool1d: _max_pool1d,
        functional.pad: padded,
        torch.chunk: _chunk,
        torch.Tensor.chunk: _chunk,
        **dict.fromkeys((torch.split, torch.Tensor.split), _split),
        **dict.fromkeys((torch.unbind, torch.Tensor.unbind, torch.Tensor.__iter__), _unbind),
        torch.tensor_split: _tensor_split,
        torch.Tensor.tensor_split: _tensor_split,
    }
    return _mode({**own, **_at_any_size(), **whole_recurrences()})


def for_fixed_sizes() -> Any:
    """A mode of torch in which functions are replaced that its exporter has not."""
    return _mode({**_at_any_size(), **step_by_step()})


@contextmanager
def layouts_unasked() -> Iterator[None]:
    """Have torch ask for no layout of a convolution's result. It does so by sizes, and takes one
    of 1, as of one image or of its last pixel, for another than all others."""
    names = ("_select_conv_backend", "_conv_determine_backend_memory_format")
    whole = {n: getattr(torch._C, n) for n in names if hasattr(torch._C, n)}
    for name in whole:
        setattr(torch._C, name, lambda *given, **options: None)
    try:
        yield
    finally:
        for name, own in whole.items():
            setattr(torch._C, name, own)


@contextmanager
def masks_as_given() -> Iterator[None]:
    """Have layers of transformers take a mask as it is. Whether it is a causal one, which they
    read its elements for, changes no result."""
    from torch.nn.modules import transformer

    name = "_detect_is_causal_mask"
    whole = getattr(transformer, name, None)  # None in another version of torch
    if whole is not None:
        setattr(transformer, name, lambda mask, is_causal=None, size=None: is_causal is True)
    try:
        yield
    finally:
        if whole is not None:
            setattr(transformer, name, whole)


def _mode(functions: Mapping[Any, Callable[..., Any]]) -> Any:
    class Replacing(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return functions.get(func, func)(*args, **(kwargs or {}))

    return Replacing()


def _at_any_size() -> Mapping[Any, Callable[..., Any]]:
    own = {functional.affine_grid: _affine_grid, **_pools(), **experts.replaced()}
    return {**own, **masks.replaced(), **statistics.replaced(), **windows.replaced()}


def _pools() -> Mapping[Any, Callable[..., Any]]:
    """What each adaptive pool is traced as."""
    found: dict[Any, Callable[..., Any]] = {}
    for rank in (1, 2, 3):
        mean, most = (
            getattr(functional, f"adaptive_{kind}_pool{rank}d") for kind in ("avg", "max")
        )
        found[mean] = functools.partial(_adaptive_pool, mean, rank, True)
        found[most] = functools.partial(_adaptive_pool, most, rank, False)
        placed = getattr(functional, f"adaptive_max_pool{rank}d_with_indices")
        found[placed] = functools.partial(_placed_pool, found[most])
    return found


def _placed_pool(pool: Callable[..., Any], x: Any, output_size: Any, *_: Any, **__: Any) -> Any:
    """The greatest elements and their places, whatever the flag that says so is here."""
    return pool(x, output_size, return_indices=True)


def _linspace(start: Any, end: Any, steps: Any, *, dtype: Any = None, **options: Any) -> Any:
    """Numbers at equal distances, counted from the nearer end, as torch does."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if isinstance(steps, int) or dtype not in (torch.float32, torch.float64):
        return torch.linspace(start, end, steps, dtype=dtype, **options)
    ahead = torch.arange(steps, dtype=dtype)
    back = ahead.flip(0)
    step = (end - start) / (ahead + back).clamp(min=1)
    return torch.where(ahead <= back, start + step * ahead, end - step * back)


def _affine_grid(theta: Any, size: Sequence[Any], align_corners: bool | None = None) -> Any:
    """Places in an image, from -1 to 1 along each axis, turned and moved by a matrix. Torch traces
    an axis of one place as a change in place."""
    if all(isinstance(n, int) and n > 1 for n in size[2:]):
        return functional.affine_grid(theta, size, align_corners)
    spatial = size[2:]
    own = theta.reshape(theta.shape[0], *(1,) * len(spatial), *theta.shape[1:])
    grid = own[..., -1]
    for axis, n in enumerate(spatial):
        ahead = torch.arange(n, dtype=theta.dtype)
        back = ahead.flip(0)
        place = (ahead - back) / (ahead + back + (not align_corners)).clamp(min=1)
        behind = (1,) * (len(spatial) - axis)
        grid = grid + own[..., -2 - axis] * place.reshape(n, *behind)
    return grid


def _embedding_bag(input: Any, weight: Any, offsets: Any = None, **words: Any) -> Any:
    """The sum, mean or maximum of as many rows in each bag; others as torch has them."""
    mode, scales = words.get("mode", "mean"), words.get("per_sample_weights")
    changing = any(words.get(name) is not None for name in ("max_norm", "padding_idx"))
    if input.ndim != _OF_BAGS or offsets is not None or changing:
        return functional.embedding_bag(input, weight, offsets, **words)
    rows = functional.embedding(input, weight)
    rows = rows if scales is None else rows * scales.unsqueeze(-1)
    return rows.amax(1) if mode == "max" else getattr(rows, mode)(1)


def _distances(x: Any, y: Any, p: float = 2.0, compute_mode: Any = None) -> Any:
    """The distances of all pairs of rows, in one way for any number of rows: torch takes products
    of matrices where there are many."""
    return torch.cdist(x, y, p, "donot_use_mm_for_euclid_dist")


def _chunk(x: Any, chunks: Any, dim: int = 0) -> Any:
    """So many parts of an axis as are asked for. Torch makes fewer at some sizes, which the error
    names."""
    n = x.shape[dim]
    if isinstance(n, int) or not isinstance(chunks, int):
        return torch.chunk(x, chunks, dim)
    size = (n + chunks - 1) // chunks
    torch._check((chunks - 1) * size < n)
    return _parts(x, dim, [size * k for k in range(chunks)])


def _split(x: Any, split_size_or_sections: Any = None, dim: int = 0, **words: Any) -> Any:
    """Parts of a known size: there must be as many at all sizes of the axis."""
    size, n = words.get("split_size", split_size_or_sections), x.shape[dim]
    if isinstance(n, int) or not isinstance(size, int):
        return x.split(size, dim)
    count = _known_count(f"split({size}, {dim})", (n + size - 1) // size)
    return _parts(x, dim, [size * k for k in range(count)])


def _unbind(x: Any, dim: int = 0) -> Any:
    """All parts along an axis, of which there must be as many at all sizes."""
    _known_count(f"unbind({dim}), or a loop in Python,", x.shape[dim])
    return x.unbind(dim)


def _known_count(what: str, count: Any) -> int:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if isinstance(count, int):
        return count
    known = int(count.node.hint)
    if not statically_known_true(count == known):
        raise ModelError(
            f"{what} of an open axis gives another number of parts at each size: use operators of "
            "whole tensors, chunk or tensor_split, which give a known number, or fix the size"
        )
    return known


def _tensor_split(x: Any, indices_or_sections: Any, dim: int = 0) -> Any:
    """Parts of an axis, the first ones longer by an element where the size is no multiple."""
    n, count = x.shape[dim], indices_or_sections
    if isinstance(n, int) or not isinstance(count, int):
        return torch.tensor_split(x, count, dim)
    sizes = [(n - k + count - 1) // count for k in range(count)]
    return _parts(x, dim, [sum(sizes[:k]) for k in range(count)])


def _parts(x: Any, dim: int, starts: Sequence[Any]) -> Any:
    """The parts of an axis that begin at these places."""
    ends = (*starts[1:], x.shape[dim])
    return tuple(x.narrow(dim, start, end - start) for start, end in zip(starts, ends))


def _max_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """A pool over one axis as one over two, of which torch counts the windows at any size."""

    def pair(before: int, n: Any) -> tuple[int, int]:
        return before, n[0] if hasattr(n, "__len__") else n

    steps = pair(1, kernel_size if stride is None or stride == () else stride)
    window = pair(1, kernel_size), steps, pair(0, padding), pair(1, dilation)
    made = functional.max_pool2d(x.unsqueeze(-2), *window, ceil_mode, return_indices)
    return tuple(y.squeeze(-2) for y in made) if return_indices else made.squeeze(-2)


def _adaptive_pool(
    function: Callable[..., Any],
    rank: int,
    is_mean: bool,
    x: Any,
    output_size: Any,
    return_indices: bool = False,
) -> Any:
    """A pool to a number of windows: torch takes each apart by its place."""
    counts = list(output_size) if hasattr(output_size, "__len__") else [output_size] * rank
    pairs = [(n, m) for n, m in zip(x.shape[-rank:], counts, strict=True) if m is not None]
    if all(isinstance(n, int) for n in (*x.shape[-rank:], *counts) if n is not None):
        if (is_mean and rank < 3) or all(n % m == 0 for n, m in pairs):
            return function(x, output_size, *([True] if return_indices else []))
    if return_indices:
        raise ModelError(
            f"an adaptive_max_pool{rank}d with return_indices is read where each axis is of fixed "
            "size, and all windows have as many elements: leave return_indices out, or give other "
            "sizes"
        )
    windows = dict(enumerate(counts, -rank))
    if whole := [axis for axis, count in windows.items() if isinstance(count, int) and count == 1]:
        x = x.mean(whole, True) if is_mean else x.amax(whole, True)
    for axis, count in windows.items():
        if axis not in whole and count is not None:
            x = _pooled(x, axis, count, is_mean)
    return x


def _pooled(x: Any, axis: int, count: Any, is_mean: bool) -> Any:
    """`count` windows along an axis, of which neighbors may overlap in an element."""
    size, behind = x.shape[axis], (1,) * (-1 - axis)
    window, place = torch.arange(count)[:, None], torch.arange(size)
    length = place + place.flip(0) + 1  # the size, in each place
    # From window * length / count, rounded down, to that of the next window, rounded up.
    inside = ((place + 1) * count > window * length) & (place * count < (window + 1) * length)
    mask = inside.reshape(count, size, *behind)
    taken = torch.where(mask, x.unsqueeze(axis - 1), 0.0 if is_mean else -math.inf)
    if not is_mean:
        return taken.amax(axis)
    return taken.sum(axis) / inside.sum(1).reshape(count, *behind)
