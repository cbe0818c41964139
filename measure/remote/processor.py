"""The processor of another machine, as `workers.bench` runs candidates on it.

The protocol of timing stays on this side: `measure.timing.Timer` asks for so many calls, and the
worker makes them in one go. The call that warms up goes with the sample in one request, so that
nothing idles between the two.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from loopwright.codegen.library.arrays import Array
from loopwright.codegen.library.binary import DTYPE_CODES, bits, raise_for
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.dsl.dtypes import numpy_dtype
from loopwright.dsl.errors import LibraryError
from loopwright.measure.checking import poison_byte, to_bytes
from loopwright.measure.device import Failure, TimeUpError
from loopwright.measure.remote.frames import Frame, Kind, LinkError
from loopwright.measure.remote.session import Session
from loopwright.measure.workers.messages import Bytes, CandidateError
from loopwright.measure.workers.process import failure_of

_SLOTS = 512  # SLOTS of serve.h
_SIGNALS = 256  # below it an end is a signal, else a status
_INPUT, _SCRATCH, _RESULT = range(3)
_LOAD = struct.Struct("<32sIIII")
_BUFFER = struct.Struct("<32sQII")
_ARGUMENT = struct.Struct("<IBBHq")
_CALL = struct.Struct("<IIq")
_TIMES = struct.Struct("<qq")
_PIECE = struct.Struct("<IIQ")


class LostError(Exception):
    """A candidate that ended its process, or was ended since it was late."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Connected(Protocol):
    """Whoever has the session: it may be another one after a break."""

    deadline: float

    @property
    def session(self) -> Session: ...


class RemoteProcessor:
    """Candidates are loaded, called and flushed by the worker of a session. The present job may
    run `given` seconds there, of which some are `left`; shipping and waiting do not count."""

    def __init__(self, link: Connected) -> None:
        self._link = link
        self._inputs: Mapping[str, Array] = {}
        self._names: dict[str, bytes] = {}
        self._slot = 0
        self.given = self.left = math.inf

    def start_job(self, seconds: float) -> None:
        """Set the time for the next operations."""
        self.given = self.left = seconds

    def begin(self, kind: str, threads: int, inputs: Mapping[str, Array]) -> None:
        self._inputs, self._names = dict(inputs), {}
        for name in inputs:
            self._ship_input(name)
        facts = self._link.session.facts
        cores = facts.one_per_core
        chosen = cores if threads <= len(cores) else tuple(facts.siblings)
        self.ask(Kind.PLACE, struct.pack(f"<{len(chosen)}I", *chosen))

    def load(self, signature: Signature, code: Bytes) -> RemoteCall:
        session, needed = self._link.session, self._names.values()
        name = session.put(code, needed, self._link.deadline)
        parameters = (*signature.inputs, *signature.prepared, *signature.outputs)
        place = {p.name: i for i, p in enumerate(parameters)}
        buffers = (
            *(
                _BUFFER.pack(self._ship_input(p.name), p.nbytes, _INPUT, 0)
                for p in signature.inputs
            ),
            *(_BUFFER.pack(b"", p.nbytes, _SCRATCH, 0) for p in signature.prepared),
            *(
                _BUFFER.pack(b"", p.nbytes, _RESULT, poison_byte(numpy_dtype(p.dtype)))
                for p in signature.outputs
            ),
        )
        prepare = signature.prepare_parameters if signature.prepared else ()
        main = signature.main_parameters
        self._slot = (self._slot + 1) % _SLOTS
        asked = (
            _LOAD.pack(name, signature.threads, len(buffers), len(prepare), len(main)),
            *buffers,
            *(
                _ARGUMENT.pack(place[p.name], DTYPE_CODES[p.dtype], bits(p.dtype), 1, p.elements)
                for p in (*prepare, *main)
            ),
        )
        _raise_for(self.ask(Kind.LOAD, b"".join(asked), self._slot).value)
        results = [(place[p.name], p) for p in signature.outputs]
        return RemoteCall(self, self._slot, results)

    def flush(self, call: RemoteCall) -> Callable[[], None]:
        pieces = self._link.session.facts.flushed()
        asked = b"".join(_PIECE.pack(cpu, 0, size) for cpu, size in pieces.items())
        return lambda: _raise_for(self.ask(Kind.FLUSH, asked).value)

    def warm_up(self, call: RemoteCall) -> Callable[[], None]:
        return call.warm_up

    def clear(self) -> None:
        self.ask(Kind.CLEAR)

    def ask(self, kind: Kind, payload: bytes = b"", slot: int = 0, most: int = 0) -> Frame:
        """The answer of the process that runs candidates. Raises `LostError`, `CandidateError`
        and `TimeUpError`."""
        left = self._link.deadline - time.monotonic()
        if left <= 0:
            raise TimeUpError("time was up before it was done")
        limit = min(self.left, left, 86400.0)
        answer = self._link.session.ask(kind, payload, value=slot, limit=limit, most=most)
        self.left = max(self.left - answer.took / 1000, 0.0)
        if answer.kind is Kind.DONE:
            return answer
        if answer.kind is Kind.DIED:
            how = answer.value
            status = -how if how < _SIGNALS else how - _SIGNALS
            raise LostError(failure_of(status, answer.text))
        if answer.kind is Kind.LATE:
            if time.monotonic() >= self._link.deadline - 1e-3:
                raise TimeUpError("time was up before it was done")
            raise LostError(Failure("timeout", f"no answer within {self.given:g} s", answer.text))
        raise CandidateError("run", answer.text)

    def _ship_input(self, name: str) -> bytes:
        """The name that an input has there, where it is from now on."""
        (data,) = to_bytes((self._inputs[name],))
        needed = self._names.values()
        if name in self._names and self._link.session.has(self._names[name]):
            return self._names[name]
        self._names[name] = self._link.session.put(data, needed, self._link.deadline)
        return self._names[name]


class RemoteCall:
    """A candidate that is loaded there; see `codegen.library.calls.Call`."""

    def __init__(
        self, processor: RemoteProcessor, slot: int, results: Sequence[tuple[int, Parameter]]
    ) -> None:
        self._processor, self._slot, self._results = processor, slot, results
        self._warm = False

    def warm_up(self) -> None:
        """Have the next calls begin with one that is not timed."""
        self._warm = True

    def repeat(self, times: int, /) -> tuple[float, float]:
        """Elapsed seconds and CPU seconds of so many calls."""
        asked = _CALL.pack(self._warm, 0, times)
        self._warm = False
        answer = self._processor.ask(Kind.CALL, asked, self._slot)
        _raise_for(answer.value)
        if len(answer.payload) != _TIMES.size:
            raise LinkError(f"times came as {len(answer.payload):,} bytes")
        elapsed, cpu = _TIMES.unpack(answer.payload)
        return elapsed * 1e-9, cpu * 1e-9

    @property
    def outputs(self) -> tuple[Array, ...]:
        """Results of the last call, fetched now."""
        return tuple(self._output(place, p) for place, p in self._results)

    def _output(self, place: int, p: Parameter) -> Array:
        asked = struct.pack("<I", place)
        answer = self._processor.ask(Kind.OUTPUT, asked, self._slot, most=p.nbytes)
        if len(answer.payload) != p.nbytes:
            raise CandidateError("run", f"{p.name} came as {len(answer.payload):,} bytes")
        return np.frombuffer(answer.payload, numpy_dtype(p.dtype)).reshape(p.shape)


def _raise_for(status: int) -> None:
    try:
        raise_for(status)
    except LibraryError as error:
        raise CandidateError("memory", str(error)) from error
