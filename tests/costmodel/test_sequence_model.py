"""Sequence models: their grammar, their samples, their file."""

import itertools
import json

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.file import write_model
from loopwright.costmodel.sequence.decoders import BestFirst, Greedy, Nucleus, PrioritySampling
from loopwright.costmodel.sequence.examples import Group, Vocabulary, batch, vocabulary
from loopwright.costmodel.sequence.grammar import Grammar
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.costmodel.sequence.network import Network, shapes
from loopwright.dsl import ops
from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.sketch.sketch import Knob, Sketch
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target
from tests.targets import AARCH64, AVX2_SMALL, AVX512_LARGE

pytestmark = pytest.mark.sampled(0.34)


def conv2d():
    x, w = lw.tensor("x", (1, 32, 14, 14)), lw.tensor("w", (32, 32, 3, 3), constant=True)
    return lw.workload(ops.conv2d(x, w, padding=1))


def matmul():
    return lw.workload(ops.matmul(lw.tensor("a", (96, 64)), lw.tensor("b", (64, 80))))


def softmax():
    return lw.workload(ops.softmax(lw.tensor("x", (24, 200))))


def depthwise():
    x, w = lw.tensor("x", (1, 24, 19, 19)), lw.tensor("w", (24, 1, 3, 3), constant=True)
    return lw.workload(ops.depthwise_conv2d(x, w, stride=2, padding=1))


SPACES = {
    "conv2d, AVX2": lambda: space(conv2d(), AVX2_SMALL, "fast"),
    "matmul, AVX-512": lambda: space(matmul(), AVX512_LARGE),
    "softmax, AArch64": lambda: space(softmax(), AARCH64),
    "depthwise, AVX2": lambda: space(depthwise(), AVX2_SMALL),
}


def table(sizes=(3, 4, 2)):
    """A space of a table: one sketch, knobs of powers of two."""
    knobs = tuple(Knob(f"k{n}", tuple((1 << v,) for v in range(s))) for n, s in enumerate(sizes))
    work = softmax()
    name = SketchName(Derivation(), "table")
    sketch = Sketch(name, work, (), (), knobs, (0,) * len(knobs))
    return Space(work, Target(kind="replayed", triple=""), (sketch,))


def random_model(*grammars, seed=0, width=16, scale=0.3):
    """A model of random parameters that knows the words of grammars' first decisions. It is the
    surer, the larger their `scale` is."""
    rng = np.random.default_rng(seed)
    words = sorted({w for g in grammars for own in g.decision(()).described.words for w in own})
    numbers = {word: 1 + n for n, word in enumerate(words)}
    found = {n: rng.normal(size=s, scale=scale) for n, s in shapes(len(words), width).items()}
    parameters = {n: p.astype(np.float32) for n, p in found.items()}
    return SequenceModel(Network(parameters, numbers), {"made": "at random"})


def samples(model, grammar, decoder, n, seed=0):
    found = model.samples(grammar, decoder, np.random.default_rng(seed))
    return list(itertools.islice(found, n))


@pytest.fixture(params=SPACES)
def points(request):
    return SPACES[request.param]()


def test_every_sample_is_a_config_of_the_space(points):
    grammar = Grammar(points)
    model = random_model(grammar, scale=0.6)  # else the best ones take seconds to be found
    for decoder in (Greedy(), Nucleus(1.4), PrioritySampling(), BestFirst()):
        for sample in samples(model, grammar, decoder, 6):
            number, *choices = grammar.point(sample.sequence)
            assert points.sketches[number].at(choices) in points


def test_a_hundred_of_a_hundred_samples_differ(points):
    grammar = Grammar(points)
    found = samples(random_model(grammar), grammar, PrioritySampling(), 100)
    assert len({grammar.point(s.sequence) for s in found}) == 100


def test_sequences_and_points_are_two_names_of_one_config(points):
    grammar, rng = Grammar(points), np.random.default_rng(0)
    for _ in range(20):
        number = int(rng.integers(len(points.sketches)))
        knobs = points.sketches[number].knobs
        point = (number, *(int(rng.integers(len(k.choices))) for k in knobs))
        sequence = grammar.sequence(point)
        assert grammar.point(sequence) == point
        assert grammar.decision(sequence) is None
        for end, choice in enumerate(sequence):
            assert choice in grammar.decision(sequence[:end]).allowed


def test_knobs_of_a_single_choice_are_no_decision():
    grammar = Grammar(table((3, 1, 2)))
    assert grammar.sequence((0, 2, 0, 1)) == (0, 0, 2, 1)


def test_the_probabilities_of_all_configs_sum_to_one():
    grammar = Grammar(table())
    model = random_model(grammar)
    every = itertools.product(range(3), range(4), range(2))
    logs = [model.log_probability(grammar, (0, 0, *choices)) for choices in every]
    assert np.exp(logs).sum() == pytest.approx(1, rel=1e-4)


