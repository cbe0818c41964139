"""Who is compared: each name with the function that prepares its work, "module:function"."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from peers import Peer, Timer, UnableError, repeated
from suites.row import Arrays, Row

from contenders.contract import Prepared
from contenders.reference import error

OURS, OURS_LAST = "ours", "ours-last"
PEERS = {
    "numpy": "numpy_peer:plain",
    "torch": "torch_peer:plain",
    "torch-last": "torch_peer:channels_last",
    "torch-packed": "torch_peer:packed",
    "torch-packed-last": "torch_peer:packed_last",
    "torch-opaque": "torch_peer:opaque",
    "torch-mkl": "torch_peer:mkl",
    "onnxruntime": "onnxruntime_peer:plain",
    "openvino": "openvino_peer:plain",
    "openvino-last": "openvino_peer:channels_last",
}
"""Those that need no tuning."""
METASCHEDULE = "metaschedule"
FUNCTIONS = {
    **PEERS,
    OURS: "ours:plain",
    OURS_LAST: "ours:channels_last",
    METASCHEDULE: "metaschedule_peer:plain",
}
TOLERANCE = 1e-4
"""Of results, as a share of the largest; float32 and Winograd's algorithm stay well below."""


def peer(name: str, row: Row, threads: int, expected: str, **more: Any) -> Peer:
    """A contender, as `peers` measures it. `expected` is a file of the right result, .npy; what
    is in `more` goes to its function. A name may end in @ANYTHING to tell two of a kind apart."""
    function = FUNCTIONS[name.partition("@")[0]]
    arguments = {"function": function, "row": row.to_json(), "threads": threads, "more": more}
    return Peer(name, "contenders:timed", {**arguments, "expected": expected}, threads)


def timed(
    function: str, row: list, threads: int, more: dict[str, Any], expected: str
) -> tuple[Timer, dict[str, Any]]:
    """Prepare, compare the result with the right one, and return the timer, in a process."""
    chosen = Row.from_json(row)
    module, _, attribute = function.partition(":")
    make = getattr(importlib.import_module(f"contenders.{module}"), attribute)
    inputs = chosen.inputs()
    made = make(chosen, inputs, threads, **more)
    found = error(np.asarray(made.result(made.run()), np.float64), np.load(expected))
    if not found <= TOLERANCE:
        raise ValueError(f"wrong: its results deviate by {found:.1e} of the largest")
    return _timer(made, inputs), {"error": found, **made.facts}


def _timer(made: Prepared, inputs: Arrays) -> Timer:
    """Keeps the arrays for as long as the work may use them."""
    timer = repeated(made.run)

    def keeping(count: int, kept: Any = (made, inputs)) -> float:
        return timer(count)

    return keeping


__all__ = ["OURS", "OURS_LAST", "PEERS", "TOLERANCE", "UnableError", "peer", "timed"]
