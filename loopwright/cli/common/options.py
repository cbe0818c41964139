"""Options that several commands have, and how a command gets its options as one object."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar

import click

from loopwright.cli.common.command import STORE, File, Store
from loopwright.dsl.numerics import Numerics
from loopwright.paths import problem_of_file, shown

_F = TypeVar("_F", bound=Callable[..., Any])


def _transfer(_context: click.Context, _parameter: click.Parameter, value: str) -> str | None:
    """The word or file that `explore.tune` takes; a usage error where there is no such file."""
    if value not in ("auto", "none") and (problem := problem_of_file(value, exists=True)):
        raise click.BadParameter(
            f"{shown(value)}: {problem}; give auto, none, or a file of `loopwright model train`"
        )
    return None if value == "none" else value


def _targets(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    """The two targets; a usage error for others."""
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(","))
    if sorted(names) not in (["cpu", "cuda"], ["cpu", "opencl"]):
        raise click.BadParameter(f"{value}: give cpu,cuda or cpu,opencl")
    return names


def choice(*names: str, among: Iterable[str], default: str, help: str) -> Callable[[_F], _F]:
    """An option that is one of some words, of which the default is shown."""
    return click.option(
        *names, type=click.Choice([*among]), default=default, show_default=True, help=help
    )


FILE = File()
EXISTING = File(exists=True)
records_option = functools.partial(
    click.option,
    "--records",
    type=Store(),
    default=STORE,
    show_default=True,
    metavar="FILE|URL",
    help="The record store: a file, or postgresql://user@host/database.",
)
RECORDS = records_option()
THREADS = click.option(
    "--threads", type=click.IntRange(1), help="Threads of the program; all if not given."
)
SEED = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides what is random."
)
TARGET = choice(
    "--target",
    among=["cpu", "c", "cuda", "opencl"],
    default="cpu",
    help="What programs run on: this machine's processor (c: by C source), or its GPU.",
)
TARGETS = click.option(
    "--targets",
    metavar="cpu,opencl",
    callback=_targets,
    help="Two devices, the processor and cuda or opencl: each step runs on one of them, so that "
    "the whole ends first.",
)
DEVICE = click.option(
    "--device",
    metavar="URL",
    help="Another machine to measure on: ssh://user@host[:port], docker://container, adb://serial.",
)
FLEET = click.option(
    "--fleet",
    metavar="ADDRESS",
    help="The machines of a fleet to measure on: auto, or ray://host:port.",
)
MINUTES = click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), help="Time to take at most."
)
NUMERICS = choice(
    "--numerics",
    among=[str(n) for n in Numerics],
    default="standard",
    help="What programs may do to rounding errors: nothing, up to 4 times the bound, anything.",
)
CODEGEN = choice(
    "--codegen",
    among=["llvm", "builtin"],
    default="llvm",
    help="What makes code: LLVM, or our own generator, in milliseconds, and the best by both.",
)
TRANSFER = click.option(
    "--transfer",
    default="auto",
    show_default=True,
    metavar="[auto|none|FILE]",
    callback=_transfer,
    help="The global cost model to begin with: the shipped one, none, or FILE.",
)
FEEDBACK = click.option(
    "--feedback",
    type=click.Choice(["compiled"]),
    help="Build several times as many candidates as are measured, and choose by their code, too.",
)
POLICY = choice(
    "--policy", among=["exact", "family", "any"], default="exact", help="Whose records may serve."
)


def collect(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options of a command that are fields of the dataclass `kind`, given as one object."""
    names = [field.name for field in fields(kind)]

    def collected(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(*objects: object, **options: Any) -> None:
            made = kind(**{name: options.pop(name) for name in names})
            command(*objects, made, **options)

        return called

    return collected
