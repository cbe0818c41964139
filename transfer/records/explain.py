"""Explanation, in words, of why a look-up found nothing."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loopwright.dsl.words import brief
from loopwright.measure.machine import hardware
from loopwright.transfer.records.compare import Difference, differences
from loopwright.transfer.records.lookup import POLICIES, Query, Setting, family
from loopwright.transfer.records.record import RecordError

_SHOWN = 3


def explain(
    settings: Sequence[Setting], wanted: Query, workload: Mapping[str, Any], store: str
) -> str:
    """Explanation of why no record of these settings serves, the nearest first, and of what would
    help.

    `workload` is the JSON of what is wanted, `store` names the store in the text. Raises
    `RecordError` for a setting with a damaged workload.
    """
    same = [s for s in settings if s.workload_key == wanted.workload_key]
    usable = [s for s in same if wanted.allows(s)]
    if any(s.measured for s in usable):
        return (
            f"all records of {wanted.workload_key} in {store} that have a cost are of programs "
            "that gave wrong results or crashed another time, or were timed inside of a network."
        )
    if usable:
        failed = sum(s.failed for s in usable)
        return (
            f"all {failed} records of {wanted.workload_key} in {store} are failures; "
            f"`loopwright records list --failed --records {store}` shows them."
        )
    if same:
        return _elsewhere(same, wanted, store)
    return _unknown(settings, wanted, workload, store)


def _elsewhere(same: Sequence[Setting], wanted: Query, store: str) -> str:
    nearest = sorted(same, key=lambda s: (wanted.agreement(s), s.measured), reverse=True)
    lines = [
        f"{store} has records of {wanted.workload_key}, but policy {wanted.policy!r} allows none:"
    ]
    for setting in nearest[:_SHOWN]:
        fields = "; ".join(map(str, _places(setting, wanted)))
        lines.append(f"  {setting.measured} with {fields}")
    looser = [p for p in POLICIES if _would_serve(nearest, wanted, p)]
    hint = f"use policy {looser[0]!r}, or tune" if looser else "tune"
    return "\n".join([*lines, f"To get one: {hint} here."])


def _would_serve(settings: Sequence[Setting], wanted: Query, policy: str) -> bool:
    if policy == "exact":
        return False
    other = Query(wanted.workload_key, wanted.target, wanted.machine, wanted.threads, policy)
    return any(s.measured and other.allows(s) for s in settings)


def _places(setting: Setting, wanted: Query) -> Iterator[Difference]:
    """The fields of a setting's place that are not those wanted."""
    if setting.target != wanted.target:
        near = "the same" if family(setting.target) == family(wanted.target) else "another"
        yield Difference(f"target ({near} family)", setting.target, wanted.target)
    if wanted.threads not in (None, setting.threads):
        yield Difference("threads", setting.threads, wanted.threads)
    if wanted.machine is not None:
        found, other = dict(setting.hardware), dict(hardware(wanted.machine))
        for name in sorted({*found, *other}):
            if found.get(name) != other.get(name):
                yield Difference(f"machine's {name}", found.get(name), other.get(name))


def _unknown(
    settings: Sequence[Setting], wanted: Query, workload: Mapping[str, Any], store: str
) -> str:
    """No record of the workload anywhere: which ones come near?"""
    texts = {s.workload_key: s.workload for s in settings if s.measured}
    if not texts:
        return f"{store} has no records with a cost; tune the workload {wanted.workload_key}."
    found = {key: _differences(text, workload) for key, text in texts.items()}
    nearest = heapq.nsmallest(_SHOWN, found, key=lambda key: sum(d.weight for d in found[key]))
    lines = [f"{store} has none of {wanted.workload_key}; of its {len(texts)} workloads, nearest:"]
    lines += [f"  {key}: {'; '.join(map(str, found[key])) or 'other indices'}" for key in nearest]
    return "\n".join([*lines, "To get one: tune it."])


def _differences(text: str, workload: Mapping[str, Any]) -> list[Difference]:
    try:
        return differences(json.loads(text), workload)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(
            f"a damaged workload in the store: {brief(error)} in {text[:80]}"
        ) from error
