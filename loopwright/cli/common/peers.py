"""The time of torch, or else NumPy, for the same work: to show beside the result of a search.

They are called from Python, and what that costs is much of the time of small work. So ours is
timed like that too: a search times kernels, in a loop of machine code. Both take turns, round by
round, and a ratio is told with its interval, or not at all.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright.cli.common.workload import Request
from loopwright.dsl.oracle import random_inputs
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload
from loopwright.explore.budget import Budget
from loopwright.explore.finalize import CROWDED
from loopwright.explore.result import Peer
from loopwright.explore.significance import FEWEST, Ratio, doubt, ratio
from loopwright.measure.machine import Neighbours
from loopwright.measure.timing import Timer, Timing, in_rounds, typical
from loopwright.packages import torch

if TYPE_CHECKING:
    from loopwright.codegen.library.library import Library
    from loopwright.explore.tuned import Tuned

_LONGEST = 1.0
"""Seconds of a call above which it is not compared: an interval takes rounds of it."""
_SECONDS = 1.0
"""Seconds that a comparison takes, about."""
_IN_ALL, _MOST = 4.0, 0.1
"""Seconds that it takes with the import of the other library, about, and the most of a budget."""
_ROUNDS = 20
_TIMING = Timing(shortest=5e-3, retries=2)
_SPIN = 2e-3
"""Seconds that the threads of a library wait busily after a call, and disturb the other's."""
_SEED = 0


class _Called:
    """A call from Python that can be timed."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def repeat(self, times: int) -> tuple[float, float]:
        """Elapsed seconds, twice: CPU time would count threads of the other library."""
        time.sleep(_SPIN)
        start = time.perf_counter()
        for _ in range(times):
            self._call()
        elapsed = time.perf_counter() - start
        return elapsed, elapsed


def before_peer(budget: Budget) -> Budget:
    """A budget of which some seconds are kept for a comparison with another library."""
    return replace(budget, after=min(_IN_ALL, _MOST * 60 * budget.minutes))


def compare_peer(request: Request, tuned: Tuned, left: Callable[[], float]) -> Peer | None:
    """Another library beside what was found, both called from Python; None where there is none,
    or a call takes too long, or what is `left` of the budget, in seconds, is too short. The
    import of the other library may take long, so that is asked before and after it."""
    if tuned.seconds > _LONGEST or left() < _SECONDS:
        return None
    library = tuned.library
    found = peer_call(request, library.threads)
    if found is None:
        return None
    name, call, first = found
    if first > _LONGEST or left() < _SECONDS:
        return None
    watch = Neighbours()
    theirs, ours = timed([call, library_call(library, request.workload)])
    claimed, claim = judged(theirs, ours, watch.in_the_way(library.threads))
    return Peer(name, typical(theirs), typical(ours), request.workload.flops, claimed, claim)


def judged(
    theirs: Sequence[float], ours: Sequence[float], others: float
) -> tuple[Ratio | None, str]:
    """The ratio of paired samples if one is claimed, and in words how they stand to each other.
    None is where other programs kept that many cores busy, or times differed from round to
    round; and those that a test cannot tell apart are tied."""
    found = ratio(theirs, ours)
    if others > CROWDED:
        return None, f"no ratio, since other programs kept {others:.1f} cores busy that it needed"
    if why := doubt(theirs, ours):
        return None, f"no ratio, since {found} {why}"
    if found.low <= 1 <= found.high:
        return None, f"tied: {found}"
    return found, f"{found} times as fast"


def timed(calls: Sequence[Callable[[], object]]) -> list[tuple[float, ...]]:
    """Samples of calls in seconds, in rounds, in about a second; few of long ones."""
    timers = [Timer(_Called(call), _TIMING) for call in calls]
    return in_rounds(timers, rounds(timer.least for timer in timers), _TIMING)


def rounds(seconds: Iterable[float]) -> int:
    """The number of rounds of calls that take so many seconds each."""
    length = sum(max(least, _TIMING.shortest) for least in seconds)
    return min(max(FEWEST, int(_SECONDS / length)), _ROUNDS)


def peer_call(request: Request, threads: int) -> tuple[str, Callable[[], object], float] | None:
    """The name of the other library, a call of it, and the seconds of a second one; None where
    there is no counterpart. NumPy stands in for torch for products; its threads are its own
    affair."""
    if request.arguments.get("accumulate") or request.arguments.get("layout", "NCHW") != "NCHW":
        return None
    if importlib.util.find_spec("torch") is not None and request.name in _TORCH:
        name = "torch"
    elif request.name in _NUMPY and "bias" not in request.arguments:
        name = "numpy"
    else:
        return None
    try:
        call = _call(request, name, threads)
        call()  # what a library makes at first
        began = time.perf_counter()
        call()
        seconds = time.perf_counter() - began
    except Exception:  # noqa: BLE001 - it lacks the type, or unequal padding, or is broken itself
        return None
    return name, call, seconds


def library_call(library: Library, workload: Workload) -> Callable[[], object]:
    """A call of a library of ours from Python like the others, its constants bound ahead."""
    data = zip(workload.inputs, random_inputs(workload, np.random.default_rng(_SEED)), strict=True)
    arrays = {t.name: array for t, array in data}
    bound = library.bind(**{t.name: arrays.pop(t.name) for t in workload.constants})
    inputs = tuple(arrays.values())
    return lambda: bound(*inputs)


def _call(request: Request, name: str, threads: int) -> Callable[[], object]:
    """A call of a library, "torch" or "numpy"."""
    inputs = random_inputs(request.workload, np.random.default_rng(_SEED))
    arguments = _arrays(request, inputs)
    if name == "numpy":
        return lambda: _NUMPY[request.name](arguments)
    torch.set_num_threads(threads)
    for n, a in arguments.items():
        arguments[n] = torch.from_numpy(a) if isinstance(a, np.ndarray) else a
    return lambda: _TORCH[request.name](torch, arguments)


def _arrays(request: Request, inputs: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments with arrays for tensors; a workload names its inputs as its tensors."""
    by_name = {t.name: a for t, a in zip(request.workload.inputs, inputs, strict=True)}
    return {
        n: by_name[a.name] if isinstance(a, Tensor) else a for n, a in request.arguments.items()
    }


def _conv2d(torch: Any, a: Mapping[str, Any]) -> Any:
    """torch's convolution takes channels first; padding before and after must be equal."""
    options = {n: a[n] for n in ("stride", "padding", "dilation", "groups") if n in a}
    return torch.nn.functional.conv2d(a["x"], a["w"], a.get("bias"), **options)


def _product(module: Any, a: Mapping[str, Any]) -> Any:
    one = a["a"].swapaxes(-1, -2) if a.get("transpose_a") else a["a"]
    other = a["b"].swapaxes(-1, -2) if a.get("transpose_b") else a["b"]
    return module.matmul(one, other)


def _operands(a: Mapping[str, Any]) -> list[Any]:
    return [v for n, v in a.items() if n != "spec"]


_TORCH: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "conv2d": _conv2d,
    "matmul": _product,
    "batch_matmul": _product,
    "dense": lambda torch, a: torch.nn.functional.linear(a["x"], a["w"], a.get("bias")),
    "einsum": lambda torch, a: torch.einsum(a["spec"], *_operands(a)),
}
_NUMPY: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "matmul": lambda a: _product(np, a),
    "batch_matmul": lambda a: _product(np, a),
    "dense": lambda a: a["x"] @ a["w"].T,
    "einsum": lambda a: np.einsum(a["spec"], *_operands(a), optimize=True),
}
