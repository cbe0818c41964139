"""Sums over windows that ONNX counts, or whose axes it orders, otherwise; windows of signals."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.torch.operators.parts import op, own, scaled, whole
from loopwright.packages import aten, torch


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes ONNX operators of a call, by torch's operator."""
    return {
        aten.avg_pool2d.default: _mean_pool(2),
        aten.avg_pool3d.default: _mean_pool(3),
        aten.col2im.default: _of_batches("aten_col2im", 3),
        aten.conv_tbc.default: _convolution_of_times,
        aten.im2col.default: _of_batches("aten_im2col", 4),
    }


def replaced() -> dict[Any, Callable[..., Any]]:
    """What takes the place of torch's windows and frequencies while a program is traced."""
    made = (
        torch.bartlett_window,
        torch.fft.fftfreq,
        torch.fft.rfftfreq,
        torch.hamming_window,
        torch.kaiser_window,
    )
    return {each: functools.partial(_known, each) for each in made}


def _known(window: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Numbers that are known before a call: ONNX lacks some, and has others of few options."""
    from torch.utils._python_dispatch import _disable_current_modes

    count = args[0] if args else options.get("n", options.get("window_length"))
    if not isinstance(count, int):
        return window(*args, **options)
    with _disable_current_modes():
        numbers = window(*args, **options)
        dtype, numbers = numbers.dtype, numbers.tolist()
    return torch.tensor(numbers, dtype=dtype)


def _mean_pool(rank: int) -> Callable[..., Any]:
    """A mean of each window. Torch may be told what to divide its sum by, which ONNX is not."""

    def pooled(
        x: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        if divisor_override is None:
            exporters = own(f"aten_avg_pool{rank}d")
            return exporters(x, kernel_size, stride, padding, ceil_mode, count_include_pad)
        kernel, pads = _of_axes(kernel_size, rank), _of_axes(padding, rank)
        steps = _of_axes(stride, rank) or kernel
        if ceil_mode and not all(isinstance(n, int) for n in x.shape[-rank:]):
            raise ModelError(
                f"avg_pool{rank}d with a divisor_override and ceil_mode is read where the image "
                "is of fixed size: leave ceil_mode out, or fix the size"
            )
        still = [0] * (len(x.shape) - rank)
        last = list(pads)
        if ceil_mode:  # zeros for windows that end behind the image
            axes = zip(x.shape[-rank:], kernel, steps, pads)
            more = [(k - n - 2 * p) % s for n, k, s, p in axes]
            # No window begins behind them.
            last = [p + (e if p + e < k else 0) for e, k, p in zip(more, kernel, pads)]
        wide = op.Pad(x, whole(*still, *pads, *still, *last))
        batched = wide if len(still) > 1 else op.Unsqueeze(wide, whole(0))
        mean = op.AveragePool(batched, kernel_shape=kernel, strides=steps)
        mean = mean if len(still) > 1 else op.Squeeze(mean, whole(0))
        return scaled(mean, math.prod(kernel) / divisor_override)

    return pooled


def _of_axes(numbers: Sequence[int] | int, rank: int) -> list[int]:
    """A number for each axis, of which torch may give one for all."""
    given = [numbers] if isinstance(numbers, int) else list(numbers)
    return given * rank if len(given) == 1 else given


def _convolution_of_times(x: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
    """A convolution over the first axis of (time, batch, channels)."""
    image, filters = op.Transpose(x, perm=[1, 2, 0]), op.Transpose(weight, perm=[2, 1, 0])
    return op.Transpose(op.Conv(image, filters, bias, pads=[pad, pad]), perm=[2, 0, 1])


def _of_batches(name: str, rank: int) -> Callable[..., Any]:
    """The exporter's function of a name for so many axes, the first of which may be left out."""

    def made(x: Any, *args: Any, **options: Any) -> Any:
        if len(x.shape) == rank:
            return own(name)(x, *args, **options)
        batch = op.Unsqueeze(x, whole(0))
        batch.dtype, batch.shape = x.dtype, type(x.shape)([1, *x.shape])
        return op.Squeeze(own(name)(batch, *args, **options), whole(0))

    return made
