"""Global models: what they learn, how they are judged, which files are refused."""

from __future__ import annotations

import dataclasses
import math
import zlib

import numpy as np
import pytest
from click.testing import CliRunner

from loopwright.cli.model import model as model_command
from loopwright.codegen.target import resolve
from loopwright.costmodel.features.fingerprint import fingerprint, same_features
from loopwright.costmodel.features.representation import EARLIER
from loopwright.costmodel.model import ModelError, RandomModel
from loopwright.costmodel.models.file import load_model
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.models.losses import pairwise_accuracy
from loopwright.explore.strategies.encoded_space import EncodedSpace
from loopwright.explore.strategies.proposals import Proposals
from loopwright.schedule.space import space
from loopwright.transfer.pretrained import base as choice
from loopwright.transfer.pretrained.base import find_base, find_proposer, shipped_path
from loopwright.transfer.pretrained.dataset import read_groups
from loopwright.transfer.pretrained.evaluation import (
    Score,
    Summary,
    cross_validated,
    judged,
    table,
)
from loopwright.transfer.pretrained.training import load_global, train
from loopwright.transfer.records.store import RecordStore
from tests.transfer.examples import AVX512, matmul
from tests.transfer.learned import AVX2, SIZES, filled

NEW = (40, 24, 56)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with RecordStore(filled(tmp_path_factory.mktemp("records") / "r.db")) as opened:
        yield opened


@pytest.fixture(scope="module")
def groups(store):
    return list(read_groups([store]))


