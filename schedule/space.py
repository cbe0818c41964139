"""`Space`: every program that is considered for a workload on a target, the paper's S_e."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.workload import Workload
from loopwright.schedule.cpu.cost_prior import estimate
from loopwright.schedule.cpu.rules import default_choices, nest_knobs, nest_sketches
from loopwright.schedule.gpu.space import gpu_sketches
from loopwright.schedule.lowering import lower
from loopwright.schedule.program.buffer_reuse import settled
from loopwright.schedule.program.constants import known_ahead
from loopwright.schedule.program.footprint import NestContext
from loopwright.schedule.program.plan import Group, has_reuse, plan
from loopwright.schedule.rewrites.activation_sparsity import SPARSE, depths, sparse
from loopwright.schedule.rewrites.boundary_peeling import clamped, edges, unpadded
from loopwright.schedule.rewrites.im2col import im2col
from loopwright.schedule.rewrites.int24_weights import GROWTH, SMALLER, fixed_point
from loopwright.schedule.rewrites.kn2row import kn2row
from loopwright.schedule.rewrites.padding_at_blocks import blocked, rows_of_blocks
from loopwright.schedule.rewrites.producer_at_blocks import rows_through, through
from loopwright.schedule.rewrites.rfactor import split_reductions
from loopwright.schedule.rewrites.strassen import strassen
from loopwright.schedule.rewrites.ttgt import matrix
from loopwright.schedule.rewrites.winograd.winograd import RESULTS, blocks_of, by_phase, winograd
from loopwright.schedule.sketch.sketch import Choice, Config, Knob, NestSketch, Sketch
from loopwright.schedule.target import Target
from loopwright.schedule.tree.verifier import legal

_MOST_SKETCHES = 256
_DRAWS = 100
_MINOR = 0.3
_SHARES = {
    "own": 0.8,
    "rows": 0.8,
    "matrix": 0.8,
    "edges": 0.6,
    "through": 0.6,
    "unpadded": 0.88,
    "winograd": 0.85,
    "phases": 0.82,
    "strassen": 0.8,
}
"""The estimates of the definition's own sums, in blocks or without copies, and of Winograd's
programs count so much of that of another algorithm. The former are the simplest and the most
exact, and copies that make axes merge leave them as they are; edges spare the nearest caches,
whose time no estimate has, and what tests for padding cost none either; Winograd's take no longer
than is estimated. Strassen's gain little: the search finds them, unless by far the shortest."""


@dataclass(frozen=True)
class Space:
    """The sketches of a workload; each has knobs, and a config sets them.

    `sketches[0].default` is the default config, chosen by rules of thumb.
    """

    workload: Workload
    target: Target
    sketches: tuple[Sketch, ...]

    @property
    def sparse(self) -> tuple[Sketch, ...]:
        """Sketches of the space whose time depends on zeros in the data: no search draws them."""
        return _sparse(_Named(self.workload), self.target)

    @property
    def size(self) -> int:
        """Configs in all."""
        return sum(s.size for s in self.sketches)

    @property
    def growth(self) -> float:
        """How much larger rounding errors may be than those of the definition's own sums."""
        return max(s.growth for s in self.sketches)

    @property
    def default(self) -> Config:
        """The config that is used when none is given."""
        return self.sketches[0].at(self.sketches[0].default)

    def config(self, sketch: int | str = 0, **values: object) -> Config:
        """A sketch's default config with some knobs set; sketches go by number or by name."""
        chosen = self.sketches[sketch] if isinstance(sketch, int) else self.sketch(sketch)
        return chosen.config(**values)

    def limited(self, growth: float) -> Space:
        """The space without the sketches whose rounding errors may grow by more than that."""
        if not growth >= 1:
            raise ConfigError(f"growth = {growth}: it is 1 for the definition's own sums, or more")
        return replace(self, sketches=tuple(s for s in self.sketches if s.growth <= growth))

    def sketch(self, name: str) -> Sketch:
        """The sketch of a name; `ConfigError` if there is none."""
        for sketch in (*self.sketches, *self.sparse):
            if sketch.name == name:
                return sketch
        known = "\n  ".join(s.name for s in self.sketches[:8])
        raise ConfigError(
            f"this workload has no sketch {name!r} on this target; among its "
            f"{len(self.sketches)} sketches are\n  {known}"
        )

    def __contains__(self, config: object) -> bool:
        """Whether a config is of this space; one of another version's may be none, as rules
        change."""
        if not isinstance(config, Config):
            return False
        try:
            self.sketch(config.sketch).numbers(config)
        except ConfigError:
            return False
        return True

    def sample(self, rng: np.random.Generator) -> Config:
        """A config drawn evenly over sketches, and then over the choices of each knob. For a GPU
        it is drawn again until it is within the limits, or is the default one."""
        for _ in range(_DRAWS):
            sketch = self.sketches[rng.integers(len(self.sketches))]
            numbers = np.array([[int(rng.integers(len(k.choices))) for k in sketch.knobs]])
            gpu = self.target.gpu
            if gpu is None or legal(lower(sketch, self.target, numbers), gpu).all():
                return sketch.at(numbers[0].tolist())
        return self.default


