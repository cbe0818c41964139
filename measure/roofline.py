"""Roofline of this machine, as measured: to show results as shares of it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import ForKind

from loopwright.codegen.build import build_fixed
from loopwright.codegen.library.calls import Call
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.codegen.tir.pipeline import compiled, object_file
from loopwright.dsl.index import indices
from loopwright.dsl.tensor import tensor
from loopwright.dsl.workload import workload
from loopwright.measure.lease import MachineLease
from loopwright.measure.machine import last_level_caches, memory_share, one_per_core
from loopwright.measure.timing import Timer, Timing
from loopwright.schedule.target import Target

_STEPS = 100_000
_TIMING = Timing(relative=0.01, cap=0.3)
_MOST_BYTES = 256 << 20
_ROWS = (16, 64, 256, 1024)


@dataclass(frozen=True)
class Roofline:
    """The most that a target's threads do together.

    Attributes
    ----------
    flops: float32 operations a second, by multiply-adds on registers alone; each counts two.
        That of one thread, times the cores that the threads keep busy.
    bandwidth: bytes a second, read and written, of copying arrays larger than any cache.
    """

    flops: float
    bandwidth: float
    threads: int

    def seconds(self, flops: float, moved: float) -> float:
        """The least time for so many operations and bytes: the roofline."""
        return max(flops / self.flops, moved / self.bandwidth)


@functools.cache
def roofline(target: Target) -> Roofline:
    """Measure the roofline of this machine with a target's threads; seconds, once.

    Raises `BuildError` without a toolchain, `TargetError` for another machine's target.
    """
    return Roofline(peak_flops(target), _bandwidth(target), target.threads)


def reader(size: int, target: Target) -> Call:
    """A call that reads an array of `size` bytes, or a little more, as fast as a target's threads
    get it: sums of its rows, as many as are the fastest. Called again and again, from the smallest
    cache that holds it, or from memory.

    Raises as `roofline` does.
    """
    return min((_summing(rows, size, target) for rows in _ROWS), key=best_seconds)


def _summing(rows: int, size: int, target: Target) -> Call:
    i, j = indices("i j")
    x, y = tensor("x", (rows, math.ceil(size / 4 / rows))), tensor("y")
    y[i] += x[i, j]
    return on_ones(build_fixed(workload(y), None, target))


@functools.cache
def peak_flops(target: Target) -> float:
    """Measure the `flops` of the roofline alone, in less than a second, once: one thread's best,
    times the cores that they keep busy, since two threads of a core share its units. Together
    they may be disturbed for as long as a measurement takes, one is hardly ever. Raises as
    `roofline` does."""
    # Enough accumulators to hide the latency of two units, registers left for the operands.
    shape = (min(16, target.vector_registers - 4), target.lanes(4))
    made = Signature("peak", (), (Parameter("out", shape, "float32"),))
    code = object_file(compiled({"main": _multiply_adds(shape)}, target))
    library = Library.from_object(code, made, target_triple=target.triple)
    cores = min(target.threads, len(one_per_core()))
    return cores * 2.0 * _STEPS * math.prod(shape) / best_seconds(on_ones(library))


def _multiply_adds(shape: tuple[int, int]) -> Any:
    """out[:, :] = acc after many acc := acc · 0.5 + 0.25, which stays in registers."""
    vectors, lanes = shape
    out, acc = (tirx.decl_buffer((vectors * lanes,), "float32", name) for name in ("out", "acc"))
    step = tirx.Var("step", "int32")

    def every(store: Callable[[Any], Any]) -> Any:
        v, lane = tirx.Var("v", "int32"), tirx.Var("lane", "int32")
        inner = _loop(lane, lanes, store(v * lanes + lane), ForKind.VECTORIZED)
        return _loop(v, vectors, inner, ForKind.UNROLLED)

    def number(value: float) -> Any:
        return tirx.FloatImm("float32", value)

    def held(at: Any) -> Any:
        return tirx.BufferLoad(acc, [at])

    def add(at: Any) -> Any:
        return tirx.BufferStore(acc, held(at) * number(0.5) + number(0.25), [at])

    begin = every(lambda at: tirx.BufferStore(acc, number(1.0), [at]))
    end = every(lambda at: tirx.BufferStore(out, held(at), [at]))
    body = [tirx.AllocBuffer(acc), begin, _loop(step, _STEPS, every(add)), end]
    function = tirx.PrimFunc([out], tirx.SeqStmt(body))
    return function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)


def _loop(variable: Any, extent: int, body: Any, kind: Any = ForKind.SERIAL) -> Any:
    zero, count = tirx.IntImm("int32", 0), tirx.IntImm("int32", extent)
    return tirx.For(variable, zero, count, kind, body)


def _bandwidth(target: Target) -> float:
    caches = sum(size for _, size in last_level_caches())
    most = min(max(2 * caches, _MOST_BYTES), memory_share() // 4)
    count = min(4 * caches, most) // 4
    return 8 * count / copy_seconds(count, target)


def copy_seconds(count: int, target: Target) -> float:
    """Seconds of a call that copies so many float32 elements."""
    (i,) = indices("i")
    x, y = tensor("x", (count,)), tensor("y")
    y[i] = x[i]
    return best_seconds(on_ones(build_fixed(workload(y), None, target)))


def on_ones(library: Library) -> Call:
    """A call of a library on arrays of ones: zeros would be all one page."""
    return library.prepare_call(*(np.ones(p.shape, p.dtype) for p in library.inputs))


def best_seconds(call: Call) -> float:
    """Seconds of the fastest sample."""
    call()  # the pages of new arrays come with their first use
    with MachineLease():
        return min(Timer(call, _TIMING).run())
