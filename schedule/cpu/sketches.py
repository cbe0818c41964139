"""Sketches of a program for processors: one structure for every nest, in all combinations."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loopwright.dsl.errors import ConfigError
from loopwright.schedule.cpu.cost_prior import estimate
from loopwright.schedule.cpu.heuristics import CPU
from loopwright.schedule.cpu.rules import default_choices, nest_knobs, nest_sketches
from loopwright.schedule.program.buffer_reuse import settled
from loopwright.schedule.program.constants import constants_of
from loopwright.schedule.program.footprint import NestContext
from loopwright.schedule.program.nest import Nest
from loopwright.schedule.program.plan import FusionGroup
from loopwright.schedule.sketch.leaders import knobs_of_all, leaders_of
from loopwright.schedule.sketch.naming import SketchName
from loopwright.schedule.sketch.sketch import Choice, Knob, NestSketch, Sketch
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target


class CpuSketches:
    """The sketches of one program, each made when it is asked for. Constant nests take their first
    structure, as do those with less than the share `minor` of the work of the largest one that
    writes the same tensor."""

    def __init__(self, variant: Variant, target: Target) -> None:
        self.variant, self.target, self.workload = variant, target, variant.workload
        self.groups = settled(variant.workload, variant.groups)
        self._constants = constants_of(variant.workload, self.groups)
        self._placed = [p for group in self.groups for p in self._placed_in(group)]
        self._made: dict[tuple[int, int], _Option] = {}

    def _placed_in(self, group: FusionGroup) -> Iterator[tuple[Nest, NestContext]]:
        """The nests of a group and what stands around each."""
        made = frozenset(nest.out.name for nest in group.nests)
        for nest, rows in group.placed():
            yield nest, NestContext(self.target, rows, self._constants, made)

    @property
    def contexts(self) -> list[NestContext]:
        """What stands around each nest."""
        return [context for _, context in self._placed]

    @property
    def first(self) -> Sketch:
        """The sketch with the most promising structure of every nest."""
        return self._sketch([0] * len(self._placed))

    @functools.cached_property
    def nests(self) -> tuple[NestSketch, ...]:
        """The most promising structure of every nest; no others are derived for it."""
        return tuple(next(nest_sketches(nest, context)) for nest, context in self._placed)

    @functools.cached_property
    def rank(self) -> float:
        """The estimate by which programs are ordered, the least first."""
        return self.variant.prior * estimate(self, self.target)

    @functools.cached_property
    def _small(self) -> tuple[bool, ...]:
        """For every nest whether it is minor."""
        most: dict[str, int] = {}
        for nest, _ in self._placed:
            most[nest.out.name] = max(nest.steps, most.get(nest.out.name, 0))
        return tuple(n.steps < self.variant.minor * most[n.out.name] for n, _ in self._placed)

    @functools.cached_property
    def _options(self) -> list[tuple[NestSketch, ...]]:
        """The structures of every nest."""
        return [
            self.nests[number : number + 1]
            if small
            else tuple(dict.fromkeys(nest_sketches(*self._placed[number])))
            for number, small in enumerate(self._small)
        ]

    @functools.cached_property
    def _fixed(self) -> frozenset[int]:
        """The nests whose speed does not matter."""
        ahead = (nest.out.name in self._constants for nest, _ in self._placed)
        return frozenset(n for n, each in enumerate(zip(self._small, ahead)) if any(each))

    @functools.cached_property
    def _leaders(self) -> tuple[int, ...]:
        nests = [sketches[0].nest for sketches in self._options]
        return leaders_of(self._options, nests, self._constants)

    def __iter__(self) -> Iterator[Sketch]:
        free = sorted(set(self._leaders))
        for numbers in _combinations([range(len(self._options[n])) for n in free]):
            chosen = dict(zip(free, numbers, strict=True))
            yield self._sketch([chosen[leader] for leader in self._leaders])

    def named(self, structure: str) -> Sketch:
        """The sketch of a name. Raises `ConfigError` if there is none."""
        words = structure.split("; ")
        if len(words) == len(self._options):
            known = [list(map(str, sketches)) for sketches in self._options]
            if all(word in names for word, names in zip(words, known, strict=True)):
                sketch = self._sketch([n.index(w) for w, n in zip(words, known, strict=True)])
                followers = zip(self._leaders, words, strict=True)
                if all(words[leader] == word for leader, word in followers):
                    return sketch
        raise ConfigError(
            f"there is no sketch {structure!r} of the program {self.variant.derivation}, but such "
            f"as {self.first.name.structure!r}; is the config of another workload?"
        )

    def _option(self, number: int, choice: int) -> _Option:
        if (number, choice) not in self._made:
            context = self._placed[number][1]
            self._made[number, choice] = _Option.of(self._options[number][choice], context)
        return self._made[number, choice]

    def _sketch(self, numbers: Sequence[int]) -> Sketch:
        """The sketch of the structures with these numbers, with the knobs of every nest where they
        are not those of the nest that leads."""
        variant = self.variant
        options = [self._option(number, choice) for number, choice in enumerate(numbers)]
        knobs_of, knobs, default = knobs_of_all(
            [option.knobs for option in options],
            lambda number: options[number].default,
            self._leaders,
            self._fixed,
        )
        nests = tuple(option.nest for option in options)
        return Sketch(
            SketchName(variant.derivation, "; ".join(map(str, nests))),
            variant.workload,
            self.groups,
            nests,
            knobs,
            default,
            variant.error_growth,
            variant.numerics,
            knobs_of,
        )


def _combinations(choices: Sequence[range]) -> list[tuple[int, ...]]:
    """All combinations of one choice for each nest, or of too many those whose numbers have the
    least sums: the first structures of a nest are the likeliest ones."""
    if math.prod(map(len, choices)) <= CPU.sketches:
        return list(itertools.product(*choices))
    ordered = (numbers for total in itertools.count() for numbers in _of_sum(choices, total))
    return list(itertools.islice(ordered, CPU.sketches))


def _of_sum(choices: Sequence[range], total: int) -> Iterator[tuple[int, ...]]:
    if len(choices) == 1:
        yield from ((total,),) if total in choices[0] else ()
        return
    for first in itertools.takewhile(lambda n: n <= total, choices[0]):
        yield from ((first, *rest) for rest in _of_sum(choices[1:], total - first))


@dataclass(frozen=True)
class _Option:
    """One way for a nest to become loops, with its knobs and their choices by rules of thumb."""

    nest: NestSketch
    knobs: tuple[Knob, ...]
    default: Mapping[str, Choice]

    @staticmethod
    def of(nest: NestSketch, context: NestContext) -> _Option:
        """A sketch of a nest as an option."""
        knobs = {knob.name: knob for knob in nest_knobs(nest, context)}
        return _Option(nest, tuple(knobs.values()), default_choices(nest, context, knobs))
