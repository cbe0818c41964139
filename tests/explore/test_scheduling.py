"""LoopTune's environment, searches and policies, on tiny shapes and made-up speeds."""

import importlib
import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
from loopwright.codegen.build import build
from loopwright.costmodel.model import ModelError
from loopwright.dsl.errors import ConfigError, NotationError
from loopwright.dsl.oracle import evaluate
from loopwright.explore.budget import TuningError
from loopwright.explore.scheduling import spaces
from loopwright.explore.scheduling.environment import STEPS, ScheduleEnv
from loopwright.explore.scheduling.estimate import estimate
from loopwright.explore.scheduling.evaluators import Evaluator, Measured
from loopwright.explore.scheduling.evolution import Evolution
from loopwright.explore.scheduling.loops import ACTIONS, NUMBERS, ROWS, Problem, State
from loopwright.explore.scheduling.nest_model import Modelled, walk
from loopwright.explore.scheduling.policy import INPUTS, Policy, inputs
from loopwright.explore.scheduling.searches import SEARCHES, search
from loopwright.measure.nest import HandSchedule
from tests.explore.synthetic import Formula
from tests.targets import narrow

TARGET = narrow(1)


def product(m=32, n=48, k=16):
    i, j, r = lw.indices("i j k")
    A, B, C = lw.tensor("A", (m, k)), lw.tensor("B", (k, n)), lw.tensor("C")
    C[i, j] += A[i, r] * B[r, j]
    return lw.workload(C)


def problem(*sizes):
    return Problem.of(product(*sizes), TARGET)


def after(state, *actions):
    for action in actions:
        state = state.after(ACTIONS.index(action))
    return state


def made_up():
    """The analytical estimate as the speed, of a machine of 100 GFLOP/s."""
    return Formula(lambda state: 100 * estimate(state), 100.0)


def env_of(*workloads):
    return ScheduleEnv(list(workloads) or product(), made_up(), TARGET)


TILED = ["split_4", "down", "swap_down", "down", "split_16", "swap_up", "swap_up"]


def test_the_actions_of_the_paper_make_a_register_tile():
    state = State.first(problem())
    assert str(state) == "[i=32] k=16 j=48"
    assert str(after(state, "split_4")) == "[i.outer=8] i.inner=4 k=16 j=48"
    assert str(after(state, *TILED)) == "i.outer=8 [j.outer=3] k=16 i.inner=4 j.inner=16"


def test_actions_that_are_not_legal_are_masked():
    state = State.first(problem())
    legal = dict(zip(ACTIONS, state.mask, strict=True))
    assert [name for name in ACTIONS if not legal[name]] == ["up", "swap_up"]
    small = State.first(problem(4, 8, 16))
    assert [small.after(ACTIONS.index(f"split_{f}")) for f in (4, 8, 16)] == [None] * 3


def test_a_state_has_twenty_numbers_for_each_loop():
    rows = after(State.first(problem(32, 40, 16)), "down", "down", "split_16").observation
    assert rows.shape == (ROWS, NUMBERS)
    cursor, size, tail, writes = rows[:, :4].T
    assert cursor.tolist().index(1) == 2
    assert size[:7].tolist() == [32, 16, 3, 16, 32, 3, 16]
    assert tail[:7].tolist() == [0, 0, 8, 0, 0, 8, 0]
    assert writes[:7].tolist() == [0, 0, 0, 0, 1, 1, 1]
    strides = rows[:, 4:]
    assert strides[0].nonzero()[0].tolist() == [4, 5]  # A moves by 16, C by 40
    assert strides[1].nonzero()[0].tolist() == [0, 5]  # A by 1, B by 40
    assert strides[3, 0] == 2  # B and C by 1
    assert strides[5].nonzero()[0].tolist() == [4]  # C and the accumulators by 16
    assert not rows[7:].any()


def test_no_episode_needs_more_rows_than_there_are():
    rng = np.random.default_rng(0)
    for _ in range(60):
        for state in walk(problem(256, 256, 256), rng, 14):
            assert state.observation[:, 1].astype(bool).sum() <= ROWS


def test_states_with_equal_loops_are_one_schedule():
    first = State.first(problem())
    one = after(first, "split_4", "down", "down", "split_8")
    two = after(first, "down", "split_8", "up", "split_4")
    assert one.key == two.key
    assert one.key != first.key
    assert State.first(problem(64, 48, 16)).key != first.key


@given(actions=st.lists(st.integers(0, len(ACTIONS) - 1), max_size=10))
@settings(max_examples=8)
def test_every_schedule_computes_what_the_oracle_does(actions):
    state = State.first(problem(20, 24, 11))
    for action in actions:
        state = state.after(action) or state
    work = state.problem.workload
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(x.shape).astype("float32") for x in work.inputs]
    expected = evaluate(work, {x.name: v for x, v in zip(work.inputs, data, strict=True)})[0]
    made = build(work, state.config, TARGET)(*data)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


