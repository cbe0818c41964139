"""The verifier of GPU programs: one broken tree for every rule."""

import numpy as np
import pytest

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.expr import Const
from loopwright.schedule.target import Gpu
from loopwright.schedule.tree.grammar import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    Buffer,
    Let,
    Linear,
    Load,
    Loop,
    MatrixFill,
    MatrixLoad,
    Quotient,
    Remainder,
    Store,
    Tree,
    Var,
)
from loopwright.schedule.tree.verifier import legal, verify

GPU = Gpu("sm_80", tensor_cores=True, async_copies=True)
OUT = Buffer("C", (1024,), "float32", "argument")
IN = Buffer("A", (1024,), "float32", "argument")
SHARED = Buffer("S", (64,), "float32", "shared")
SLOTS = Buffer("S", (2, 64), "float32", "shared")
ACC = Buffer("acc", (1, 16, 16), "float32", "accumulator")
BLOCK, THREAD, STEP = Var("block"), Var("thread"), Var("step")
ZERO = Const(0.0, "float32")
MINE = Linear(((THREAD, 1),))


def at(*terms, const=0):
    return Linear(tuple(terms), const)


def tree_of(*body, n=1):
    """A tree with a last kernel that writes all of the result."""
    block, thread = Var("last block"), Var("last thread")
    inner = Loop(thread, 32, "thread", (store(place=at((block, 32), (thread, 1))),))
    return Tree(n, (IN,), (), (OUT,), (), (), (*body, Loop(block, 32, "block", (inner,))))


def kernel(*body, threads=32, blocks=4):
    inner = Loop(THREAD, threads, "thread", body)
    return Loop(BLOCK, blocks, "block", (inner,))


def store(buffer=OUT, place=MINE, value=ZERO):
    return Store(buffer, (place,), value)


def vector(count, place, value=ZERO):
    lane = Var("lane")
    return Loop(lane, count, "vectorized", (store(place=place + at((lane, 1)), value=value),))


def test_a_kernel_with_a_staged_value_is_legal():
    read = Load(SHARED, (at((THREAD, -1), const=31),))
    body = (Allocate(SHARED), store(SHARED), Barrier(), store(value=read))
    verify(tree_of(kernel(*body)), GPU)


def test_the_same_kernel_is_no_tree_for_a_processor():
    with pytest.raises(ConfigError, match="loop block is of no known kind"):
        verify(tree_of(kernel(store())))


def test_slots_that_take_turns_need_one_barrier():
    def slot(ahead):
        return Linear(((Remainder(at((STEP, 1), const=ahead), 2), 1),))

    read = Load(SLOTS, (slot(0), at((THREAD, -1), const=31)))
    write = Store(SLOTS, (slot(1), MINE), ZERO)
    loop = Loop(STEP, 8, "serial", (write, store(value=read), Barrier()))
    verify(tree_of(kernel(Allocate(SLOTS), loop)), GPU)
    one = Loop(STEP, 8, "serial", (Store(SLOTS, (slot(0), MINE), ZERO), *loop.body))
    with pytest.raises(ConfigError, match="S is read after a write without a barrier"):
        verify(tree_of(kernel(Allocate(SLOTS), one)), GPU)


def test_asynchronous_copies_are_there_after_a_wait_and_a_barrier():
    copy = AsyncCopy(SHARED, (at((THREAD, 1)),), IN, (at((THREAD, 1)),), 1)
    read = store(value=Load(SHARED, (at((THREAD, -1), const=31),)))
    start = (Allocate(SHARED), copy, AsyncCommit())
    verify(tree_of(kernel(*start, AsyncWait(0), Barrier(), read)), GPU)
    for wrong in ((Barrier(),), (AsyncWait(0),), (Barrier(), AsyncWait(0))):
        with pytest.raises(ConfigError, match="S is read after a write without a barrier"):
            verify(tree_of(kernel(*start, *wrong, read)), GPU)


def test_a_batch_is_judged_config_by_config():
    threads = np.array([32, 1024, 2048])
    tree = tree_of(kernel(store(place=at()), threads=threads), n=3)
    assert legal(tree, GPU).tolist() == [True, True, False]


