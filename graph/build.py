"""`build_model`: the door for models, of fixed shapes or of open ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from loopwright.codegen.target import processor
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import counted
from loopwright.dsl.workload import Workload
from loopwright.graph.compile.build import (
    build_work,
    check_results,
    import_model,
    runs_here,
    without_source,
)
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.compile.stored_records import best_record
from loopwright.graph.compile.vm_fallback import VmModel
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import Inputs
from loopwright.graph.importers.reference import Reference
from loopwright.graph.open.model import OpenModel, build_open_model, compared
from loopwright.graph.open.source import Dims, OpenSource, has_dims, open_source
from loopwright.graph.placed.build import other_target, placed_model, with_processor
from loopwright.graph.placed.model import PlacedModel
from loopwright.graph.tasks import Work
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.records.location import GivenLocation, may_exist
from loopwright.transfer.records.store import RecordStore


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
    progress: bool | None = None,
) -> TunedModel | OpenModel | VmModel | PlacedModel:
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
        call depends on it.
    dims: bounds of axes that stay open, by the names that the model has for them:
        {"batch": (1, 8), "seq": (1, 512)}. Shapes of `inputs` may have sizes of `lw.dim`, too.
    targets: "cpu" and one of "cuda" and "opencl", instead of a target: a `PlacedModel`, whose
        steps run on either. Both are timed, and transfers; the placement takes least time.
    progress: whether to show on standard error what goes on; by default on a terminal.

    Raises `ModelError`, `BuildError`.
    """
    gpu = None if targets is None else other_target(targets)
    if gpu is not None:
        if target != "cpu" or has_dims(inputs, dims):
            raise ModelError("targets are for fixed shapes, in place of a target: leave that out")
    machine = processor(target, threads)
    with _shown(sys.stderr.isatty() if progress is None else progress) as say:
        say("reading the model")
        if has_dims(inputs, dims):
            word = Numerics.of(numerics)
            source = open_source(model, inputs, dims)
            say("compiling the model for all sizes")
            return build_open(source, machine, records, policy, name, layout, check, word)
        work = import_model(model, inputs, machine, layout, numerics=numerics, sparse=sparse)
        say(f"compiling {counted(len(work.tasks), 'task')}")
        if gpu is not None:
            return _checked(placed_model(work, machine, gpu, records, policy), machine, check)
        built = build_work(work, machine, records, policy, name)
        if check:
            say("comparing results")
            built = check_results(built, machine, tuned=bool(built.records))
        return without_source(built)


@contextmanager
def _shown(progress: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows what goes on now: on a terminal in place of what went on before, else
    in lines of their own. It shows nothing without `progress`."""
    if not progress:
        yield lambda now: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield console.print
        return
    with console.status("") as status:
        yield status.update


def _checked(model: PlacedModel, target: Target, check: bool) -> PlacedModel:
    """A model that was compared with the one that it was made of, if that is wanted."""
    left: TunedModel | VmModel = model.cpu
    if check:
        tuned = bool(model.cpu.records)
        left = check_results(left, target, tuned)
        source = model.cpu.work.source
        reference = None if source is None else source.reference
        if isinstance(reference, Reference):
            reference.check(model, tuned)
    left = without_source(left)
    assert isinstance(left, TunedModel)
    return with_processor(model, left)


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
) -> OpenModel:
    """A model of open axes, as `build_model` has it, by the records of a machine; this one by
    default."""

    def read(whole: Any, given: Inputs) -> Work:
        work = import_model(whole, given, target, layout, numerics=numerics)
        assert isinstance(work, Work), "ONNX models are in the notation"
        return work

    def known(workload: Workload) -> Config | None:
        if records is None or not may_exist(records):
            return None
        with RecordStore(records, create=False) as store:
            found = best_record(store, workload, target, numerics, policy, machine)
        return None if found is None else found.config

    built = build_open_model(source, read, target, known, name, numerics)
    return compared(built, read) if check and runs_here(target) else built
