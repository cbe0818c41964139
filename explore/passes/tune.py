"""`tune_passes`: the pass list and switches by which one program runs fastest."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from loopwright.costmodel.model import check_seed
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, as_workload
from loopwright.explore.budget import Interrupted, TuningError, check_minutes
from loopwright.schedule.loops.nothing import refuse_nothing

# What needs TVM is imported in the call: that takes seconds, which are of its minutes.
if TYPE_CHECKING:
    from loopwright.costmodel.sequence.model import SequenceModel
    from loopwright.explore.passes.search import PassesTuned
    from loopwright.schedule.sketch.sketch import Config
    from loopwright.schedule.target import Target

_OF_SEARCH = 0.75
"""Share of the time after which the comparison begins."""


def tune_passes(  # noqa: PLR0913 - what users choose
    workload: Workload | Tensor,
    config: Config | None = None,
    target: str | Target = "cpu",
    threads: int | None = None,
    *,
    minutes: float = 2.0,
    seed: int = 0,
    numerics: str | None = None,
    begin: Sequence[str] = (),
    model: SequenceModel | str | os.PathLike[str] | None = None,
    progress: Callable[[str], Any] | None = None,
) -> PassesTuned:
    """Search for the pass list and switches by which a program runs fastest on this machine.

    LLVM's own lists and single switches come first, then variations of the best ones and random
    ones (Cummins et al. 2023, section III.B, with measured time in place of a count). All that is
    timed is checked against the oracle. A list is returned where comparisons side by side with
    -O3, in several new processes, are all certain that it is faster; -O3 otherwise.

    Parameters
    ----------
    workload, config, target, threads, numerics: the program, as for `codegen.build.build`.
    minutes: of wall time, the start and the comparison included.
    seed: of the lists that are drawn.
    begin: lists to try first, such as those that served other kernels.
    model: what proposes lists to try next, or its file; see `explore.passes.lists`.
    progress: is called with a line after each batch.

    Raises `TuningError` where the program by -O3 fails, `BuildError` without the extra llvm, and
    at Ctrl-C `Interrupted`, whose `tuned` has the fastest list in the search, not compared.
    """
    check_minutes(minutes)
    check_seed(seed)
    texts = isinstance(begin, Sequence) and all(isinstance(one, str) for one in begin)
    if isinstance(begin, str) or not texts:
        raise TuningError(f'begin = {begin!r}: give a list of pass lists, such as ["default<O2>"]')
    if progress is not None and not callable(progress):
        raise TuningError(f"progress = {progress!r}: give a function of a line, or None")
    began = time.monotonic()
    import numpy as np

    from loopwright.codegen.build import program
    from loopwright.codegen.compile import by_passes, unoptimized
    from loopwright.codegen.passes.pipeline import DEFAULT
    from loopwright.codegen.passes.process import library as find_llvm
    from loopwright.codegen.passes.table import elements_of
    from loopwright.codegen.target import resolve
    from loopwright.costmodel.sequence.model import SequenceModel
    from loopwright.explore.passes.lists import GOOD, proposed
    from loopwright.explore.passes.search import BATCH, PassesTuned, PassSearch
    from loopwright.measure.device import TimeUpError
    from loopwright.measure.pass_device import PassDevice

    find_llvm()
    machine = resolve(target, threads)
    asked = as_workload(workload)
    refuse_nothing(asked)
    made = program(asked, config, machine, numerics)
    by_passes(made, DEFAULT)  # an error for what takes no list
    waiting = list(map(elements_of, begin))
    if model is not None:
        known = model if isinstance(model, SequenceModel) else SequenceModel.load(model)
        waiting += proposed(known, unoptimized(made)[0], BATCH)
    until, end = (began + 60 * minutes * share for share in (_OF_SEARCH, 1.0))
    with PassDevice(machine, seed=seed) as device:
        device.until(until)
        try:
            search = PassSearch(device, made.workload, made.config, np.random.default_rng(seed))
        except TimeUpError:  # before -O3 was measured
            return PassesTuned(made.workload, machine, made.config, "", None, math.inf, ())
        try:
            search.run([*waiting, *GOOD], until, progress)
            device.until(end)
            passes, speedup = search.decided(end)
        except KeyboardInterrupt:
            raise Interrupted(search.result(machine, search.fastest())) from None
        return search.result(machine, passes, speedup)