def broken():
    read = Load(SHARED, (at((THREAD, -1), const=31),))
    large = Buffer("S", (20000,), "float32", "shared")
    registers = Buffer("r", (300,), "float32", "register")
    guarded = Loop(STEP, 1, "serial", (Barrier(),), at((THREAD, -1), const=3))
    private = Var("private")
    later = Loop(STEP, 1, "serial", (Barrier(),), at((private, -1), const=3))
    copy = AsyncCopy(SHARED, (at(),), IN, (at((THREAD, 1)),), 4)
    back = AsyncCopy(OUT, (at(),), IN, (at(),), 4)
    halves = Buffer("H", (16, 24), "float16", "shared")
    tile = Buffer("a", (2, 16, 16), "float16", "matrix_a")
    odd = MatrixLoad(tile, (at(),), halves, (at(), at(const=4)), 0, 1)
    mine = MatrixLoad(tile, (at((quotient(THREAD), 1)),), halves, (at(), at()), 0, 1)
    yield "outside of all blocks", (store(place=at()),)
    yield "outside of all threads", (Loop(BLOCK, 4, "block", (Loop(STEP, 2, "serial", ()),)),)
    yield (
        "more than one chain",
        (Loop(BLOCK, 4, "block", (*kernel(store()).body, store(place=at()))),),
    )
    yield "block loop step stands inside", (kernel(Loop(STEP, 2, "block", (store(),))),)
    yield "no known kind", (kernel(Loop(STEP, 2, "parallel", (store(),))),)
    yield "2048 threads; at most 1024", (kernel(store(place=at()), threads=2048),)
    yield "80000 bytes of shared memory; at most 49152", (kernel(Allocate(large), store()),)
    yield "needs about 324 registers", (kernel(Allocate(registers), store()),)
    yield "a vector of 8 elements", (kernel(vector(8, at((THREAD, 8)))),)
    yield "a vector of 3 elements", (kernel(vector(3, at((THREAD, 3)))),)
    yield "a multiple of 6 only", (kernel(vector(4, at((THREAD, 6)))),)
    yield "elements of C that are apart", (kernel(Loop(STEP, 2, "vectorized", (spread(),))),)
    yield (
        "read after a write without",
        (kernel(Allocate(SHARED), store(SHARED), store(value=read)),),
    )
    yield (
        "written after a read without",
        (kernel(Allocate(SHARED), store(value=read), store(SHARED)),),
    )
    yield "differs between threads", (kernel(guarded, store()),)
    yield "differs between threads", (kernel(Let(private, MINE, 5), later, store()),)
    yield "copy of 12 bytes", (kernel(Allocate(SHARED), replaced(copy, 3)),)
    yield "a multiple of 1 only", (kernel(Allocate(SHARED), copy),)
    yield "not from global to shared", (kernel(back),)
    yield (
        "innermost thread loop is not",
        (kernel(Allocate(ACC), MatrixFill(ACC, (at(),), 0.0), threads=64),),
    )
    yield "a multiple of 4 only", (kernel(Allocate(halves), Allocate(tile), odd),)
    yield "at different matrix tiles", (kernel(Allocate(halves), Allocate(tile), mine),)


def quotient(var):
    return Quotient(at((var, 1)), 16)


def spread():
    return store(place=at((STEP, 2)))


def replaced(copy, count):
    return AsyncCopy(copy.buffer, copy.index, copy.source, (at(),), count)


@pytest.mark.parametrize(("message", "body"), list(broken()))
def test_the_verifier_rejects_a_broken_kernel(message, body):
    with pytest.raises(ConfigError, match=message):
        verify(tree_of(*body), GPU)


def test_matrix_statements_need_tensor_cores():
    body = kernel(Allocate(ACC), MatrixFill(ACC, (at(),), 0.0), AsyncWait(0))
    verify(tree_of(body), GPU)
    with pytest.raises(ConfigError, match="this GPU multiplies no matrices"):
        verify(tree_of(body), Gpu())
