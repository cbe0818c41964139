"""Chains of products in blocks of rows, with what lies between them."""

from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.open.build import open_library
from loopwright.dsl import ops
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.oracle import evaluate, random_inputs
from loopwright.schedule.open.cover import Cover
from loopwright.schedule.open.program import open_program
from loopwright.schedule.open.rule import Rule
from loopwright.schedule.open.short_tiles import default_for_smaller
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.chain_at_blocks import chain_at_blocks, chain_row_choices
from loopwright.schedule.space import default_sketch
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.sketches import derived, random_configs
from tests.targets import AVX2_SMALL, AVX512_LARGE, HERE

SMALL = replace(HERE, l1_bytes=4 << 10, l2_bytes=8 << 10)
"""A machine whose cache does not hold the scores of a few places."""


def tensor(name, *shape, constant=False):
    return lw.tensor(name, shape, constant=constant)


def attention(places=37, heads=2, depth=5, values=5):
    shapes = (heads, places, depth), (heads, places, depth), (heads, places, values)
    return ops.attention(*(tensor(name, *shape) for name, shape in zip("QKV", shapes)))


def of_itself():
    x = tensor("x", 2, 37, 8)
    return ops.attention(x, x, x)


def crossed():
    return ops.attention(tensor("q", 2, 53, 8), tensor("k", 2, 31, 8), tensor("v", 2, 31, 8))


def masked():
    scores = ops.batch_matmul(tensor("q", 3, 41, 8), tensor("kt", 3, 8, 30))
    biased = ops.add(scores, tensor("mask", 41, 30))
    return ops.batch_matmul(ops.softmax(biased), tensor("v", 3, 30, 7))


def scores_again():
    scores = ops.batch_matmul(tensor("q", 3, 41, 8), tensor("kt", 3, 8, 30))
    gated = ops.mul(ops.softmax(scores), scores)
    return ops.batch_matmul(gated, tensor("v", 3, 30, 7))


def reversed_scores():
    """Shares made of the scores of a row from its end."""
    b, i, j = lw.indices("b i j")
    scores = ops.batch_matmul(tensor("q", 3, 41, 8), tensor("kt", 3, 8, 30))
    shares, turned = ops.softmax(scores), lw.tensor("turned")
    turned[b, i, j] = shares[b, i, j] + scores[b, i, 29 - j]
    return ops.batch_matmul(turned, tensor("v", 3, 30, 7))


def without_batches():
    scores = ops.matmul(tensor("q", 70, 6), tensor("k", 40, 6), transpose_b=True)
    return ops.matmul(ops.softmax(scores), tensor("v", 40, 9))


def columns_of_values():
    scores = ops.matmul(tensor("q", 70, 6), tensor("k", 6, 40))
    return ops.matmul(ops.softmax(scores), tensor("v", 24, 40), transpose_b=True)


def two_layers():
    hidden = ops.relu(ops.dense(tensor("x", 130, 6), tensor("w", 20, 6, constant=True)))
    return ops.dense(hidden, tensor("v", 5, 20, constant=True))


def three_products():
    first = ops.matmul(tensor("a", 90, 7), tensor("b", 7, 30))
    return ops.matmul(ops.matmul(first, tensor("c", 30, 21)), tensor("d", 21, 4))


CASES = {
    "attention": attention,
    "attention of one tensor": of_itself,
    "other queries than keys": crossed,
    "a mask": masked,
    "scores that shares are multiplied by": scores_again,
    "scores from their end": reversed_scores,
    "no batches": without_batches,
    "columns of values": columns_of_values,
    "two layers": two_layers,
    "three products": three_products,
}


@pytest.mark.parametrize("name", CASES)
def test_chains_in_blocks_equal_the_oracle(name):
    workload = lw.workload(CASES[name]())
    sketches = derived(lw.space(workload, SMALL).sketches, "chain_at_blocks")
    configs = [sketches[-1].at(sketches[-1].default), *random_configs(sketches, 2)]
    assert_configs_equal_oracle(workload, configs, SMALL)


NEAR = replace(SMALL, l1_bytes=256)
"""A machine whose nearest cache does not hold the keys of a few places."""


@pytest.mark.parametrize(
    "name", ["attention", "other queries than keys", "a mask", "no batches", "columns of values"]
)
def test_keys_and_values_that_are_laid_out_for_tiles_equal_the_oracle(name):
    workload = lw.workload(CASES[name]())
    found = derived(lw.space(workload, NEAR).sketches, "chain_at_blocks")
    packed = [s for s in found if any(nest.packed for nest in s.nests)]
    assert found[0] in packed
    configs = [found[0].at(found[0].default), *random_configs(packed, 2)]
    assert_configs_equal_oracle(workload, configs, NEAR)


def test_values_that_the_nearest_cache_holds_are_read_where_they_are():
    sketches = derived(lw.space(lw.workload(attention()), SMALL).sketches, "chain_at_blocks")
    assert {p.tensor.name for s in sketches for nest in s.nests for p in nest.packed} == {"K"}


