"""`nest`: an explicit schedule, loop by loop, for those who want to choose by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsIndex

from loopwright.codegen.build import build_fixed
from loopwright.codegen.library.library import Library
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import ConfigError, LoopwrightError, TargetError
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import among, counted, quoted
from loopwright.dsl.workload import Workload, as_workload
from loopwright.measure.local import LocalDevice
from loopwright.schedule.cpu.inner_loops import kind_steps
from loopwright.schedule.cpu.lower_hand import hand_sketch
from loopwright.schedule.loops.nothing import refuse_nothing
from loopwright.schedule.lowering import lower
from loopwright.schedule.program.nest import lanes
from loopwright.schedule.sketch.hand import KINDS, HandNest, Step, structure
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Tree
from loopwright.schedule.tree.printer import show
from loopwright.schedule.tree.verifier import verify


def nest(
    workload: Workload | Tensor,
    target: str | Mapping[str, Any] | Target = "cpu",
    threads: int | None = None,
) -> HandSchedule:
    """Begin an explicit schedule of a workload, or of one defined tensor, for a processor.

    It begins with the loops of the notation: `print(nest)` shows them. Parameters are as for
    `lw.build`. Raises `NotationError`, `TargetError`.
    """
    return HandSchedule(as_workload(workload), resolve(target, threads))


class HandSchedule:
    """The loops of a workload, which each operation changes.

    Loops are named by their index: `i`, and after a split `i.outer` and `i.inner`, after a fusion
    `i*j`. The index itself names its own loop, too. An operation changes the schedule and returns
    it, so that calls chain; one that is not legal raises `ConfigError` and changes nothing. `undo`
    takes the last one back, and `copy` makes another schedule to go on with. Operations are of
    one stage, the last one until `stage` chooses.
    """

    def __init__(self, workload: Workload, target: Target) -> None:
        if target.gpu is not None:
            raise TargetError(f"schedules by hand are for processors, not for {target.kind}")
        refuse_nothing(workload)
        self.workload, self.target = workload, target
        self._steps: tuple[Step, ...] = ()
        self._sketch = hand_sketch(workload, structure(()))
        self._stage = len(self._sketch.hand) - 1

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the tensors that have loops of their own, in the order of their loops."""
        return tuple(hand.nest.out.name for hand in self._sketch.hand)

    @property
    def loops(self) -> tuple[str, ...]:
        """The names of the loops of the chosen stage, outermost first."""
        return tuple(loop.name for loop in self._hand.loops)

    @property
    def config(self) -> Config:
        """The schedule as a config, for `lw.build`, records and exports."""
        return self._sketch.at(())

    @property
    def tree(self) -> Tree:
        """The loop tree."""
        return lower(self._sketch, self.target, self.config)

    def stage(self, name: str) -> HandSchedule:
        """Choose the stage that the operations that follow change."""
        if not among(name, self.stages):
            raise ConfigError(
                f"no stage {quoted(name)} has loops of its own; those that have are "
                f"{', '.join(self.stages)} (one that is computed inside of its reader has none)"
            )
        self._stage = self.stages.index(name)
        return self

    def split(self, loop: str, factor: int) -> HandSchedule:
        """Split a loop into `loop.outer` and `loop.inner`, the latter of `factor` iterations.

        Where these do not divide, the last tile of a loop of the result overlaps the one before
        it, and that of a reduction is shorter.
        """
        at = self._at(loop)
        if isinstance(factor, bool) or not isinstance(factor, SupportsIndex) or int(factor) < 0:
            most = self._hand.loops[at].extent
            raise ConfigError(f"split by {factor!r}: give an integer from 1 to {most}")
        return self._step("split", at, int(factor))

    def fuse(self, first: str, second: str) -> HandSchedule:
        """Make one loop, `first*second`, of two that stand directly inside of each other."""
        return self._step("fuse", self._at(first), self._at(second))

    def swap(self, first: str, second: str) -> HandSchedule:
        """Exchange the places of two loops."""
        a, b = self._at(first), self._at(second)
        order = list(range(len(self.loops)))
        order[a], order[b] = b, a
        return self._step("order", *order)

    def reorder(self, *loops: str) -> HandSchedule:
        """Put some loops, or all, in this order, outermost first, in the places that they have."""
        given = [self._at(loop) for loop in loops]
        if len(set(given)) != len(given):
            raise ConfigError(f"reorder names a loop twice: {', '.join(loops)}")
        if not given:
            return self  # a stage without loops, too
        order = list(range(len(self.loops)))
        for place, loop in zip(sorted(given), given, strict=True):
            order[place] = loop
        return self._step("order", *order)

    def vectorize(self, loop: str) -> HandSchedule:
        """Run the innermost loop in vectors, as long ones as divide it. A loop that none divides
        is refused."""
        at, before = self._at(loop), self._steps
        self._step("kind", at, KINDS.index("vectorized"))
        extent, longest = self._hand.loops[at].extent, lanes(self._hand.nest, self.target)
        if longest > 1 and all(extent % length for length in range(2, longest + 1)):
            self._set(before)
            raise ConfigError(
                f"{self.loops[at]} has {counted(extent, 'iteration')}, which no vector of 2 to "
                f"{longest} elements divides: split it before, as by {min(extent, longest)}"
            )
        return self

    def unroll(self, loop: str) -> HandSchedule:
        """Write the iterations of a loop out."""
        return self._step("kind", self._at(loop), KINDS.index("unrolled"))

    def parallel(self, loop: str) -> HandSchedule:
        """Run the iterations of a loop on all threads; only parallel loops stand around it."""
        return self._step("kind", self._at(loop), KINDS.index("parallel"))

    def pack(self, operand: str, at: str | None = None) -> HandSchedule:
        """Copy an operand in the order in which the loops read it: in every iteration of the loop
        `at`, or before the nest. A constant's copy before the nest is made once,
        ahead of calls."""
        if not among(operand, self._hand.operands):
            raise ConfigError(
                f"{quoted(operand)} is not read here; the operands are "
                f"{', '.join(self._hand.operands)}"
            )
        place = () if at is None else (self._at(at),)
        return self._step("pack", self._hand.operands.index(operand), *place)

    def finish(self) -> HandSchedule:
        """Vectorize and unroll the inner loops by LoopNest's rules: as many as leave all results
        inside of them in registers. Where loops are fused, or have such a kind, it does
        nothing."""
        return self._set((*self._steps, *kind_steps(self._hand, self._stage, self.target)))

    def undo(self) -> HandSchedule:
        """Take the last operation back."""
        if not self._steps:
            raise ConfigError("there is nothing to undo: this is the schedule as it began")
        return self._set(self._steps[:-1])

    def copy(self) -> HandSchedule:
        """Another schedule with the same operations."""
        made = HandSchedule(self.workload, self.target)
        made._stage = self._stage
        return made._set(self._steps)

    def build(self, name: str = "kernel") -> Library:
        """Compile it. Raises `BuildError`."""
        return build_fixed(self.workload, self.config, self.target, name)

    def gflops(self) -> float:
        """Measure the speed of the schedule on this machine, in 10⁹ operations a second. Raises
        `LoopwrightError` where it cannot be built or run, or has no operations."""
        if not self.workload.flops:
            raise LoopwrightError(
                "this workload moves or compares elements, and has no operations to count: time "
                "calls of what build() returns"
            )
        with LocalDevice(self.target) as device:
            (measured,) = device.measure(self.workload, [self.config])
        if measured.failure is not None:
            raise LoopwrightError(f"this schedule could not be timed: {measured.failure}")
        return self.workload.flops / measured.cost / 1e9

    def __str__(self) -> str:
        return show(self.tree)

    def __repr__(self) -> str:
        return f"<HandSchedule of {', '.join(self.stages)}: operations: {len(self._steps)}>"

    @property
    def _hand(self) -> HandNest:
        return self._sketch.hand[self._stage]

    def _at(self, loop: str) -> int:
        return self._hand.position(loop.name if isinstance(loop, Index) else loop)

    def _step(self, operation: str, *numbers: int) -> HandSchedule:
        return self._set((*self._steps, Step(self._stage, operation, numbers)))

    def _set(self, steps: tuple[Step, ...]) -> HandSchedule:
        sketch = hand_sketch(self.workload, structure(steps))
        verify(lower(sketch, self.target, sketch.at(())))
        self._steps, self._sketch = steps, sketch
        return self
