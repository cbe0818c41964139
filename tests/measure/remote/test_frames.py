"""Frames: whole however they are cut, refused where they are not ours, in bounded memory."""

from __future__ import annotations

import os
import random
import re
import struct
import subprocess
import time
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.codegen.library.linker import architecture, find_compiler
from loopwright.dsl.errors import BuildError
from loopwright.measure.remote.bootstrap import ARCHITECTURES, triple_of, worker_program
from loopwright.measure.remote.frames import (
    HEADER_BYTES,
    MAGIC,
    MOST_BANNER,
    Decoder,
    Frame,
    Kind,
    LinkError,
    encode,
)
from tests.measure.remote import links


def joined(kind: Kind, payload: bytes, value: int = 0) -> bytes:
    return encode(kind, payload, value) + payload


def received(data: bytes, step: int, most: int = 1 << 20) -> list[Frame]:
    decoder, frames = Decoder(), []
    decoder.most = most
    for start in range(0, len(data), step):
        decoder.feed(data[start : start + step])
        while (frame := decoder.next()) is not None:
            frames.append(frame)
    return frames


frames = st.builds(Frame, st.sampled_from(Kind), st.integers(0, 2**32 - 1), st.binary(max_size=99))


@given(st.lists(frames, max_size=4), st.integers(1, 64), st.binary(max_size=80))
def test_frames_arrive_whole_however_the_bytes_are_cut(sent, step, banner):
    data = b"".join(joined(f.kind, f.payload, f.value) for f in sent)
    assert received(banner.replace(MAGIC, b"") + data, step) == sent


@given(frames, st.integers(0, 500), st.integers(1, 255))
def test_a_flipped_bit_is_an_error(frame, at, bits):
    data = bytearray(joined(Kind.DONE, b"first") + joined(frame.kind, frame.payload, frame.value))
    at = HEADER_BYTES + 5 + at % (len(data) - HEADER_BYTES - 5)
    data[at] ^= bits
    with pytest.raises(LinkError):
        received(bytes(data), 7)


def test_bytes_without_end_that_are_no_frame_are_an_error():
    with pytest.raises(LinkError, match="64 KiB came"):
        received(bytes(2 * MOST_BANNER), 1000)


def test_a_frame_longer_than_allowed_is_refused_before_it_comes():
    head = encode(Kind.DONE, bytes(5000))
    with pytest.raises(LinkError, match="5,000 bytes came where 4,000 are allowed"):
        received(head, 1, most=4000)


def test_ten_thousand_random_frames_take_no_memory():
    rng = random.Random(0)
    tracemalloc.start()
    refused = 0
    for _ in range(10_000):
        decoder = Decoder()
        decoder.most = 256
        head = bytearray(encode(rng.choice(list(Kind)), bytes(rng.choice((3, 300, 70_000)))))
        if rng.random() < 0.5:
            head[rng.randrange(len(head))] ^= 1 << rng.randrange(8)
        try:
            decoder.feed(bytes(head))
            decoder.next()
        except LinkError:
            refused += 1
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > 3000
    assert most < 1 << 20


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_the_worker_is_small_and_needs_an_old_c_library_alone(family, tmp_path):
    try:
        compiler = find_compiler(triple_of(family))
    except BuildError:
        pytest.skip(f"no compiler for {family}")
    program = worker_program(family)
    assert len(program.code) <= 200_000
    path = tmp_path / "worker"
    path.write_bytes(program.code)
    readelf = compiler.run("-print-prog-name=readelf").strip()
    command = [readelf, "-W", "-d", "-V", "--dyn-syms", path]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", said))
    assert needed == {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"}
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", said)}
    assert max(versions) <= (2, 17), "boards have old systems"
    asked = set(re.findall(r" UND (\w+)", said))
    assert "dlopen" in asked
    assert not asked & {"socket", "bind", "listen", "accept", "connect"}, "no port is opened"


class Fuzzed:
    """A worker whose frames are made up; another one when it has left."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "worker"
        self.path.write_bytes(worker_program(architecture()).code)
        self.path.chmod(0o700)
        self.process = None
        self.most = 0

    def start(self):
        self.process = subprocess.Popen(
            [self.path, self.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self.answer().kind is Kind.FACTS

    def answer(self):
        decoder = Decoder()
        while (frame := decoder.next()) is None:
            data = os.read(self.process.stdout.fileno(), decoder.wanted())
            if not data:
                return None
            decoder.feed(data)
        return frame

    def ask(self, data, whole):
        """What it answers; None if it left without a word."""
        if self.process is None:
            self.start()
        self.process.stdin.write(data)
        if not whole:
            self.process.stdin.close()
        frame = self.answer()
        if frame is None or frame.kind is Kind.BYE:
            self.stop()
        else:
            self.most = max(self.most, links.memory(self.process.pid))
        return frame

    def stop(self):
        if self.process is not None:
            if not self.process.stdin.closed:
                self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait(10)
            self.process = None


def test_a_slow_link_is_heard_of_while_it_ships(tmp_path):
    fuzzed, data = Fuzzed(tmp_path), bytes(70_000)
    fuzzed.start()
    try:
        fuzzed.process.stdin.write(encode(Kind.PUT, data, lead=bytes(32)) + data[:-1])
        time.sleep(2.1)  # BEAT_MS
        assert [fuzzed.ask(data[-1:], True).kind, fuzzed.answer().kind] == [Kind.BEAT, Kind.DONE]
    finally:
        fuzzed.stop()


def made_up(rng: random.Random) -> tuple[bytes, bool]:
    """Bytes of a frame, and whether all that it announces are there."""
    asked = [k for k in Kind if k < Kind.FACTS and k is not Kind.LOCK]
    payload = rng.randbytes(rng.choice((0, 4, 8, 16, 32, 48, 72, 500, 60_000)))
    kind = rng.choice(asked)
    value = rng.choice((0, 1, 511, 512, 2**32 - 1))
    data = bytearray(encode(kind, payload, value, limit=0.05) + payload)
    how = rng.random()
    if how < 0.7:
        return bytes(data), True
    if how < 0.8:  # a header that is damaged
        data[rng.randrange(HEADER_BYTES)] ^= 1 << rng.randrange(8)
        return bytes(data), False
    if how < 0.9:  # a length that is not true
        head = bytearray(data[:HEADER_BYTES])
        struct.pack_into("<Q", head, 16, rng.choice((2**16 + 1, 2**31, 2**40, 2**64 - 1)))
        struct.pack_into("<I", head, 36, zlib.crc32(head[:36]))
        return bytes(head) + payload, False
    return bytes(data[: rng.randrange(1, len(data))]), False


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_worker_refuses_frames_that_are_not_ours_without_growth(tmp_path, count):
    rng, fuzzed = random.Random(count), Fuzzed(tmp_path)
    kinds = set()
    try:
        for _ in range(count):
            frame = fuzzed.ask(*made_up(rng))
            kinds.add(None if frame is None else frame.kind)
    finally:
        fuzzed.stop()
    assert {Kind.DONE, Kind.BAD, Kind.BYE} <= kinds
    assert fuzzed.most < 16 << 20
    assert not list(tmp_path.glob("loopwright-run-*"))