def test_intermediate_results_have_the_rows_of_a_block():
    source = Source.of(lw.workload(attention(places=64)))
    *_, blocks = chain_at_blocks(source, 16)
    assert [axis.extent for axis in blocks.outer] == [2, 4]
    assert {t.shape[0] for t in blocks.scratch} == {16}


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("attention", 1),
        ("a mask", 1),
        ("no batches", 1),
        ("scores that shares are multiplied by", 2),
        ("scores from their end", 2),
    ],
)
def test_shares_take_the_place_of_scores_that_are_read_no_more(name, held):
    first = derived(lw.space(lw.workload(CASES[name]()), SMALL).sketches, "chain_at_blocks")[0]
    (blocks,) = (group for group in first.groups if group.tile_origins)
    assert len([t for t in blocks.scratch if len(t.shape) > 1]) == held


@pytest.mark.parametrize("heads", [1, 2])
def test_keys_are_laid_out_before_all_blocks(heads):
    sketches = lw.space(lw.workload(attention(64, heads)), SMALL).sketches
    first = derived(sketches, "chain_at_blocks")[0]
    (keys,) = first.nests[0].packed
    assert keys.tensor.name == "K"
    assert not keys.local


def test_what_a_cache_holds_is_left_as_it_is():
    source = Source.of(lw.workload(attention()))
    assert chain_row_choices(source, SMALL)
    assert chain_row_choices(source, HERE) == ()


def test_what_each_block_would_read_from_memory_again_is_left_as_it_is():
    hidden = ops.dense(tensor("x", 4096, 64), tensor("w", 1024, 64, constant=True))
    layers = Source.of(lw.workload(ops.dense(hidden, tensor("v", 64, 1024, constant=True))))
    assert chain_row_choices(layers, replace(HERE, l2_bytes=1 << 20))
    assert chain_row_choices(layers, replace(HERE, l2_bytes=64 << 10)) == ()


def test_results_that_others_need_are_in_no_chain():
    q, k, v = tensor("q", 64, 8), tensor("k", 8, 64), tensor("v", 64, 8)
    scores = ops.matmul(q, k)
    assert chain_at_blocks(Source.of(lw.workload(ops.matmul(scores, v))), 16) is not None
    assert chain_at_blocks(Source.of(lw.workload(ops.matmul(scores, v), scores)), 16) is None


def test_a_product_over_rows_is_in_no_chain():
    a, b = tensor("a", 64, 8), tensor("b", 8, 64)
    squared = ops.matmul(ops.matmul(a, b), tensor("c", 64, 8))
    over_rows = ops.matmul(tensor("d", 16, 64), ops.matmul(a, b))
    assert chain_at_blocks(Source.of(lw.workload(squared)), 16) is not None
    assert chain_at_blocks(Source.of(lw.workload(over_rows)), 16) is None


@pytest.mark.parametrize("places", range(17, 130, 7))
def test_blocks_compute_less_than_a_row_each_again(places):
    *_, blocks = chain_at_blocks(Source.of(lw.workload(attention(places))), 16)
    _, count = (axis.extent for axis in blocks.outer)
    (rows,) = {t.shape[0] for t in blocks.scratch}
    assert rows <= 16
    assert places <= count * rows < places + count


def test_tiles_along_open_rows_are_short():
    n = lw.dim("n", 1, 600)
    along, across = ops.softmax(tensor("x", 8, n)), ops.softmax(tensor("x", n, 512))

    def tiles(tensor, size):
        work, sizes = lw.workload(tensor), {"n": size}
        sketch = default_for_smaller(work, AVX2_SMALL, Numerics.STANDARD, sizes)
        alone = default_sketch(work.at(**sizes), AVX2_SMALL, Numerics.STANDARD)
        return sketch.at(sketch.default).values, alone.at(alone.default).values

    short, alone = tiles(along, 512)
    assert {value for name, value in short if name.startswith("tile")} == {(16,)}
    assert {value for name, value in alone if name.startswith("tile")} == {(32,)}
    same, alone = tiles(across, 512)
    assert same == alone


def test_tiles_across_open_places_are_narrow():
    n = lw.dim("n", 1, 600)
    workload = lw.workload(ops.attention(*(lw.tensor(name, (8, n, 64)) for name in "QKV")))
    sketch = default_for_smaller(workload, AVX512_LARGE, Numerics.STANDARD, {"n": 512})
    alone = default_sketch(workload.at(n=512), AVX512_LARGE, Numerics.STANDARD)

    def width(sketch):
        return dict(sketch.at(sketch.default).values)["tile0"][-1]

    assert width(sketch) < width(alone)


def test_a_chain_of_open_length_is_right_at_other_lengths():
    n = lw.dim("n", 1, 300)
    workload = lw.workload(ops.attention(*(lw.tensor(name, (2, n, 8)) for name in "QKV")))
    sketches = derived(lw.space(workload.at(n=90), SMALL).sketches, "chain_at_blocks")
    program = open_program(workload, SMALL, sketches[0].at(sketches[0].default), {"n": 90})
    (known,) = program.dims
    assert known.low < 90 < 200 < known.high
    box = (known.low, known.high)
    cover = Cover(workload.dims, (program,), (Rule((box,), 0),))
    library = open_library(cover, workload, SMALL, "blocks", "strict")
    for size in (*box, 90, 97, 131, 200, 253):
        inputs = random_inputs(workload.at(n=size), np.random.default_rng(size))
        (wanted,) = evaluate(workload.at(n=size), inputs)
        np.testing.assert_allclose(library(*inputs), wanted, rtol=1e-4, atol=1e-5)
