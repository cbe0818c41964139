"""`build_model`: the door for models, of fixed shapes or of open ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Timer
from typing import Any

from loopwright.codegen.target import processor
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import brief, counted
from loopwright.graph.compile import build
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.compile.vm_fallback import VmModel
from loopwright.graph.errors import ModelError, check_sparse, check_switches
from loopwright.graph.importers.inputs import Inputs
from loopwright.graph.open.model import OpenModel, ReadAt, build_open_model, compared
from loopwright.graph.open.source import Dims, OpenSource, has_dims, open_source
from loopwright.graph.open.steps import StepCompiler
from loopwright.graph.placed.build import check_placeable, check_placed, placed_model
from loopwright.graph.placed.model import PlacedModel
from loopwright.graph.placed.open import OpenPlacedModel, open_placed_model
from loopwright.graph.placed.targets import given_targets
from loopwright.graph.tasks import Work
from loopwright.graph.transforms.choices import Choices
from loopwright.schedule.open.cover import gpu_sizes
from loopwright.schedule.target import Target
from loopwright.transfer.records.location import GivenLocation
from loopwright.transfer.records.lookup import POLICIES

_PATIENCE = 2.0
"""Seconds that a build takes before a terminal shows what goes on."""


def build_model(  # noqa: PLR0913 - what users choose
    model: Any,
    inputs: Inputs = None,
    target: str | Mapping[str, Any] | Target = "cpu",
    *,
    threads: int | None = None,
    records: GivenLocation | None = None,
    policy: str = "exact",
    name: str = "model",
    layout: str = "auto",
    check: bool = True,
    numerics: str | Numerics = "standard",
    sparse: bool = False,
    dims: Dims = None,
    targets: Sequence[str] | None = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
    progress: bool | None = None,
) -> TunedModel | OpenModel | VmModel | PlacedModel | OpenPlacedModel:
    """Compile a model by the best records there are, and by default schedules elsewhere.

    A model with open axes becomes an `OpenModel`, one library for all of their sizes. A Relax
    module with control flow, or with operators that need TVM's run-time, becomes a `VmModel`.

    Parameters
    ----------
    model, inputs: as for `read_model`.
    target, threads: as for `lw.build`.
    records: path of a record store, or postgresql://user@host/database.
    policy: whose records may serve, see `transfer.records.lookup.POLICIES`.
    name: what messages call the library; an exported one is called like its file.
    layout: "auto" lays images between steps out as suits the steps (`graph.transforms.layout`),
        "given" as the model says.
    check: whether to run the model once as compiled and once where it comes from: torch, or for
        ONNX onnxruntime if that is installed. Results that differ by more than rounding are an
        error, so what is read wrongly is not returned.
    numerics: what programs may do to rounding errors: "strict", "standard" or "fast", see
        `dsl.numerics`.
    sparse: whether records may serve whose programs skip zeros of the data, so that the time of a
        call depends on it; for networks of fixed sizes.
    dims: bounds of axes that stay open, by the names that the model has for them:
        {"batch": (1, 8), "seq": (1, 512)}. Shapes of `inputs` may have sizes of `lw.dim`, too.
    targets: "cpu" and one of "cuda" and "opencl", instead of a target: a `PlacedModel`, whose
        steps run on either. Both are timed, and transfers; the placement takes least time. With
        open axes an `OpenPlacedModel`, with a placement for each of some sizes.
    sizes: of open axes at which steps may run on the GPU, such as `[{"n": 128}, {"n": 512}]`; by
        default the greatest and three smaller ones.
    progress: whether to show on standard error what goes on; by default on a terminal, where it
        is shown after two seconds.

    Raises `ModelError`, `BuildError`.
    """
    if policy not in POLICIES:
        raise ModelError(f"policy is {policy!r}; it must be one of {', '.join(POLICIES)}")
    check_switches(check=check, sparse=sparse, progress=progress or False)
    if not isinstance(name, str):
        raise ModelError(f"name is {brief(name)}: give a text, such as 'model'")
    check_sparse(sparse, has_dims(inputs, dims))
    gpu = given_targets(targets, target != "cpu")
    several = isinstance(sizes, Sequence) and all(isinstance(s, Mapping) for s in sizes)
    if sizes is not None and not several:
        raise ModelError(
            f'sizes is {brief(sizes)}: give a list such as [{{"n": 128}}, {{"n": 512}}]'
        )
    if sizes is not None and not (gpu and has_dims(inputs, dims)):
        raise ModelError("sizes are those of open axes on two devices: give dims and targets too")
    machine = processor(target, threads)
    with _shown(sys.stderr.isatty() if progress is None else progress) as say:
        say("reading the model")
        if has_dims(inputs, dims):
            word = Numerics.of(numerics)
            source = open_source(model, inputs, dims)
            say("compiling the model for all sizes")
            whole = build_open(
                source, machine, records, policy, name, layout, check, word, tell=say
            )
            if gpu is None:
                return whole
            say("timing steps on both devices")
            wanted = sizes or gpu_sizes(source.dims)
            read = _reader(machine, layout, word)
            return open_placed_model(whole, source, gpu, read, wanted, records, policy, check)
        work = build.import_model(model, inputs, machine, layout, numerics=numerics, sparse=sparse)
        if gpu is not None:
            check_placeable(work)
        say(f"compiling {counted(len(work.tasks), 'task')}")
        built = build.build_work(work, machine, records, policy, name)
        if check:
            say("comparing results")
            built = build.check_results(built, machine, tuned=bool(built.records))
        if gpu is None:
            return build.without_source(built)
        say("timing steps on both devices")
        placed = placed_model(build.without_source(built), gpu, records, policy)
        if check:
            check_placed(placed, work.source, tuned=bool(placed.cpu.records))
        return placed


@contextmanager
def _shown(progress: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows what goes on now: on a terminal after some seconds, in place of what
    went on before, else in lines of their own. It shows nothing without `progress`."""
    if not progress:
        yield lambda now: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield console.print
        return
    status = console.status("")
    timer = Timer(_PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield status.update
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def _reader(target: Target, layout: str, numerics: Numerics) -> ReadAt:
    """A function that reads a model of open axes at some of its sizes, first the greatest."""
    choices: Choices = {}

    def read(whole: Any, given: Inputs) -> Work:
        work = build.import_model(whole, given, target, layout, numerics=numerics, choices=choices)
        assert isinstance(work, Work), "ONNX models are in the notation"
        return work

    return read


def build_open(  # noqa: PLR0913 - what users choose, and who measured
    source: OpenSource,
    target: Target,
    records: GivenLocation | None,
    policy: str,
    name: str,
    layout: str,
    check: bool,
    numerics: Numerics,
    machine: Mapping[str, str] | None = None,
    tell: Callable[[str], None] = lambda now: None,
) -> OpenModel:
    """A model of open axes, as `build_model` has it, by the records of a machine; this one by
    default. `tell` is told what goes on."""
    read = _reader(target, layout, numerics)
    compiler = StepCompiler(target, numerics, records, policy, machine)
    built = build_open_model(source, read, compiler, name, tell)
    if check and build.runs_here(target):
        tell("comparing results")
        built = compared(built, read)
    return replace(built, source=source.for_calls())
