"""Sequence models of records, and the command that trains them."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from click.testing import CliRunner

from loopwright.cli.model import model as model_command
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.file import load_model
from loopwright.costmodel.sequence.decoders import PrioritySampling
from loopwright.costmodel.sequence.grammar import Grammar
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.measure.device import Failure
from loopwright.transfer.pretrained.training import read_examples, train_sequence
from loopwright.transfer.records.store import RecordStore
from tests.transfer.learned import SIZES, costs, filled, measured, points

NEW = (40, 24, 56)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = filled(tmp_path_factory.mktemp("records") / "r.db", SIZES[:2], 60)
    with RecordStore(path) as opened:
        yield opened


def test_a_group_of_records_has_the_good_configs_by_weight(store):
    groups = list(read_examples([store]))
    assert len(groups) == 2
    for group in groups:
        assert group.weights.sum() == pytest.approx(1, abs=1e-5)
        assert 1 <= len(group.weights) < 60


def test_records_that_all_failed_are_no_group(tmp_path):
    of = points(*NEW)
    crash = Failure("crash", "made up")
    failed = [dataclasses.replace(r, seconds=(), failure=crash) for r in measured(of, 3)]
    assert all(math.isinf(r.cost) for r in failed)
    with RecordStore(tmp_path / "r.db") as store:
        store.add(failed)
        assert list(read_examples([store])) == []


def best_of(model, n=20):
    """The best cost of the first samples for a workload of another size."""
    of = points(*NEW)
    grammar = Grammar(of)
    samples = model.samples(grammar, PrioritySampling(), np.random.default_rng(0))
    found = [grammar.point(s.sequence) for s in itertools.islice(samples, n)]
    return costs(of, [of.sketches[p[0]].at(p[1:]) for p in found]).min()


@pytest.mark.torch
def test_samples_for_another_workload_are_better_than_as_many_random_configs(store):
    pytest.importorskip("torch")
    of, rng = points(*NEW), np.random.default_rng(0)
    model = train_sequence(list(read_examples([store])))
    drawn = [costs(of, [of.sample(rng) for _ in range(20)]).min() for _ in range(9)]
    assert best_of(model) < np.median(drawn)


@pytest.mark.torch
def test_the_command_trains_a_model_and_goes_on_from_it(store, tmp_path):
    pytest.importorskip("torch")
    first, second = tmp_path / "first.json", tmp_path / "second.json"

    def called(*options):
        common = ("train", "--records", str(store.location), "--targets", "all")
        result = CliRunner().invoke(model_command, [*common, "--model", "sequence", *options])
        assert result.exit_code == 0, result.output
        return result.output

    assert "good configs in 2 groups" in called("-o", str(first), "--note", "a test")
    called("-o", str(second), "--base", str(first))
    assert SequenceModel.load(second).about["base"]["note"] == "a test"
    shown = CliRunner().invoke(model_command, ["show", str(second)])
    assert "sequence model of good configs" in shown.output
    with pytest.raises(ModelError, match="proposes configs and scores none"):
        load_model(first)


@pytest.mark.torch
def test_nothing_to_learn_from_is_said(tmp_path):
    pytest.importorskip("torch")
    with pytest.raises(ModelError, match="give records"):
        train_sequence([])
