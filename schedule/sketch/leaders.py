"""Parts of a program that take the choices of others."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.schedule.program.nest import Nest
from loopwright.schedule.program.plan import has_reuse


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


def _alike(one: Nest | None, other: Nest | None) -> bool:
    if one is None or other is None or not has_reuse(one):
        return False
    same = list(one.extents.values()) == list(other.extents.values())
    return same or one.out.name == other.out.name


def _shown(structures: Sequence[object]) -> list[str]:
    return [str(structure) for structure in structures]