def test_a_config_has_the_loops_of_its_state():
    nest = HandSchedule(product(), TARGET).split("i", 4).split("j", 16)
    nest.reorder("i.outer", "j.outer", "k", "i.inner", "j.inner").finish()
    assert after(State.first(problem()), *TILED).config == nest.config


def test_an_environment_has_other_stages_and_workloads():
    x = lw.ops.conv2d(lw.tensor("X", (1, 4, 9, 9)), lw.tensor("W", (8, 4, 3, 3)), padding=1)
    env = env_of(lw.workload(x), product())
    for number in range(2):
        _, info = env.reset(options={"workload": number})
        assert build(env.problems[number].workload, info["config"], TARGET)
    with pytest.raises(ConfigError, match="0 to 1"):
        env.reset(options={"workload": 2})


def test_rewards_sum_to_what_an_episode_gained():
    env = env_of()
    observation, info = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    began, total = info["gflops"], 0.0
    for n, action in enumerate([*TILED, "up", "up", "up"]):
        observation, reward, terminated, truncated, info = env.step(ACTIONS.index(action))
        assert env.observation_space.contains(observation)
        assert (terminated, truncated) == (n == STEPS - 1, False)
        total += reward
    assert info["gflops"] > began
    assert total == pytest.approx((info["gflops"] - began) / 100)
    with pytest.raises(ConfigError, match="reset"):
        env.step(0)


def test_an_action_that_is_not_legal_changes_nothing():
    env = env_of()
    before, info = env.reset()
    assert not info["action_mask"][ACTIONS.index("up")]
    observation, reward, *_ = env.step(ACTIONS.index("up"))
    assert reward == 0
    assert (observation == before).all()


def test_what_an_environment_cannot_do_is_said():
    with pytest.raises(ConfigError, match="reset"):
        env_of().step(0)
    env = env_of()
    env.reset()
    with pytest.raises(ConfigError, match="no action 7"):
        env.step(7)
    with pytest.raises(ConfigError, match="name each of i, j, k once"):
        ScheduleEnv(product(), made_up(), TARGET, order=("i", "j"))
    with pytest.raises(ConfigError, match="order is int 5: name each of i, j, k once"):
        ScheduleEnv(product(), made_up(), TARGET, order=5)
    with pytest.raises(ConfigError, match="evaluator=3 tells no speeds: give a Measured"):
        ScheduleEnv(product(), 3, TARGET)
    with pytest.raises(ConfigError, match="there is no workload 'a': give 0 to 0"):
        env.reset(options={"workload": "a"})
    with pytest.raises(ConfigError, match="one workload"):
        ScheduleEnv([], made_up(), TARGET)
    with pytest.raises(ConfigError, match="render_mode='human': give \"ansi\""):
        ScheduleEnv(product(), made_up(), TARGET, render_mode="human")
    with pytest.raises(ConfigError, match="no search 'greedy': give one of greedy1"):
        search("greedy", problem(), made_up(), 1)


def test_a_workload_that_no_state_describes_is_refused():
    with pytest.raises(ConfigError, match=r"relu has 0 loops, .* describes 1 to 16"):
        ScheduleEnv(lw.ops.relu(lw.tensor("x", ())), made_up(), TARGET)
    x, y = lw.tensor("x", (2,) * 9), lw.tensor("y", (2,) * 9)
    with pytest.raises(ConfigError, match="has 33 loops, with those that write its result"):
        ScheduleEnv(lw.einsum("abcdefghi,ijklmnopq->abcdefghjklmnopq", x, y), made_up(), TARGET)
    with pytest.raises(NotationError, match="str 'ij,jk->ik' is no workload"):
        ScheduleEnv("ij,jk->ik", made_up(), TARGET)


def test_what_moves_elements_alone_has_no_speed_to_measure():
    moved = Problem.of(lw.workload(lw.einsum("ij->ji", lw.tensor("x", (3, 5)))), TARGET)
    measured = Measured.__new__(Measured)
    Evaluator.__init__(measured, 1.0)
    with pytest.raises(ConfigError, match="no operations a second"):
        measured.speeds([State.first(moved)])


def test_an_order_of_loops_to_begin_with_may_be_given():
    env = ScheduleEnv(product(), made_up(), TARGET, order=("i", "j", "k"), render_mode="ansi")
    env.reset()
    assert env.render() == "[i=32] j=48 k=16"


def test_it_is_an_environment_of_gymnasium():
    checker = pytest.importorskip("gymnasium.utils.env_checker")
    checker.check_env(env_of(), skip_render_check=False)


