"""Random pass lists, what is dropped from them, and the model that proposes them."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.codegen.compile import unoptimized
from loopwright.codegen.passes.pipeline import Pipeline
from loopwright.codegen.passes.process import PassError, PassProcess
from loopwright.codegen.passes.table import PASSES, PIPELINES, SWITCHES, elements_of, text
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.sequence.decoders import Greedy
from loopwright.costmodel.sequence.grammar import Grammar
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.costmodel.sequence.network import Network, shapes
from loopwright.costmodel.sequence.pass_lists import (
    END,
    LONGEST,
    PassGrammar,
    Vocabulary,
    context_of,
)
from loopwright.explore.passes.lists import VOCABULARY, drawn, learned, minimized, proposed, varied
from loopwright.schedule.space import space
from tests.targets import ALONE

pytestmark = pytest.mark.optimized


def ir(workload=None):
    A, B = lw.tensor("A", (17, 23)), lw.tensor("B", (23, 19))
    return unoptimized(program(workload or lw.workload(lw.ops.matmul(A, B)), None, ALONE))[0]


def softmax():
    return lw.workload(lw.ops.softmax(lw.tensor("x", (13, 37))))


@pytest.fixture(scope="module")
def kernel():
    return ir()


@pytest.mark.llvm
def test_every_element_of_the_table_is_legal_by_itself(kernel):
    process = PassProcess()
    for element in (*PIPELINES, *PASSES):
        assert process.run(kernel, Pipeline.of(text([element])), ALONE).instructions > 0
    process.close()


@pytest.mark.llvm
@pytest.mark.slow
def test_every_switch_of_the_table_makes_an_object(kernel):
    process = PassProcess()
    for switch in SWITCHES:
        assert process.run(kernel, Pipeline.of(text([switch])), ALONE, "object").given
    process.close()


def test_random_lists_are_those_of_their_seed_and_have_one_switch_of_a_name():
    lists = [[drawn(rng, 3) for _ in range(200)] for rng in map(np.random.default_rng, (5, 5))]
    assert lists[0] == lists[1]
    assert len(set(lists[0])) > 150
    for elements in lists[0]:
        names = [e.partition("=")[0] for e in elements if e.startswith("-")]
        assert len(names) == len(set(names))


def test_a_variation_differs_in_few_elements_and_is_never_empty():
    rng = np.random.default_rng(0)
    for _ in range(200):
        before = drawn(rng, 2)
        after = varied(before, rng, 2)
        assert after
        assert len(set(before) ^ set(after)) <= 6


def test_what_changes_nothing_is_dropped_from_a_list():
    elements = tuple("abcdefg")
    assert minimized(elements, lambda fewer: {"b", "e"} <= set(fewer)) == ("b", "e")
    assert minimized(elements, lambda fewer: False) == elements
    assert len(minimized(elements, lambda fewer: True)) == 1


def test_text_has_passes_then_switches_and_minus_o3_where_there_are_no_passes():
    assert text(["-a", "function(gvn)", "-b=1", "inline"]) == "function(gvn),inline -a -b=1"
    assert text(["-a"]) == "default<O3> -a"


def test_the_elements_of_a_text_make_the_same_text():
    rng = np.random.default_rng(0)
    for made in (drawn(rng, 2) for _ in range(100)):
        assert text(elements_of(text(made))) == text(made)
    found = elements_of("function(gvn,loop(indvars)),simplifycfg<a;b> -x=1")
    assert found == ("function(gvn,loop(indvars))", "simplifycfg<a;b>", "-x=1")


def test_the_context_of_a_kernel_has_a_row_for_each_of_its_functions(kernel):
    context = context_of(kernel)
    assert len(context.axes) > 1
    assert np.isfinite(context.axes).all()
    assert not np.array_equal(context.machine, context_of(ir(softmax())).machine)
    with pytest.raises(ModelError, match="defines no function"):
        context_of("; nothing")


def test_a_grammar_has_lists_of_one_to_the_most_elements(kernel):
    vocabulary = Vocabulary(("a", "b"))
    grammar = PassGrammar(vocabulary, context_of(kernel))
    assert grammar.decision(()).allowed == (0, 1)
    assert grammar.decision((0,)).allowed == (0, 1, 2)
    assert grammar.decision((0,) * LONGEST).allowed == (2,)
    assert grammar.decision((0, 2)) is None
    assert vocabulary.list_of(vocabulary.sequence(("b", "a"))) == ("b", "a")
    with pytest.raises(ModelError, match="none of the 2 elements"):
        vocabulary.sequence(("c",))


def untrained(kernel):
    rng, context = np.random.default_rng(1), context_of(kernel)
    words = {w: 1 + n for n, w in enumerate((*VOCABULARY.elements, END))}
    sizes = (context.axes.shape[1], len(context.machine))
    found = shapes(len(words), 8, *sizes).items()
    numbers = {n: rng.normal(0, 0.3, s).astype(np.float32) for n, s in found}
    return SequenceModel(Network(numbers, words, sizes), {})


def test_proposals_are_different_lists_and_those_of_a_saved_model(kernel, tmp_path):
    model, path = untrained(kernel), tmp_path / "model.json"
    found = proposed(model, kernel, 20)
    assert len(found) == len(set(found)) == 20
    assert all(0 < len(e) <= LONGEST for e in found)
    model.save(path)
    assert proposed(SequenceModel.load(path), kernel, 20) == found


def test_a_model_of_pass_lists_refuses_configs(kernel):
    configs = Grammar(space(softmax(), ALONE))
    with pytest.raises(ModelError, match=r"of good pass lists, .*proposes no configs"):
        next(untrained(kernel).samples(configs, Greedy(), np.random.default_rng(0)))


@pytest.mark.torch
@pytest.mark.slow
def test_a_model_proposes_the_good_list_of_each_kernel_first(kernel):
    good, bad = ("default<Oz>", "function(gvn)"), ("function(dce)",)
    other = ir(softmax())
    examples = [(kernel, {good: 1.0, bad: 2.0}), (other, {good: 2.0, bad: 1.0})]
    model = learned(examples, steps=300)
    assert proposed(model, kernel, 1) == [good]
    assert proposed(model, other, 1) == [bad]


@pytest.mark.llvm
def test_a_list_that_fails_is_an_error_and_not_a_count(kernel):
    process = PassProcess()
    with pytest.raises(PassError):
        process.run(kernel, Pipeline("function(select-optimize)"), ALONE)
    process.close()
