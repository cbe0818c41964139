"""`Row`: one workload of the tables, named as the command line names workloads."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

import loopwright as lw
from loopwright.cli.workload import Request, read_workload
from loopwright.dsl.index import Index
from loopwright.dsl.oracle import random_inputs
from loopwright.dsl.workload import tensor_shape

Arrays = dict[str, np.ndarray]
LAST = {
    "conv2d": {"x": (0, 2, 3, 1), "w": (2, 3, 1, 0)},
    "depthwise_conv2d": {"x": (0, 2, 3, 1), "w": (2, 3, 1, 0)},
    "conv2d_transpose": {"x": (0, 2, 3, 1), "w": (2, 3, 0, 1)},
    "max_pool2d": {"x": (0, 2, 3, 1)},
    "avg_pool2d": {"x": (0, 2, 3, 1)},
    "global_avg_pool2d": {"x": (0, 2, 3, 1)},
}
"""Operators that have a layout with channels last, and the order of their inputs' axes in it."""
_OURS = (_RESULT, _THEN) = ("result=", "then=")


@dataclass(frozen=True)
class Row:
    """`loopwright tune WHAT SETTINGS` tunes the same. Weights are constant, activations not. Two
    settings are ours: with `result=DTYPE` the result is cast, and `then=FUNCTION,...` applies
    element-wise functions to it, one after the other."""

    name: str
    suite: str
    what: str
    settings: tuple[str, ...]

    @functools.cached_property
    def request(self) -> Request:
        found = read_workload(self.what, [s for s in self.settings if not s.startswith(_OURS)])
        work = found.workload
        for setting in self.settings:
            if setting.startswith(_RESULT):
                work = _cast(work, setting.removeprefix(_RESULT))
            elif setting.startswith(_THEN):
                work = _then(work, setting.removeprefix(_THEN).split(","))
        return replace(found, workload=work)

    @property
    def last(self) -> Row | None:
        """The same work with channels last, inputs turned as `LAST` says; None if it has none."""
        orders = LAST.get(self.what)
        if orders is None or any(s.startswith("layout=") for s in self.settings):
            return None
        shapes = {t.name: tensor_shape(t) for t in self.request.workload.inputs}
        settings = []
        for setting in self.settings:
            name, _, rest = setting.partition("=")
            if name in orders:
                _, *marks = rest.split(":")
                rest = ":".join([",".join(str(shapes[name][d]) for d in orders[name]), *marks])
            settings.append(f"{name}={rest}")
        return Row(self.name, self.suite, self.what, (*settings, "layout=NHWC"))

    @property
    def operator(self) -> str:
        return self.request.name

    @property
    def key(self) -> str:
        """A name for files."""
        return "".join(c if c.isalnum() else "-" for c in f"{self.suite}-{self.name}")

    def inputs(self) -> Arrays:
        """The same data for every peer, by name, aligned as well as any of them wants it."""
        arrays = random_inputs(self.request.workload, np.random.default_rng(0))
        return {
            t.name: aligned(a) for t, a in zip(self.request.workload.inputs, arrays, strict=True)
        }

    def to_json(self) -> list:
        return [self.name, self.suite, self.what, list(self.settings)]

    @staticmethod
    def from_json(data: list) -> Row:
        name, suite, what, settings = data
        return Row(name, suite, what, tuple(settings))


def _cast(made: lw.Workload, dtype: str) -> lw.Workload:
    """The same workload with its result in another type."""
    (out,) = made.outputs
    axes = [Index(f"r{d}", extent) for d, extent in enumerate(tensor_shape(out))]
    result = lw.tensor("result")
    result[tuple(axes)] = lw.cast(out[tuple(axes)], dtype)
    return lw.workload(result)


def _then(made: lw.Workload, functions: list[str]) -> lw.Workload:
    """The same workload with its result passed through element-wise operators."""
    (out,) = made.outputs
    return lw.workload(functools.reduce(lambda x, name: getattr(lw.ops, name)(x), functions, out))


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
