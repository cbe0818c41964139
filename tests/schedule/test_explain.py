"""Explanations of spaces."""

import re

import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.dsl.errors import TargetError
from loopwright.dsl.numerics import Numerics
from loopwright.schedule.explain import explanation
from loopwright.schedule.registry import REWRITES
from loopwright.schedule.space import space
from tests.targets import TARGETS

pytestmark = pytest.mark.sampled(0.34)

CUDA = {"kind": "cuda", "arch": "sm_90"}


def convolution():
    x, w = lw.tensor("x", (1, 32, 14, 14)), lw.tensor("w", (32, 32, 3, 3), constant=True)
    return lw.workload(lw.ops.conv2d(x, w, padding=1))


@pytest.mark.parametrize("numerics", Numerics)
@pytest.mark.parametrize("target", TARGETS)
def test_every_rewrite_applies_or_is_told_why_not(target, numerics):
    found = explanation(convolution(), TARGETS[target], numerics)
    applied = {name for p in found.programs for name in p.derivation.names}
    missing = dict(found.others)
    assert applied | set(missing) == {r.name for r in REWRITES}
    assert not applied & set(missing)
    assert all(why.startswith("it") for why in missing.values())
    assert all(p.numerics <= numerics for p in found.programs)


def test_programs_are_ranked_as_the_space_is_and_the_first_is_the_default():
    target = TARGETS["AVX2, small cache"]
    points = space(convolution(), target, "fast")
    found = explanation(convolution(), target, Numerics.FAST)
    assert found.default == points.default
    ranked = [p.prior * p.cycles for p in found.programs]
    assert ranked == sorted(ranked)
    assert sum(p.sketches for p in found.programs) == len(points.sketches)


def test_what_numerics_leave_out_is_told_by_its_word():
    found = explanation(convolution(), TARGETS["one thread"], Numerics.STRICT)
    why = dict(found.others)["winograd"]
    assert why == "it has standard numerics here, and strict is asked for"


def test_gpus_have_programs_without_estimates():
    found = lw.explain(convolution(), CUDA, numerics="fast")
    assert {p.cycles for p in found.programs} == {None}
    assert "it is for processors" in dict(found.others).values()
    assert "the first whose default fits the GPU" in str(found)


def test_a_config_is_explained_by_its_loops():
    found = lw.explain(convolution(), threads=1, config=lw.space(convolution(), threads=1).default)
    assert "for " in found.tree
    assert found.tree in str(found)


def test_a_space_is_explained_for_the_code_generator_that_is_asked_for():
    assert "on builtin " in str(lw.explain(convolution(), threads=1, codegen="builtin"))
    with pytest.raises(TargetError, match="builtin"):
        lw.explain(convolution(), codegen="tvm")


def test_the_command_prints_the_programs_and_the_default():
    words = "explain conv2d x=1,16,9,9 w=16,16,3,3:constant padding=1 --threads 1"
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 0, result.output
    assert re.search(r"^direct +strict +1 ", result.output, re.MULTILINE)
    assert "default: " in result.output
    assert "not strassen: it needs" in result.output
