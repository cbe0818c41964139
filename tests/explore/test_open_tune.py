"""Tuning of workloads with dims: a library for all sizes, its choice, and what is refused."""

import html
import math
from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.open.library import OpenLibrary
from loopwright.codegen.target import resolve
from loopwright.costmodel.models import time_model
from loopwright.dsl.errors import ConfigError, LibraryError, RangeError
from loopwright.explore.budget import Budget, Interrupted, TuningError
from loopwright.explore.open import choice
from loopwright.explore.open import proposals as proposals_module
from loopwright.explore.open import tune as open_tune
from loopwright.explore.open.proposals import proposals
from loopwright.explore.open.tuned import OpenTuned
from loopwright.explore.search import TuneOptions, search
from loopwright.measure import open_programs
from loopwright.measure.local import LocalDevice
from loopwright.schedule.open.cover import Cover
from loopwright.schedule.open.program import open_program
from loopwright.schedule.space import space
from loopwright.transfer.records.store import RecordError
from tests.brief import brief


def dense(high=200):
    n = lw.dim("n", 1, high)
    x, w = lw.tensor("X", (n, 24)), lw.tensor("W", (32, 24), constant=True)
    return lw.workload(lw.ops.dense(x, w))


pytestmark = pytest.mark.usefixtures("brief")
OPTIONS = {"records": None, "transfer": None, "progress": False, "threads": 2}


@pytest.fixture(autouse=True, scope="module")
def few_sizes():
    """Two searches and few measured sizes, for a suite that is fast."""
    few = {"_SEARCHED": 2, "_MOST_SEARCHED": 2, "_BEST": 1, "_FEW": 2, "_BETWEEN": 32}
    measured = {"_SAMPLED": 4, "_LEARNED": 2}
    with pytest.MonkeyPatch.context() as patch:
        for name, count in (few | measured).items():
            patch.setattr(open_tune, name, count)
        patch.setattr(choice, "_CELLS", 4)
        patch.setattr(choice, "_ALONE", 2)
        patch.setattr(time_model, "_STARTS", 1)
        yield


@pytest.fixture(scope="module")
def tuned():
    with brief():
        return lw.tune(dense(), trials=4, **OPTIONS)


def test_threads_are_started_where_they_gain_more_than_a_launch_varies_by():
    work, target = dense(400), resolve("cpu", 2)
    config = space(work.at(n=64), target).default
    many = open_program(work, target, config, {"n": 64})
    made = Cover(many.dims, (many, replace(many, target=replace(target, threads=1))), ())
    sizes = [{"n": n} for n in (8, 9, 10, 12, 300, 320, 350, 380)]
    seconds = np.array([[2.3e-6] * 4 + [2e-5] * 4, [2.6e-6] * 4 + [4e-5] * 4])
    lines = {"n": [*(n for n in (1, 8, 12, 13, 300, 380) if many.takes({"n": n}))]}
    rules = choice.Choice(made, sizes, seconds, 0).rules(lines)
    chosen = {n: next(r.program for r in rules if r.holds([n])) for n in (10, 350)}
    assert chosen == {10: 1, 350: 0}


