"""Libraries of open sizes: right at every size, refused sizes, and what a library offers."""

import contextlib
import copy
import itertools
import pickle
import subprocess

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.open.build import default_configs, open_library
from loopwright.codegen.open.library import OpenLibrary
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import (
    ConfigError,
    LibraryError,
    LoopwrightError,
    NotationError,
    RangeError,
    ShapeError,
)
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.oracle import evaluate, tolerance
from loopwright.dsl.size import Dim
from loopwright.dsl.workload import Workload
from loopwright.schedule.open import program as program_module
from loopwright.schedule.open.cover import Cover, cover
from loopwright.schedule.open.fit import Fit
from loopwright.schedule.open.numbers import at_sizes, structure
from loopwright.schedule.open.program import open_program
from loopwright.schedule.open.retarget import retargeted
from loopwright.schedule.open.rule import Rule
from loopwright.schedule.open.unify import Unification
from loopwright.schedule.space import space
from loopwright.schedule.tree.formula import Formula
from tests.targets import AVX512_LARGE, HERE
from tests.thin import thinned


def dense(weights_are_constant=False):
    n = lw.dim("n", 1, 300)
    w = lw.tensor("W", (40, 33), constant=weights_are_constant)
    return lw.workload(lw.ops.dense(lw.tensor("X", (n, 33)), w))


def product_of_open_sums():
    n = lw.dim("n", 1, 200)
    return lw.workload(lw.ops.matmul(lw.tensor("X", (19, n)), lw.tensor("Y", (n, 21))))


def attention():
    n = lw.dim("n", 1, 70)
    return lw.workload(lw.ops.attention(*(lw.tensor(name, (2, n, 16)) for name in "QKV")))


def convolution(weights_are_constant=True):
    n = lw.dim("n", 5, 60)
    w = lw.tensor("W", (16, 8, 3, 3), constant=weights_are_constant)
    return lw.workload(lw.ops.conv2d(lw.tensor("X", (1, 8, 9, n)), w))


def softmax():
    return lw.workload(lw.ops.softmax(lw.tensor("X", (5, lw.dim("n", 1, 400)))))


def pooling():
    n = lw.dim("n", 4, 64, multiple=2)
    return lw.workload(lw.ops.max_pool2d(lw.tensor("X", (1, 3, n, n)), 2))


def batches():
    b, s = lw.dim("b", 1, 5), lw.dim("s", 1, 40)
    x, y = lw.tensor("X", (b, s, 12)), lw.tensor("Y", (b, 12, s))
    return lw.workload(lw.ops.batch_matmul(x, y))


def elements():
    b, s = lw.dim("b", 1, 6), lw.dim("s", 1, 50)
    return lw.workload(lw.ops.gelu(lw.tensor("X", (b, s, 7))))


def padded():
    x = lw.tensor("X", (1, 4, 6, lw.dim("n", 3, 50)))
    w = lw.tensor("W", (8, 4, 3, 3), constant=True)
    return lw.workload(lw.ops.conv2d(x, w, padding=1, stride=2))


def normalized():
    n = lw.dim("n", 1, 90)
    x, scale, shift = (lw.tensor(*t) for t in (("X", (3, n)), ("S", (n,)), ("T", (n,))))
    return lw.workload(lw.ops.layer_norm(x, scale, shift))


def averaged():
    return lw.workload(lw.ops.global_avg_pool2d(lw.tensor("X", (2, 3, 6, lw.dim("n", 1, 70)))))


def long_rows():
    return lw.workload(lw.ops.softmax(lw.tensor("X", (2, lw.dim("n", 8900, 9100)))))


def product_of_three():
    m, n, k = lw.dim("m", 2, 90), lw.dim("n", 2, 70), lw.dim("k", 2, 400)
    return lw.workload(lw.ops.matmul(lw.tensor("X", (m, k)), lw.tensor("Y", (k, n))))


def places():
    return lw.workload(lw.ops.argmax(lw.tensor("X", (3, lw.dim("n", 1, 90))), axis=1))


