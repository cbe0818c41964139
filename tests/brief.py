"""Searches on this machine that take no longer than they must, for tests of what is around."""

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loopwright.cli.common import peers
from loopwright.explore import finalize
from loopwright.explore.significance import FEWEST
from loopwright.measure import roofline
from loopwright.measure.workers import pool
from loopwright.measure.workers.fork_server import ForkServer
from loopwright.temporary import TemporaryFolder

_LASTING = {}  # fork servers and their folders


class _Lasting(ForkServer):
    """One that ends with the tests."""

    def close(self):
        pass


def _fork_server(kind):
    if kind.mode != "build":
        return ForkServer(kind)
    variables = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST_")}
    key = sys.executable, kind.memory, *sorted(variables.items())
    if key not in _LASTING or not _LASTING[key][0].alive:
        folder = TemporaryFolder()
        _LASTING[key] = _Lasting(replace(kind, folder=Path(folder.name))), folder
    return _LASTING[key][0]


@contextlib.contextmanager
def brief():
    """Fork the builders of all pools from one process, which has imported TVM. Compare the best
    once, in few rounds; time rooflines and other libraries for a moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "ForkServer", _fork_server)
        patch.setattr(finalize, "TRIES", 1)
        patch.setattr(finalize, "ROUNDS", FEWEST)
        patch.setattr(peers, "_SECONDS", 0.01)
        patch.setattr(roofline, "_TIMING", replace(roofline._TIMING, cap=0.01))
        yield
