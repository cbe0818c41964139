"""A user's own classes, in processes that lack their modules."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np

from loopwright.measure.fleet.values import from_bytes, to_bytes

MODEL = """
from loopwright.costmodel.model import CostModel

class Mine(CostModel):
    def predict(self, features):
        return [half(x) for x in features]

def half(x):
    return x / 2
"""
READ = """
import sys
from loopwright.measure.fleet.values import from_bytes
values = from_bytes(sys.stdin.buffer.read())
assert "users_own" not in sys.modules
print(values["model"].predict([3.0]), values["callbacks"][0](8))
"""


def test_a_users_cost_model_travels_with_the_code_of_its_module(tmp_path, monkeypatch):
    path = tmp_path / "users_own.py"
    path.write_text(MODEL)
    spec = importlib.util.spec_from_file_location("users_own", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "users_own", module)
    spec.loader.exec_module(module)
    module.Mine.__abstractmethods__ = frozenset()  # of which this is no matter
    data = to_bytes({"model": module.Mine(), "callbacks": [module.half]})
    command = [sys.executable, "-c", READ]
    told = subprocess.run(command, input=data, capture_output=True, check=True)
    assert told.stdout.decode().split() == ["[1.5]", "4.0"]


def test_what_is_installed_travels_by_name():
    assert from_bytes(to_bytes(np.random.default_rng)) is np.random.default_rng
    assert len(to_bytes(np.random.default_rng)) < 100
