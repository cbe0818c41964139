"""`Recorded`: what the configs of a sub-space cost on one machine, as a file and as a device.

A file is whole in itself: beside the costs it has what models see of each config, so that searches
of it repeat exactly, whatever becomes of the rules that derive spaces and features.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from points import every_number, places

from loopwright.costmodel.features.representation import (
    Numbers,
    Representation,
    make_representation,
)
from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.workload import Workload
from loopwright.measure.tabular import TabularDevice
from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.sketch.sketch import Config, Knob, Sketch
from loopwright.schedule.space import Space
from loopwright.schedule.target import Target
from loopwright.transfer.records.upgrade import sketch_name

FORMAT, EARLIER = "loopwright sub-space 3", "loopwright sub-space 2"
"""In the earlier format a sketch has the name that records of schema 1 have."""
READS = ("relation", "tree")
"""The features that a file has; those of the config itself follow from the knobs."""
Costs = dict[Config, float]
_DAMAGE = (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error)
"""What reading a damaged file may raise."""


class RecordedError(LoopwrightError):
    """A file that holds no recorded sub-space."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """A sub-space and the costs of those of its configs that were measured.

    Attributes
    ----------
    space: loaded from a file, its sketches have knobs alone, and no loops.
    machine: `measure.machine.fingerprint` of where they were measured.
    costs: seconds, infinite for configs that failed.
    kept: features from the file by what they are called and the number of the sketch; a row for
        each of its configs, zeros for those that were not measured.
    """

    name: str
    space: Space
    machine: dict[str, str]
    costs: Costs
    kept: Mapping[str, list[np.ndarray]] = field(default_factory=dict)

    def device(self) -> TabularDevice:
        """All that was measured, as a device. Raises `DeviceError` if nothing was."""
        return TabularDevice(self.space, self.costs, self.name)

    def representation(self, reads: str) -> Representation:
        """How features are had: from the file, or as the space's loops tell them."""
        return Kept(self.kept[reads]) if reads in self.kept else make_representation(reads)

    def save(self, path: Path) -> None:
        """Write a file, in the place of the one that is there."""
        about = {
            "format": FORMAT,
            "name": self.name,
            "workload": self.space.workload.to_json(),
            "target": asdict(self.space.target),
            "machine": self.machine,
            "sketches": [
                {
                    "derivation": s.derivation.to_json(),
                    "name": s.name.structure,
                    "knobs": {k.name: k.choices for k in s.knobs},
                    "default": s.default,
                }
                for s in self.space.sketches
            ],
        }
        arrays: dict[str, np.ndarray] = {"about": np.frombuffer(json.dumps(about).encode(), "u1")}
        ways = {reads: self.representation(reads) for reads in READS}
        for number, sketch in enumerate(self.space.sketches):
            every = configs(sketch)
            rows = np.array([n for n, c in enumerate(every) if c in self.costs], np.int32)
            arrays[f"rows{number}"] = rows
            # Four digits: more than a measurement has.
            arrays[f"seconds{number}"] = np.array(
                [float(f"{self.costs[every[n]]:.4g}") for n in rows]
            )
            numbers = every_number(sketch)[rows]
            for reads, way in ways.items():
                found = way.features(self.space, number, numbers)
                arrays[f"{reads}{number}"] = np.asfortranarray(found)  # packs better by columns
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
        beside = path.with_name(path.name + ".new")
        beside.write_bytes(content.getvalue())
        os.replace(beside, path)

    @staticmethod
    def load(path: Path) -> Recorded:
        """Read what `save` wrote. Raises `RecordedError` for anything else."""
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
                about = json.loads(arrays["about"].tobytes())
                if about["format"] not in (FORMAT, EARLIER):
                    raise ValueError(f"its format is {about['format']!r}, not {FORMAT!r}")
                return _recorded(about, arrays)
        except _DAMAGE as error:
            raise RecordedError(f"{path} holds no recorded sub-space: {error}") from error


class Kept(Representation):
    """Features that a file has, by the number of the sketch and the place of the config."""

    def __init__(self, rows: list[np.ndarray]) -> None:
        self._rows = rows

    def features(self, space: Space, sketch: int, numbers: Numbers) -> np.ndarray:
        found: np.ndarray = self._rows[sketch][places(space.sketches[sketch], numbers)]
        return found

    def names(self, space: Space) -> tuple[str, ...]:
        return tuple(map(str, range(self._rows[0].shape[1])))


def configs(sketch: Sketch) -> list[Config]:
    """All of a sketch, its last knob fastest."""
    return [sketch.at(numbers) for numbers in every_number(sketch).tolist()]


def _recorded(about: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Recorded:
    workload = Workload.from_json(about["workload"])
    sketches = tuple(
        Sketch(
            _name(data),
            workload,
            (),
            (),
            tuple(Knob(name, _tuples(choices)) for name, choices in data["knobs"].items()),
            tuple(data["default"]),
        )
        for data in about["sketches"]
    )
    costs: Costs = {}
    kept: dict[str, list[np.ndarray]] = {reads: [] for reads in READS}
    for number, sketch in enumerate(sketches):
        rows, every = arrays[f"rows{number}"], configs(sketch)
        costs |= {
            every[n]: s for n, s in zip(rows, arrays[f"seconds{number}"].tolist(), strict=True)
        }
        for reads in READS:
            stored = arrays[f"{reads}{number}"]
            whole = np.zeros((len(every), stored.shape[1]), np.float32)
            whole[rows] = stored
            kept[reads].append(whole)
    space = Space(workload, Target(**_tuples(about["target"])), sketches)
    return Recorded(about["name"], space, about["machine"], costs, kept)


def _name(data: Mapping[str, Any]) -> SketchName:
    if "derivation" not in data:
        return sketch_name(data["name"])
    return SketchName(Derivation.from_json(data["derivation"]), data["name"])


def _tuples(value: Any) -> Any:
    """JSON's lists as the tuples that they were."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {k: _tuples(v) for k, v in value.items()} if isinstance(value, dict) else value
