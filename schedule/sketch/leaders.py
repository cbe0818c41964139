"""Parts of a program that take the choices of others."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from loopwright.schedule.program.nest import Nest
from loopwright.schedule.program.plan import has_reuse
from loopwright.schedule.sketch.sketch import Choice, Knob


def leaders_of(
    options: Sequence[Sequence[object]],
    nests: Sequence[Nest | None],
    constants: frozenset[str] = frozenset(),
) -> tuple[int, ...]:
    """Number of the part that chooses for each: the first one that is like it. Such sums write the
    same tensor, or have the same extents, which keeps the space of many phases or layers small.
    `options` are the structures of each part, and `nests` its nest, None where it has several.
    Those of `constants` choose for themselves alone."""
    found: list[int] = []
    for number, nest in enumerate(nests):
        earlier = (n for n in range(number) if found[n] == n and _alike(nests[n], nest, constants))
        own = [*map(str, options[number])]
        found.append(next((n for n in earlier if [*map(str, options[n])] == own), number))
    return tuple(found)


def _alike(one: Nest | None, other: Nest | None, constants: frozenset[str]) -> bool:
    if one is None or other is None or one.out.name in constants or not has_reuse(one):
        return False
    same = list(one.extents.values()) == list(other.extents.values())
    return same or one.out.name == other.out.name


def knobs_of_all(
    knobs: Sequence[tuple[Knob, ...]],
    default: Callable[[int], Mapping[str, Choice]],
    leaders: Sequence[int],
    fixed: Container[int],
) -> tuple[tuple[int, ...], tuple[Knob, ...], tuple[int, ...]]:
    """The part whose knobs each part takes, its own where these are not those of its leader; the
    knobs of all, with the number of the part; and the numbers of their defaults. The speed of
    `fixed` parts does not matter: they have one choice."""
    taken = tuple(
        leader if knobs[leader] == own else number
        for number, (leader, own) in enumerate(zip(leaders, knobs, strict=True))
    )
    made: list[Knob] = []
    numbers: list[int] = []
    for part in sorted(set(taken)):
        chosen = default(part)
        for knob in knobs[part]:
            if part in fixed:
                knob = Knob(knob.name, (chosen[knob.name],))
            made.append(replace(knob, name=f"{knob.name}{part}"))
            numbers.append(knob.number(chosen[knob.name]))
    return taken, tuple(made), tuple(numbers)