def test_it_works_without_gymnasium(monkeypatch):
    monkeypatch.setattr(spaces, "gymnasium", None)
    env = env_of()
    observation, _ = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    assert not env.observation_space.contains(observation.astype(float))
    assert env.action_space.contains(np.int64(6))
    assert not env.action_space.contains(7)
    plain = spaces._Plain()
    plain.reset(seed=3)
    assert plain.np_random.integers(100) == np.random.default_rng(3).integers(100)


def test_an_evaluator_is_asked_once_for_each_schedule():
    asked = []
    evaluator = Formula(lambda state: asked.append(state.key) or 1.0, 1.0)
    first = State.first(problem())
    moved = after(first, "down")
    assert evaluator.speeds([first, moved, first]) == [1.0] * 3
    assert len(asked) == evaluator.evaluated == 1


class Clock:
    """A second for each look at it."""

    def __init__(self):
        self.now = itertools.count()

    def __call__(self):
        return float(next(self.now))


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_is_no_worse_than_its_start_repeats_and_ends(name):
    one, two = (search(name, problem(), made_up(), 200, 5, Clock()) for _ in range(2))
    start = made_up().speeds([State.first(problem())])[0]
    assert one.gflops >= start
    assert one.state.key == two.state.key
    assert [g for _, g in one.curve] == sorted(g for _, g in one.curve)
    assert len(one.state.splits) <= STEPS


def test_a_result_of_a_search_is_shown_in_a_line():
    found = search("greedy1", problem(), made_up(), 200, 5, Clock())
    assert re.fullmatch(r"<Found \S.*: [\d.]+ GFLOP/s in [\d.]+ s>", repr(found))


def test_wide_and_deep_searches_find_more_than_greedy_ones():
    found = {
        name: search(name, problem(), made_up(), 3000, 0, Clock()).gflops for name in SEARCHES
    }
    assert found["greedy1"] <= found["greedy2"]
    assert max(found["beam4dfs"], found["random"]) >= found["greedy1"]


def test_no_time_at_all_leaves_the_start():
    found = search("random", problem(), made_up(), 0, 0, Clock())
    assert found.state.key == State.first(problem()).key
    assert found.gflops > 0


def test_a_model_learns_speeds_of_other_shapes():
    truth = Formula(lambda s: 100 * estimate(s) * (0.5 if s.loops[-1].reduce else 1.0), 100.0)
    rng, model = np.random.default_rng(0), Modelled(100.0)
    for sizes in [(32, 48, 16), (64, 16, 32), (16, 64, 64), (48, 48, 48)]:
        states = [s for _ in range(8) for s in walk(problem(*sizes), rng)]
        model.learn(states, truth.speeds(states), grow=sizes == (48, 48, 48))
    assert model.learned == 4 * 8 * 11
    unseen = [s for _ in range(20) for s in walk(problem(32, 32, 80), rng)]
    expected = np.log(truth.speeds(unseen))
    plain, learned = (np.log(m.speeds(unseen)) - expected for m in (Modelled(100.0), model))
    assert np.abs(learned).mean() < np.abs(plain).mean() / 2


def good_episodes(of, count):
    return Evolution(made_up(), np.random.default_rng(0)).episodes(of, count)


def test_evolution_finds_good_episodes_of_ten_actions():
    wide = problem(64, 256, 64)
    episodes = good_episodes(wide, 3)
    assert len({e[-1].key for e in episodes}) == len(episodes) == 3
    for episode in episodes:
        assert len(episode) == STEPS + 1
        for one, two in itertools.pairwise(episode):
            reached = one.after(one.action_to(two))
            assert (reached.key, reached.cursor) == (two.key, two.cursor)
    speeds = made_up().speeds([episode[-1] for episode in episodes])
    assert min(speeds) > made_up().speeds([State.first(wide)])[0]
    with pytest.raises(ConfigError, match="no action leads"):
        episodes[0][0].action_to(episodes[0][-1])


def random_policy(seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(INPUTS, 8), (8, len(ACTIONS))]
    layers = [
        (rng.standard_normal(s).astype("float32"), np.zeros(s[1], "float32")) for s in shapes
    ]
    return Policy(layers, {"method": "random"})


def test_a_policy_takes_ten_legal_actions_and_measures_nothing():
    states = random_policy().episode(problem())
    assert len(states) == STEPS + 1
    for one, two in itertools.pairwise(states):
        one.action_to(two)
    assert random_policy().schedule(problem()).key == states[-1].key


def test_a_policy_that_ends_badly_gives_the_best_schedule_on_its_way():
    policy, evaluator = random_policy(), made_up()
    best = max(evaluator.speeds(policy.episode(problem())))
    assert evaluator.speeds([policy.schedule(problem(), evaluator)]) == [best]