def test_of_two_tiles_that_is_chosen_which_divides_a_size():
    work, target = dense(400), resolve("cpu", 1)
    config = space(work.at(n=64), target).default
    rows = (5, 7)
    made = []
    for tile in rows:
        values = {**dict(config.values), "tile0": (tile, 16)}
        one = replace(config, values=tuple(values.items()))
        made.append(open_program(work, target, one, {"n": 64}))
    sizes = [{"n": n} for n in (8, 11, 16, 23, 32, 45, 64, 90, 128, 181, 256, 362)]
    steps = [[-(-each["n"] // tile) * tile * 1e-8 for each in sizes] for tile in rows]
    learned = choice.Choice(Cover(made[0].dims, tuple(made), ()), sizes, np.array(steps), 0)
    rules = learned.rules({"n": [7]})
    chosen = {n: next(r.program for r in rules if r.holds([n])) for n in (25, 28, 50, 56, 75, 77)}
    assert chosen == {25: 0, 28: 1, 50: 0, 56: 1, 75: 0, 77: 1}


def test_nothing_is_predicted_of_a_program_that_was_not_measured():
    work, target = dense(400), resolve("cpu", 1)
    config = space(work.at(n=64), target).default
    made = open_program(work, target, config, {"n": 64})
    seconds = np.array([[1e-6, 2e-6], [math.inf, math.inf]])
    learned = choice.Choice(Cover(made.dims, (made, made), ()), [{"n": 8}, {"n": 16}], seconds, 0)
    measured, missing = learned.to_json()
    assert measured["operations"]
    assert missing is None


def test_a_tuned_library_is_right_at_all_sizes(tuned):
    assert isinstance(tuned, OpenTuned)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 24)).astype("float32")
    library = tuned.library.bind(W=w)
    for n in (1, 2, 3, 7, 50, 199, 200):
        x = rng.standard_normal((n, 24)).astype("float32")
        np.testing.assert_allclose(library(x), x @ w.T, rtol=1e-4, atol=1e-4)


def test_at_most_eight_programs_are_chosen_and_the_rest_fills_gaps(tuned):
    used = {rule.program for rule in tuned.library.open_signature.rules}
    assert len(used) <= len(tuned.seconds) <= 24
    assert tuned.seconds.shape == (len(tuned.seconds), len(tuned.measured))
    assert tuned.loss >= 1


def test_a_result_counts_different_sizes_and_says_where_nothing_was_measured(tuned):
    different = len({sizes["n"] for sizes in tuned.measured})
    twice = replace(tuned, measured=tuned.measured * 2)
    assert str(twice).endswith(f"% at {different} measured sizes")
    assert str(replace(tuned, measured=())).endswith("; nothing was measured")


def test_a_choice_is_explained_with_the_seconds_that_are_predicted(tuned):
    choice = tuned.library.explain(n=77)
    assert choice.rule.program in choice.seconds
    assert all(0 < seconds < 1 for seconds in choice.seconds.values())
    assert "n=77: program" in str(choice)
    assert "chosen" in str(choice)


def test_an_untuned_choice_says_that_nothing_was_measured():
    choice = lw.build(dense()).explain(n=3)
    assert choice.seconds == {}
    assert "nothing was measured" in str(choice)


def test_predictions_that_another_version_wrote_are_refused(tuned):
    origin = tuned.library.origin
    times = [t and {"names": t["names"]} for t in origin.extra["times"]]
    older = OpenLibrary(
        tuned.library.open_signature,
        tuned.library._binary,
        replace(origin, extra=origin.extra | {"times": times}),
    )
    with pytest.raises(LibraryError, match="another version of Loopwright tuned kernel"):
        older.explain(n=77)


def test_the_result_says_what_was_searched(tuned):
    assert len(tuned.searches) == 2
    assert "n=" in repr(tuned)
    assert "<table" in tuned._repr_html_()


def test_without_trials_nothing_is_measured():
    made = lw.tune(dense(), trials=0, **OPTIONS)
    assert made.measured == ()
    x, w = np.ones((9, 24), "float32"), np.ones((32, 24), "float32")
    np.testing.assert_allclose(made.library(x, w), np.full((9, 32), 24.0))


def test_sizes_that_calls_will_have_are_those_that_are_searched():
    given = [{"n": 8}, {"n": 16}]
    made = lw.tune(dense(), trials=2, sizes=given, **OPTIONS)
    assert {sizes["n"] for sizes, _ in made.searches} == {8, 16}
    assert {sizes["n"] for sizes in made.measured} == {8, 16}


@pytest.mark.parametrize(
    ("sizes", "error"), [([], TuningError), ([16], TuningError), ([{"n": 999}], RangeError)]
)
def test_sizes_that_cannot_be_are_refused(sizes, error):
    with pytest.raises(error):
        lw.tune(dense(), trials=4, sizes=sizes, **OPTIONS)


def test_sizes_are_refused_where_all_are_fixed():
    with pytest.raises(TuningError, match="this one has none"):
        lw.tune(dense().at(n=5), trials=4, sizes=[{"n": 5}], **OPTIONS)


def test_an_interrupt_ends_with_what_was_found(monkeypatch):
    real, done = open_tune.search, []

    def interrupted(*arguments):
        done.append(real(*arguments))
        if len(done) == 1:
            raise Interrupted(done[-1])
        return done[-1]

    monkeypatch.setattr(open_tune, "search", interrupted)
    with pytest.raises(Interrupted) as caught:
        lw.tune(dense(), trials=2, **OPTIONS)
    found = caught.value.tuned
    assert len(found.searches) == 1
    assert found.end == "interrupted"
    assert found.library(np.ones((2, 24), "float32"), np.ones((32, 24), "float32")).shape == (
        2,
        32,
    )


def test_the_plot_has_every_program_and_the_chosen_ones(tuned, tmp_path):
    text = tuned.plot(tmp_path / "sizes.svg").read_text()
    assert text.lstrip().startswith("<?xml")
    with pytest.raises(TuningError, match="ends in one of"):
        tuned.plot(tmp_path / "sizes.xyz")


def test_the_report_is_one_page_with_programs_choices_and_searches(tuned, tmp_path):
    text = tuned.report(tmp_path / "sizes.html").read_text()
    for heading in ("Times over sizes", "Programs", "The choice", "Searches", "Where the time"):
        assert f"<h2>{heading}" in text
    assert text.count("<svg") == 1
    assert tuned.searches[0][1].claim in html.unescape(text)


def test_little_time_measures_fewer_sizes(monkeypatch):
    monkeypatch.setattr(open_tune, "_COMPARED", 0.0)
    monkeypatch.setattr(open_tune, "_TIMED", 0.0)
    monkeypatch.setattr(open_programs, "_FEWEST", 2)
    made = lw.tune(dense(), trials=2, minutes=9, **OPTIONS)
    assert len(made.measured) == 2
    assert made.seconds.shape[1] == 2
    x, w = np.ones((9, 24), "float32"), np.ones((32, 24), "float32")
    np.testing.assert_allclose(made.library(x, w), np.full((9, 32), 24.0))


@pytest.mark.parametrize("without_form", [2, 99])
def test_default_schedules_serve_where_what_was_found_has_no_form_for_other_sizes(
    monkeypatch, without_form
):
    real, asked = open_tune.open_program, []

    def opened(*given):
        asked.append(given)
        if len(asked) <= without_form:
            raise ConfigError("no form")
        return real(*given)

    monkeypatch.setattr(open_tune, "open_program", opened)
    monkeypatch.setattr(open_tune, "_GENERALIZED", 0)
    made = lw.tune(dense(), trials=2, minutes=5, **OPTIONS)
    x, w = np.ones((9, 24), "float32"), np.ones((32, 24), "float32")
    np.testing.assert_allclose(made.library(x, w), np.full((9, 32), 24.0))


def test_a_model_that_learned_from_the_searches_chooses_a_config_between_them(tmp_path):
    target = resolve("cpu", 2)
    options = TuneOptions(records=tmp_path / "r.db")
    with LocalDevice(target) as device:
        search(dense().at(n=64), device, Budget(trials=4), options)
    sizes = [{"n": 4}, {"n": 130}]
    chosen = list(proposals(dense(), sizes, target, options))
    assert [each for each, _ in chosen] == sizes
    assert all(config in space(dense().at(**each), target) for each, config in chosen)
    assert chosen == list(proposals(dense(), sizes, target, options))


@pytest.mark.parametrize("options", [{"transfer": None}, {"records": None}])
def test_no_model_chooses_where_it_is_left_out(options, tmp_path):
    given = replace(TuneOptions(records=tmp_path / "r.db"), **options)
    assert not list(proposals(dense(), [{"n": 4}], resolve("cpu", 2), given))


def test_searches_without_records_learn_from_each_other(monkeypatch):
    stores = []

    def searched(workload, device, budget, options):
        stores.append(options.records)
        assert options.records.parent.is_dir()
        return search(workload, device, budget, options)

    monkeypatch.setattr(open_tune, "search", searched)
    lw.tune(dense(), trials=4, **OPTIONS)
    assert len(stores) == 2
    assert len(set(stores)) == 1
    assert not stores[0].parent.exists()


def test_the_shipped_model_chooses_where_records_cannot_be_read_any_more(monkeypatch, tmp_path):
    def unreadable(*_):
        raise RecordError("the disk is full")

    monkeypatch.setattr(proposals_module, "RecordStore", unreadable)
    options, target = (
        TuneOptions(records=tmp_path / "r.db"),
        resolve({"kind": "llvm", "mcpu": "haswell"}, 2),
    )
    assert len(list(proposals(dense(), [{"n": 4}], target, options))) == 1


def test_a_tuning_in_which_no_program_was_timed_has_defaults():
    assert open_tune._cover_of(np.full((3, 2), np.inf)) == []
