"""`Recorded`: what the configs of a sub-space cost on one machine, as a file and as a device."""

from __future__ import annotations

import gzip
import json
import math
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.workload import Workload
from loopwright.measure.replay import ReplayedDevice
from loopwright.schedule.sketch import Config, Knob, Sketch
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target

FORMAT = "loopwright sub-space 1"
Costs = dict[Config, float]


class RecordedError(LoopwrightError):
    """A file that holds no recorded sub-space, or one of another version of the rules."""


@dataclass(frozen=True)
class Recorded:
    """A sub-space and the costs of those of its configs that were measured.

    Attributes
    ----------
    costs: seconds, infinite for configs that failed.
    machine: `measure.machine.fingerprint` of where they were measured.
    missing: names of recorded sketches that the space no longer has; their costs are left out.
    """

    name: str
    space: Space
    machine: dict[str, str]
    costs: Costs
    missing: tuple[str, ...] = ()

    def device(self) -> ReplayedDevice:
        """All that was measured, as a device. Raises `DeviceError` if nothing was."""
        return ReplayedDevice(self.space, self.costs, self.name)

    def save(self, path: Path) -> None:
        """Write a file, in the place of the one that is there."""
        content = {
            "format": FORMAT,
            "name": self.name,
            "workload": self.space.workload.to_json(),
            "target": asdict(self.space.target),
            "machine": self.machine,
            "sketches": [self._sketch(s) for s in self.space.sketches],
        }
        raw = json.dumps(content, separators=(",", ":")).encode()
        beside = path.with_name(path.name + ".new")
        beside.write_bytes(gzip.compress(raw, 9, mtime=0))
        os.replace(beside, path)

    def _sketch(self, sketch: Sketch) -> dict[str, Any]:
        every = configs(sketch)
        rows = [n for n, config in enumerate(every) if config in self.costs]
        return {
            "name": sketch.name,
            "knobs": {knob.name: knob.choices for knob in sketch.knobs},
            "default": sketch.default,
            "rows": rows,
            "seconds": [_written(self.costs[every[n]]) for n in rows],
        }

    @staticmethod
    def load(path: Path) -> Recorded:
        """Read what `save` wrote. Raises `RecordedError` for anything else."""
        try:
            content = json.loads(gzip.decompress(path.read_bytes()))
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
            workload = Workload.from_json(content["workload"])
            target = Target(**_tuples(content["target"]))
            return _recorded(content, space(workload, target))
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise RecordedError(f"{path} holds no recorded sub-space: {error}") from error


def configs(sketch: Sketch) -> list[Config]:
    """All of a sketch, its last knob fastest."""
    shape = [len(knob.choices) for knob in sketch.knobs]
    return [sketch.at(numbers) for numbers in np.ndindex(*shape)]


def _recorded(content: dict[str, Any], whole: Space) -> Recorded:
    known = {sketch.name: sketch for sketch in whole.sketches}
    found = [s for s in content["sketches"] if s["name"] in known]
    if not found:
        raise ValueError("the space of its workload has none of its sketches now; collect again")
    sketches, costs = [], {}
    for data in found:
        knobs = tuple(Knob(n, _tuples(choices)) for n, choices in data["knobs"].items())
        sketch = replace(known[data["name"]], knobs=knobs, default=tuple(data["default"]))
        every = configs(sketch)
        for row, seconds in zip(data["rows"], data["seconds"], strict=True):
            costs[every[row]] = math.inf if seconds is None else seconds
        sketches.append(sketch)
    missing = tuple(s["name"] for s in content["sketches"] if s["name"] not in known)
    narrowed = replace(whole, sketches=tuple(sketches))
    return Recorded(content["name"], narrowed, content["machine"], costs, missing)


def _written(seconds: float) -> float | None:
    """Four digits: more than a measurement has."""
    return float(f"{seconds:.4g}") if math.isfinite(seconds) else None


def _tuples(value: Any) -> Any:
    """JSON's lists as the tuples that they were."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {k: _tuples(v) for k, v in value.items()} if isinstance(value, dict) else value
