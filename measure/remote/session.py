"""A worker on another machine, from its first frame to the end of its stream."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator

from loopwright.measure.device import DeviceError, TimeUpError
from loopwright.measure.lease import BOUND, holder, readable
from loopwright.measure.remote.bootstrap import start
from loopwright.measure.remote.facts import Facts
from loopwright.measure.remote.frames import PROTOCOL, Decoder, Frame, Kind, LinkError, encode
from loopwright.measure.remote.route import Route
from loopwright.measure.remote.stream import STALL, Stream
from loopwright.measure.workers.messages import Bytes

_log = logging.getLogger(__name__)
_SMALL = 64 << 10  # bytes of an answer that is no array
_MOST_FACTS = 1 << 20
_KEPT = 256 << 20  # bytes of code and data that stay there while they are not used
_CHUNK = 1 << 18
_SLOW = 0.2  # seconds on the way, both ways, that are worth a word
_SLACK = 5.0  # seconds beyond a limit in which the worker tells that it is over


class Session:
    """A connection to a worker: one question at a time, each of which has its answer.

    Raises `DeviceError` where the machine cannot be reached, or its worker cannot be used; later
    `LinkError` where the stream breaks, after which the session is of no use.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self._stream: Stream = start(route)
        self._decoder = Decoder()
        self._busy = False
        self._told_slow = False
        self._holders: set[bytes] = set()  # of the lease, while this waits for it
        self._shipped: OrderedDict[bytes, int] = OrderedDict()
        try:
            self._decoder.most = _MOST_FACTS
            hello = self._answer(0.0)  # it speaks first
            self._check(hello)
        except LinkError as error:
            self.close()
            raise DeviceError(
                f"{route.name}: the worker does not answer there ({error}); it needs glibc of "
                f"version 2.17 or newer; try: {route.trial}"
            ) from error
        except BaseException:
            self.close()
            raise
        self.facts = Facts.read(hello.text)

    def _check(self, hello: Frame) -> None:
        if hello.kind is not Kind.FACTS or hello.value != PROTOCOL:
            raise DeviceError(
                f"{self._route.name}: the worker there speaks version {hello.value} of the "
                f"protocol, this is version {PROTOCOL}; remove the folder loopwright in its cache"
            )

    @property
    def busy(self) -> bool:
        """Return whether a question was left before its answer: then no other can be asked."""
        return self._busy

    def ask(
        self,
        kind: Kind,
        payload: bytes = b"",
        *,
        value: int = 0,
        limit: float = 0.0,
        most: int = _SMALL,
    ) -> Frame:
        """The answer to a request, of at most so many bytes. `limit` is in seconds.

        Raises `LinkError`, and `DeviceError` where the other machine cannot go on, as with a full
        disk.
        """
        began = time.monotonic()
        answer = self._answered([encode(kind, payload, value, limit) + payload], limit, most)
        if kind is Kind.CALL and answer.kind is Kind.DONE:  # short, and told what it took there
            self._tell_slow(time.monotonic() - began - answer.took / 1000)
        return answer

    def _tell_slow(self, seconds: float) -> None:
        """Say it, once, where the way takes long."""
        if seconds >= _SLOW and not self._told_slow:
            self._told_slow = True
            _log.warning(
                "the link to %s is slow: a question was on its way for %.1f s, and a trial takes "
                "about 25 of them",
                self._route.name,
                seconds,
            )

    def has(self, name: bytes) -> bool:
        """Return whether what has that name is there."""
        return name in self._shipped

    def put(self, data: Bytes, needed: Collection[bytes], deadline: float) -> bytes:
        """Ship bytes unless they are there; the name that they have, which is their hash.

        What was not used for long is removed there, but for what is `needed`. Raises as `ask`,
        and `TimeUpError` at the deadline, after which the session is of no use.
        """
        name = hashlib.sha256(data).digest()
        if name in self._shipped:
            self._shipped.move_to_end(name)
            return name
        view = memoryview(data).cast("B")

        def pieces() -> Iterator[Bytes]:
            yield encode(Kind.PUT, view, lead=name)
            for at in range(0, view.nbytes, _CHUNK):
                if time.monotonic() >= deadline:
                    raise TimeUpError("time was up before all was shipped")
                yield view[at : at + _CHUNK]

        self._answered(pieces(), math.inf, _SMALL)  # beats tell that it comes
        self._shipped[name] = view.nbytes
        self._drop(needed)
        return name

    def _drop(self, needed: Collection[bytes]) -> None:
        names, total = [], sum(self._shipped.values())
        for name, size in list(self._shipped.items())[:-1]:
            if total > _KEPT and name not in needed:
                names.append(name)
                total -= self._shipped.pop(name, size)
        most = _SMALL // 64
        for at in range(0, len(names), most):
            self.ask(Kind.DROP, b"".join(names[at : at + most]))

    def lock(self, deadline: float) -> None:
        """Take the machine's lease. Raises `TimeUpError`, and `DeviceError` after too long."""
        while True:
            self._holders.clear()
            limit = min(BOUND, max(deadline - time.monotonic(), 0.0))
            answer = self.ask(Kind.LOCK, holder().encode(), limit=limit)
            if answer.kind is not Kind.LATE:
                return
            if limit < BOUND:
                raise TimeUpError(f"time was up while others measured on {self._route.name}")
            if len(self._holders | {answer.payload}) == 1:  # else many took turns
                break
        whom = readable(answer.payload) or "another process"
        raise DeviceError(
            f"{self._route.name} was held by {whom} for {BOUND:g} s: nothing can be measured "
            "beside that"
        )

    def _answered(self, pieces: Iterator[Bytes] | list[Bytes], limit: float, most: int) -> Frame:
        if self._busy:  # Ctrl-C, or the end of the time, came between a question and its answer
            raise LinkError("a question was left before its answer", idle=True)
        self._busy = True
        self._decoder.most = max(most, _SMALL)
        try:
            self._stream.write(pieces)
        except LinkError as error:
            raise self._left() or error from error
        answer = self._answer(limit)
        self._busy = False
        return answer

    def _answer(self, limit: float) -> Frame:
        """The next frame that is no beat."""
        end = time.monotonic() + limit + STALL + _SLACK
        told = False
        while True:
            frame = self._frame()
            if frame.kind is Kind.FAULT:
                raise DeviceError(f"{self._route.name} cannot go on: {frame.text}")
            if frame.kind is Kind.BYE:
                raise LinkError(f"the worker left: {frame.text}", idle=frame.value == 1)
            if frame.kind is not Kind.BEAT:
                return frame
            if time.monotonic() >= end:
                raise LinkError(f"no answer within {limit:g} s")
            if not frame.value:
                continue
            self._holders.add(frame.payload)
            if not told:
                whom = readable(frame.payload) or "another process"
                _log.warning("waiting for %s, on which %s measures", self._route.name, whom)
                told = True

    def _frame(self) -> Frame:
        while (frame := self._decoder.next()) is None:
            data = self._stream.read(self._decoder.wanted(), STALL)
            if not data:
                raise LinkError(f"nothing came for {STALL:g} s")
            self._decoder.feed(data)
        return frame

    def _left(self) -> LinkError | None:
        """The worker's reason to leave, if it said one before its stream ended."""
        try:
            self._answer(0.0)
        except LinkError as error:
            return error
        return None

    def close(self) -> None:
        """End the worker. Twice is fine."""
        self._stream.close()