@pytest.fixture(scope="module")
def file(groups, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "global.json"
    train(groups).save(path)
    return path


def test_a_global_model_ranks_a_workload_that_it_has_not_seen(file, tmp_path):
    with RecordStore(filled(tmp_path / "new.db", [NEW], 60)) as new:
        (score,) = judged(load_global(file), list(read_groups([new])))
    assert score.accuracy > 0.8
    assert score.regret[1] < 1.2


@pytest.mark.parametrize("model", ["gbt", "mlp", "blend"])
def test_a_base_is_no_model_of_records_that_are_too_few(file, groups, model):
    few = [
        dataclasses.replace(groups[0], features=groups[0].features[:3], costs=groups[0].costs[:3])
    ]
    with pytest.raises(ModelError, match="3 records of 1 workload: too few"):
        train(few, model, base=load_global(file))


def test_a_model_remembers_what_it_learned_from(file, groups):
    about = load_model(file).about
    assert about["workloads"] == sorted(matmul(*size).key for size in SIZES)
    assert about["kinds"] == {"2 sum 1 mul(read, read)": len(SIZES)}
    assert about["records"] == sum(len(g.costs) for g in groups)
    assert about["targets"] == [str(AVX2)]
    assert same_features("relation", about["probe"])


def test_a_model_of_other_features_is_refused_with_a_remedy(groups, tmp_path):
    other = train(groups)
    other.about["probe"][3] += 0.5
    other.save(tmp_path / "old.json")
    with pytest.raises(ModelError, match=r"another version.*model\s+train.*transfer=None"):
        load_global(tmp_path / "old.json")
    assert not same_features("relation", None)
    assert not same_features("relation", "damaged")
    assert not same_features("relation", fingerprint("relation")[1:])
    assert not same_features("relation", [])


def test_a_model_of_the_first_columns_is_one_of_an_earlier_version():
    for width in EARLIER:
        assert same_features("relation", fingerprint("relation")[:width])
        assert not same_features("relation", [0.5, *fingerprint("relation")[1:width]])
    assert not same_features("relation", [*fingerprint("relation"), 0.0])
    assert not same_features("tree", fingerprint("tree")[:-10])


def test_a_model_that_goes_on_from_another_remembers_what_that_one_learned_from(groups):
    second = train(groups[1:], base=train(groups[:1]))
    assert second.about["workloads"] == sorted({g.workload.key for g in groups})
    assert sum(second.about["kinds"].values()) == len(groups)


@pytest.mark.slow
def test_a_model_beside_others_counts_half_in_the_mean_of_their_scores(groups, tmp_path):
    first, second = train(groups[:1]), train(groups[1:], "blend", beside=[train(groups[:1])])
    assert second.about["workloads"] == sorted({g.workload.key for g in groups})
    assert second.about["records"] == sum(len(g.costs) for g in groups)
    parts = [*train(groups[1:], "blend").members, first]
    x = groups[0].features
    expected = np.average([part.predict(x) for part in parts], axis=0, weights=[1, 1, 0.5])
    np.testing.assert_allclose(second.predict(x), expected, rtol=1e-4, atol=1e-5)
    second.save(tmp_path / "both.json")
    np.testing.assert_array_equal(
        load_global(tmp_path / "both.json").predict(x), second.predict(x)
    )


def test_too_few_records_are_an_error(groups):
    with pytest.raises(ModelError, match="no records"):
        train([])
    with pytest.raises(ModelError, match="one of gbt, mlp, blend, treegru"):
        train(groups, "forest")


@pytest.mark.parametrize("by", ["workload", "kind"])
def test_who_judges_a_group_has_not_seen_it(groups, by, monkeypatch):
    if by == "kind":  # all are matrix products: pretend otherwise
        monkeypatch.setattr(
            type(groups[0]), "kind", property(lambda g: f"size {g.workload.key[:1] > '8'}")
        )
    seen = []

    def trained(part):
        seen.append({g.workload.key if by == "workload" else g.kind for g in part})
        return RandomModel()

    names = {g.workload.key if by == "workload" else g.kind for g in groups}
    if len(names) < 2:
        pytest.skip("the keys of all sizes begin alike")
    scores = list(cross_validated(groups, trained, by))
    assert len(scores) == len(groups)
    assert all(len(part) < len(names) for part in seen)
    assert set().union(*seen) == names
    with pytest.raises(ModelError, match="'workload' or 'kind'"):
        list(cross_validated(groups, trained, "colour"))


def test_scores_are_what_they_say(groups):
    group = groups[0]
    perfect = Score.of(group, -group.costs)
    assert (perfect.accuracy, perfect.recall, perfect.regret) == (1.0, 1.0, (1.0, 1.0, 1.0))
    worst = Score.of(group, group.costs)
    assert worst.accuracy == 0.0
    assert worst.regret[0] == pytest.approx(group.costs.max() / group.costs.min())
    summary = Summary.of([perfect, worst])
    assert summary.accuracy == 0.5
    assert summary.regret[0] == pytest.approx(math.sqrt(worst.regret[0]))
    assert "all" in table([perfect, worst]).splitlines()[-1]
    with pytest.raises(ModelError, match="nothing to judge by"):
        Summary.of([])


def test_first_choices_that_fail_are_counted(groups):
    good = groups[0]
    costs = np.where(np.arange(len(good.costs)) == 3, np.inf, good.costs)
    group = dataclasses.replace(good, costs=costs)
    said = table([Score.of(good, -good.costs), Score.of(group, 1.0 * np.isinf(group.costs))])
    assert "regret@1 leaves out 1 group, where all of the first 1 failed" in said
    assert "regret@8" not in said.splitlines()[-1]


def test_pairs_are_clear_that_differ_by_more_than_noise():
    scores, costs = np.array([1.0, 2.0, 0.0]), np.array([1.0246, 1.0248, 2.0])
    assert pairwise_accuracy(scores, costs) == pytest.approx(2 / 3)
    assert pairwise_accuracy(scores, costs, 1.05) == 1.0


def test_no_transfer_begins_with_nothing(store):
    assert find_base(None, matmul(*NEW), AVX2, store).model is None


def test_a_file_is_used_and_a_damaged_one_is_an_error(file, store, tmp_path):
    found = find_base(file, matmul(*NEW), AVX2, store)
    assert found.model.ready
    assert str(file) in found.notes[0]
    damaged = tmp_path / "damaged.json"
    damaged.write_text(file.read_text()[:-100])
    with pytest.raises(ModelError, match=r"damaged\.json"):
        find_base(damaged, matmul(*NEW), AVX2, store)


def test_auto_takes_the_shipped_model_and_the_records_of_others(file, store, monkeypatch):
    monkeypatch.setattr(choice, "SHIPPED", file.parent)
    file.rename(file.parent / "x86-avx2.json")
    try:
        found = find_base("auto", matmul(*NEW), AVX2, store)
        alone = find_base("auto", matmul(*NEW), AVX2)
    finally:
        (file.parent / "x86-avx2.json").rename(file)
    assert "shipped" in found.notes[0]
    assert "4 other workloads" in found.notes[1]
    assert isinstance(found.model, GBTModel)
    assert found.model.base is not None
    assert "shipped" in alone.notes[0]
    assert len(alone.notes) == 1


def test_auto_leaves_out_the_workload_itself_and_other_families(store, monkeypatch, tmp_path):
    monkeypatch.setattr(choice, "SHIPPED", tmp_path)
    assert "3 other workloads" in find_base("auto", matmul(*SIZES[0]), AVX2, store).notes[0]
    assert find_base("auto", matmul(*SIZES[0]), AVX512, store) == choice.Base()


def test_auto_goes_on_without_a_shipped_model_that_is_damaged(monkeypatch, tmp_path):
    monkeypatch.setattr(choice, "SHIPPED", tmp_path)
    (tmp_path / "x86-avx2.json").write_text("{")
    found = find_base("auto", matmul(*NEW), AVX2)
    assert found.model is None
    assert "goes on without" in found.notes[0]


def test_a_target_that_only_names_its_processor_has_a_shipped_model():
    named = resolve({"kind": "llvm", "mcpu": "skylake-avx512"})
    assert shipped_path(named) == shipped_path(AVX512)


def test_the_shipped_models_are_small_and_of_these_features():
    files = list(choice.SHIPPED.glob("*.json"))
    assert files
    assert sum(len(zlib.compress(path.read_bytes())) for path in files) < 4.5e6  # in the wheel
    ranking = {shipped_path(AVX2), shipped_path(AVX512)}
    assert ranking | {choice.SHIPPED / f"{choice.PROPOSER}.json"} == set(files)
    for path in ranking:
        assert len(load_global(path).about["workloads"]) > 50


def test_the_shipped_sequence_model_proposes_for_targets_that_it_knows():
    for target in (AVX2, AVX512):
        encoded, proposer = (
            EncodedSpace(space(matmul(*NEW), target)),
            find_proposer("auto", target)[0],
        )
        found = Proposals(encoded, proposer, np.random.default_rng(0)).first(30)
        assert len(np.unique(found, axis=0)) == 30
    assert find_proposer("auto", AVX2)[1] == "proposes configs by the shipped model x86-sequence"


def test_a_missing_sequence_model_is_refused_by_what_left_it_out():
    with pytest.raises(ModelError, match="transfer=None leaves out the shipped one"):
        find_proposer(None, AVX2)
    arm = resolve({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    with pytest.raises(ModelError, match="shipped for target llvm aarch64-linux-gnu"):
        find_proposer("auto", arm)


def test_the_command_line_trains_and_judges(store, tmp_path):
    def called(*args):
        result = CliRunner().invoke(model_command, [str(a) for a in args])
        assert result.exit_code == 0, result.output
        return result.output

    options = ("--records", store.location, "--targets", "all")
    path = tmp_path / "m.json"
    other = ("train", "--records", str(store.location), "-o", str(path))
    left = CliRunner().invoke(model_command, other)
    assert "the records are of other targets" in left.output
    said = called("train", *options, "-o", path, "--note", "a test")
    assert f"{len(SIZES)} workloads" in said
    assert load_model(path).about["note"] == "a test"
    new = filled(tmp_path / "new.db", [NEW])
    assert "1" in called("eval", path, "--records", new, "--targets", "all").splitlines()[-1]
    kind = ("--targets", "all", "--hold-out", "kind")
    known = CliRunner().invoke(model_command, ["eval", str(path), "--records", str(new), *kind])
    assert "nothing to judge by" in known.output  # its workload is new, its kind is not
    seen = CliRunner().invoke(model_command, ["eval", str(path), *map(str, options)])
    assert "nothing to judge by" in seen.output
