"""`Row`: one workload of the tables, named as the command line names workloads."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from loopwright.cli_workload import Request, read_workload
from loopwright.dsl.oracle import random_inputs

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """`loopwright tune WHAT SETTINGS` tunes the same. Weights are constant, activations not."""

    name: str
    suite: str
    what: str
    settings: tuple[str, ...]

    @functools.cached_property
    def request(self) -> Request:
        return read_workload(self.what, self.settings)

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


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
