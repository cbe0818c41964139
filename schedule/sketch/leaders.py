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
    same tensor, or have the same extents, and may become the same loops. It keeps the space of
    many phases or layers as small as that of one.

    `options` are the structures of each part, and `nests` its nest, None where it has several.
    Those of `constants` choose for themselves alone.
    """
    found: list[int] = []
    free: list[int] = []
    for number, nest in enumerate(nests):
        own = options[number]
        like = (n for n in free if _alike(nests[n], nest) and _shown(options[n]) == _shown(own))
        found.append(next(like, number))
        if found[-1] == number and not (nest and nest.out.name in constants):
            free.append(number)
    return tuple(found)


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


def _alike(one: Nest | None, other: Nest | None) -> bool:
    if one is None or other is None or not has_reuse(one):
        return False
    same = list(one.extents.values()) == list(other.extents.values())
    return same or one.out.name == other.out.name


def _shown(structures: Sequence[object]) -> list[str]:
    return [str(structure) for structure in structures]
