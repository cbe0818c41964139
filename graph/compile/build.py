"""From a model to a `TunedModel`: read, compiled by records, compared with what it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from loopwright.codegen.library.linker import is_native
from loopwright.codegen.target import resolve
from loopwright.dsl.numerics import Numerics
from loopwright.graph.compile.link import link
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.compile.stored_records import best_records
from loopwright.graph.compile.vm_fallback import VmModel, VmWork, build_vm
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import Inputs
from loopwright.graph.importers.passes import fused
from loopwright.graph.importers.read import read_model
from loopwright.graph.network import NotPlannable, check_plannable, network
from loopwright.graph.tasks import Work, work_of
from loopwright.graph.transforms.choices import Choices
from loopwright.graph.transforms.steps import network_of
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.records.location import GivenLocation
from loopwright.transfer.records.record import Record, RecordError


def import_model(
    model: Any,
    inputs: Inputs,
    target: Target,
    layout: str = "auto",
    numerics: str | Numerics = "standard",
    sparse: bool = False,
    choices: Choices | None = None,
) -> Work | VmWork:
    """A model's tasks; with `choices`, which readings share, the same ones at all sizes. Raises
    `ModelError`."""
    allowed = Numerics.of(numerics)
    source = read_model(model, inputs)
    said: dict[str, Any] = {"source": source, "numerics": allowed, "sparse": sparse}
    if source.written is not None:
        known = work_of(network_of(source.written, choices), target, layout, choices)
        return replace(known, fixed=source.written.fixed, **said)
    module = fused(source.module, target)
    try:
        work = replace(work_of(network(module), target, layout), **said)
        for name in work.fallback:
            check_plannable(work.network.functions[name], name)
    except NotPlannable as reason:
        return VmWork.of(source, module, str(reason), allowed)
    return work


def without_source(built: TunedModel | VmModel) -> TunedModel | VmModel:
    """A model that does not keep what it was made of, which may be as large as its weights."""
    if isinstance(built, TunedModel):
        return replace(built, work=built.work.for_calls())
    left = built.work.source.for_calls()
    return replace(built, work=replace(built.work, source=left, module=None))


def check_results(
    built: TunedModel | VmModel, target: Target, tuned: bool = False
) -> TunedModel | VmModel:
    """A compiled model that was compared with the one that it was made of, or says why not. Raises
    `ModelError` if it was read as something else, or if it is off as it was `tuned`."""
    source = built.work.source
    reference = None if source is None or not runs_here(target) else source.reference
    if isinstance(reference, str):
        return replace(built, unchecked=reference) if isinstance(built, TunedModel) else built
    if reference is not None:
        reference.check(built, tuned)
    return built


def runs_here(target: Target) -> bool:
    """Return whether this machine runs code for a target."""
    here = resolve("cpu", target.threads)
    able = target.mcpu == here.mcpu and set(target.features) <= set(here.features)
    return able and is_native(target.triple)


def build_work(
    work: Work | VmWork,
    target: Target,
    records: GivenLocation | None = None,
    policy: str = "exact",
    name: str = "model",
    machine: Mapping[str, str] | None = None,
    besides: Mapping[str, Record] | None = None,
) -> TunedModel | VmModel:
    """Compile an imported model by the best records of a store: those of a `machine`, by default
    this one. Records `besides`, which could not be stored, go before these, and the store need not
    be there then. Raises `BuildError`."""
    besides = besides or {}
    found: Mapping[str, Record] = besides
    try:
        if records is not None:
            found = {**best_records(work, target, records, policy, machine), **besides}
    except RecordError:
        if not besides:
            raise
    if isinstance(work, VmWork):
        return build_vm(work, target, found)
    try:
        return compiled(work, target, found, name)
    except NotPlannable as reason:
        assert work.source is not None
        if work.source.written is not None:
            raise ModelError(f"the model cannot be one library: {reason}") from reason
        module = fused(work.source.module, target)
        vm_work = VmWork.of(work.source, module, str(reason), work.numerics)
        return build_work(vm_work, target, records, policy, name, machine, besides)


def compiled(
    work: Work, target: Target, records: Mapping[str, Record], name: str = "model"
) -> TunedModel:
    """Compile steps by records. Raises `BuildError`, and `NotPlannable` for TVM's run-time."""
    configs: dict[str, Config] = {key: record.config for key, record in records.items()}
    composed = link(work, configs, target, name)
    used = {k: r for k, r in records.items() if composed.configs.get(k) == r.config}
    return TunedModel(work, composed, target, used)
