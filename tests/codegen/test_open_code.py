"""Code of open sizes computes in its loops what follows from them, and nothing else again."""

import itertools
import re

import pytest

import loopwright as lw
from loopwright.codegen.open.build import default_configs
from loopwright.codegen.tir.emit import emit
from loopwright.dsl.errors import BuildError, ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.size import Dim
from loopwright.schedule.open.program import open_program
from loopwright.schedule.tree.formula import Formula, never_negative
from tests.targets import AVX512_LARGE


def softmax(n):
    return lw.ops.softmax(lw.tensor("X", (8, n)))


def product(n):
    return lw.ops.batch_matmul(lw.tensor("P", (2, n, n)), lw.tensor("V", (2, n, 24)))


def depthwise(n):
    """A convolution whose columns are 0 behind the edges, channels last."""
    x, w = lw.tensor("X", (1, 12, n, 64)), lw.tensor("W", (5, 5, 1, 64), constant=True)
    return lw.ops.depthwise_conv2d(x, w, padding=2, layout="NHWC")


@pytest.fixture(params=[softmax, product])
def code(request):
    return code_of(request.param)


def code_of(operator):
    """The code of a default program of lengths from 1 to 300, made for 50."""
    work = lw.workload(operator(lw.dim("n", 1, 300)))
    config = next(default_configs(work, AVX512_LARGE, Numerics.STANDARD, {"n": 50}))
    made = open_program(work, AVX512_LARGE, config, {"n": 50})
    arguments = (*made.tree.inputs, *made.tree.prepared, *made.tree.outputs)
    return emit("main", arguments, made.tree.body, made.target, dims=made.dims).script()


def test_places_are_sums_of_64_bits(code):
    widened = re.findall(r"""Cast\("int64", ([^()]*)\)""", code)
    assert widened
    assert not [part for part in widened if re.search(r"[+*]", part)]


def test_neighbours_in_a_padded_image_are_read_as_vectors():
    code = code_of(depthwise)
    assert "lane" in code
    for part in code.split('Cast("int64", ')[1:]:
        depths = itertools.accumulate({"(": 1, ")": -1}.get(x, 0) for x in part)
        inside = part[: next(k for k, depth in enumerate(depths) if depth < 0)]
        assert "lane" not in inside, inside


def test_only_the_last_tile_of_an_axis_has_a_limit(code):
    limited = re.findall(r"(\w+): T.let\[T.int32\] = T.min", code)
    assert limited
    assert all("_base" in name for name in limited)


def test_a_number_is_looked_at_for_every_size():
    dims = [Dim("n", 1, 50, 1), Dim("m", 2, 40, 2)]
    n, m = map(Formula.of, dims)
    tiles, last = (n + 7) // 8, (n - 1) // 8
    assert never_negative(last + 1 - tiles, dims)
    assert not never_negative(last - tiles, dims)
    assert never_negative(m // 2 * 2 - m, dims)
    assert not never_negative(m - n, dims)
    assert never_negative(m + 48 - n, dims)


def test_numbers_of_too_many_sizes_are_not_looked_at():
    dims = [Dim("n", 1, 4096, 1), Dim("m", 1, 4096, 1)]
    n, m = map(Formula.of, dims)
    assert not never_negative((n + m) // 2 * 2 - n - m + 1, dims)


def test_what_is_read_once_has_blocks_enough_for_all_threads_at_smaller_sizes():
    n = lw.dim("n", 1, 512)
    work = lw.workload(lw.ops.gelu(lw.tensor("X", (n, 3072))))
    config = next(default_configs(work, AVX512_LARGE, Numerics.STANDARD, {"n": 128}))
    made = open_program(work, AVX512_LARGE, config, {"n": 128})
    blocks = made.tree.body[0].extent
    assert blocks.at({"n": 32}) >= 4 * AVX512_LARGE.threads
    assert open_program(work, AVX512_LARGE, made.config, {"n": 128}) == made


def test_more_sizes_than_memory_has_room_for_are_refused(monkeypatch):
    def too_many(*_):
        raise MemoryError

    monkeypatch.setattr("loopwright.schedule.tree.verifier._problems", too_many)
    work = lw.workload(softmax(lw.dim("n", 1, 300)))
    config = next(default_configs(work, AVX512_LARGE, Numerics.STANDARD, {"n": 77}))
    with pytest.raises(ConfigError, match="more sizes than there is memory to verify it at: give"):
        open_program(work, AVX512_LARGE, config, {"n": 77})


def test_numbers_of_two_dims_of_many_sizes_each_are_looked_at_one_by_one():
    n, m = lw.dim("n", 1, 4096), lw.dim("m", 1, 100_000)
    work = lw.workload(lw.ops.dense(lw.tensor("X", (n, 8)), lw.tensor("W", (m, 8))))
    sizes = {"n": 4096, "m": 100_000}
    config = next(default_configs(work, AVX512_LARGE, Numerics.STANDARD, sizes))
    made = open_program(work, AVX512_LARGE, config, sizes)
    assert all(d.high / d.low > 10 for d in made.dims)


def test_more_elements_than_indices_count_are_refused_before_programs_are_made():
    n, m = lw.dim("n", 1, 4096), lw.dim("m", 1, 1_000_000)
    layer = lw.ops.dense(lw.tensor("X", (n, 8)), lw.tensor("W", (m, 8)))
    with pytest.raises(BuildError, match=r"4096000000 elements at n=4096, m=1000000.*narrower"):
        lw.build(layer)
