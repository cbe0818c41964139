"""The task scheduler: shares a budget, resumes, ends with what was found."""

import io
import math
import shutil
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.explore.budget import Budget, TuningError
from loopwright.explore.stopwatch import Stopwatch
from loopwright.graph.build import build_model
from loopwright.graph.compile.build import build_work, import_model
from loopwright.graph.errors import ModelError
from loopwright.graph.tuning.candidates import VARIANTS, candidates
from loopwright.graph.tuning.live_table import LiveTable
from loopwright.graph.tuning.search import SearchOptions, search
from loopwright.graph.tuning.summary import summary
from loopwright.graph.tuning.task_state import BATCH, TaskState
from loopwright.graph.tuning.tune import tune_model
from loopwright.measure.device import DeviceError, Measurement
from loopwright.measure.machine import fingerprint
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import space
from loopwright.transfer.records.record import NETWORK, Record
from loopwright.transfer.records.store import RecordStore
from tests.brief import brief
from tests.explore.synthetic import Inspected, MadeUp
from tests.sketches import direct

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.onnx

WIDTHS = (24, 24, 24, 24, 5)


def drawn(seed, *shape):
    return np.random.default_rng(seed).uniform(-0.3, 0.3, shape).astype(np.float32)


@pytest.fixture(scope="module")
def net():
    """Three equal layers with relu between them and another one behind; and an input. It is ONNX,
    which is read faster than a program of torch."""
    helper, nodes, weights, last = onnx.helper, [], [], "x"
    for n, (k, m) in enumerate(pairwise(WIDTHS)):
        arrays = {f"w{n}": drawn(n, k, m), f"b{n}": drawn(9 + n, m)}
        weights += [onnx.numpy_helper.from_array(a, name) for name, a in arrays.items()]
        if n:
            nodes.append(helper.make_node("Relu", [last], [f"r{n}"]))
        last = "y" if n == len(WIDTHS) - 2 else f"h{n}"
        nodes.append(helper.make_node("Gemm", [f"r{n}" if n else "x", *arrays], [last]))
    ends = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (7, width))]
        for name, width in (("x", WIDTHS[0]), ("y", WIDTHS[-1]))
    ]
    graph = helper.make_graph(nodes, "g", *ends, weights)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9), drawn(99, 7, WIDTHS[0])


