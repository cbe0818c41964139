"""Messages between a device and its workers: a JSON header, then any number of byte strings.

    magic (8 bytes) | length of the header (4 bytes, little-endian) | header | blobs

The header's "blobs" has the length of each. Whatever comes before a magic is skipped, so that a
line which somebody prints to the same pipe does no harm. Nothing is unpickled here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.words import brief
from loopwright.measure.device import DeviceError

MAGIC = b"\0LWmsg1\n"
_LENGTH = struct.Struct("<I")
_PREFIX = len(MAGIC) + _LENGTH.size
_MOST_GARBAGE = 1 << 20

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Message:
    """One message."""

    header: dict[str, Any]
    blobs: tuple[Bytes, ...] = ()


Operation = Callable[[Message], Message]
"""Operation of a worker for a message: it answers, or raises `CandidateError`."""


class CandidateError(LoopwrightError):
    """An operation that found a candidate to be bad: becomes a `Failure` of that kind."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def encode(message: Message) -> Iterator[memoryview]:
    """The bytes of a message, piece by piece; large blobs are not copied."""
    blobs = [memoryview(blob).cast("B") for blob in message.blobs]
    header = json.dumps(message.header | {"blobs": [len(b) for b in blobs]}).encode()
    yield memoryview(MAGIC + _LENGTH.pack(len(header)) + header)
    yield from blobs


class Decoder:
    """Takes bytes as they come, gives messages as they are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skipped = 0

    def feed(self, data: Bytes) -> None:
        self._buffer += data

    def next(self) -> Message | None:
        """The next message, or None until more bytes come.

        Raises `DeviceError` where the bytes are no message and a megabyte of them has passed.
        """
        self._skip_garbage()
        if len(self._buffer) < _PREFIX:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, len(MAGIC))
        start = _PREFIX + length
        if len(self._buffer) < start:
            return None
        try:
            header = json.loads(self._buffer[_PREFIX:start])
            lengths = [int(n) for n in header.pop("blobs")]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DeviceError(f"a worker sends a damaged message: {brief(error)}") from error
        if len(self._buffer) < start + sum(lengths):
            return None
        return Message(header, tuple(self._take(start, lengths)))

    def _take(self, at: int, lengths: list[int]) -> Iterator[bytes]:
        with memoryview(self._buffer) as view:
            for length in lengths:
                yield bytes(view[at : at + length])
                at += length
        del self._buffer[:at]

    def _skip_garbage(self) -> None:
        at = self._buffer.find(MAGIC)
        if at == 0:
            self._skipped = 0
            return
        # The end may be the beginning of a magic.
        garbage = at if at > 0 else max(0, len(self._buffer) - len(MAGIC) + 1)
        del self._buffer[:garbage]
        self._skipped = 0 if at > 0 else self._skipped + garbage
        if self._skipped > _MOST_GARBAGE:
            raise DeviceError("a worker sends bytes that are no message; was its pipe taken over?")
