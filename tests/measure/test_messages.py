"""Messages between a device and its workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.measure.device import DeviceError
from loopwright.measure.workers.messages import MAGIC, Decoder, Message, encode


def joined(message: Message) -> bytes:
    return b"".join(encode(message))


def received(data: bytes, step: int) -> list[Message]:
    decoder, messages = Decoder(), []
    for start in range(0, len(data), step):
        decoder.feed(data[start : start + step])
        while (message := decoder.next()) is not None:
            messages.append(message)
    return messages


headers = st.dictionaries(st.text(), st.none() | st.integers() | st.text()).filter(
    lambda header: "blobs" not in header
)
messages = st.builds(Message, headers, st.lists(st.binary(max_size=50), max_size=3).map(tuple))


@given(st.lists(messages, max_size=4), st.integers(1, 64))
def test_messages_arrive_whole_however_the_bytes_are_cut(sent, step):
    assert received(b"".join(map(joined, sent)), step) == sent


@given(st.binary(max_size=60).filter(lambda data: MAGIC[:1] not in data), st.integers(1, 40))
def test_what_is_printed_between_messages_is_skipped(garbage, step):
    first, second = Message({"a": 1}), Message({"b": 2}, (b"xyz",))
    data = garbage + joined(first) + garbage + joined(second) + garbage
    assert received(data, step) == [first, second]


def test_a_flood_of_garbage_is_an_error():
    with pytest.raises(DeviceError, match="no message"):
        received(bytes(3 << 20), 1 << 20)


def test_a_damaged_header_is_an_error():
    data = bytearray(joined(Message({"a": 1})))
    data[-3] = 0xFF
    decoder = Decoder()
    decoder.feed(data)
    with pytest.raises(DeviceError, match="damaged"):
        decoder.next()
