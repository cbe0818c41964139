"""What this machine can do at most, as measured: to show results as shares of it."""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.tirx import ForKind

from loopwright.codegen.build import build
from loopwright.codegen.library import Library
from loopwright.codegen.signature import Parameter, Signature
from loopwright.codegen.target import tvm_target
from loopwright.dsl.index import indices
from loopwright.dsl.tensor import tensor
from loopwright.dsl.workload import workload
from loopwright.measure.machine import last_level_bytes
from loopwright.measure.timing import Timer, Timing
from loopwright.schedule.target import Target

_STEPS = 100_000
_TIMING = Timing(relative=0.01, cap=0.3)
_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Peak:
    """The most that a target's threads do together.

    Attributes
    ----------
    flops: float32 operations a second, by multiply-adds on registers alone; each counts two.
    bandwidth: bytes a second, read and written, of copying arrays larger than any cache.
    """

    flops: float
    bandwidth: float
    threads: int

    def seconds(self, flops: float, moved: float) -> float:
        """The least time for so many operations and bytes: the roofline."""
        return max(flops / self.flops, moved / self.bandwidth)


@functools.cache
def peak(target: Target) -> Peak:
    """Measure the peak of this machine with a target's threads; about two seconds, once.

    Raises `BuildError` without a toolchain, `TargetError` for another machine's target.
    """
    return Peak(_flops(target), _bandwidth(target), target.threads)


def _flops(target: Target) -> float:
    # Enough accumulators to hide the latency of two units, registers left for the operands.
    shape = (target.threads, min(16, target.vector_registers - 4), target.lanes(4))
    made = Signature("peak", (), (Parameter("out", shape, "float32"),), threads=target.threads)
    code = _compile(_multiply_adds(shape), target)
    library = Library.from_object(code, made, target_triple=target.triple)
    return 2.0 * _STEPS * math.prod(shape) / _best(library)


def _multiply_adds(shape: tuple[int, int, int]) -> Any:
    """out[thread, :, :] = acc after many acc := acc · 0.5 + 0.25, which stays in registers."""
    threads, vectors, lanes = shape
    out = tirx.decl_buffer(shape, "float32", "out")
    acc = tirx.decl_buffer((vectors, lanes), "float32", "acc", scope="local")
    thread, step = tirx.Var("thread", "int32"), tirx.Var("step", "int32")

    def every(store: Callable[[Any, Any], Any]) -> Any:
        v, lane = tirx.Var("v", "int32"), tirx.Var("lane", "int32")
        inner = _loop(lane, lanes, store(v, lane), ForKind.VECTORIZED)
        return _loop(v, vectors, inner, ForKind.UNROLLED)

    def number(value: float) -> Any:
        return tirx.FloatImm("float32", value)

    def held(v: Any, lane: Any) -> Any:
        return tirx.BufferLoad(acc, [v, lane])

    def add(v: Any, lane: Any) -> Any:
        value = held(v, lane) * number(0.5) + number(0.25)
        return tirx.BufferStore(acc, value, [v, lane])

    begin = every(lambda v, lane: tirx.BufferStore(acc, number(1.0), [v, lane]))
    end = every(lambda v, lane: tirx.BufferStore(out, held(v, lane), [thread, v, lane]))
    body = tirx.SeqStmt([tirx.AllocBuffer(acc), begin, _loop(step, _STEPS, every(add)), end])
    return tirx.PrimFunc([out], _loop(thread, threads, body, ForKind.PARALLEL))


def _loop(variable: Any, extent: int, body: Any, kind: Any = ForKind.SERIAL) -> Any:
    zero, count = tirx.IntImm("int32", 0), tirx.IntImm("int32", extent)
    return tirx.For(variable, zero, count, kind, body)


def _compile(function: Any, target: Target) -> bytes:
    named = function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        module = tirx.build(tvm.IRModule({"main": named}), tvm_target(target))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "peak.o"
        module.write_to_file(str(path))
        return path.read_bytes()


def _bandwidth(target: Target) -> float:
    count = min(4 * last_level_bytes(), _MOST_BYTES) // 4
    (i,) = indices("i")
    x, y = tensor("x", (count,)), tensor("y")
    y[i] = x[i]
    copy = workload(y)
    return copy.min_bytes / _best(build(copy, None, target))


def _best(library: Library) -> float:
    """Seconds of the fastest sample."""
    inputs = [np.ones(p.shape, p.dtype) for p in library.inputs]  # zeros would be all one page
    call = library.prepare_call(*inputs)
    call()  # the pages of new arrays come with their first use
    return min(Timer(call, _TIMING).run())
