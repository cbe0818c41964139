"""Loopwright: the config that it is given, or the default one; constants bound.

channels_last: activations channels last, in and out, as peers may have them too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from clock import prepared
from peers import UnableError
from suites.row import LAST, Arrays, Row, aligned

import loopwright as lw
from contenders.contract import Prepared
from loopwright.schedule.sketch.sketch import Config


def plain(
    row: Row,
    inputs: Arrays,
    threads: int,
    config: dict[str, Any] | None = None,
    numerics: str | None = None,
) -> Prepared:
    workload = row.request.workload
    chosen = None if config is None else Config.from_json(config)
    library = lw.build(workload, chosen, threads=threads, numerics=numerics)
    call = prepared(library, inputs)
    return Prepared(call, lambda _: call.outputs[0])


def channels_last(row: Row, inputs: Arrays, threads: int, **how: Any) -> Prepared:
    last = row.last
    if last is None:
        raise UnableError(f"{row.operator} has one layout")
    orders = LAST[row.what]
    turned = {n: aligned(a.transpose(orders[n])) if n in orders else a for n, a in inputs.items()}
    made = plain(last, turned, threads, **how)
    return replace(made, result=lambda out: np.moveaxis(made.result(out), -1, 1))