def running_sums():
    x = lw.tensor("X", (lw.dim("m", 1, 20), lw.dim("n", 1, 300)))
    return lw.workload(lw.ops.cumsum(x, reverse=True))


def rows_of_two_dims():
    b, n = lw.dim("b", 1, 9), lw.dim("n", 1, 130)
    x, w = lw.tensor("X", (b, n, 25)), lw.tensor("W", (25, 25), constant=True)
    return lw.workload(lw.ops.relu(lw.einsum("bnk,ko->bno", x, w)))


def sorted_columns():
    x = lw.tensor("X", (lw.dim("m", 1, 9), lw.dim("n", 1, 7)))
    return lw.workload(lw.ops.sort(x, axis=0))


def padded_to_a_multiple():
    n = lw.dim("n", 9, 200)
    x, y = lw.tensor("X", (2, n, 4)), lw.tensor("Y", (2, (n + 7) // 8 * 8, 4))
    i, j, k = lw.indices("i j k")
    y[i, j, k] = lw.where(j < n, x[i, j, k], 0.0)
    return lw.workload(y)


MAKERS = (
    dense,
    lambda: dense(True),
    product_of_open_sums,
    attention,
    convolution,
    lambda: convolution(False),
    softmax,
    pooling,
    batches,
    elements,
    padded,
    normalized,
    averaged,
    long_rows,
    product_of_three,
    places,
    running_sums,
    rows_of_two_dims,
    sorted_columns,
)


def drawn_sizes(dims, rng):
    return {
        d.name: int(rng.integers(d.low // d.multiple, d.high // d.multiple + 1)) * d.multiple
        for d in dims
    }


def ends(dims):
    yield {d.name: d.low for d in dims}
    yield {d.name: d.high for d in dims}


def wrong(workload: Workload, library, sizes, rng, growth=1.0) -> str | None:
    """What is wrong with a library at sizes; it writes between guards."""
    fixed = workload.at(**sizes)
    inputs = [rng.standard_normal(t.shape).astype(t.dtype) for t in fixed.inputs]
    wanted = evaluate(fixed, inputs)
    spaces = [np.full(r.size + 128, 77, r.dtype) for r in wanted]
    outputs = tuple(
        s[64 : 64 + r.size].reshape(r.shape) for s, r in zip(spaces, wanted, strict=True)
    )
    library(*inputs, out=outputs)
    rtol, atol = tolerance(fixed, growth)
    for output, reference, room in zip(outputs, wanted, spaces, strict=True):
        if not np.allclose(output, reference, rtol=rtol, atol=atol):
            return f"{sizes}: off by {np.abs(output - reference).max()}"
        if (room[:64] != 77).any() or (room[64 + reference.size :] != 77).any():
            return f"{sizes}: it wrote outside of its output"
    return None


@pytest.mark.sampled(0.5, every_value=False)
@pytest.mark.parametrize("make", thinned(MAKERS))
def test_one_library_is_right_at_all_sizes(make):
    workload, rng = make(), np.random.default_rng(1)
    library = lw.build(workload, threads=2)
    assert isinstance(library, OpenLibrary)
    for sizes in [*ends(workload.dims), *(drawn_sizes(workload.dims, rng) for _ in range(12))]:
        assert wrong(workload, library, sizes, rng) is None


def test_one_program_pads_to_a_multiple_where_there_is_nothing_to_pad_too():
    workload, target = padded_to_a_multiple(), resolve("cpu", 2)
    sizes = {"n": 199}
    (config, *_) = default_configs(workload, target, Numerics.STANDARD, sizes)
    program = open_program(workload, target, config, sizes)
    assert program.takes({"n": 200})
    assert program.takes({"n": 192})


@pytest.mark.parametrize("make", [rows_of_two_dims, sorted_columns, padded_to_a_multiple])
def test_few_programs_serve_all_sizes(make):
    workload, rng = make(), np.random.default_rng(2)
    library = lw.build(workload, threads=2)
    for sizes in [*ends(workload.dims), *(drawn_sizes(workload.dims, rng) for _ in range(6))]:
        assert wrong(workload, library, sizes, rng) is None


def triples(count, seed):
    """Random configs of random sizes, tried at random sizes: how many were, and what is wrong."""
    rng = np.random.default_rng(seed)
    target, tried, faults = resolve("cpu", 2), 0, []
    while tried < count:
        workload = MAKERS[rng.integers(len(MAKERS))]()
        own = drawn_sizes(workload.dims, rng)
        config = space(workload.at(**own), target, "standard").sample(rng)
        try:
            program = open_program(workload, target, config, own)
        except ConfigError:
            continue
        box = tuple((d.low, d.high) for d in program.dims)
        cover = Cover(workload.dims, (program,), (Rule(box, 0),))
        library = open_library(cover, workload, target, "fuzzed", "standard")
        inside = [*ends(program.dims), *(drawn_sizes(program.dims, rng) for _ in range(8))]
        for sizes in inside:
            tried += 1
            fault = wrong(workload, library, sizes, rng, program.sketch.error_growth)
            if fault is not None:
                faults.append(f"{config} of {own}: {fault}")
    return tried, faults


def test_programs_of_random_configs_are_right_where_they_say():
    assert triples(60, seed=0)[1] == []


@pytest.mark.slow
def test_programs_of_many_random_configs_are_right_where_they_say():
    assert triples(2000, seed=7)[1] == []


def off(made: Unification):
    """The sizes at which the numbers of a structure are not what their formulas say."""
    box = made.unified()
    for values in itertools.product(*(range(d.low, d.high + 1, d.multiple) for d in box.dims)):
        sizes = dict(zip((d.name for d in box.dims), values, strict=True))
        numbers = dict(enumerate(made.numbers))
        numbers |= {place: f.at(sizes) for place, f in box.formulas.items()}
        kind, found = made.structure(sizes)
        if not made.same(kind) or found != tuple(numbers.values()):
            yield sizes


def programs_off_their_formulas(count, seed, makers):
    rng, target = np.random.default_rng(seed), resolve("cpu", 2)
    for _ in range(count):
        workload = makers[rng.integers(len(makers))]()
        own = drawn_sizes(workload.dims, rng)
        config = space(workload.at(**own), target, "standard").sample(rng)
        with contextlib.suppress(ConfigError):
            config = program_module.general(workload, target, config, own)
            for sizes in off(program_module._Opening(workload, target, config, own)):
                yield f"{config} of {own}: {sizes}"


def test_formulas_of_random_configs_are_the_numbers_at_every_size():
    assert [*programs_off_their_formulas(6, 0, (convolution, attention, dense))] == []


@pytest.mark.slow
def test_formulas_of_many_random_configs_are_the_numbers_at_every_size():
    one_dim = [make for make in MAKERS if len(make().dims) == 1]
    assert [*programs_off_their_formulas(400, 1, one_dim)] == []


class Numbered(Unification):
    """A structure with a number that is a function of n."""

    def __init__(self, number, low=19, high=60):
        super().__init__((Dim("n", low, high),), {"n": 30}, [3, 7, 16, 23, 32])
        self.number = number

    def structure(self, sizes):
        n = sizes["n"]
        return "loops", (self.number(n), 2 * ((n - 1) // 2), 9 * n, 33 * (n + 2), 5)


@pytest.mark.sampled(0.2, every_value=False)
@pytest.mark.parametrize("odd", range(19, 61))
def test_a_number_that_leaves_its_formula_at_one_size_of_a_few_is_found(odd):
    with contextlib.suppress(ConfigError):
        assert [*off(Numbered(lambda n: (2 * n - 2) // 7 + (n == odd)))] == []


@pytest.mark.parametrize("high", [60, 300, 3000])
@pytest.mark.parametrize(
    "number",
    [
        lambda n: (9 * n - 1) // 32,
        lambda n: (33 * (n + 2) + 63) // 64,
        lambda n: (2 * ((n - 1) // 2) + 68) // 69,
        lambda n: min((9 * n + 111) // 112, 4),
        lambda n: n - 16 * ((n - 1) // 16),
        lambda n: 48 - 3 * ((n + 22) // 23),
    ],
    ids=["quotient", "of padding", "nested", "limited", "rest", "falling"],
)
def test_of_formulas_that_agree_at_most_sizes_the_right_one_is_found(number, high):
    made = Numbered(number, high=high)
    assert [*off(made)] == []
    assert made.unified().dims == made.all_dims


def test_a_known_formula_that_is_nothing_at_all_sizes_tried_hinders_no_sum():
    dims = Dim("n", 1, 16), Dim("m", 1, 16)
    n, m = map(Formula.of, dims)
    odd = n - n // 2 * 2
    sizes = {"n": np.array([2, 4, 8, 16]), "m": np.array([3, 5, 2, 16])}
    total = sizes["n"] + 3 * sizes["m"]
    fit = Fit(dims, sizes, [2, 3], np.stack([total, sizes["n"]], axis=1), (odd,))
    assert [str(made[0]) for made in fit.formulas([total])] == [str(m * 3 + n)]


def test_the_elements_of_images_whose_rows_and_columns_come_in_steps_have_a_formula():
    dims = Dim("b", 1, 4), Dim("h", 3, 31), Dim("w", 3, 31)
    b, h, w = map(Formula.of, dims)
    drawn = np.random.default_rng(0).integers([1, 3, 3], [5, 32, 32], (40, 3)).T
    sizes = dict(zip("bhw", drawn))
    rows, columns = (h + 1) // 2 * 2 + 1, (w + 1) // 2 * 2 + 1
    elements = b * rows * columns * 3
    numbers = [rows, columns, elements - 64]
    table = np.stack([number.at(sizes) for number in numbers], axis=1)
    found = Fit(dims, sizes, [2, 3], table).formulas([*table.T])
    everywhere = dict(zip("bhw", np.mgrid[1:5, 3:32, 3:32]))
    for number, made in zip(numbers, found, strict=True):
        assert (made[0].at(everywhere) == number.at(everywhere)).all()


def test_a_workload_that_differs_from_one_before_in_names_alone_is_right():
    a, b = np.random.default_rng(0).random((2, 6, 6), np.float32)
    for names, dims in (("XW", "nm"), ("WX", "nm"), ("XW", "mn"), ("YZ", "pq")):
        n, m = (lw.dim(each, 1, 6) for each in dims)
        x, w = lw.tensor(names[0], (n, 6)), lw.tensor(names[1], (6, m))
        library = lw.build(lw.ops.matmul(x, w), target=HERE)
        np.testing.assert_allclose(library(a[:3], b), a[:3] @ b, rtol=1e-5)


def test_a_size_that_is_not_allowed_is_an_error_before_anything_runs():
    library = lw.build(dense())
    with pytest.raises(RangeError, match=r"n is 301 .* takes 1 to 300"):
        library(np.zeros((301, 33), "float32"), np.zeros((40, 33), "float32"))
    with pytest.raises(RangeError, match="give one value for each of: n: 1 to 300"):
        library.at(m=3)


def test_more_sizes_than_can_be_verified_are_refused_with_the_remedy():
    x = lw.tensor("X", (lw.dim("n", 1, 1 << 23),))
    with pytest.raises(ConfigError, match=r"8388608 sizes .* narrower bounds or a multiple"):
        lw.build(lw.workload(lw.ops.relu(x)))


def test_shapes_that_disagree_are_named_with_their_axes():
    n = lw.dim("n", 2, 9)
    library = lw.build(lw.ops.matmul(lw.tensor("Q", (3, n)), lw.tensor("K", (n, 4))))
    with pytest.raises(ShapeError, match="K"):
        library(np.zeros((3, 5), "float32"), np.zeros((6, 4), "float32"))


def test_a_config_of_fixed_sizes_is_refused_for_open_ones():
    workload = dense()
    config = lw.space(workload.at(n=7)).default
    with pytest.raises(ConfigError, match=r"workload.at\(n=…\)"):
        lw.build(workload, config)


def test_bound_constants_are_laid_out_once_for_all_sizes():
    workload, rng = dense(True), np.random.default_rng(0)
    w = rng.standard_normal((40, 33)).astype("float32")
    bound = lw.build(workload).bind(W=w)
    assert [p.name for p in bound.inputs] == ["X"]
    for n in (1, 2, 5, 64, 299):
        x = rng.standard_normal((n, 33)).astype("float32")
        np.testing.assert_allclose(bound(x), x @ w.T, rtol=1e-4, atol=1e-4)


def test_an_input_of_open_shape_cannot_be_bound():
    with pytest.raises(ShapeError, match="has open sizes"):
        lw.build(dense()).bind(X=np.zeros((3, 33), "float32"))


def weights_of_open_shape():
    x, w = lw.tensor("X", (5, 24)), lw.tensor("W", (lw.dim("n", 2, 40), 24), constant=True)
    return lw.workload(lw.ops.dense(x, w))


def values_of_a_size():
    n = lw.dim("n", 2, 40)
    x, k = lw.tensor("X", (n, 3)), lw.tensor("K", (4, 3), constant=True)
    i, r = lw.indices("i r")
    scaled = lw.tensor("T", (4, 3))
    scaled[r, i] = k[r, i] / lw.cast(n, "float32")
    y = lw.einsum("ji,ri->jr", x, scaled)
    return lw.workload(lw.ops.dense(y, lw.tensor("W", (9, 4), constant=True)))


@pytest.mark.parametrize(
    ("make", "constants"), [(weights_of_open_shape, ()), (values_of_a_size, ("W",))]
)
def test_constants_of_which_a_size_makes_others_are_read_in_each_call(make, constants):
    workload, rng = make(), np.random.default_rng(4)
    library = lw.build(workload, threads=2)
    assert library.open_signature.constants == constants
    for n in (2, 3, 17, 40):
        assert wrong(workload, library, {"n": n}, rng) is None


def test_a_program_that_prepares_what_depends_on_a_size_is_told_which_constants_to_give():
    workload, target = values_of_a_size(), resolve("cpu", 2)
    (config, *_) = default_configs(workload, target, Numerics.STANDARD, {"n": 40})
    with pytest.raises(ConfigError, match=r"prepared of K depends on a size .*no constants"):
        open_program(workload, target, config, {"n": 40})


def test_the_library_of_one_size_shares_the_code():
    library, x = lw.build(softmax()), np.random.default_rng(0).random((5, 9), "float32")
    np.testing.assert_array_equal(library.at(n=9)(x), library(x))
    call = library.prepare_call(x)
    call()
    np.testing.assert_array_equal(call.outputs[0], library(x))


def test_every_error_is_the_packages_own():
    n = lw.dim("n", 1, 9)
    workload = lw.workload(lw.ops.relu(lw.tensor("X", (n, 3))))
    for target in ("c", {"kind": "cuda", "arch": "sm_80"}):
        with pytest.raises(LoopwrightError, match="dims"):
            lw.build(workload, target=target)


def test_a_loaded_library_takes_all_sizes(tmp_path):
    workload, rng = convolution(), np.random.default_rng(0)
    loaded = lw.load(lw.build(workload, threads=2).export(tmp_path / "conv.so"))
    assert isinstance(loaded, OpenLibrary)
    for n in (5, 6, 31, 60):
        assert wrong(workload, loaded, {"n": n}, rng) is None
    assert "n from" in str(loaded.explain(n=31))


def test_a_loaded_library_explains_its_choice_in_the_same_words(tmp_path):
    n, b = lw.dim("n", 1, 9), lw.dim("b", 1, 4)
    built = lw.build(lw.ops.relu(lw.tensor("X", (n, b, 3))), threads=1)
    loaded = lw.load(built.export(tmp_path / "relu.so"))
    assert str(loaded.explain(n=7, b=2)) == str(built.explain(n=7, b=2))


def test_copies_and_pickles_are_the_same_library():
    library = lw.build(dense(True), threads=2)
    x, w = np.ones((7, 33), "float32"), np.ones((40, 33), "float32")
    for other in (copy.deepcopy(library), pickle.loads(pickle.dumps(library.bind(W=w)))):
        result = other(x) if len(other.inputs) == 1 else other(x, w)
        np.testing.assert_array_equal(result, np.full((7, 40), 33))


C_PROGRAM = """
#include <stdio.h>
#include "two.h"
int main(void) {
  static float x[300 * 33], w[40 * 33], y[300 * 40];
  for (int i = 0; i < 300 * 33; i++) x[i] = 1;
  for (int i = 0; i < 40 * 33; i++) w[i] = 2;
  for (int64_t n = 1; n <= 300; n += 23) {
    y[n * 40] = -1;
    if (two(n, x, w, y)) return 1;
    for (int64_t i = 0; i < n * 40; i++) if (y[i] != 66) return 2;
    if (n < 300 && y[n * 40] != -1) return 3;
  }
  if (!two(301, x, w, y) || !two(0, x, w, y)) return 4;
  return !two(2, x, w, x + 30); /* an output that overlaps an input */
}
"""


@pytest.mark.parametrize("constant", [False, True])
def test_c_programs_give_the_sizes_before_the_arrays(tmp_path, constant):
    lw.build(dense(constant), threads=2).export(tmp_path / "two.so")
    assert "n: 1 to 300" in (tmp_path / "two.h").read_text()
    assert "[n][33]" in (tmp_path / "two.h").read_text()
    (tmp_path / "main.c").write_text(C_PROGRAM)
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-o", "main", "main.c", "two.so"]
    command += ["-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.run(["./main"], cwd=tmp_path, check=False).returncode == 0


def test_bound_arrays_cannot_go_into_an_export_of_open_sizes(tmp_path):
    bound = lw.build(dense(True)).bind(W=np.ones((40, 33), "float32"))
    with pytest.raises(LibraryError, match="W is bound"):
        bound.export(tmp_path / "two.so")


@pytest.mark.parametrize(("depth", "width"), [(900, 5), (700, 7)])
def test_parts_of_a_long_sum_over_few_results_are_right_at_all_sizes(depth, width):
    """A tile of all 25 or 35 results is no whole number of vectors."""
    n = lw.dim("n", 1, 8)
    X, W = lw.tensor("X", (n, depth)), lw.tensor("W", (depth, width), constant=True)
    library = lw.build(lw.workload(lw.ops.matmul(X, W)), threads=2)
    rng = np.random.default_rng(0)
    for rows in range(1, 9):
        x, w = (rng.random(s, np.float32) for s in ((rows, depth), (depth, width)))
        np.testing.assert_allclose(library(x, w), x @ w, rtol=1e-4)


def test_a_program_like_one_before_is_made_at_fewer_sizes_and_is_the_same(monkeypatch):
    lowered = []
    original = program_module.lower_columns

    def counted(*args):
        lowered.append(args)
        return original(*args)

    monkeypatch.setattr(program_module, "lower_columns", counted)
    workload, made, counts = dense(), [], []
    for n, forget in ((300, False), (100, False), (100, True)):
        if forget:
            program_module._known_of.cache_clear()
            program_module._opened.cache_clear()
        lowered.clear()
        config = space(workload.at(n=n), HERE).default
        made.append(open_program(workload, HERE, config, {"n": n}))
        counts.append(len(lowered))
    assert counts[1] < counts[2]
    (dims,) = {p.dims for p in made[1:]}
    sizes = program_module.grid(dims)
    one, other = (structure(at_sizes(p.tree, sizes)) for p in made[1:])
    assert one[0] == other[0]
    for x, y in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_block_that_is_all_of_an_axis_is_that_at_all_sizes():
    n, m = lw.dim("n", 1, 300), lw.dim("m", 1, 40)
    workload = lw.workload(lw.ops.relu(lw.tensor("X", (n, m, 8))))
    made = cover(
        workload, HERE, lambda sizes: default_configs(workload, HERE, Numerics.STANDARD, sizes)
    )
    rows = [p for p in made.programs if p.dims[1].high == 1 and p.takes({"n": 2, "m": 1})]
    assert {"n": 5, "m": 1} in rows[0].made_for
    assert dict(rows[0].config.values)["block0_0"] == (300,)
    assert len(rows) == 1


def test_a_config_whose_operands_other_sizes_read_in_parts_has_no_form_there():
    """Of images of 3 by 2 each thread has a part of the channels, of those of 2 by 2 none has."""

    def depthwise(h, w):
        x, k = lw.tensor("x", (1, h, w, 160)), lw.tensor("k", (160, 1, 3, 3), constant=True)
        padded, out = lw.tensor("padded", (1, h + 2, w + 2, 160)), lw.tensor("out", (1, h, w, 160))
        n, y, z, c, r, s = lw.indices("n y z c r s", r=3, s=3)
        inside = (y >= 1) & (y < h + 1) & (z >= 1) & (z < w + 1)
        padded[n, y, z, c] = lw.where(inside, x[n, y - 1, z - 1, c], 0.0)
        out[n, y, z, c] += padded[n, y + r, z + s, c] * k[c, 0, r, s]
        return lw.workload(out)

    whole = depthwise(lw.dim("h", 2, 11), lw.dim("w", 2, 11))
    for sketch in space(whole.at(h=2, w=2), AVX512_LARGE).sketches:
        with contextlib.suppress(ConfigError):
            made = retargeted(sketch, whole.at(h=3, w=2), AVX512_LARGE)
            for packed in (p for nest in made.nests for p in nest.packed):
                moving = {i for place in packed.index for i in place.indices()}
                assert moving <= {packed.axis, *packed.outer, *packed.inner}


class Failing:
    def __array__(self, dtype=None, copy=None):
        raise LookupError("no such table")


def test_what_is_no_array_is_told_before_its_shape():
    library = lw.build(dense(), threads=1)
    for x in (None, "X", [[1.0], [2.0, 3.0]], {"X": 1}, np.float32, Failing()):
        with pytest.raises(ShapeError, match=r"X: cannot read .* give float32\[n, 33\]"):
            library(x, np.zeros((40, 33), np.float32))


def pairs_of_rows():
    n, (i, j) = lw.dim("n", 1, 20), lw.indices("i j")
    x, y = lw.tensor("X", (n, 6)), lw.tensor("Y", (n // 2, 6))
    y[i, j] = x[2 * i, j] + x[2 * i + 1, j]
    return y


@pytest.mark.parametrize(
    "make",
    [
        pairs_of_rows,
        lambda: lw.ops.relu(lw.tensor("A", (lw.dim("n", 1, 20) - 1,))),
        lambda: lw.ops.argmax(lw.tensor("A", (3, lw.dim("n", 1, 20) - 1))),
    ],
)
@pytest.mark.parametrize("call", [lw.build, lw.tune])
def test_an_extent_that_is_nothing_at_some_size_is_refused_with_the_remedy(make, call):
    with pytest.raises(NotationError, match=r"0 at some size.* give the dims narrower bounds"):
        call(lw.workload(make()), threads=1)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_the_rest_of_a_row_is_counted_once_at_every_length(dtype):
    kinds = "sum", "prod", "max", "min"
    i, j = lw.indices("i j")
    x, outs = lw.tensor("X", (3, lw.dim("n", 1, 70)), dtype), [lw.tensor(kind) for kind in kinds]
    for kind, out in zip(kinds, outs):
        out[i] = getattr(lw, kind)(x[i, j])
    work = lw.workload(*outs)
    opened = lw.build(work, threads=1)
    rng = np.random.default_rng(0)
    for n in range(1, 71):
        data = rng.integers(1, 3, (3, n)).astype(dtype)
        if dtype != "int32":
            data[0, rng.integers(n)], data[1, rng.integers(n)] = np.inf, np.nan
        expected = [getattr(np, kind)(data, axis=1).astype(dtype) for kind in kinds]
        fixed = [lw.build(work.at(n=n), threads=1)] if n in (25, 43) else []
        for library in (opened, *fixed):
            for made, wanted in zip(library(data), expected, strict=True):
                np.testing.assert_array_equal(made, wanted)
