"""Programs that together are right for every size of a workload's dims."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import le
from typing import Protocol

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim, boxes
from loopwright.schedule.open.family import Sized
from loopwright.schedule.open.prepared import SizedConstantsError, as_inputs
from loopwright.schedule.open.program import OpenProgram, general, grid, open_program
from loopwright.schedule.open.retarget import halved, retargeted
from loopwright.schedule.open.rule import Rule
from loopwright.schedule.open.selection import distance, rules
from loopwright.schedule.open.short_tiles import few
from loopwright.schedule.program.nest import extent
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target

MOST_PROGRAMS = 24
"""Programs in one library, as variants.c has."""

_TILE, _BLOCK = "tile", "block"  # what the names of knobs begin with
_GPU_SIZES = 4
_CROWDED = 3  # dims, whose sizes are too many for a program at each end of each
_APART = 4  # times as large: from one size that has its own program to the next


class Box(Protocol):
    """A thing that is right for the sizes between the bounds of its dims."""

    @property
    def dims(self) -> tuple[Dim, ...]:
        """All dims, with these bounds."""


@dataclass(frozen=True)
class Cover:
    """Programs for all sizes of the dims, and rules that choose one: the first that holds."""

    dims: tuple[Dim, ...]
    programs: tuple[OpenProgram, ...]
    rules: tuple[Rule, ...]


Choose = Callable[[Mapping[str, int]], Iterable[Config]]
"""Configs for sizes, the best one first."""

Choosing = Callable[[Sized], Choose]
"""Configs of a workload whose constants may be fewer."""

_WIDE = 1.5  # times as large as its least size is the greatest one of a program worth its place


def covered(workload: Sized, target: Target, choosing: Choosing, apart: int = _APART) -> Cover:
    """The cover of a workload whose constants are inputs like others where what is prepared of
    them depends on a size. Raises `ConfigError` as `cover` does."""
    while True:
        try:
            return cover(workload, target, choosing(workload), apart)
        except SizedConstantsError as error:
            workload = as_inputs(workload, error.names)


def settled(workload: Sized, target: Target, choosing: Choosing) -> Sized:
    """A workload whose constants are inputs like others where the first program of the greatest
    sizes prepares of them what depends on a size."""
    greatest = {d.name: d.high for d in workload.dims}
    while True:
        try:
            _widest(workload, target, choosing(workload)(greatest), greatest)
        except SizedConstantsError as error:
            workload = as_inputs(workload, error.names)
        else:
            return workload


def cover(workload: Sized, target: Target, choose: Choose, apart: int = _APART) -> Cover:
    """Programs for sizes of which each is `apart` times as large as the next, and for those that
    are left. Of the programs that are right for a size, the next larger one is chosen: its blocks
    hold all of the smaller loops. Constants are laid out in one way for all, where that can be.

    Raises `ConfigError` where more than `MOST_PROGRAMS` are needed, or a dim has too many values.
    Raises `SizedConstantsError` where all programs prepare what depends on a size.
    """
    grid(workload.dims)
    programs: list[OpenProgram] = []
    for sizes in spread(workload.dims, apart):
        configs = choose(sizes)
        if programs and programs[0].tree.constants:
            if not programs[0].takes(sizes) and few(sizes):
                continue  # each number of rows gets a program
            configs = _laid_out_as(programs[0], configs)
        _add(programs, workload, target, configs, sizes)
    return completed(workload, target, programs, choose)


def completed(
    workload: Sized, target: Target, programs: Sequence[OpenProgram], choose: Choose
) -> Cover:
    """Some programs, and others for the sizes that none of these is right for.

    Raises `ConfigError` where more than `MOST_PROGRAMS` are needed, or twice as many for
    three dims and more.
    """
    dims, made = workload.dims, list(programs)
    most = MOST_PROGRAMS * (2 if len(dims) >= _CROWDED else 1)  # with axes of one element
    while (missing := gap(dims, made)) is not None:
        left = {d.name: d.high for d in missing}
        if len(made) >= most:
            raise ConfigError(f"no program for {left} among {most}: give the dims narrower bounds")
        tries: list[tuple[dict[str, int], Iterable[Config]]] = []
        if len(dims) >= _CROWDED or len(made) >= MOST_PROGRAMS // 3:
            tries += [(least, choose(least)) for least in _small(dims, left)]
        tries.append((left, _clipped(workload, made, left)))
        half = _smaller(dims, left, 2)
        # A program for the least size of an axis may be right for no other.
        kept = {d.name: left[d.name] if half[d.name] == d.low else half[d.name] for d in dims}
        each = {tuple(sizes.values()): sizes for sizes in (half, kept, left)}
        tries += [(sizes, choose(sizes)) for sizes in each.values()]
        for sizes, configs in tries:
            one = _widest(workload, target, configs, sizes)
            if one is not None and one.takes(left):
                made.append(one)
                break
        else:
            raise ConfigError(
                f"no program for {left} has a form for other sizes too: give the dims narrower "
                "bounds or a multiple"
            )
    return Cover(dims, tuple(made), rules(dims, made))


def _laid_out_as(first: OpenProgram, configs: Iterable[Config]) -> Iterator[Config]:
    """Configs, before each the one with the vector tiles of a program, by which it lays constants
    out."""
    for config in configs:
        if config.sketch == first.config.sketch:
            yield _as_wide(first, config)
        yield config


def _as_wide(first: OpenProgram, config: Config) -> Config:
    """A config with the vector tiles of a program, of no more rows than fit the registers then.
    Its blocks hold as many of these as make up the rows and columns that they had."""
    known, values = dict(first.config.values), dict(config.values)
    choices = {knob.name: knob.choices for knob in first.sketch.knobs}
    for nest, leader in zip(first.sketch.nests, first.sketch.knobs_of, strict=True):
        if (name := f"{_TILE}{leader}") not in values:
            continue
        own, width = values[name], known[name][-1]
        fitting = (c for c in choices[name] if c[-1] == width and all(map(le, c[:-1], own)))
        values[name] = max(fitting, default=known[name])
        for axis, before, now in zip(nest.tile, own, values[name], strict=True):
            block = f"{_BLOCK}{nest.nest.axes.index(axis)}_{leader}" if axis in nest.order else ""
            if block in values:
                values[block] = (-(-values[block][0] * before // now),)
    return replace(config, values=tuple(values.items()))


def _clipped(
    workload: Sized, programs: Sequence[OpenProgram], sizes: Mapping[str, int]
) -> Iterator[Config]:
    """The config of the program for the next larger sizes, its register tiles no larger than the
    loops are here: few rows go over the weights once."""
    nearest = min(programs, key=lambda p: distance(p, sizes), default=None)
    if nearest is None or not (nearest.tree.constants and few(sizes)):
        return
    sketch, values = nearest.sketch, dict(nearest.config.values)
    with contextlib.suppress(ConfigError):
        made = retargeted(sketch, workload.at(**sizes), nearest.target)
        for nest, leader in zip(made.nests, made.knobs_of, strict=True):
            if (name := f"{_TILE}{leader}") in values:
                ends = map(extent, nest.tile)
                inside = tuple(min(*p) for p in zip(values[name], ends, strict=True))
                values[name] = halved(inside, nest)
        yield replace(nearest.config, values=tuple(values.items()))


def _add(
    programs: list[OpenProgram],
    workload: Sized,
    target: Target,
    configs: Iterable[Config],
    sizes: Mapping[str, int],
) -> None:
    """Add the program of a config, if one has any, or note that one which is there was chosen for
    these sizes too."""
    made = _widest(workload, target, configs, sizes, programs)
    if made is None:
        return
    for k, p in enumerate(programs):
        if p is made or (p.config == made.config and p.takes(sizes)):
            programs[k] = replace(p, made_for=(*p.made_for, sizes))
            return
    programs.append(made)


def _widest(
    workload: Sized,
    target: Target,
    configs: Iterable[Config],
    sizes: Mapping[str, int],
    known: Sequence[OpenProgram] = (),
) -> OpenProgram | None:
    """The first program that is right for a wide range of sizes, else the widest one; one of
    those that are known where it has the same config."""
    best: tuple[float, OpenProgram] | None = None
    refused: SizedConstantsError | None = None
    for config in configs:
        try:
            plain = general(workload, target, config, sizes)
            same = (p for p in known if p.config == plain and p.takes(sizes))
            made = next(same, None) or open_program(workload, target, plain, sizes)
        except SizedConstantsError as error:
            refused = error
            continue
        except ConfigError:
            continue
        width = min(
            math.inf if all_of == d or sizes[d.name] == all_of.low else d.high / d.low
            for d, all_of in zip(made.dims, workload.dims, strict=True)
        )
        if width >= _WIDE:
            return made
        if best is None or width > best[0]:
            best = width, made
    if refused is not None:
        raise refused
    return None if best is None else best[1]


def _smaller(dims: tuple[Dim, ...], sizes: Mapping[str, int], factor: int) -> dict[str, int]:
    return {
        d.name: max(d.low, -(-sizes[d.name] // factor // d.multiple) * d.multiple) for d in dims
    }


def spread(dims: tuple[Dim, ...], apart: int = _APART) -> Iterator[dict[str, int]]:
    """The greatest sizes, and smaller ones down to the least. Of several dims also those where
    some are few and the others the greatest, as the rows of a long product are."""
    greatest = {d.name: d.high for d in dims}
    apart = apart if len(dims) < _CROWDED else apart**2
    steps = max(math.ceil(math.log(d.high / d.low, apart) + 0.5) for d in dims)
    along = [_smaller(dims, greatest, apart**k) for k in range(min(steps, MOST_PROGRAMS // 2))]
    several = [d for d in dims if d.high > d.low]
    few = [{d.name: m * d.low} for m in (1, 2, 8) for d in several if apart * m * d.low <= d.high]
    least = [{d.name: d.low} for d in several]
    few += [{**one, **other} for one, other in itertools.combinations(least, 2)]
    corners = [greatest | some for some in few] if 1 < len(several) <= _CROWDED else []
    yield from {tuple(s.values()): s for s in (*along, *corners)}.values()


def gpu_sizes(dims: tuple[Dim, ...]) -> list[dict[str, int]]:
    """Sizes that a GPU has programs for by default: the greatest ones and some smaller ones."""
    return list(itertools.islice(spread(boxes(dims)[0]), _GPU_SIZES))


def gap(dims: tuple[Dim, ...], boxes: Sequence[Box]) -> tuple[Dim, ...] | None:
    """The greatest sizes which are in no box, as the upper bounds of dims, and lower ones behind
    which some box begins along every axis; None if there are none."""
    lines = []
    for at, d in enumerate(dims):
        ends = {e for b in boxes for e in (b.dims[at].low, b.dims[at].high + d.multiple)}
        lines.append(sorted({d.low, d.high + d.multiple, *ends}))
    left = np.ones([len(line) - 1 for line in lines], bool)  # the cells between the lines
    for box in boxes:
        ends_of = zip(lines, box.dims, strict=True)
        left[tuple(slice(x.index(d.low), x.index(d.high + d.multiple)) for x, d in ends_of)] = (
            False
        )
    if not left.any():
        return None
    cell = np.argwhere(left)[-1].tolist()
    found = []
    for at, (d, line) in enumerate(zip(dims, lines, strict=True)):
        along = left[(*cell[:at], slice(cell[at] + 1), *cell[at + 1 :])]
        first = int(np.flatnonzero(~along).max(initial=-1)) + 1
        found.append(replace(d, low=line[first], high=line[cell[at] + 1] - d.multiple))
    return tuple(found)


def _small(dims: tuple[Dim, ...], sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """Small sizes, a few steps above the least where some are not the least. A program for these
    is right for most, but for those with an axis of one element, which it does not have: strides
    may make one of a few."""
    steps = ({d.name: min(sizes[d.name], d.low + n * d.multiple) for d in dims} for n in (1, 2, 4))
    return [*{tuple(s.values()): s for s in steps}.values()]
