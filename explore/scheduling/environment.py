"""`ScheduleEnv`: scheduling a workload as LoopTune's game, by Gymnasium's conventions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loopwright.codegen.target import resolve
from loopwright.costmodel.model import check_seed
from loopwright.dsl.errors import ConfigError
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import among, brief, counted, quoted
from loopwright.dsl.workload import Workload, as_workload
from loopwright.explore.scheduling.evaluators import Evaluator, Measured
from loopwright.explore.scheduling.loops import ACTIONS, NUMBERS, ROWS, Floats, Problem, State
from loopwright.explore.scheduling.spaces import Environment, box, discrete
from loopwright.schedule.target import Target

STEPS = 10
"""Actions of an episode."""


class ScheduleEnv(Environment):
    """An environment whose episodes schedule one stage of a workload, loop by loop.

    There are seven actions (`ACTIONS`). An observation has 20 numbers for each of 16 loops
    (`State.observation`). The reward of an action is what it adds to the speed, as a share of the
    peak, so that rewards sum to what an episode gained. An action that is not legal changes
    nothing; `info["action_mask"]` tells which are. An episode is `terminated` after ten actions,
    and none ends it before. (Grubisic et al. 2023, LoopTune, section 4.)

    Inner loops become vectors and are unrolled by LoopNest's rules. `info` holds "gflops", the
    speed now, and "config", with which `lw.build` makes the program.

    Where the package gymnasium is installed, this is a `gymnasium.Env`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"]}

    def __init__(
        self,
        workload: Workload | Tensor | Sequence[Workload],
        evaluator: Evaluator | None = None,
        target: str | Mapping[str, Any] | Target = "cpu",
        threads: int | None = 1,
        order: Sequence[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Nothing is built or run before `reset`.

        Parameters
        ----------
        workload: or a tensor, or several workloads, of which each episode draws one.
        evaluator: what tells speeds; one that measures on this machine if None. It remembers them,
            and may be shared.
        target, threads: as for `lw.build`, but for the threads: one.
        order: the loops that an episode begins with, outermost first, such as ("i", "j", "k"); the
            order in which the body names them if None.
        render_mode: "ansi", for `render` to return the loops as text.

        Raises `NotationError`, `TargetError`, `ConfigError`.
        """
        several = isinstance(workload, Sequence) and not isinstance(workload, str)
        many: Sequence[Any] = workload if several else [workload]  # type: ignore[assignment]
        machine = resolve(target, threads)
        if not many:
            raise ConfigError("an environment needs one workload at least")
        if render_mode is not None and not among(render_mode, self.metadata["render_modes"]):
            raise ConfigError(f'render_mode={quoted(render_mode)}: give "ansi", or leave it out')
        if not isinstance(evaluator, Evaluator | None):
            raise ConfigError(
                f"evaluator={evaluator!r} tells no speeds: give a Measured, Modelled or Formula, "
                "or leave it out to measure"
            )
        self.problems = [Problem.of(as_workload(w), machine, order) for w in many]
        self._evaluator = evaluator
        self._target = machine
        self._state: State | None = None
        self._speed, self._left = 0.0, 0
        self.render_mode = render_mode
        self.action_space = discrete(len(ACTIONS))
        self.observation_space = box((ROWS, NUMBERS))

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator of speeds."""
        if self._evaluator is None:
            self._evaluator = Measured(self._target)
        return self._evaluator

    @property
    def state(self) -> State:
        """The loops and the cursor. Raises `ConfigError` before the first `reset`."""
        if self._state is None:
            raise ConfigError("the environment has no state yet: call reset() before")
        return self._state

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode: of the workload `options["workload"]`, a number, or of one drawn.
        Raises `ConfigError` for another number, and `ModelError` for a seed that cannot be."""
        if seed is not None:
            check_seed(seed)
        if not isinstance(options, Mapping | None):
            raise ConfigError(f'options={brief(options)}: give {{"workload": 0}}, or leave it out')
        super().reset(seed=seed)
        chosen = (options or {}).get("workload")
        if chosen is None:
            chosen = int(self.np_random.integers(len(self.problems)))
        if chosen not in range(len(self.problems)):
            raise ConfigError(
                f"there is no workload {chosen!r}: give 0 to {len(self.problems) - 1}"
            )
        self._state, self._left = State.first(self.problems[chosen]), STEPS
        (self._speed,) = self.evaluator.speeds([self._state])
        return self._state.observation.copy(), self._info()

    def step(self, action: int) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take an action: the observation, the reward, whether the episode is over (`terminated`),
        False (`truncated`), and info. Raises `ConfigError` for an action that there is not, and
        where no episode has begun or it is over."""
        if not self.action_space.contains(action):
            raise ConfigError(f"there is no action {action!r}: give 0 to {len(ACTIONS) - 1}")
        state = self.state
        if not self._left:
            raise ConfigError(f"the episode is over after {STEPS} actions: call reset()")
        self._left -= 1
        after, reward = state.successors[int(action)], 0.0
        if after is not None:
            self._state = after
            (speed,) = self.evaluator.speeds([after])
            reward = (speed - self._speed) / self.evaluator.peak
            self._speed = speed
        return self.state.observation.copy(), reward, not self._left, False, self._info()

    def render(self) -> str | None:
        """The loops as text, the cursor in brackets, where the mode is "ansi"."""
        return str(self.state) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Close the evaluator."""
        if self._evaluator is not None:
            self._evaluator.close()

    def __str__(self) -> str:
        now = "before reset()" if self._state is None else str(self._state)
        return f"<ScheduleEnv of {counted(len(self.problems), 'workload')}: {now}>"

    __repr__ = __str__

    def _info(self) -> dict[str, Any]:
        state = self.state
        return {
            "action_mask": state.mask,
            "gflops": self._speed,
            "config": state.config,
            "steps_left": self._left,
        }
