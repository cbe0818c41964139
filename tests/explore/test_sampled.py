"""Searches that a sequence model proposes to."""

import functools
import math

import numpy as np
import pytest

from loopwright.costmodel.model import ModelError, RandomModel
from loopwright.costmodel.sequence.decoders import BestFirst, Nucleus, PrioritySampling, Varied
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.costmodel.sequence.network import Network, shapes
from loopwright.costmodel.sequence.pass_lists import PassGrammar, context_of
from loopwright.explore import search
from loopwright.explore.budget import TuningError
from loopwright.explore.passes.lists import VOCABULARY
from loopwright.explore.strategies.encoded_space import EncodedSpace
from loopwright.explore.strategies.features import Features
from loopwright.explore.strategies.proposals import Proposals
from loopwright.explore.strategies.sampled import Judged, Sampled
from loopwright.explore.tune import tune
from loopwright.explore.tuner import Tuner
from loopwright.measure.tabular import load_brute_forced
from loopwright.transfer.pretrained.base import find_proposer
from tests.explore.synthetic import MadeUp, cost, matmul, matmul_space


@functools.cache
def model(width=8):
    rng = np.random.default_rng(0)
    found = {n: rng.normal(size=s, scale=0.5) for n, s in shapes(0, width).items()}
    return SequenceModel(Network({n: p.astype(np.float32) for n, p in found.items()}, {}), {})


def proposals(n, decoder=None, encoded=None):
    encoded = encoded or EncodedSpace(matmul_space())
    return Proposals(encoded, model(), np.random.default_rng(0), decoder).first(n)


def table(tmp_path, gaps=True):
    """A table whose cheapest points the model does not know of."""
    lines = ["a,b,c,time_ms"]
    for a in range(8):
        for b in range(8):
            for c in range(4):
                if not gaps or (a + b + c) % 3:
                    lines.append(f"{a},{b},{c},{1 + abs(a - 6) + abs(b - 1) + abs(c - 2)}")
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines))
    return load_brute_forced(path)


def test_proposals_differ_and_are_of_the_space():
    points = proposals(200)
    assert len(np.unique(points, axis=0)) == 200
    assert all(c in matmul_space() for c in EncodedSpace(matmul_space()).configs(points))


def test_more_proposals_begin_like_fewer():
    assert (proposals(50)[:20] == proposals(20)).all()


def test_a_decoder_that_repeats_itself_gives_each_point_once_and_ends():
    assert (proposals(10, Nucleus(1e-4)) == proposals(1)).all()
    points = proposals(100, Nucleus(1.5))
    assert len(np.unique(points, axis=0)) == len(points) == 100


def test_proposals_for_a_table_are_points_of_it(tmp_path):
    device = table(tmp_path)
    encoded = EncodedSpace(device.space, lambda p: device.legal(0, p[:, 1:]))
    found = proposals(500, BestFirst(), encoded)
    assert len(found) == len(encoded.listed) == 171
    assert device.legal(0, found[:, 1:]).all()


def test_the_default_comes_first_and_then_the_proposals_in_their_order():
    encoded = EncodedSpace(matmul_space())
    asked = Sampled(encoded, np.random.default_rng(0), model(), PrioritySampling()).ask(9)
    assert (asked[:1] == encoded.default).all()
    expected = proposals(9)
    expected = expected[(expected != encoded.default).any(axis=1)][:8]
    assert (asked[1:] == expected).all()


def test_without_the_default_the_proposals_come_first():
    encoded = EncodedSpace(matmul_space())
    strategy = Sampled(encoded, np.random.default_rng(0), model(), default=False)
    assert (strategy.ask(5) == proposals(5, Varied())).all()


def test_costs_lead_to_the_optimum_of_a_table_sooner_than_the_order_alone(tmp_path):
    device = table(tmp_path)
    legal = lambda p: device.legal(0, p[:, 1:])  # noqa: E731
    needed = {}
    for corrected in (True, False):
        encoded = EncodedSpace(device.space, legal)
        decoder = PrioritySampling()
        strategy = Sampled(encoded, np.random.default_rng(0), model(), decoder, corrected)
        costs = []
        while min(costs, default=math.inf) > device.optimum:
            points = strategy.ask(4)
            new = [m.cost for m in device.measure(device.space.workload, encoded.configs(points))]
            strategy.tell(points, np.array(new))
            costs += new
        needed[corrected] = len(costs)
    assert needed[True] < needed[False] / 2


class Likes(RandomModel):
    """A cost model that likes programs whose features are large."""

    def predict(self, features):
        return np.log1p(np.abs(np.asarray(features, np.float64))).mean(axis=1)


def test_a_cost_model_that_has_learned_elsewhere_says_which_proposals_come_first():
    encoded = EncodedSpace(matmul_space())
    features = Features(encoded.space, Likes.reads)
    asked = Judged(encoded, np.random.default_rng(0), model(), Likes(), default=False).ask(20)
    assert len(np.unique(asked, axis=0)) == 20
    best, every = (
        Likes().predict(features.directly(p)) for p in (asked, proposals(512, Varied()))
    )
    assert best.mean() > every.mean() + every.std()


