"""Loopwright: the config that it is given, or the default one; constants bound."""

from __future__ import annotations

from typing import Any

from suites.row import Arrays, Row

import loopwright as lw
from contenders.contract import Prepared
from loopwright.schedule.sketch import Config


def plain(
    row: Row, inputs: Arrays, threads: int, config: dict[str, Any] | None = None
) -> Prepared:
    workload = row.request.workload
    chosen = None if config is None else Config.from_json(config)
    library = lw.build(workload, chosen, threads=threads)
    constants = [t.name for t in workload.constants]
    if constants:
        library = library.bind(**{name: inputs[name] for name in constants})
    call = library.prepare_call(**{n: a for n, a in inputs.items() if n not in constants})
    return Prepared(call, lambda _: call.outputs[0])
