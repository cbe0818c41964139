"""Operations that time and check candidates, on whatever can call them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from loopwright.codegen.library import arrays
from loopwright.codegen.library.arrays import Array
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.measure.checking import difference, from_bytes, to_bytes
from loopwright.measure.timing import Repeatable, Timer, Timing
from loopwright.measure.workers.hard_data import drawn
from loopwright.measure.workers.messages import Bytes, CandidateError, Message, Operation


class Loaded(Repeatable, Protocol):
    """A candidate that can be called; its outputs are what it computed last."""

    @property
    def outputs(self) -> tuple[Array, ...]: ...


class Processor(Protocol):
    """A device that candidates run on. Its methods raise `CandidateError` for a bad candidate."""

    def begin(self, kind: str, threads: int, inputs: Mapping[str, Array]) -> None:
        """Make ready for candidates of a target's kind on these inputs; forget others."""

    def load(self, signature: Signature, code: Bytes) -> Loaded:
        """Load code, lay out its constants, and poison its outputs."""

    def flush(self, call: Any) -> Callable[[], None]:
        """Function that empties the caches that a call uses."""

    def warm_up(self, call: Any) -> Callable[[], object] | None:
        """Function that comes before a sample with warm caches; a call if None."""

    def clear(self) -> None:
        """Forget all that was loaded."""


class Bench:
    """The data of one workload, and the candidates that stay loaded."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self._workload: Workload | None = None
        self._inputs: dict[str, Array] = {}
        self._expected: tuple[Array, ...] = ()
        self._slack: tuple[Array, ...] = ()
        self._tolerance = (0.0, 0.0)
        self._timers: dict[int, Timer] = {}

    def operations(self) -> dict[str, Operation]:
        """Operations that can be asked for, by name."""
        return {
            "data": self.data,
            "run": self.run,
            "load": self.load,
            "sample": self.sample,
            "clear": self.clear,
        }

    def data(self, message: Message) -> Message:
        """Draw the inputs of "workload" by "seed", their features "scaled" or not, for calls on
        "threads" of a target of "kind"; the blobs are the outputs expected within "tolerance", if
        they are known, and the slack that they have beyond it, if any."""
        asked = message.header
        self._timers.clear()
        self._inputs.clear()
        workload = Workload.from_json(json.loads(asked["workload"]))
        inputs = drawn(workload, asked["seed"], asked["scaled"])
        for tensor, value in zip(workload.inputs, inputs, strict=True):
            parameter = Parameter(tensor.name, tensor_shape(tensor), tensor.dtype)
            self._inputs[tensor.name] = arrays.empty(parameter)
            self._inputs[tensor.name][...] = value
        self._processor.begin(asked["kind"], asked["threads"], self._inputs)
        self._workload = workload
        self._expected = from_bytes(workload, message.blobs)
        slack = message.blobs[len(self._expected) :]
        self._slack = tuple(np.frombuffer(blob, np.float32) for blob in slack)
        self._tolerance = tuple(asked["tolerance"])
        return Message({})

    def run(self, message: Message) -> Message:
        """Time the code in the blob, and check its outputs, at most "most" elements of
        each: "seconds". With "outputs" they are the blobs. Nothing else stays loaded."""
        asked = message.header
        self.clear(message)
        call, timer = self._start(message)
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
        seconds, spent = self._timers[asked["slot"]].sample(asked["length"])
        return Message({"seconds": seconds, "spent": spent})

    def clear(self, message: Message) -> Message:
        """Forget all that was loaded."""
        self._timers.clear()
        self._processor.clear()
        return Message({})

    def _start(self, message: Message) -> tuple[Loaded, Timer]:
        timing = Timing(**message.header["timing"])
        signature = Signature.from_json(message.header["signature"])
        call = self._processor.load(signature, message.blobs[0])
        flush = self._processor.flush(call) if timing.cache == "cold" else None
        return call, Timer(call, timing, flush, self._processor.warm_up(call))

    def _check(self, call: Loaded, asked: Mapping[str, Any]) -> None:
        """Compare outputs, within the tolerance of the candidate's own program."""
        if self._workload is None or not self._expected:
            return
        rtol, atol = self._tolerance
        close = (rtol, asked["error_growth"] * atol)
        known = (self._expected, close, asked["most"], self._slack)
        wrong = difference(self._workload, call.outputs, *known)
        if wrong is not None:
            raise CandidateError("wrong", wrong)