def space(workload: Workload, target: Target) -> Space:
    """Derive the space of a workload: the union of the spaces of its rewrites."""
    return _space(_Named(workload), target)


class _Named:
    """A workload that is equal to those alone that have the same names: trees carry them."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.text = workload, f"{workload.key} {workload}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Named) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


@functools.lru_cache(maxsize=256)
def _space(named: _Named, target: Target) -> Space:
    workload = named.workload
    if target.gpu is not None:
        return Space(workload, target, _legal_first(gpu_sketches(workload, target), target))
    rewrites: list[tuple[Sketch, ...]] = []
    for label, form in split_reductions(workload, target):
        rewrites.append(_sketches(form, plan(form), target, label))
    columns = im2col(workload, target)
    if columns is not None:
        rewrites.append(_sketches(workload, columns, target, "im2col "))
    product = matrix(workload)
    if product is not None:
        rewrites.append(_sketches(workload, product, target, "matrix "))
    turned = kn2row(workload)
    if turned is not None:
        rewrites.append(_sketches(workload, turned, target, "kn2row "))
    for rows in rows_of_blocks(workload, target):
        blocks = blocked(workload, rows)
        if blocks is not None:
            rewrites.append(_sketches(workload, blocks, target, f"rows={rows} "))
    parts = edges(workload, target)
    if parts is not None:
        rewrites.append(_sketches(workload, parts, target, "edges ", minor=_MINOR))
    for rows in rows_through(workload, target):
        chain = through(workload, target, rows)
        assert chain is not None
        rewrites.append(_sketches(workload, chain, target, f"through={rows} ", minor=_MINOR))
    image = unpadded(workload)
    if image is not None:
        rewrites.append(_sketches(workload, image, target, "unpadded "))
    nearest = clamped(workload)
    if nearest is not None:
        rewrites.append(_sketches(workload, nearest, target, "clamped "))
    made: list[tuple[str, tuple[Group, ...], float]] = [*strassen(workload, target)]
    for results in RESULTS:
        for block in (None, *blocks_of(workload, results, target)):
            faster = winograd(workload, results, block)
            if faster is not None:
                made.append(
                    (f"winograd={results}" + ("" if block is None else f" {block}"), *faster)
                )
        apart = by_phase(workload, results, target)
        if apart is not None:
            made.append((f"phases={results}", *apart))
    for name, groups, growth in made:
        rewrites.append(_sketches(workload, groups, target, f"{name} ", growth, _MINOR))
    for name, groups, growth in [("", plan(workload), 1.0), *made]:
        smaller = fixed_point(groups, workload, target)
        if smaller is not None:
            label, more = f"{name} {SMALLER} ".lstrip(), growth * GROWTH
            rewrites.append(_sketches(workload, smaller, target, label, more, _MINOR))
    return Space(workload, target, tuple(itertools.chain(*_ranked(rewrites, target))))


@functools.lru_cache(maxsize=256)
def _sparse(named: _Named, target: Target) -> tuple[Sketch, ...]:
    """One sketch of each program that leaves zeros out."""
    workload = named.workload
    if target.gpu is not None:
        return ()
    parts = edges(workload, target)
    bases = [("", plan(workload)) if parts is None else ("edges ", parts)]
    for rows in reversed(rows_through(workload, target)):
        chain = through(workload, target, rows)
        assert chain is not None
        bases.append((f"through={rows} ", chain))
    made: list[Sketch] = []
    for label, groups in bases:
        for depth in depths(workload, groups, target):
            skipping = sparse(groups, workload, target, depth)
            assert skipping is not None
            name = f"{label}{SPARSE}={depth} "
            made += _sketches(workload, skipping, target, name, minor=_MINOR)[:1]
    return tuple(made)


def _legal_first(sketches: tuple[Sketch, ...], target: Target) -> tuple[Sketch, ...]:
    """The sketches of a GPU, those before the first one whose default is legal behind it."""
    for number, sketch in enumerate(sketches):
        if legal(lower(sketch, target, np.array([sketch.default])), target.gpu).all():
            return (sketch, *sketches[:number], *sketches[number + 1 :])
    return sketches


def _ranked(rewrites: list[tuple[Sketch, ...]], target: Target) -> Sequence[tuple[Sketch, ...]]:
    """The rewrites of a workload, the most promising first."""
    if len(rewrites) == 1:
        return rewrites

    def cost(sketches: tuple[Sketch, ...]) -> float:
        own = sketches is rewrites[0]
        algorithm = "own" if own else sketches[0].algorithm.partition("=")[0]
        return _SHARES.get(algorithm, 1.0) * estimate(sketches[0], target)

    return sorted(rewrites, key=cost)


def _combinations(choices: Sequence[range]) -> list[tuple[int, ...]]:
    """All combinations of one choice for each nest, or of too many those whose numbers have the
    least sums: the first structures of a nest are the likeliest ones."""
    if math.prod(map(len, choices)) <= _MOST_SKETCHES:
        return list(itertools.product(*choices))
    ordered = (numbers for total in itertools.count() for numbers in _of_sum(choices, total))
    return list(itertools.islice(ordered, _MOST_SKETCHES))


def _of_sum(choices: Sequence[range], total: int) -> Iterator[tuple[int, ...]]:
    if len(choices) == 1:
        yield from ((total,),) if total in choices[0] else ()
        return
    for first in itertools.takewhile(lambda n: n <= total, choices[0]):
        yield from ((first, *rest) for rest in _of_sum(choices[1:], total - first))


def _sketches(
    workload: Workload,
    groups: tuple[Group, ...],
    target: Target,
    label: str,
    growth: float = 1.0,
    minor: float = 0.0,
) -> tuple[Sketch, ...]:
    """The sketches of one rewrite of a workload, their names after its label. Nests with less
    than the share `minor` of the work of the largest one that writes the same tensor take their
    first sketch and its defaults."""
    groups = tuple(map(settled, groups))
    ahead = known_ahead(workload, groups)
    options: list[tuple[tuple[NestSketch, ...], NestContext]] = []
    fixed: set[int] = set()  # nests whose speed does not matter
    most: dict[str, int] = {}
    for nest in (nest for group in groups for nest in group.nests):
        most[nest.out.name] = max(nest.steps, most.get(nest.out.name, 0))
    for group in groups:
        for nest, rows in group.placed():
            context = NestContext(target, rows, ahead)
            sketches = nest_sketches(nest, context)
            small = nest.steps < minor * most[nest.out.name]
            if small or nest.out.name in ahead:
                fixed.add(len(options))
            options.append((sketches[:1] if small else sketches, context))
    leaders = _leaders([sketches for sketches, _ in options], ahead)
    free = [range(len(options[n][0])) for n in sorted(set(leaders))]

    @functools.cache
    def option(number: int, choice: int) -> _Option:
        sketches, context = options[number]
        return _Option.of(sketches[choice], context)

    made = []
    for numbers in _combinations(free):
        chosen = dict(zip(sorted(set(leaders)), numbers, strict=True))
        taken = [option(number, chosen[leader]) for number, leader in enumerate(leaders)]
        sketch = _sketch(workload, groups, taken, leaders, fixed)
        made.append(
            replace(sketch, name=label + sketch.name, rewrite=label.strip(), growth=growth)
        )
    return tuple(made)


def _leaders(
    options: Sequence[tuple[NestSketch, ...]], known_ahead: frozenset[str]
) -> tuple[int, ...]:
    """For each nest the first one that is like it, which chooses for both: sums that write the
    same tensor, or have the same extents, and may become the same loops. It keeps the space of
    many phases or layers as small as that of one."""
    leaders: list[int] = []
    free: list[int] = []
    for number, sketches in enumerate(options):
        leads = next((n for n in free if _alike(options[n], sketches)), number)
        leaders.append(leads)
        if leads == number and sketches[0].nest.out.name not in known_ahead:
            free.append(number)
    return tuple(leaders)


def _alike(first: tuple[NestSketch, ...], second: tuple[NestSketch, ...]) -> bool:
    one, other = first[0].nest, second[0].nest
    if not has_reuse(one) or list(map(str, first)) != list(map(str, second)):
        return False
    same = list(one.extents.values()) == list(other.extents.values())
    return same or one.out.name == other.out.name


@dataclass(frozen=True)
class _Option:
    """One way for a nest to become loops, with its knobs and their choices by rules of thumb."""

    nest: NestSketch
    knobs: tuple[Knob, ...]
    default: Mapping[str, Choice]

    @staticmethod
    def of(nest: NestSketch, context: NestContext) -> _Option:
        """A sketch of a nest as an option."""
        return _Option(nest, tuple(nest_knobs(nest, context)), default_choices(nest, context))


def _sketch(
    workload: Workload,
    groups: tuple[Group, ...],
    options: Sequence[_Option],
    leaders: tuple[int, ...],
    fixed: set[int],
) -> Sketch:
    """A sketch with the knobs of every nest, where they are not those of the nest that leads."""
    knobs_of = tuple(
        leader if options[leader].knobs == options[number].knobs else number
        for number, leader in enumerate(leaders)
    )
    knobs: list[Knob] = []
    default: list[int] = []
    for number in sorted(set(knobs_of)):
        chosen = options[number].default
        for knob in options[number].knobs:
            if number in fixed:
                knob = Knob(knob.name, (chosen[knob.name],))
            knobs.append(replace(knob, name=f"{knob.name}{number}"))
            default.append(knob.number(chosen[knob.name]))
    nests = tuple(option.nest for option in options)
    name = "; ".join(map(str, nests))
    return Sketch(name, workload, groups, nests, tuple(knobs), tuple(default), knobs_of=knobs_of)
