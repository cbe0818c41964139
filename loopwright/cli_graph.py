"""The command line's `tasks`, `build`, `run`, `profile`, and `tune` for whole models."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from loopwright.cli_command import STORE, Command, NewFile, check_store, library_path
from loopwright.cli_graph_said import have, largest, saved, say_tasks, say_untuned
from loopwright.dsl.words import counted

if TYPE_CHECKING:
    from loopwright.graph.compile.model import TunedModel
    from loopwright.graph.compile.vm_fallback import VirtualModel
    from loopwright.graph.tuning.tune import Turn

_FILE = click.Path(dir_okay=False, path_type=Path)
_MODEL = click.argument("model", type=_FILE)
_RECORDS = click.option(
    "--records", type=_FILE, default=STORE, show_default=True, help="The record store."
)
_THREADS = click.option("--threads", type=click.IntRange(1), help="Threads; all if not given.")
_SHAPES = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,3,224,224",
    help="The shape of an input that the model leaves open; once for each.",
)
_POLICY = click.option(
    "--policy",
    type=click.Choice(["exact", "family", "any"]),
    default="exact",
    show_default=True,
    help="Whose records may serve.",
)
LAYOUT = click.option(
    "--layout",
    type=click.Choice(["auto", "given"]),
    default="auto",
    show_default=True,
    help="Of images between operators: as suits these, or as the model has it.",
)
CHECK = click.option(
    "--check/--no-check", default=True, help="Of a model: compare with onnxruntime, if installed."
)


@dataclass(frozen=True)
class _Given:
    """What a command that compiles a model is given."""

    model: Path
    shapes: tuple[str, ...]
    threads: int | None
    records: Path
    policy: str
    layout: str
    check: bool

    @staticmethod
    def options(command: Callable[..., None]) -> Callable[..., None]:
        """A command that takes one, and keywords, with the options for it."""

        @functools.wraps(command)
        def given(**options: Any) -> None:
            own = {field.name: options.pop(field.name) for field in fields(_Given)}
            command(_Given(**own), **options)

        every = (_MODEL, _SHAPES, _THREADS, _RECORDS, _POLICY, LAYOUT, CHECK)
        return functools.reduce(lambda f, option: option(f), reversed(every), given)

    def built(self) -> TunedModel | VirtualModel:
        """The model compiled by the records there are."""
        from loopwright.graph.compile.model import build_model

        source = click.get_current_context().get_parameter_source("records")
        if source == ParameterSource.COMMANDLINE and not self.records.exists():
            click.echo(f"note: there is no record store {self.records} yet", err=True)
        with _in_options():
            return build_model(
                self.model,
                _parsed(self.shapes),
                threads=self.threads,
                records=self.records if self.records.exists() else None,
                policy=self.policy,
                name=self.model.stem,
                layout=self.layout,
                check=self.check,
            )


def is_model(what: str | None) -> bool:
    """Whether what `tune` is given names a model and not a workload."""
    return what is not None and what.endswith(".onnx")


@click.command(cls=Command)
@_Given.options
def tasks(given: _Given) -> None:
    """List the distinct work of MODEL.onnx: count, FLOPs, share of the time, record."""
    built = given.built()
    say_tasks(built)
    say_untuned(built)


@click.command(cls=Command)
@_Given.options
@click.option("-o", "--output", type=NewFile(), help="The library; MODEL.so if not given.")
@click.option("--strict", is_flag=True, help="Fail if anything has no record.")
def build(given: _Given, output: Path | None, strict: bool) -> None:
    """Compile MODEL.onnx by the best records there are, into a library with a C header."""
    output = library_path(output, given.model)
    built = given.built()
    missing = say_untuned(built)
    for note in built.notes:
        click.echo(f"note: {note}", err=True)
    if strict and missing:
        raise click.ClickException(
            f"--strict was given, and {counted(missing, 'task')} {have(missing)} no record"
        )
    if strict and (left := built.notes[len(built.work.notes()) :]):
        raise click.ClickException(f"--strict was given, and {left[0]}")
    path = built.export(output)
    click.echo(f"saved      {path}, {saved(built)}")


@click.command(cls=Command)
@click.argument("library", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--input", "inputs", multiple=True, type=_FILE, help="NAME.npy, in order.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=NewFile(),
    help="Where results go: NAME.npy, in order.",
)
def run(library: Path, inputs: tuple[Path, ...], outputs: tuple[Path, ...]) -> None:
    """Call an exported library on arrays in .npy files."""
    import numpy as np

    from loopwright.codegen.load import load
    from loopwright.dsl.dtypes import numpy_dtype

    for path in outputs:
        if path.suffix != ".npy":
            raise click.UsageError(f"--output {path}: the name of a saved array ends in .npy")
    loaded = load(library)
    results = loaded.signature.outputs
    if len(outputs) > len(results):
        raise click.UsageError(
            f"{len(outputs)} times --output, for {counted(len(results), 'output')} of {library}: "
            f"{', '.join(map(str, results))}; give one for each at most"
        )
    arrays = []
    for path in inputs:
        try:
            arrays.append(np.load(path, allow_pickle=False))
        except (OSError, EOFError, ValueError) as error:
            raise click.ClickException(
                f"{path}: cannot read it as a .npy file: {error}"
            ) from error
    for n, (array, parameter) in enumerate(zip(arrays, loaded.signature.inputs)):
        if parameter.dtype == "bfloat16" and array.dtype == np.dtype("V2"):
            arrays[n] = array.view(numpy_dtype(parameter.dtype))  # .npy has no name for it
    result = loaded(*arrays)
    made = result if isinstance(result, tuple) else (result,)
    for number, (array, parameter) in enumerate(zip(made, results)):
        shown = f"{parameter}, from {array.min():.6g} to {array.max():.6g}"
        if number < len(outputs):
            np.save(outputs[number], array)
            shown += f", saved to {outputs[number]}"
        click.echo(shown)


@click.command(cls=Command)
@_Given.options
@click.option("--calls", type=click.IntRange(1), default=20, show_default=True)
def profile(given: _Given, calls: int) -> None:
    """Time every step of MODEL.onnx inside of a whole call."""
    from loopwright.graph.compile.model import TunedModel

    built = given.built()
    if not isinstance(built, TunedModel):
        raise click.ClickException(f"its steps cannot be timed one by one, since {built.notes[0]}")
    steps = built.profile(calls=calls)
    total = sum(seconds for _, seconds in steps)
    for name, seconds in sorted(steps, key=lambda s: -s[1]):
        click.echo(f"{seconds * 1e3:9.4f} ms {seconds / total:6.1%}  {name}")
    click.echo(f"{total * 1e3:9.4f} ms in all; a whole call {built.measure() * 1e3:.4f} ms")


def tune_model(
    model: Path,
    shapes: Sequence[str],
    output: Path | None,
    chosen: str | None,
    share: float | None,
    trials: int | None,
    minutes: float | None,
    effort: str,
    records: Path,
    seed: int,
    threads: int | None,
    transfer: str | None,
    layout: str,
    sparse: bool,
    check: bool,
) -> None:
    """`loopwright tune MODEL.onnx`."""
    from loopwright.codegen.target import resolve
    from loopwright.explore.budget import Budget
    from loopwright.graph.compile.model import TunedModel, build_work, check_results, import_model
    from loopwright.graph.tuning.summary import ending
    from loopwright.graph.tuning.tune import search

    output = library_path(output, model)
    check_store(records)
    budget = Budget.of_model(trials, minutes, effort)
    target = resolve("cpu", threads)
    with _in_options():
        work = import_model(model, _parsed(shapes), target, layout, check)
    count = len(work.tasks)
    only = list(range(count))
    if chosen is not None:
        only = _chosen(chosen, count)
    elif share is not None:
        store = records if records.exists() else None
        only = largest(build_work(work, target, store), share)
    for note in work.notes():
        click.echo(note, err=True)
    click.echo(f"{len(only)} of {counted(count, 'task')}, {budget}; on {target}", err=True)
    with _shown() as (tell, watch):
        search(
            work,
            target,
            budget,
            records,
            seed=seed,
            only=only,
            transfer=transfer,
            sparse=sparse,
            tell=tell,
            watch=watch,
        )
    built = build_work(work, target, records, name=model.stem)
    if check:
        check_results(built, target, tuned=True)
    path = built.export(output)
    say_tasks(built)
    for line in ending(built) if isinstance(built, TunedModel) else ():
        click.echo(line)
    click.echo(f"saved      {path}; records in {records}")


@contextmanager
def _shown() -> Iterator[tuple[Callable[[str], None], Callable[[Turn], None] | None]]:
    """Who is told lines, and who every turn of a task: a table on a terminal."""
    if sys.stderr.isatty():
        from loopwright.graph.tuning.live_table import LiveTasks

        with LiveTasks() as live:
            yield live.note, live.update
    else:
        yield functools.partial(click.echo, err=True), None


@contextmanager
def _in_options() -> Iterator[None]:
    """Importing says how to give shapes in Python: say it as the command line takes them."""
    from loopwright.graph.errors import OpenShape

    try:
        yield
    except OpenShape as error:
        shape = f"--shape {error.name}={','.join(map(str, error.example))}"
        raise click.ClickException(f"{error.problem}: give its shape, e.g. {shape}") from error


def _parsed(shapes: Sequence[str]) -> dict[str, tuple[int, ...]] | None:
    found = {}
    for text in shapes:
        name, equals, value = text.rpartition("=")
        try:
            found[name] = tuple(map(int, value.split(",")))
        except ValueError:
            equals = ""
        if not (name and equals and min(found[name]) > 0):
            raise click.UsageError(f"--shape {text}: write NAME=1,3,224,224, extents from 1 up")
    return found or None


def _chosen(text: str, count: int) -> list[int]:
    """The numbers that `1,3-5` names, as the list of tasks counts them, from 1."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            ends = int(first), int(last if dash else first)
        except ValueError as error:
            raise click.UsageError(f"--tasks {text}: write numbers as 1,3-5") from error
        if not 1 <= ends[0] <= ends[1] <= count:
            raise click.UsageError(f"--tasks {text}: the model has tasks 1 to {count}")
        numbers += range(ends[0] - 1, ends[1])
    return list(dict.fromkeys(numbers))