def test_a_model_is_kept_in_a_file(tmp_path):
    states = walk(problem(), np.random.default_rng(0))
    model = Modelled(50.0)
    with pytest.raises(ModelError, match="learn"):
        model.save(tmp_path / "m.json")
    model.learn(states, made_up().speeds(states))
    model.save(tmp_path / "m.json")
    again = Modelled.load(tmp_path / "m.json")
    assert again.peak == 50.0
    np.testing.assert_allclose(again.speeds(states), model.speeds(states), rtol=1e-5)
    random_policy().save(tmp_path / "p.json")
    with pytest.raises(ModelError, match="kind"):
        Modelled.load(tmp_path / "p.json")


def test_a_policy_is_kept_in_a_file(tmp_path):
    policy = random_policy()
    policy.save(tmp_path / "p.json")
    again = Policy.load(tmp_path / "p.json")
    x = inputs([State.first(problem())], [STEPS])
    np.testing.assert_array_equal(policy.outputs(x), again.outputs(x))
    assert again.about == {"method": "random"}
    data = json.loads((tmp_path / "p.json").read_text())
    (tmp_path / "p.json").write_text(json.dumps(data | {"content": data["content"] + " "}))
    with pytest.raises(ModelError, match="damaged"):
        Policy.load(tmp_path / "p.json")


SMALL = {
    "dqn": {"episodes": 16, "updates": 8, "batch": 64},
    "ppo": {"episodes": 16, "batch": 80, "imitated": 60},
}
"""Settings of the methods for a test."""


def trained(method, problems, evaluator, rounds, on_point=None, **options):
    from loopwright.explore.scheduling.training import Course

    module = importlib.import_module(f"loopwright.explore.scheduling.{method}")
    train, chosen = getattr(module, f"train_{method}"), module.Settings(**SMALL[method])
    course = Course(rounds=rounds, seed=1, on_point=on_point)
    return train(problems, evaluator, course, chosen, **options)


def splits_of_j(state):
    """Splits of the last loop are all that counts."""
    return 10.0 * sum(name.startswith("j") for name, _ in state.splits)


@pytest.mark.torch
@pytest.mark.parametrize("method", ["dqn", "ppo"])
def test_policies_learn_what_is_fast(method):
    pytest.importorskip("torch")
    points, problems = [], [problem(64, 256, 64)]
    evaluator = Formula(splits_of_j, 40.0)
    policy = trained(method, problems, evaluator, 12, points.append)
    assert len(points) == 12
    assert points[-1].steps == 12 * points[0].steps
    assert np.mean([p.gained for p in points[-3:]]) > points[0].gained
    assert splits_of_j(policy.schedule(problems[0])) >= 20
    more = trained(method, problems, evaluator, 1, base=policy)
    assert more.about["method"] == method


@pytest.mark.torch
@pytest.mark.parametrize("method", ["dqn", "ppo"])
def test_policies_imitate_what_is_shown_and_repeat(method):
    pytest.importorskip("torch")
    first = problem(64, 256, 64)
    shown = good_episodes(first, 1)
    one, two = (trained(method, [first], made_up(), 10, shown=shown) for _ in range(2))
    x = inputs([State.first(first)], [STEPS])
    np.testing.assert_array_equal(one.outputs(x), two.outputs(x))
    start, found = made_up().speeds([State.first(first), one.schedule(first)])
    assert found > start


@pytest.mark.torch
def test_policies_are_trained_from_nothing(monkeypatch):
    pytest.importorskip("torch")
    from loopwright.explore.scheduling.learn import train_policies

    problems = [problem(), problem(64, 32, 48)]
    told, looks = [], itertools.count(1)
    clock = SimpleNamespace(monotonic=lambda: next(looks) / 4)  # seconds
    monkeypatch.setattr("loopwright.explore.scheduling.learn.time", clock)
    monkeypatch.setattr("loopwright.explore.scheduling.training.time", clock)
    policies, model = train_policies(
        problems,
        made_up(),
        0.05,
        on_point=lambda name, number: lambda point: told.append((name, number)),
    )
    assert set(told) == {("dqn", 0), ("dqn", 1)}
    assert model.learned > 0
    assert next(looks) / 4 == pytest.approx(60 * 0.05, abs=1.5)
    assert policies["dqn"].about["method"] == "dqn"
    with pytest.raises(ConfigError, match="dqn, ppo"):
        train_policies(problems, made_up(), 0.01, ("a3c",))
    with pytest.raises(TuningError, match="minutes = 0"):
        train_policies(problems, made_up(), 0)


@pytest.mark.slow
def test_schedules_are_measured():
    with Measured(TARGET) as evaluator:
        first, tiled = evaluator.speeds(
            [State.first(problem()), after(State.first(problem()), *TILED)]
        )
    assert min(first, tiled) > 0
