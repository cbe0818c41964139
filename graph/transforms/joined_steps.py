"""Steps that are better done as one, whose schedule may keep in caches what is between them.

A window over each plane, and the sum over planes behind it (`rewrites.producer_at_blocks`):

    D[y, x, c] = …;  O[y, x, d] = sum over c of D[y, x, c] * V[c, d]

Attention, two products and what is between them (`rewrites.chain_at_blocks`):

    S = Q Kᵀ;  P = softmax(S);  O = P V

Each step must be the only one that reads what the step before it makes. Importers fuse what is
element by element behind a product, never one product with another. The schedules of all steps on
their own are among those of the one step, so that nothing is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from loopwright.dsl.expr import Read
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import map_reads
from loopwright.dsl.workload import Workload, defined, reads, tensor_shape, workload
from loopwright.graph.importers.tir import Imported
from loopwright.graph.network import Network, Step
from loopwright.graph.transforms.choices import Choices, structure_of
from loopwright.schedule.program.footprint import indices
from loopwright.schedule.program.nest import fresh
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.boundary_peeling import peel_boundaries
from loopwright.schedule.rewrites.chain_at_blocks import chain_row_choices, has_chain
from loopwright.schedule.rewrites.producer_at_blocks import fused_row_choices
from loopwright.schedule.target import Target

Steps = tuple[Network, tuple[Imported | str, ...]]
Run = tuple[tuple[int, int], ...]
"""Numbers of steps, each with the place of what it makes among the arguments of the next one."""
Gains = Callable[[Source], bool]
"""Whether joined steps may be faster."""


def join_steps(
    network: Network,
    imported: Sequence[Imported | str],
    target: Target,
    choices: Choices | None = None,
) -> Steps:
    """The network with such steps as one, and what its steps are.

    Attention is joined where blocks of rows may pay. With `choices`, for a network that is read at
    several sizes, it is joined everywhere, and at all sizes as at the first.
    """
    joiner = _Joiner(network, imported, target, choices is not None)
    if choices is None:
        joiner.join()
    elif (key := ("joined", structure_of(network))) in choices:
        joiner.join_as(choices[key])
    else:
        choices[key] = joiner.join()
    return joiner.joined()


class _Joiner:
    """The steps of a network that are left, and what they are."""

    def __init__(
        self,
        network: Network,
        imported: Sequence[Imported | str],
        target: Target,
        every_size: bool,
    ) -> None:
        self.network, self.target, self.every_size = network, target, every_size
        self.steps, self.work = dict(enumerate(network.steps)), dict(enumerate(imported))
        self.uses = Counter(v for step in network.steps for v in step.args)
        self.uses.update(network.outputs)
        self.uses.update(v for loop in network.loops for v in loop.values())
        self.made = {v: n for n, step in enumerate(network.steps) for v in step.outs}
        self.known: dict[tuple[int, ...], Imported | None] = {}
        self.windows: dict[int, bool] = {}
        self.done: set[int] = set()

    def join(self) -> list[tuple[Run, int]]:
        """Join what can be, each step with those before it, and tell which."""
        found = []
        for last, work in enumerate(self.work.copy().values()):
            if isinstance(work, Imported):
                for run, gains in (*self._windows(last, work), *self._attention(last, work)):
                    one = self._one(run, last, gains)
                    if one is not None:
                        self._replace(run, last, one)
                        found.append((run, last))
                        break
        return found

    def join_as(self, found: Iterable[tuple[Run, int]]) -> None:
        """Join what was joined at other sizes."""
        for run, last in found:
            one = self._one(run, last, lambda whole: True)
            assert one is not None, "it is wanted anyway"
            self._replace(run, last, one)

    def joined(self) -> Steps:
        """The network with the steps that are left."""
        steps = tuple(self.steps.values())
        return replace(self.network, steps=steps), tuple(self.work.values())

    def _before(self, number: int) -> Iterator[tuple[int, int, Imported]]:
        """The steps that make an argument of one for it alone, the argument's place, and their
        work."""
        step = self.steps[number]
        for place, value in enumerate(step.args):
            first = self.made.get(value)
            if first is None or first in self.done or self.uses[value] != 1:
                continue
            work = self.work[first]
            if isinstance(work, Imported) and self.steps[first].loop is step.loop:
                if self.steps[first].outs == (value,):
                    yield first, place, work

    def _windows(self, last: int, work: Imported) -> Iterator[tuple[Run, Gains]]:
        """What may be a window over planes, where a step may be the sum behind it."""
        for first, place, before in self._before(last):
            if before.moved and work.moved and self._peels(before):
                yield ((first, place),), lambda whole: bool(fused_row_choices(whole, self.target))

    def _attention(self, last: int, work: Imported) -> Iterator[tuple[Run, Gains]]:
        """The steps from one product to the next, where a step is that, neither by weights."""
        if (products := _products(work)) and not _by_weights(products):
            yield from ((run, self._gains_by_blocks) for run in self._from_product(last))

    def _from_product(self, last: int) -> Iterator[Run]:
        for first, place, before in self._before(last):
            products = _products(before)
            if not products:
                yield from ((*run, (first, place)) for run in self._from_product(first))
            elif not _by_weights(products):
                yield ((first, place),)

    def _one(self, run: Run, last: int, gains: Gains) -> Imported | None:
        """The work of a run and of the step behind it, if there is a schedule that gains by it."""
        numbers = (*(n for n, _ in run), last)
        key = (*(id(self.work[n]) for n in numbers), *(place for _, place in run))
        if key not in self.known:
            one, *others = (cast("Imported", self.work[n]) for n in numbers)
            count = len(self.steps[numbers[0]].args)
            for number, work, (_, place) in zip(numbers[1:], others, run):
                one = _behind(one, count, work, place)
                count += len(self.steps[number].args) - 1
            self.known[key] = one if gains(Source.of(one.workload)) else None
        return self.known[key]

    def _peels(self, work: Imported) -> bool:
        """Return whether a step is a window that may be computed in parts."""
        if id(work) not in self.windows:
            peeled = peel_boundaries(Source.of(work.workload), self.target)
            self.windows[id(work)] = peeled is not None
        return self.windows[id(work)]

    def _gains_by_blocks(self, whole: Source) -> bool:
        return has_chain(whole) if self.every_size else bool(chain_row_choices(whole, self.target))

    def _replace(self, run: Run, last: int, one: Imported) -> None:
        self.done.update((last, *(number for number, _ in run)))
        step = self.steps.pop(run[0][0])
        for (number, place), (behind, _) in zip(run, (*run[1:], (last, 0))):
            after = self.steps[behind]
            rest = after.args[:place] + after.args[place + 1 :]
            function = f"{step.function} + {after.function}"
            step = Step(function, (*step.args, *rest), after.outs, after.loop)
            del self.work[number]
            if behind != last:
                del self.steps[behind]
        self.steps[last], self.work[last] = step, one


def _products(work: Imported) -> list[Definition]:
    """The sums of a step that use an operand again for other results."""
    definitions = map(defined, work.workload.stages)
    return [d for d in definitions if any({*d.axes} - indices(r) for r in _summed(d))]


def _summed(definition: Definition) -> list[Read]:
    """What a sum reads anew in each step."""
    return [r for r in reads(definition.body) if indices(r) & {*definition.reduce}]


def _by_weights(products: list[Definition]) -> bool:
    return any(read.tensor.constant for d in products for read in _summed(d))


def _behind(before: Imported, count: int, after: Imported, place: int) -> Imported:
    """The work of a step of so many arguments, and of one that is given what it makes."""
    (between,) = before.workload.outputs
    own = dict(zip(after.inputs, after.workload.inputs))
    work, new = _workload(after.workload, {own[place]: between}, before.workload)
    numbers = dict(zip((t.name for t in before.workload.inputs), before.inputs))
    for number, tensor in own.items():
        if number != place:
            numbers[new[tensor].name] = count + number - (number > place)
    return Imported(
        work,
        tuple(numbers[t.name] for t in work.inputs),
        tuple(count - 1 + number for number in after.outputs),
        moved=True,
    )


def _workload(
    work: Workload, given: dict[Tensor, Tensor], before: Workload
) -> tuple[Workload, dict[Tensor, Tensor]]:
    """The work behind another, of which it is given some of its inputs, and its tensors there."""
    names = {t.name for t in (*before.inputs, *before.stages)}
    new = dict(given)
    for old in (*work.inputs, *work.stages):
        if old in new:
            continue
        copy = Tensor(fresh(old.name, names), tensor_shape(old), old.dtype, old.constant)
        if old.definition is not None:
            d = defined(old)
            body = map_reads(d.body, lambda r: Read(new[r.tensor], r.index))
            copy.definition = Definition(d.axes, d.reduce, d.reducer, body)
        new[old] = copy
    return workload(*(new[t] for t in work.outputs)), new
