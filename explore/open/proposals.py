"""Configs for sizes that were not searched, by a model that learns from the searches of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from loopwright.costmodel.models.file import StoredModel
from loopwright.dsl.workload import Workload
from loopwright.explore.open.tuned import Sizes
from loopwright.explore.search import TuneOptions
from loopwright.explore.strategies.encoded_space import EncodedSpace
from loopwright.explore.strategies.legality import legal_points
from loopwright.explore.zero_shot import ZeroShot
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import space
from loopwright.schedule.target import Target
from loopwright.transfer.pretrained.base import AUTO, find_base
from loopwright.transfer.records.location import GivenLocation
from loopwright.transfer.records.store import RecordError, RecordStore


def proposals(
    workload: Workload, every: Iterable[Sizes], target: Target, options: TuneOptions
) -> Iterator[tuple[Sizes, Config]]:
    """The config that the model likes best at each of some sizes; none where the options leave the
    model or the records out that it learns from."""
    if options.transfer != AUTO or options.records is None:
        return
    model, rng = None, np.random.default_rng(options.seed)
    for sizes in every:
        fixed = workload.at(**sizes)
        model = model or _model(options.records, fixed, target)
        if model is None:
            return
        points = space(fixed, target, options.numerics)
        encoded = EncodedSpace(points, legal_points(points))
        yield from ((sizes, c) for c in encoded.configs(ZeroShot(encoded, rng, model).choose()))


def _model(records: GivenLocation, workload: Workload, target: Target) -> StoredModel | None:
    """The shipped model, trained further on records; as it is where these cannot be read now."""
    try:
        with RecordStore(records) as store:
            return find_base(AUTO, workload, target, store).model
    except RecordError:
        return find_base(AUTO, workload, target).model
