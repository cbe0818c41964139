"""Frames between the tuner and a worker on another machine.

    magic (8 bytes) | kind | value | length (8 bytes) | limit | CRC-32 of the payload | 0 | CRC-32
    of all that | payload

All numbers are little-endian, of 4 bytes unless said. `limit` is the milliseconds that the answer
may take; in an answer, those that the process which runs candidates took.
`measure/remote/worker/frames.h` has the same for the other side. Payloads are numbers, bytes of
arrays and text: nothing is unpickled.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from loopwright.measure.workers.messages import Bytes

PROTOCOL = 1
MAGIC = b"\0LWrun\n\xff"
MOST_BANNER = 64 << 10
"""Bytes that may come before the first frame, such as what a login prints."""

_HEADER = struct.Struct("<8sIIQIII")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size


class Kind(IntEnum):
    """Kinds of frames: requests to the worker, to the process that runs candidates, answers."""

    PUT = 1
    DROP = 2
    LOCK = 3
    UNLOCK = 4
    RESTART = 5
    PLACE = 16
    LOAD = 17
    CALL = 18
    OUTPUT = 19
    CLEAR = 20
    FLUSH = 21
    FACTS = 32
    DONE = 33
    BEAT = 34
    DIED = 35
    LATE = 36
    FAULT = 37
    BAD = 38
    BYE = 39


class LinkError(Exception):
    """A stream that ended, stalled, or carries what is no frame. `idle` where the worker left
    since nothing was asked for long, which is no fault."""

    def __init__(self, message: str, idle: bool = False) -> None:
        super().__init__(message)
        self.idle = idle


@dataclass(frozen=True)
class Frame:
    """One frame that was received; `took` is the milliseconds that running took for an answer."""

    kind: Kind
    value: int
    payload: bytes
    took: int = 0

    @property
    def text(self) -> str:
        """The payload as text that a terminal may show."""
        shown = self.payload.decode(errors="replace")
        return "".join(c if c.isprintable() or c == "\n" else "?" for c in shown)


def encode(
    kind: Kind, payload: Bytes, value: int = 0, limit: float = 0.0, lead: bytes = b""
) -> bytes:
    """The header of a frame, and `lead`: `payload` comes after these. `limit` is in seconds."""
    size = len(lead) + memoryview(payload).nbytes
    ms = min(round(1000 * limit), 2**31 - 1)
    crc = zlib.crc32(payload, zlib.crc32(lead))
    head = _HEADER.pack(MAGIC, kind, value, size, ms, crc, 0)
    return head + _CRC.pack(zlib.crc32(head)) + lead


class Decoder:
    """Takes bytes as they come, gives frames as they are complete.

    A frame longer than `most` bytes is refused by its header, before any of it is kept; so no more
    than that is ever held. What comes before the first frame is skipped, for `MOST_BANNER` bytes.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._begun = False
        self._skipped = 0
        self.most = 1 << 20

    def wanted(self) -> int:
        """Bytes that `feed` takes next at most."""
        header = self._header()
        end = HEADER_BYTES + (header[3] if header else 0)
        return max(end - len(self._buffer), 1)

    def feed(self, data: Bytes) -> None:
        self._buffer += data

    def next(self) -> Frame | None:
        """The next frame, or None until more bytes come. Raises `LinkError`."""
        self._skip_banner()
        header = self._header()
        if header is None:
            return None
        _, kind, value, length, took, crc, _ = header
        if length > self.most:
            raise LinkError(f"a frame of {length:,} bytes came where {self.most:,} are allowed")
        end = HEADER_BYTES + length
        if len(self._buffer) < end:
            return None
        payload = bytes(memoryview(self._buffer)[HEADER_BYTES:end])
        del self._buffer[:end]
        if zlib.crc32(payload) != crc:
            raise LinkError("the checksum of a frame is wrong")
        try:
            return Frame(Kind(kind), value, payload, took)
        except ValueError as error:
            raise LinkError(f"a frame of an unknown kind came: {kind}") from error

    def _header(self) -> tuple[bytes, int, int, int, int, int, int] | None:
        if len(self._buffer) < HEADER_BYTES:
            return None
        head = bytes(memoryview(self._buffer)[: _HEADER.size])
        (crc,) = _CRC.unpack_from(self._buffer, _HEADER.size)
        if not head.startswith(MAGIC) or zlib.crc32(head) != crc:
            raise LinkError("bytes came that are no frame")
        found: tuple[bytes, int, int, int, int, int, int] = _HEADER.unpack(head)
        return found

    def _skip_banner(self) -> None:
        if self._begun:
            return
        at = self._buffer.find(MAGIC)
        self._begun = at >= 0
        # The end may be the beginning of a magic.
        garbage = at if at >= 0 else max(0, len(self._buffer) - len(MAGIC) + 1)
        del self._buffer[:garbage]
        self._skipped += garbage
        if self._skipped > MOST_BANNER:
            raise LinkError(f"{MOST_BANNER >> 10} KiB came that are no frame")