def test_costs_correct_what_a_cost_model_said():
    encoded = EncodedSpace(matmul_space())
    asked = {}
    for told in (True, False):
        strategy = Judged(encoded, np.random.default_rng(0), model(), Likes(), default=False)
        asked[told] = []
        for _ in range(15):
            points = strategy.ask(4)
            costs = [cost(c) for c in encoded.configs(points)]
            asked[told] += costs
            if told:
                strategy.tell(points, np.array(costs))
    assert np.median(asked[True][30:]) < np.median(asked[False][30:])


def test_a_policy_chooses_its_first_sample_without_measuring(tmp_path):
    path = tmp_path / "m.json"
    model().save(path)
    device = MadeUp()
    options = {"device": device, "records": None, "transfer": path}
    tuned = tune(matmul(), trials=0, model="policy", **options)
    assert not device.measured
    assert tuned.config == EncodedSpace(matmul_space()).configs(proposals(1))[0]
    again = tune(matmul(), trials=0, strategy="sampled", **options)
    assert again.config == tuned.config


def test_a_search_by_samples_ends_with_the_best_that_it_measured(tmp_path):
    path = tmp_path / "m.json"
    model().save(path)
    options = {"trials": 40, "records": None, "strategy": "sampled", "transfer": path}
    tuned = tune(matmul(), device=MadeUp(), **options)
    assert tuned.seconds <= cost(matmul_space().default)
    assert len(tuned.history) == 40
    again = tune(matmul(), device=MadeUp(), **options)
    assert [m.config for m in again.history] == [m.config for m in tuned.history]


def test_annealing_begins_with_samples_of_a_model():
    tuner = Tuner(matmul_space(), begin=model())
    found = set(tuner.ask(16))
    own = set(EncodedSpace(matmul_space()).configs(proposals(16)))
    assert len(found & own) >= 3
    assert tuner.configs == []


def test_a_search_by_annealing_samples_only_where_the_file_of_a_sequence_model_is_given(
    tmp_path, monkeypatch
):
    path = tmp_path / "m.json"
    model().save(path)
    asked = []

    def find(transfer, target):
        asked.append(transfer)
        return find_proposer(transfer, target)

    monkeypatch.setattr(search, "find_proposer", find)
    options = {"trials": 16, "records": None}
    tune(matmul(), device=MadeUp(), **options)
    assert not asked
    tuned = tune(matmul(), device=MadeUp(), transfer=path, **options)
    assert asked == [path]
    own = set(EncodedSpace(matmul_space()).configs(proposals(16)))
    assert len(own & {m.config for m in tuned.history}) >= 3


def test_a_policy_is_refused_another_strategy():
    with pytest.raises(TuningError, match="chooses by itself, so strategy='grid'"):
        tune(matmul(), trials=4, device=MadeUp(), records=None, model="policy", strategy="grid")


def test_sampling_without_a_model_says_what_to_give():
    with pytest.raises(TuningError, match=r"give begin=SequenceModel.load"):
        Tuner(matmul_space(), "sampled")
    with pytest.raises(
        ModelError, match="shipped for target llvm x86_64-unknown-linux-gnu generic"
    ):
        tune(matmul(), trials=0, device=MadeUp(), records=None, model="policy")


def test_a_strategy_that_takes_no_proposals_is_refused_a_model():
    with pytest.raises(TuningError, match="'sampled' or 'annealing', not 'grid'"):
        Tuner(matmul_space(), "grid", begin=model())


def test_log_probabilities_of_points_are_those_of_their_samples():
    encoded = EncodedSpace(matmul_space())
    found = Proposals(encoded, model(), np.random.default_rng(0))
    points = found.first(30)
    assert found.log_probabilities(points) == pytest.approx(found.logs, abs=1e-4)


def test_a_policy_is_named_as_it_was_asked_for():
    with pytest.raises(TuningError, match="model='policy' chooses by itself: leave one out"):
        tune(matmul(), trials=4, records=None, model="policy", feedback="compiled")
    with pytest.raises(ModelError, match="source-lstm, policy, or a CostModel"):
        tune(matmul(), trials=4, device=MadeUp(), records=None, model="polcy")


def test_the_notes_of_a_search_name_the_sequence_model_that_proposes(tmp_path):
    path = tmp_path / "m.json"
    model().save(path)
    options = {"device": MadeUp(), "records": None, "transfer": path}
    tuned = tune(matmul(), trials=0, model="policy", **options)
    assert tuned.notes == (f"proposes configs by {path}",)


def test_a_sequence_model_of_configs_proposes_no_pass_lists_and_the_other_way_round():
    lists = PassGrammar(VOCABULARY, context_of("define i32 @f() {\nentry:\n  ret i32 0\n}\n"))
    with pytest.raises(ModelError, match=r"model of good configs, .* proposes no pass lists"):
        model().root(lists)
    sizes = lists.context.axes.shape[1], len(lists.context.machine)
    parameters = {n: np.zeros(s, np.float32) for n, s in shapes(0, 8, *sizes).items()}
    other = SequenceModel(Network(parameters, {}, sizes), {})
    with pytest.raises(ModelError, match=r"model of good pass lists, .* proposes no configs"):
        Tuner(matmul_space(), "sampled", begin=other).ask(4)
