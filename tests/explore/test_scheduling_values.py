"""Values that the game of scheduling refuses, and those that it takes in several forms."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.errors import ConfigError, LoopwrightError, NotationError, TargetError
from loopwright.explore.scheduling.environment import ScheduleEnv
from loopwright.explore.scheduling.estimate import estimate
from loopwright.explore.scheduling.learn import train_policies
from loopwright.explore.scheduling.loops import Problem
from loopwright.explore.scheduling.nest_model import Modelled
from loopwright.explore.scheduling.policy import INPUTS, Policy
from loopwright.explore.scheduling.searches import search
from tests.explore.synthetic import Formula
from tests.targets import narrow

TARGET = narrow(1)
SPEEDS = Formula(estimate, 1.0)


def product():
    i, j, k = lw.indices("i j k")
    A, B, C = lw.tensor("A", (8, 4)), lw.tensor("B", (4, 6)), lw.tensor("C")
    C[i, j] += A[i, k] * B[k, j]
    return (i, j, k), C


def test_an_order_may_be_of_indices():
    order, tensor = product()
    of_names = Problem.of(lw.workload(tensor), TARGET, ["i", "j", "k"])
    assert Problem.of(tensor, TARGET, order).start == of_names.start


def test_a_problem_is_of_a_workload_and_a_processor():
    _, tensor = product()
    with pytest.raises(NotationError, match="None is no workload"):
        Problem.of(None, TARGET)
    with pytest.raises(TargetError, match="target = str 'cpu': give a Target"):
        Problem.of(tensor, "cpu")


@pytest.mark.opencl
def test_the_game_is_not_for_gpus():
    _, tensor = product()
    with pytest.raises(TargetError, match="for processors, not for opencl"):
        ScheduleEnv(tensor, SPEEDS, "opencl")


@pytest.mark.parametrize("seed", [-1, "a", 0.5])
def test_an_episode_needs_a_seed_that_can_be(seed):
    env = ScheduleEnv(product()[1], SPEEDS, TARGET)
    with pytest.raises(LoopwrightError, match="give an integer of at least 0"):
        env.reset(seed=seed)


@pytest.mark.parametrize("peak", [0, -1.0, "fast", None])
def test_a_peak_is_a_positive_number(peak):
    with pytest.raises(ConfigError, match=r"peak = .*: give the machine's most, in GFLOP/s"):
        Modelled(peak)


def test_a_search_is_of_a_problem_in_seconds():
    problem = Problem.of(product()[1], TARGET)
    with pytest.raises(ConfigError, match="give a list of Problem"):
        search("greedy1", product()[1], SPEEDS, seconds=1)
    with pytest.raises(ConfigError, match="seconds = None: give a number"):
        search("greedy1", problem, SPEEDS, seconds=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problems": []}, r"problems = .*: give a list of Problem"),
        ({"problems": Problem.of(product()[1], TARGET)}, "problems = "),
        ({"problems": [3]}, "problems = "),
        ({"methods": []}, "methods = .*: give a list of some of dqn, ppo"),
        ({"methods": "dqn"}, "methods = str 'dqn'"),
        ({"methods": None}, "methods = None"),
        ({"minutes": None}, "minutes = None: give a positive number"),
        ({"minutes": "1"}, "minutes = '1': give a positive number"),
        ({"seed": -1}, "seed = -1: give an integer of at least 0"),
    ],
)
def test_training_refuses_what_it_cannot_learn_by(change, message):
    given = {"problems": [Problem.of(product()[1], TARGET)], "minutes": 1e-3} | change
    with pytest.raises(LoopwrightError, match=message):
        train_policies(given.pop("problems"), SPEEDS, **given)


def test_a_policy_schedules_a_problem():
    policy = Policy([(np.zeros((INPUTS, 7)), np.zeros(7))], {})
    with pytest.raises(ConfigError, match="give a list of Problem"):
        policy.schedule(lw.workload(product()[1]))