def test_best_first_is_the_order_of_all_configs_by_probability():
    grammar = Grammar(table())
    model = random_model(grammar)
    every = [(0, 0, *c) for c in itertools.product(range(3), range(4), range(2))]
    order = sorted(every, key=lambda s: -model.log_probability(grammar, s))
    assert [s.sequence for s in samples(model, grammar, BestFirst(), 24)] == order


@pytest.mark.parametrize("decoder", [PrioritySampling(), BestFirst()], ids=str)
def test_a_list_of_legal_points_masks_all_others(decoder):
    listed = np.array([[0, 0, 1, 1], [0, 2, 3, 0], [0, 2, 0, 1], [0, 1, 1, 0]])
    grammar = Grammar(table(), listed)
    found = samples(random_model(grammar), grammar, decoder, None)
    assert sorted(grammar.point(s.sequence) for s in found) == sorted(map(tuple, listed.tolist()))


def test_a_model_comes_back_from_its_file(tmp_path):
    grammar = Grammar(table())
    model = random_model(grammar)
    model.save(tmp_path / "m.json")
    loaded = SequenceModel.load(tmp_path / "m.json")
    assert loaded.about == model.about
    assert samples(loaded, grammar, PrioritySampling(), 24) == samples(
        model, grammar, PrioritySampling(), 24
    )


def test_a_file_of_another_description_is_refused(tmp_path):
    random_model(Grammar(table())).save(tmp_path / "m.json")
    data = json.loads((tmp_path / "m.json").read_text())
    content = json.loads(data["content"]) | {"version": 0}
    write_model(tmp_path / "m.json", "sequence", content)
    with pytest.raises(ModelError, match="version 0"):
        SequenceModel.load(tmp_path / "m.json")


def test_parameters_of_another_shape_are_refused():
    model = random_model(Grammar(table()))
    wrong = dict(model.network.parameters) | {"axes": np.zeros((2, 16), np.float32)}
    with pytest.raises(ModelError, match="axes"):
        Network(wrong, model.network.words)


def test_weights_fall_with_the_cost_over_the_best():
    grammar = Grammar(table())
    group = Group.of(grammar, [(0, 0, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 2, 0, 0)], [2, 2.2, 99])
    assert len(group.weights) == 2
    assert group.weights[1] / group.weights[0] == pytest.approx(np.exp(-1), rel=1e-5)


@pytest.mark.parametrize("costs", [[1.0], [0.0, 1.0], [np.inf, np.inf]])
def test_costs_that_say_nothing_are_refused(costs):
    grammar = Grammar(table())
    with pytest.raises(ModelError, match="positive"):
        Group.of(grammar, [(0, 0, 0, 0, 0), (0, 0, 1, 0, 0)], costs)


@pytest.mark.torch
def test_the_loss_in_torch_is_the_probability_in_numpy():
    torch = pytest.importorskip("torch")
    from loopwright.costmodel.sequence.training import _loss

    grammars = [Grammar(space(w, AVX2_SMALL)) for w in (matmul(), conv2d())]
    rng = np.random.default_rng(0)
    sequences = [
        [s.sequence for s in samples(random_model(g), g, Nucleus(2.0), 4)] for g in grammars
    ]
    groups = [Group.of(g, s, np.ones(4)) for g, s in zip(grammars, sequences)]
    words = vocabulary(groups)
    model = random_model(*grammars)
    parameters = {n: rng.normal(size=s, scale=0.3) for n, s in shapes(len(words), 16).items()}
    parameters = {n: p.astype(np.float32) for n, p in parameters.items()}
    model = SequenceModel(Network(parameters, words), {})
    data = batch(groups, Vocabulary(words), 64, np.random.default_rng(1))
    drawn = np.random.default_rng(1)
    logs = []
    for g, s in zip(grammars, sequences):
        places = drawn.choice(4, 64, p=np.full(4, 0.25))
        logs += [model.log_probability(g, s[place]) for place in places]
    loss = _loss({n: torch.from_numpy(p) for n, p in parameters.items()}, data)
    assert loss.item() == pytest.approx(-np.mean(logs), rel=1e-4)


@pytest.mark.torch
def test_training_learns_which_configs_are_good():
    pytest.importorskip("torch")
    from loopwright.costmodel.sequence.training import train

    grammar = Grammar(table((4, 4, 4)))
    every = [(0, 0, *c) for c in itertools.product(range(4), repeat=3)]
    costs = [1 + 0.05 * (abs(s[2] - s[3]) + abs(s[4] - 2)) for s in every]
    model = train([Group.of(grammar, every, costs)], steps=300, width=16)
    found = samples(model, grammar, BestFirst(), 4)
    assert {s.sequence for s in found} == {(0, 0, n, n, 2) for n in range(4)}


@pytest.mark.torch
def test_training_without_groups_says_what_to_do():
    pytest.importorskip("torch")
    from loopwright.costmodel.sequence.training import train

    with pytest.raises(ModelError, match="records"):
        train([])