def assert_right(made, x):
    """The results of a model made of `net` are those of its layers."""
    wanted = x
    for n, (k, m) in enumerate(pairwise(WIDTHS)):
        wanted = (np.maximum(wanted, 0) if n else wanted) @ drawn(n, k, m) + drawn(9 + n, m)
    np.testing.assert_allclose(made(x), wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A program of torch with the layers of `net`, its input, what it was tuned to on this
    machine, the records, and the lines that told of it."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(k, m) for k, m in pairwise(WIDTHS)]
    parts = [part for layer in layers for part in (layer, torch.nn.ReLU())]
    model = torch.nn.Sequential(*parts[:-1]).eval()
    x, lines, path = torch.randn(7, WIDTHS[0]), [], tmp_path_factory.mktemp("tuned") / "r.db"
    options = {"records": path, "threads": 1, "tell": lines.append}
    with brief():
        return model, x, tune_model(model, (x,), trials=2 * BATCH, **options), path, lines


class _Task:
    def __init__(self, count):
        self.count, self.flops = count, count


def _state(count, *curve, exhausted=False):
    return TaskState(_Task(count), None, None, list(curve), exhausted)


def test_the_next_batch_goes_where_it_may_save_most():
    untouched = _state(1)
    improving = _state(2, 4e-3, 3e-3, 2e-3)
    flat = _state(2, 4e-3, 4e-3, 4e-3)
    rare = _state(1, 4e-3, 3e-3, 2e-3)
    done = _state(9, 4e-3, 3e-3, 2e-3, exhausted=True)
    gains = [s.expected_gain for s in (untouched, improving, rare, flat, done)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] == math.inf
    assert gains[1] == 2 * gains[2]
    assert gains[-1] == -math.inf


def test_a_task_in_which_nothing_works_does_not_hold_up_the_others():
    assert _state(1, math.inf, math.inf).expected_gain == 0


def test_what_an_interrupted_search_measured_is_compared_by_the_next_one():
    class Session:
        def __init__(self, count, *, network):
            self.history, self.network = list(range(count)), network
            sketch = SimpleNamespace(at=lambda default: default, default="sparse")
            self.space = SimpleNamespace(data_dependent=(sketch,))

        def ranked(self):
            return self.history[:1]

        def in_networks(self):
            return self.network

    def compared(count, *, network, measured=0, sparse=False):
        session = Session(count, network=network)
        return TaskState(_Task(1), session, None, measured=measured).compared(sparse)

    assert compared(BATCH, network={})
    assert not compared(BATCH, network={0: 1e-3})
    assert compared(BATCH, network={1: 1e-3})  # and has been found to be slower since
    assert compared(BATCH, network={0: 1e-3}, measured=BATCH)
    assert not compared(0, network={})
    assert compared(BATCH, network={0: 1e-3}, sparse=True)
    assert not compared(BATCH, network={0: 1e-3, "sparse": 1e-3}, sparse=True)


@pytest.mark.torch
def test_a_model_goes_in_and_a_tuned_one_comes_out(tuned):
    model, x, made, _, lines = tuned
    np.testing.assert_allclose(made(x), model(x).detach(), rtol=1e-4, atol=1e-5)
    assert len(made.records) == len(made.work.tasks) == 2
    end = [line.split()[0] for line in lines[-4:]]
    assert {"measured", "estimate"} < set(end)
    assert end[-1] == "time"


def test_a_difference_to_the_estimate_says_where_it_comes_from(net):
    model, x = net
    made = build_model(model, (x,), threads=1)

    def ended(cost, cache):
        record = SimpleNamespace(cost=cost, cache=cache)
        records = {task.workload.key: record for task in made.work.tasks}
        return list(summary(replace(made, records=records)))

    assert [line.split()[0] for line in ended(1.0, "warm")] == ["measured", "estimate", "they"]
    assert "-100%" in ended(1.0, "warm")[-1]
    assert "alone" in ended(1.0, "warm")[-1]
    assert "in a network" in ended(1e-9, NETWORK)[-1]
    assert "none: 2 of 2 tasks" in list(summary(made))[-1]


def test_an_interrupt_ends_a_loop_and_carries_the_model_of_what_was_measured(net, tmp_path):
    model, x = net
    told = []

    def tell(line):
        told.append(line)
        if "trials" in line:
            raise KeyboardInterrupt

    with pytest.raises(lw.Interrupted, match=r"1 of 2 tasks tuned.* the `tuned`") as caught:
        tune_model(model, (x,), trials=99, records=tmp_path / "r.db", device=MadeUp(), tell=tell)
    assert not isinstance(caught.value, Exception)
    made = caught.value.tuned
    assert_right(made, x)
    assert "interrupted: what was measured is kept" in told
    assert told[-1].startswith("time")
    with RecordStore(tmp_path / "r.db") as store:
        assert len(store) == BATCH


def test_an_interrupt_before_anything_was_measured_passes_through(net, tmp_path):
    model, x = net
    options = {"records": tmp_path / "r.db", "trials": 99, "device": MadeUp(interrupt_at=0)}
    with pytest.raises(KeyboardInterrupt) as caught:
        tune_model(model, (x,), **options)
    assert not isinstance(caught.value, lw.Interrupted)


def test_a_device_that_fails_ends_the_search_of_a_network_with_what_it_has(net, tmp_path):
    model, x = net
    told = []
    device = MadeUp(breaks_at=BATCH + 3)
    made = tune_model(
        model, (x,), trials=99, records=tmp_path / "r.db", device=device, tell=told.append
    )
    assert made.records
    assert any("ends early, with what it has: the device is gone" in line for line in told)
    with RecordStore(tmp_path / "r.db") as store:
        assert len(store) == BATCH + 3
    with pytest.raises(DeviceError, match="the device is gone"):
        tune_model(model, (x,), trials=9, records=tmp_path / "s.db", device=MadeUp(breaks_at=0))


@pytest.mark.parametrize("watched", [False, True])
def test_progress_is_shown_where_somebody_watches(net, tmp_path, monkeypatch, capsys, watched):
    model, x = net
    monkeypatch.setattr("loopwright.explore.report.callbacks.is_watched", lambda: watched)
    options = {"trials": 2 * BATCH, "records": tmp_path / "r.db", "device": MadeUp()}
    tune_model(model, (x,), **options)
    said = capsys.readouterr().err
    assert ("16 trials, " in said) == ("2 of 2 tasks" in said) == watched
    tune_model(model, (x,), **options, progress=False)
    assert capsys.readouterr().err == ""


def test_progress_and_lines_go_together(net, tmp_path, capsys):
    model, x = net
    told = []
    options = {"trials": BATCH, "records": tmp_path / "r.db", "device": MadeUp()}
    tune_model(model, (x,), **options, progress=True, tell=told.append)
    shown_lines = capsys.readouterr().err.splitlines()
    assert shown_lines == told
    told.clear()
    tune_model(model, (x,), **options, tell=told.append)  # lines alone, unless told otherwise
    assert told
    assert capsys.readouterr().err == ""


def test_a_search_that_keeps_no_records_leaves_no_store(net, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, x = net
    made = tune_model(model, (x,), trials=BATCH, records=None, device=MadeUp(), progress=False)
    assert made.records
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("whole", [False, True], ids=["file", "folder"])
def test_a_store_that_is_deleted_meanwhile_costs_nothing_of_what_was_found(net, tmp_path, whole):
    model, x = net
    told = []
    path = tmp_path / "folder" / "r.db"
    path.parent.mkdir()

    def tell(line):
        told.append(line)
        if " trials" in line and path.exists():
            shutil.rmtree(path.parent) if whole else path.unlink()

    made = tune_model(model, (x,), trials=2 * BATCH, records=path, device=MadeUp(), tell=tell)
    assert_right(made, x)
    assert len(made.records) == 2
    assert any("deleted or replaced while it was open" in line for line in told)
    end = "not all could be stored" if whole else "were stored at last"
    assert any(end in line for line in told)


@pytest.mark.postgresql
def test_a_server_that_goes_away_meanwhile_costs_nothing_of_what_was_found(
    net, cluster, monkeypatch
):
    monkeypatch.setattr("loopwright.transfer.records.sql.postgresql.OUTAGE", 0.2)
    model, x = net
    told = []

    def tell(line):
        told.append(line)
        if " trials" in line and cluster.runs():
            cluster.stop()

    try:
        url = cluster.url()
        made = tune_model(model, (x,), trials=2 * BATCH, records=url, device=MadeUp(), tell=tell)
    finally:
        cluster.start()
    assert_right(made, x)
    assert len(made.records) == 2
    assert any("not all could be stored" in line for line in told)


def test_tuned_results_that_are_off_are_refused_and_what_was_measured_is_kept(
    net, tmp_path, monkeypatch
):
    model, x = net

    def wrong(work, target, records=None, *args, **options):
        made = build_work(work, target, records, *args, **options)
        return made if records is None else (lambda *inputs: made(*inputs) + 1)

    def check(built, target, tuned=False):
        import_model(model, (x,), target).source.reference.check(built, tuned)

    monkeypatch.setattr("loopwright.graph.tuning.fixed_sizes.build_work", wrong)
    monkeypatch.setattr("loopwright.graph.tuning.fixed_sizes.check_results", check)
    with pytest.raises(ModelError, match="by records, the model gives other results than in"):
        tune_model(model, (x,), trials=1, records=tmp_path / "r.db", device=MadeUp())
    with RecordStore(tmp_path / "r.db") as store:
        assert len(store)


def test_a_search_in_which_nothing_worked_is_an_error_that_says_why(net, tmp_path):
    model, x = net
    device = MadeUp(fails=frozenset(range(8)))
    work = import_model(model, (x,), device.target)
    budget = Budget(trials=2 * BATCH)
    options = SearchOptions(device=device, transfer=None)
    with pytest.raises(TuningError, match=r"none of 32 candidates worked(.|\n)*never works"):
        search(work, device.target, budget, tmp_path / "r.db", options)
    with RecordStore(tmp_path / "r.db") as store:
        assert len(store) == 2 * BATCH


def test_feedback_reaches_the_searches_of_all_tasks(net, tmp_path):
    model, x = net
    device = Inspected()
    work = import_model(model, (x,), device.target)
    options = SearchOptions(device=device, transfer=None, feedback="compiled")
    search(work, device.target, Budget(trials=4 * BATCH), tmp_path / "r.db", options)
    assert len(device.inspected) > BATCH
    with pytest.raises(TuningError, match="made up tells nothing"):
        tune_model(model, (x,), trials=1, records=None, device=MadeUp(), feedback="compiled")


def test_minutes_count_from_the_reading_of_a_network_and_keep_time_for_its_building(net, tmp_path):
    model, x = net
    device = MadeUp()
    work = import_model(model, (x,), device.target)
    for passed, measured in ((54.5, False), (0.0, True)):
        lines = []
        clock = Stopwatch()
        clock.began -= passed
        options = SearchOptions(device=device, transfer=None, tell=lines.append, clock=clock)
        search(work, device.target, Budget(2 * BATCH, 1), tmp_path / "r.db", options)
        assert any("the budget ended before" in line for line in lines) != measured


def test_a_network_without_time_for_a_search_is_what_records_and_defaults_make_it(net, tmp_path):
    model, x = net
    told, target = [], resolve("cpu", 1)
    task = import_model(model, (x,), target).tasks[0]
    config = space(task.workload, target).sample(np.random.default_rng(1))
    for known in (False, True):
        if known:
            stored(tmp_path / "r.db", task, target, (config, 1e-6))
        made = tune_model(
            model, (x,), minutes=1e-9, records=tmp_path / "r.db", threads=1, tell=told.append
        )
        assert_right(made, x)
        assert [r.config for r in made.records.values()] == [config] * known
        assert "the budget ended before the search began: give more minutes" in told
        assert any(line.startswith("measured   not at all") for line in told)


def test_tasks_that_were_not_reached_are_told(net, tmp_path):
    model, x = net
    device, lines = MadeUp(), []
    work = import_model(model, (x,), device.target)
    options = SearchOptions(device=device, transfer=None, tell=lines.append)
    search(work, device.target, Budget(trials=BATCH), tmp_path / "r.db", options)
    assert f"the budget ended before {work.tasks[1].name}: by default schedules" in lines


def test_what_is_chosen_while_other_machines_measure_is_what_would_be_chosen_later(net, tmp_path):
    model, x = net
    measured = []
    for here in (True, False):
        device = MadeUp()
        device.here = here
        work = import_model(model, (x,), device.target)
        options = SearchOptions(device=device, transfer=None)
        search(work, device.target, Budget(trials=3 * BATCH + 5), tmp_path / f"{here}.db", options)
        measured.append(device.measured)
    assert len(measured[0]) == 3 * BATCH + 5
    assert measured[0] == measured[1]


def stored(path, task, target, *costs, cache="warm", created=0.0):
    """Records of configs with what they cost."""
    with RecordStore(path) as store:
        for config, cost in costs:
            m = Measurement(config, (cost,), None, 0.0, 0.0, cache, target.threads, created)
            store.add([Record.of(task.workload, target, fingerprint(), m, seed=0, session="s")])


def test_records_of_another_version_s_rules_do_not_hide_those_that_fit(net, tmp_path):
    model, x = net
    target = resolve("cpu", 1)
    work = import_model(model, (x,), target)
    first, second = work.tasks
    old = Config(direct("of another version"), ())
    fits = space(first.workload, target).sample(np.random.default_rng(1))
    for cache in ("warm", NETWORK):
        stored(tmp_path / "r.db", first, target, (old, 1e-9), (fits, 1e-6), cache=cache)
    stored(tmp_path / "r.db", second, target, (old, 1e-9))
    built = build_work(work, target, tmp_path / "r.db")
    assert built.linked.configs[first.workload.key] == fits
    assert {r.config for r in built.records.values()} == {fits}  # the other one was not built by
    (note,) = built.linked.notes
    assert "its record cannot be built" in note


def test_what_an_interrupted_search_found_goes_before_what_was_compared_in_the_network(
    net, tmp_path
):
    model, x = net
    target = resolve("cpu", 1)
    work = import_model(model, (x,), target)
    task = work.tasks[0]
    points = space(task.workload, target)
    compared, found = (points.sample(np.random.default_rng(n)) for n in (1, 2))

    def chosen(seconds, *inside, alone=((compared, 10e-6),)):
        path = tmp_path / f"{seconds}{len(inside)}{len(alone)}.db"
        stored(path, task, target, *alone, (found, seconds))
        stored(path, task, target, (compared, 12e-6), *inside, cache=NETWORK)
        return build_work(work, target, path).linked.configs[task.workload.key]

    assert chosen(5e-6) == found
    assert chosen(9.9e-6) == compared  # as fast, within what measurements are off
    assert chosen(5e-6, (found, 13e-6)) == compared
    assert chosen(5e-6, alone=()) == compared  # as in a store that `export_best` wrote


@pytest.mark.slow
def test_a_search_that_goes_on_knows_how_fast_it_improved(net, tmp_path):
    model, x = net
    target = resolve("cpu", 1)
    work = import_model(model, (x,), target)
    options = SearchOptions(only=[0], transfer=None)
    (first,) = search(work, target, Budget(trials=3 * BATCH), tmp_path / "r.db", options).states
    (again,) = search(work, target, Budget(trials=1), tmp_path / "r.db", options).states
    assert again.curve[:3] == first.curve


def test_a_budget_without_a_search_is_refused_for_models(net, tmp_path):
    model, x = net
    for budget in ({"trials": 0}, {"effort": "instant"}):
        with pytest.raises(TuningError, match=r"single operators.*lw.build_model"):
            tune_model(model, (x,), threads=1, records=tmp_path / "r.db", **budget)


def test_the_default_is_compared_in_the_network_however_it_did_alone():
    a, b = lw.tensor("a", (64, 64)), lw.tensor("b", (64, 64))
    points = space(lw.workload(lw.ops.matmul(a, b)), resolve("cpu", 1))

    class Searched:
        space, workload = points, points.workload
        device = SimpleNamespace(target=resolve("cpu", 1))

        def __init__(self, default):
            drawn = [self.space.sample(np.random.default_rng(n)) for n in range(20)]
            self.costs = dict.fromkeys(drawn, 1.0) | {self.space.default: default}

        def ranked(self):
            return sorted((c for c in self.costs if math.isfinite(self.cost(c))), key=self.cost)

        def cost(self, config):
            return self.costs[config]

        def best_known(self, cache):
            return None

    slow, failed = Searched(9.0), Searched(math.inf)
    assert candidates(slow, False)[1] == points.default
    assert len(candidates(slow, False)) == VARIANTS
    assert points.default not in candidates(failed, False)


@pytest.mark.torch
def test_a_search_measures_every_task_and_the_next_one_goes_on_from_there(tuned):
    _, _, made, path, lines = tuned
    work, target = made.work, resolve("cpu", 1)
    assert [t.count for t in work.tasks] == [3, 1]
    assert sum("trials" in line for line in lines) == 2
    with RecordStore(path) as store:
        alone = [r for r in store if r.cache == "warm"]
        assert len(alone) == 2 * BATCH
        assert 2 <= len(store) - len(alone) <= 2 * VARIANTS
        assert store.best(work.tasks[0].workload, target, "any").cache == "warm"
    assert {r.cache for r in made.records.values()} == {"network"}
    assert made.estimate == pytest.approx(
        sum(task.count * made.records[task.workload.key].cost for task in work.tasks)
    )
    again = search(work, target, Budget(trials=1), path, SearchOptions(only=[1])).states
    assert len(again[0].session.history) == BATCH + 1


def test_a_terminal_shows_a_table_of_the_tasks(net, tmp_path):
    model, x = net
    device = MadeUp()
    work = import_model(model, (x,), device.target)
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=20)
    budget = Budget(trials=BATCH + 1)
    with LiveTable(console) as live:
        live.note("[not markup]")
        options = SearchOptions(device=device, watch=live.update, transfer=None)
        states = search(work, device.target, budget, tmp_path / "r.db", options).states
    text = console.file.getvalue()
    assert "[not markup]" in text
    assert f"{BATCH} trials" in text
    for part in (work.tasks[0].name, "left 0:0", "2 of 2 tasks", *map(_shown, states)):
        assert part in text


def _shown(state):
    return f"{state.best * 1e3:.4f}"


def test_a_table_that_has_no_room_for_all_tasks_says_how_many_are_missing(net, tmp_path):
    model, x = net
    device = MadeUp()
    work = import_model(model, (x,), device.target)
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=7)
    with LiveTable(console) as live:
        options = SearchOptions(device=device, watch=live.update, transfer=None)
        search(work, device.target, Budget(trials=1), tmp_path / "r.db", options)
    assert "and 1 more" in console.file.getvalue()


def test_when_time_is_up_a_batch_ends(net, tmp_path):
    model, x = net
    device = MadeUp()
    work = import_model(model, (x,), device.target)
    budget = Budget(minutes=1e-6)
    options = SearchOptions(device=device, transfer=None)
    states = search(work, device.target, budget, tmp_path / "r.db", options).states
    assert sum(s.measured for s in states) == 0


def test_a_task_that_is_not_there_is_an_error(net, tmp_path):
    model, x = net
    with pytest.raises(TuningError, match="no task 7: the model has 2"):
        tune_model(model, (x,), trials=1, records=tmp_path / "r.db", threads=1, only=[7])
