"""Records from which something can be learned: costs that follow from the features of programs."""

from __future__ import annotations

import functools

import numpy as np

from loopwright.costmodel.features.representation import ContextRelation
from loopwright.measure.device import Measurement
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target
from loopwright.transfer.pretrained.dataset import features_of
from loopwright.transfer.records.record import Record
from loopwright.transfer.records.store import RecordStore
from tests.transfer.examples import MACHINE, matmul

AVX2 = Target(mcpu="znver3", features=("+avx2", "+fma"), threads=2)
SIZES = ((24, 36, 48), (32, 16, 64), (17, 40, 24), (48, 48, 48))


@functools.cache
def points(m: int, k: int, n: int, target: Target = AVX2) -> Space:
    return space(matmul(m, k, n), target)


def costs(of: Space, configs: list[Config]) -> np.ndarray:
    """Seconds: what issuing the operations takes, and more for large register tiles."""
    names = ContextRelation().names(of)
    rows = features_of(of, configs, ContextRelation())
    issue, pressure = rows[:, names.index("issue")], rows[:, names.index("pressure")]
    return 1e-9 * np.exp2(issue) * (1 + 4 * np.abs(pressure - 0.3))


def measured(of: Space, count: int, seed: int = 0) -> list[Record]:
    """Records of random configs."""
    rng = np.random.default_rng(seed)
    configs = list(dict.fromkeys(of.sample(rng) for _ in range(count)))
    return [
        Record.of(
            of.workload,
            of.target,
            MACHINE,
            Measurement(c, (float(s),) * 3, None, 0.1, 0.1, "warm", of.target.threads, 1e9),
        )
        for c, s in zip(configs, costs(of, configs), strict=True)
    ]


def filled(path, sizes=SIZES, count: int = 40, target: Target = AVX2):
    """A store with records of matrix products of several sizes; its path."""
    with RecordStore(path) as store:
        for number, size in enumerate(sizes):
            store.add(measured(points(*size, target), count, number))
    return path
