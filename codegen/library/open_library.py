"""A compiled computation of open sizes: one library for all shapes."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.codegen.library import calls
from loopwright.codegen.library.binary import Binary
from loopwright.codegen.library.calls import Call
from loopwright.codegen.library.layout import KeptLayout
from loopwright.codegen.library.library import Library, Sources
from loopwright.codegen.library.open_signature import OpenParameter, OpenSignature
from loopwright.codegen.library.signature import Origin
from loopwright.costmodel.models.time_model import TimeModel
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.workload import Workload
from loopwright.schedule.open.rule import Rule

_KEPT = 512  # sizes whose libraries are kept


@dataclass(frozen=True)
class Choice:
    """The program that a call runs, and why. Print it, or read its attributes.

    Attributes
    ----------
    sizes: the values of the dims.
    rule: the number of the program, and the sizes for which it is chosen.
    program: its config, its threads, the sizes it was made for, and those it is right for.
    seconds: what NN+C predicts of each program that is right for the sizes, by number; empty where
        nothing was measured.
    """

    sizes: Mapping[str, int]
    rule: Rule
    program: Mapping[str, Any]
    seconds: Mapping[int, float]

    def __str__(self) -> str:
        at = ", ".join(f"{name}={value}" for name, value in self.sizes.items())
        box = ", ".join(
            f"{name} from {low} to {high}"
            for name, (low, high) in zip(self.sizes, self.rule.bounds, strict=True)
        )
        lines = [f"{at}: program {self.rule.program}, which is chosen for {box}"]
        if self.program:
            own = "; ".join(
                ", ".join(f"{n}={v}" for n, v in sizes.items())
                for sizes in self.program["made_for"]
            )
            lines.append(f"made for {own}, on {self.program['threads']} threads")
        for number, seconds in sorted(self.seconds.items(), key=lambda item: item[1]):
            chosen = ", chosen" if number == self.rule.program else ""
            lines.append(f"program {number}: {seconds * 1e6:.4g} µs predicted{chosen}")
        if not self.seconds:
            lines.append("nothing was measured: of the programs that are right, the one made for")
            lines.append("the nearest sizes is chosen")
        return "\n".join(lines)


class OpenLibrary:
    """A compiled computation whose sizes are known only at the call.

    ::

        lib(A, W)                 # the sizes come from the shapes
        lib.at(n=777)             # the library of one size, as `lw.build` makes it of fixed shapes
        lib.bind(W=W)(A)          # W laid out for the kernels once
        lib.explain(n=777)        # which program a size runs, and why

    A size that is not allowed, and shapes that disagree, are errors before anything runs.
    """

    def __init__(
        self,
        signature: OpenSignature,
        binary: Binary | None,
        origin: Origin,
        sources: Sources | None = None,
        bound: Mapping[str, Any] | None = None,
    ) -> None:
        """Use `lw.build`, `lw.tune` or `lw.load`."""
        self.signature, self.origin = signature, origin
        self._binary, self._sources = binary, dict(sources or {})
        self._bound = dict(bound or {})
        self._layout = KeptLayout()
        self._made: OrderedDict[tuple[Any, ...], Library] = OrderedDict()
        given = {*self._bound, *(signature.constants if self._is_ready else ())}
        self.inputs = tuple(p for p in signature.inputs if p.name not in given)
        """Inputs of a call, in order: those of the signature that are not bound."""
        self._names = tuple(p.name for p in self.inputs)

    @property
    def _is_ready(self) -> bool:
        prepared = self.signature.prepared
        return bool(prepared) and prepared[0].name in self._bound

    def at(self, **sizes: int) -> Library:
        """The library for a value of every dim; it shares the code. Raises `RangeError`."""
        return self._at(self.signature.check(sizes))

    def _at(self, sizes: Mapping[str, int], program: int | None = None) -> Library:
        number = self.signature.program(sizes) if program is None else program
        key = (number, *sizes.values())
        found = self._made.get(key)
        if found is None:
            array = np.array(key, np.int64)
            bound = {self.signature.sizes: array, **self._bound}
            signature = self.signature.at(sizes)
            found = Library(signature, self._binary, self.origin, self._sources, bound)
            found._layout = self._layout
            self._made[key] = found
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
        return found

    def _of(self, inputs: tuple[Any, ...]) -> Library:
        """The library for the shapes of all inputs of a call."""
        shapes = [getattr(x, "shape", None) or np.shape(x) for x in inputs]
        given = dict(zip(self._names, map(tuple, shapes), strict=True))
        every = [
            given[p.name] if p.name in given else tuple(p.at({}).shape)
            for p in self.signature.inputs
        ]
        return self._at(self.signature.solve(every))

    def __call__(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Computes, as `Library` does. Raises `ShapeError` for shapes that disagree, and
        `RangeError` for sizes that are not allowed."""
        if named or len(inputs) != len(self._names):
            inputs, out = calls.told_apart(inputs, named, out, self._names, str(self.signature))
        return self._of(inputs)(*inputs, out=out)

    def prepare_call(self, /, *inputs: Any, out: Any = None, **named: Any) -> Call:
        """The same call, made ready to be repeated; see `Library.prepare_call`."""
        inputs, out = calls.told_apart(inputs, named, out, self._names, str(self.signature))
        return self._of(inputs).prepare_call(*inputs, out=out)

    def bind(self, **values: Any) -> OpenLibrary:
        """A library with these inputs fixed; see `Library.bind`. Raises `ShapeError` for one whose
        shape has open sizes."""
        known: dict[str, OpenParameter] = {p.name: p for p in self.inputs}
        for name in values:
            if name in known and known[name].is_open:
                raise ShapeError(
                    f"{known[name]} has open sizes and cannot be bound: bind it in the library of "
                    f"one size, .at({', '.join(f'{d.name}=…' for d in self.signature.dims)})"
                )
        fixed = self._at({d.name: d.high for d in self.signature.dims}).bind(**values)
        bound = {n: a for n, a in fixed._bound.items() if n != self.signature.sizes}
        return OpenLibrary(self.signature, self._binary, self.origin, self._sources, bound)

    @property
    def threads(self) -> int:
        """Number of threads of a call, the caller's included; for all that share this code."""
        return self._any.threads

    @threads.setter
    def threads(self, count: int) -> None:
        self._any.threads = count

    @functools.cached_property
    def _any(self) -> Library:
        return self._at({d.name: d.high for d in self.signature.dims})

    def source(self, kind: str) -> str:
        """The text of the programs as `kind`; see `Library.source`."""
        return self._any.source(kind)

    def explain(self, **sizes: int) -> Choice:
        """The program that a call of these sizes runs, and why. Raises `RangeError`."""
        values = self.signature.check(sizes)
        place = tuple(values.values())
        rule = next(r for r in self.signature.rules if r.holds(place))
        programs = self.origin.extra.get("programs", ())
        described = programs[rule.program] if programs else {}
        times = self.origin.extra.get("times")
        seconds: dict[int, float] = {}
        if times:
            work = Workload.from_json(self.origin.extra["workload"]).at(**values)
            inputs = [[*map(float, place), float(max(1, work.flops))]]
            for k, (model, p) in enumerate(zip(times, programs, strict=True)):
                if all(low <= values[n] <= high for n, (low, high) in p["takes"].items()):
                    seconds[k] = float(TimeModel.from_json(model).predict(inputs)[0])
        return Choice(values, rule, described, seconds)

    def __repr__(self) -> str:
        bound = f", bound: {', '.join(self._bound)}" if self._bound else ""
        return f"<{type(self).__name__} {self.signature}{bound}>"
