"""Loops over somewhat more than the caches hold, which go forwards and backwards by turns."""

import re
from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.tir.emit import emit
from loopwright.dsl.oracle import evaluate, random_inputs
from loopwright.schedule.lowering import lower
from loopwright.schedule.space import space
from loopwright.schedule.tree.grammar import Loop
from tests.codegen.test_build import assert_equals_oracle
from tests.targets import narrow

SMALL = replace(narrow(2), l2_bytes=8 << 10)
"""Two caches of 2048 elements each."""


def product(k, n, m=1):
    a, b = lw.tensor("a", (m, k)), lw.tensor("b", (k, n), constant=True)
    return lw.workload(lw.ops.matmul(a, b))


def copies(n):
    """As many times over, so that most of what is touched is written."""
    i, j = lw.indices("i j")
    a, out = lw.tensor("a", (n,)), lw.tensor("out", (n, 16))
    out[i, j] = a[i] * 2.0
    return lw.workload(out)


def in_parallel(workload):
    """A sketch and its config with a share of the loop for every register tile."""
    sketch = next(s for s in space(workload, SMALL).sketches if not s.derivation)
    free = (k.name for k in sketch.knobs if k.name.startswith("block") and len(k.choices) > 1)
    blocks = dict.fromkeys(free, 1)
    return sketch, sketch.at(sketch.default).replace(sketch, **blocks)


def built(workload):
    return lw.build(workload, in_parallel(workload)[1], target=SMALL)


def takes_turns(workload, **options):
    sketch, config = in_parallel(workload)
    tree = lower(sketch, SMALL, config).row(0)
    arguments = (*tree.inputs, *tree.prepared, *tree.outputs)
    return "lw_turn" in emit("main", arguments, tree.body, SMALL, **options).script()


@pytest.mark.parametrize("columns", [300, 900, 2000, 20000])
def test_loops_of_few_iterations_are_dealt_out_in_few_shares(columns):
    sketch, config = in_parallel(product(4, columns))
    tree = lower(sketch, SMALL, config).row(0)
    (loop,) = (s for s in tree.body if isinstance(s, Loop) and s.kind == "parallel")
    arguments = (*tree.inputs, *tree.prepared, *tree.outputs)
    text = emit("main", arguments, tree.body, SMALL).script()
    found = re.search(r'"lw_deal", (?:T.int32\()?(\d+)\)?, (?:T.int32\()?(\d+)', text)
    few = -(-loop.extent // SMALL.threads) <= 16
    assert (found is not None) == few
    assert found is None or (int(found[1]), int(found[2])) == (loop.extent, SMALL.threads)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("columns", [512, 1000])
def test_every_call_computes_the_same_on_any_number_of_threads(threads, columns):
    workload = product(16, columns)
    library = built(workload)
    library.threads = threads
    inputs = random_inputs(workload, np.random.default_rng(0))
    for _ in range(3):
        assert_equals_oracle(workload, library, inputs, evaluate(workload, inputs))


def test_so_does_an_exported_library(tmp_path):
    workload = product(16, 512)
    library = built(workload)
    library.export(tmp_path / "product.so")
    inputs = random_inputs(workload, np.random.default_rng(0))
    loaded = lw.load(tmp_path / "product.so")
    for _ in range(3):
        assert_equals_oracle(workload, loaded, inputs, evaluate(workload, inputs))


def test_what_fits_the_caches_or_leaves_nothing_there_goes_forwards_alone():
    assert takes_turns(product(16, 512))  # 33 KB
    assert not takes_turns(product(4, 512))  # 8 KB
    assert not takes_turns(product(160, 512))  # 330 KB
    assert not takes_turns(copies(600))  # 40 KB, most of them written


def test_code_for_other_runtimes_knows_no_turns():
    assert not takes_turns(product(16, 512), own=False)
