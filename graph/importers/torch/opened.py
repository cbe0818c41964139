"""Functions of torch that torch.export traces for one size alone, as others that have any."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from loopwright.graph.importers.torch.recurrences import whole_recurrences


def for_all_sizes() -> Any:
    """A mode of torch in which these functions are replaced."""
    import torch

    functions = _replaced()

    class ForAllSizes(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return functions.get(func, func)(*args, **(kwargs or {}))

    return ForAllSizes()


@functools.cache
def _replaced() -> Mapping[Any, Callable[..., Any]]:
    """What each function is traced as."""
    import torch
    import torch.nn.functional as F  # noqa: N812

    return {
        torch.cdist: _distances,
        torch.linspace: _linspace,
        **{
            pool: functools.partial(_adaptive_pool, pool, rank, is_mean)
            for is_mean, pools in (
                (True, (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)),
                (False, (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)),
            )
            for rank, pool in enumerate(pools, 1)
        },
        **whole_recurrences(),
    }


def _linspace(start: Any, end: Any, steps: Any, *, dtype: Any = None, **options: Any) -> Any:
    """Numbers at equal distances, counted from the nearer end, as torch does."""
    import torch

    dtype = torch.get_default_dtype() if dtype is None else dtype
    if isinstance(steps, int) or dtype not in (torch.float32, torch.float64):
        return torch.linspace(start, end, steps, dtype=dtype, **options)
    ahead = torch.arange(steps, dtype=dtype)
    back = ahead.flip(0)
    step = (end - start) / (ahead + back).clamp(min=1)
    return torch.where(ahead <= back, start + step * ahead, end - step * back)


def _distances(x: Any, y: Any, p: float = 2.0, compute_mode: Any = None) -> Any:
    """The distances of all pairs of rows, in one way for any number of rows: torch takes products
    of matrices where there are many."""
    import torch

    return torch.cdist(x, y, p, "donot_use_mm_for_euclid_dist")


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
    is_open = any(not isinstance(n, int) for n in x.shape[-rank:])
    if return_indices or not is_open or all(count in (1, None) for count in counts):
        return function(x, output_size, *([True] if return_indices else []))
    for axis, count in enumerate(counts, -rank):
        if count is not None:
            x = _pooled(x, axis, count, is_mean)
    return x


def _pooled(x: Any, axis: int, count: Any, is_mean: bool) -> Any:
    """`count` windows along an axis, of which neighbors may overlap in an element."""
    import torch

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
