"""Operations of a worker of mode "run", without TVM."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from loopwright.codegen.library import arrays
from loopwright.codegen.library.arrays import Array
from loopwright.codegen.library.binary import Binary
from loopwright.codegen.library.calls import Call
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.linker import scratch
from loopwright.codegen.library.mapped import MappedBinary, is_direct
from loopwright.codegen.library.signature import Origin, Parameter, Signature, functions_of
from loopwright.dsl.errors import BuildError, DeviceLostError, LibraryError
from loopwright.dsl.hard_data import drawn
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.measure.checking import difference, from_bytes, poison, to_bytes
from loopwright.measure.machine import one_per_core
from loopwright.measure.timing import Timer, Timing
from loopwright.measure.workers.flush import Flush
from loopwright.measure.workers.messages import CandidateError, Message, Operation


def operations() -> dict[str, Operation]:
    """Operations that can be asked for, by name."""
    bench = _Bench()
    return {
        "data": bench.data,
        "run": bench.run,
        "load": bench.load,
        "sample": bench.sample,
        "clear": bench.clear,
    }


class _Bench:
    """The data of one workload, and the candidates that stay loaded."""

    def __init__(self) -> None:
        self._workload: Workload | None = None
        self._kind = ""
        self._inputs: dict[str, Array] = {}
        self._expected: tuple[Array, ...] = ()
        self._slack: tuple[Array, ...] = ()
        self._tolerance = (0.0, 0.0)
        self._timers: dict[int, Timer] = {}

    def data(self, message: Message) -> Message:
        """Draw the inputs of "workload" by "seed", their features "scaled" or not, for calls on
        "threads" of a target of "kind"; the blobs are the outputs expected within "tolerance", if
        they are known, and the slack that they have beyond it, if any."""
        asked = message.header
        self._kind = asked["kind"]
        _place(asked["threads"])
        self._timers.clear()
        self._inputs.clear()
        workload = Workload.from_json(json.loads(asked["workload"]))
        inputs = drawn(workload, asked["seed"], asked["scaled"])
        for tensor, value in zip(workload.inputs, inputs, strict=True):
            parameter = Parameter(tensor.name, tensor_shape(tensor), tensor.dtype)
            self._inputs[tensor.name] = arrays.empty(parameter)
            self._inputs[tensor.name][...] = value
        self._workload = workload
        self._expected = from_bytes(workload, message.blobs)
        slack = message.blobs[len(self._expected) :]
        self._slack = tuple(np.frombuffer(blob, np.float32) for blob in slack)
        self._tolerance = tuple(asked["tolerance"])
        return Message({})

    def run(self, message: Message) -> Message:
        """Time the code in the blob, and check its outputs, at most "most" elements of
        each: "seconds". With "outputs" they are the blobs."""
        asked = message.header
        call, timer = self._start(message)
        with _calling():
            seconds = timer.run()
        self._check(call, asked)
        return Message({"seconds": seconds}, to_bytes(call.outputs) if asked["outputs"] else ())

    def load(self, message: Message) -> Message:
        """Keep the code in the blob, warmed up, as number "slot": "seconds" of its first call, and
        the "least" of one. Its outputs are checked if that is asked for, as for `run`."""
        asked = message.header
        call, timer = self._start(message)
        if asked["check"]:
            self._check(call, asked)
        self._timers[asked["slot"]] = timer
        return Message({"seconds": timer.first.seconds, "least": timer.least})

    def sample(self, message: Message) -> Message:
        """One sample of what "slot" holds, of "length" seconds or the shortest that is allowed:
        "seconds" of one call, and "spent" on it in all."""
        asked = message.header
        with _calling():
            seconds, spent = self._timers[asked["slot"]].sample(asked["length"])
        return Message({"seconds": seconds, "spent": spent})

    def clear(self, message: Message) -> Message:
        """Forget all that was loaded."""
        self._timers.clear()
        return Message({})

    def _start(self, message: Message) -> tuple[Any, Timer]:
        timing = Timing(**message.header["timing"])
        library = _load(message, self._kind)
        with _calling():
            call = self._call(library)
            return call, Timer(call, timing, _flush(call) if timing.cache == "cold" else None)

    def _call(self, library: Any) -> Any:
        """Constants are laid out now, outside of what is timed; a GPU's data go there now."""
        signature = library.signature
        bound = library.bind(**{name: self._inputs[name] for name in signature.constants})
        outputs = tuple(map(arrays.empty, signature.outputs))
        for array in outputs:
            poison(array)
        return bound.prepare_call(*(self._inputs[p.name] for p in bound.inputs), out=outputs)

    def _check(self, call: Any, asked: Mapping[str, Any]) -> None:
        """Compare outputs, within the tolerance of the candidate's own program."""
        if self._workload is None or not self._expected:
            return
        rtol, atol = self._tolerance
        close = (rtol, asked["error_growth"] * atol)
        known = (self._expected, close, asked["most"], self._slack)
        wrong = difference(self._workload, call.outputs, *known)
        if wrong is not None:
            raise CandidateError("wrong", wrong)


@contextmanager
def _calling() -> Iterator[None]:
    """A call fails for want of memory, or because it broke the GPU's context."""
    try:
        yield
    except DeviceLostError as error:
        raise CandidateError("crash", str(error)) from error
    except LibraryError as error:
        raise CandidateError("memory", str(error)) from error


def _load(message: Message, kind: str) -> Any:
    signature = Signature.from_json(message.header["signature"])
    if kind in ("cuda", "opencl"):
        return _load_gpu(signature, bytes(message.blobs[0]))
    code, functions = bytes(message.blobs[0]), functions_of(signature)
    if is_direct(code):
        binary: Binary = MappedBinary(code, functions)
    else:
        with scratch() as folder:
            path = folder / "kernel.so"
            path.write_bytes(code)
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


def _flush(call: Any) -> Callable[[], None]:
    """Function that empties the caches that a call uses."""
    return _flush_processor() if isinstance(call, Call) else call.flush


@functools.cache
def _flush_processor() -> Flush:
    return Flush()
