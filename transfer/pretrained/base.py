"""Global model that a search begins with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loopwright.codegen.target import cpu_features
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.file import SEQUENCE, StoredModel, read_model
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.words import among, counted
from loopwright.dsl.workload import Workload
from loopwright.paths import problem_of_file, shown
from loopwright.schedule.target import Target
from loopwright.transfer.pretrained.dataset import read_groups
from loopwright.transfer.pretrained.training import load_global, train
from loopwright.transfer.records.kinds import kind, kind_of_text
from loopwright.transfer.records.lookup import Setting, comparable, family
from loopwright.transfer.records.store import RecordStore

AUTO = "auto"
SHIPPED = Path(__file__).parent / "shipped"
GROUPS, OF_EACH = 12, 128
"""Number of groups of a user's records that "auto" learns from, and of records of each: that takes
seconds at most."""
PROPOSER = "x86-sequence"
"""The shipped sequence model: vectors are among the numbers that it reads of a target."""
_FEWEST = 32
_X86 = {"avx512f": "x86-avx512", "avx2": "x86-avx2"}
"""The model for a target is that of the first feature here that it has."""

Transfer = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Base:
    """A global model, or none, and what there is to say of it."""

    model: StoredModel | None = None
    notes: tuple[str, ...] = ()


def check_transfer(transfer: Transfer) -> None:
    """Raise `ModelError` where `transfer` names a file that is not there."""
    if transfer is None or among(transfer, (AUTO,)):
        return
    if problem := problem_of_file(transfer, exists=True):
        raise ModelError(
            f'transfer = {shown(transfer)}: {problem}; give "auto", None, or a file of '
            "`loopwright model train`"
        )


def check_readable(transfer: Transfer, proposes: bool = True) -> None:
    """Read the file of `transfer`, if it names one, so that one that is no use is known before
    the work. A sequence model is of use only to a search that `proposes` configs by it.

    Raises `ModelError` for a file that cannot be used.
    """
    check_transfer(transfer)
    if transfer not in (None, AUTO) and not (proposes and is_sequence(transfer)):
        load_global(Path(transfer))


def shipped_path(target: Target) -> Path | None:
    """The file of the model that comes with the package for a target; None if there is none."""
    if target.gpu is not None or not target.triple.startswith("x86_64"):
        return None
    has = cpu_features(target)
    found = next((name for feature, name in _X86.items() if feature in has), None)
    path = SHIPPED / f"{found}.json"
    return path if found and path.exists() else None


def find_base(
    transfer: Transfer, workload: Workload, target: Target, store: RecordStore | None = None
) -> Base:
    """The global model of `transfer`: None for none, the path of a model file, or "auto": the
    model that is shipped for the target, trained further on the records that the store has of
    other workloads on such targets, those of this kind first.

    Raises `ModelError` for a file that cannot be used; "auto" goes on without, and says so.
    """
    if transfer is None:
        return Base()
    if transfer != AUTO:
        path = Path(transfer)
        return Base(load_global(path), (f"begins with what {path} knows",))
    base = _shipped(target)
    return base if store is None else _with_records(base, workload, target, store)


def is_sequence(transfer: Transfer) -> bool:
    """Return whether `transfer` is a sequence model's file. Raises `ModelError` for no model."""
    return transfer not in (None, AUTO) and read_model(transfer)[0] == SEQUENCE


def find_proposer(transfer: Transfer, target: Target) -> tuple[SequenceModel, str]:
    """The sequence model in a file, or with "auto" the shipped one, for targets that have a
    shipped cost model, and a line that names it. Raises `ModelError` where there is none."""
    own = "train one on records by `loopwright model train --model sequence -o FILE`, and give"
    if transfer is None:
        raise ModelError(
            "no sequence model is left to propose configs: transfer=None leaves out the shipped "
            f"one; {own} transfer=FILE"
        )
    if transfer != AUTO:
        return SequenceModel.load(transfer), f"proposes configs by {os.fspath(transfer)}"
    if shipped_path(target) is None:
        raise ModelError(
            f"no sequence model is shipped for target {target}; {own} transfer=FILE, or leave out "
            'strategy="sampled" and model="policy"'
        )
    note = f"proposes configs by the shipped model {PROPOSER}"
    return SequenceModel.load(SHIPPED / f"{PROPOSER}.json"), note


def _shipped(target: Target) -> Base:
    path = shipped_path(target)
    if path is None:
        return Base()
    try:
        model = load_global(path)
    except ModelError as error:
        return Base(None, (f"goes on without the shipped model: {error}",))
    records = model.about.get("records", "?")
    return Base(model, (f"begins with the shipped model {path.stem}, of {records} records",))


def _with_records(base: Base, workload: Workload, target: Target, store: RecordStore) -> Base:
    """The base trained further on a user's records, if there are enough."""
    try:
        chosen = _settings(workload, target, store)
        groups = list(read_groups([store], wanted=lambda s: s.id in chosen, most=OF_EACH))
        count = sum(len(g.costs) for g in groups)
        if count < _FEWEST:
            return base
        model = train(groups, base=base.model)
    except LoopwrightError as error:  # a damaged record of another workload is of no matter
        return Base(base.model, (*base.notes, f"leaves other workloads' records out: {error}"))
    others = counted(len({g.workload.key for g in groups}), "other workload")
    note = f"learns from {count} records of {others} in {store.location}"
    return Base(model, (*base.notes, note))


def _settings(workload: Workload, target: Target, store: RecordStore) -> frozenset[int]:
    """The settings whose records serve: of other workloads, on targets of this family; those of
    the same kind first, then the newest."""
    here, own = family(str(target)), kind(workload)
    others = [
        s
        for s in store.settings()
        if s.workload_key != workload.key and family(s.target) == here and s.measured
    ]

    def rank(group: Sequence[Setting]) -> tuple[bool, int]:
        return kind_of_text(group[0].workload) == own, group[-1].id

    groups = sorted(comparable(others), key=rank, reverse=True)[:GROUPS]
    return frozenset(s.id for group in groups for s in group)
