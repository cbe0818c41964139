"""Operations of a worker of mode "run", without TVM."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from loopwright.codegen.library import arrays
from loopwright.codegen.library.arrays import Array
from loopwright.codegen.library.binary import Binary
from loopwright.codegen.library.calls import Call
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.loading import load_objects
from loopwright.codegen.library.mapped import is_builtin
from loopwright.codegen.library.signature import Origin, Signature, functions_of
from loopwright.dsl.errors import BuildError, DeviceLostError, LibraryError
from loopwright.measure.checking import poison
from loopwright.measure.machine import last_level_caches, one_per_core, private_bytes
from loopwright.measure.workers.bench import Bench
from loopwright.measure.workers.messages import Bytes, CandidateError, Operation
from loopwright.temporary import TemporaryFolder


def operations() -> dict[str, Operation]:
    """Operations that can be asked for, by name."""
    return Bench(_Here()).operations()


class _Here:
    """The processor of this process, or a GPU beside it."""

    def __init__(self) -> None:
        self._kind = ""
        self._inputs: Mapping[str, Array] = {}

    def begin(self, kind: str, threads: int, inputs: Mapping[str, Array]) -> None:
        self._kind, self._inputs = kind, inputs
        _place(threads)

    def load(self, signature: Signature, code: Bytes) -> _Called:
        """Constants are laid out now, outside of what is timed; a GPU's data go there now."""
        library, inputs = _load(signature, code, self._kind), self._inputs
        with _calling():
            bound = library.bind(**{name: inputs[name] for name in signature.constants})
            outputs = tuple(map(arrays.empty, signature.outputs))
            for array in outputs:
                poison(array)
            names = (p.name for p in bound.inputs)
            return _Called(bound.prepare_call(*(inputs[n] for n in names), out=outputs))

    def flush(self, call: _Called) -> Callable[[], None]:
        return _flush_processor() if isinstance(call.call, Call) else call.call.flush

    def warm_up(self, call: _Called) -> None:
        return None

    def clear(self) -> None:
        pass  # what nobody refers to is unloaded


class _Called:
    """A prepared call whose failures are the candidate's."""

    def __init__(self, call: Any) -> None:
        self.call = call

    @property
    def outputs(self) -> tuple[Array, ...]:
        outputs: tuple[Array, ...] = self.call.outputs
        return outputs

    def repeat(self, times: int, /) -> tuple[float, float]:
        with _calling():
            seconds: tuple[float, float] = self.call.repeat(times)
            return seconds


@contextmanager
def _calling() -> Iterator[None]:
    """A call fails for want of memory, or because it broke the GPU's context."""
    try:
        yield
    except DeviceLostError as error:
        raise CandidateError("crash", str(error)) from error
    except LibraryError as error:
        raise CandidateError("memory", str(error)) from error


def _load(signature: Signature, code: Bytes, kind: str) -> Any:
    if kind in ("cuda", "opencl"):
        return _load_gpu(signature, bytes(code))
    given, functions = bytes(code), functions_of(signature)
    if is_builtin(given):
        binary = load_objects([given], "kernel", functions)
    else:
        with TemporaryFolder() as folder:
            path = folder / "kernel.so"
            path.write_bytes(given)
            binary = Binary(path, functions)
    binary.threads = signature.threads
    return Library(signature, binary, Origin())


def _load_gpu(signature: Signature, code: bytes) -> Any:
    """OpenCL's sources are compiled now."""
    from loopwright.codegen.gpu.library import load_code

    try:
        return load_code(signature, code)
    except BuildError as error:
        raise CandidateError("build", str(error)) from error


def _place(threads: int) -> None:
    """Keep this process off the siblings of a core, where there are enough cores; threads that
    are made from now on inherit that."""
    cores = one_per_core()
    if threads <= len(cores) and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


@functools.cache
def _flush_processor() -> Flush:
    return Flush()


class Flush:
    """Call it, and nothing that was there before is in any cache.

    The processors of every last-level cache write an array twice as large as that: each a piece
    of its own, since its private caches are not emptied by what others write, and one twice as
    large as these. At most as much as `most` bytes in all.
    """

    def __init__(self, most: int = 1 << 30) -> None:
        least = 2 * private_bytes()
        sizes = {
            n: max(2 * size // len(cpus), least)
            for cpus, size in last_level_caches()
            for n in cpus
        }
        self._processors = sorted(sizes)
        each = max(most // len(sizes), 1)
        self._pieces = [np.zeros(min(sizes[n], each), np.uint8) for n in self._processors]
        self._threads = ThreadPoolExecutor(len(self._processors), "flush")

    def __call__(self) -> None:
        list(self._threads.map(_write, self._processors, self._pieces))


def _write(processor: int, piece: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {processor})  # of this thread alone
    np.add(piece, 1, out=piece)
