"""A compiled computation of open sizes: one library for all shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.codegen.library import calls
from loopwright.codegen.library.arrays import as_array
from loopwright.codegen.library.binary import Binary
from loopwright.codegen.library.calls import Call
from loopwright.codegen.library.library import Library, Sources
from loopwright.codegen.library.signature import Origin
from loopwright.codegen.open.signature import OpenSignature
from loopwright.costmodel.models.time_model import TimeModel
from loopwright.dsl.errors import LibraryError, ShapeError
from loopwright.dsl.size import Dim, chosen
from loopwright.dsl.words import assigned, html_table
from loopwright.schedule.open.rule import Rule
from loopwright.schedule.open.work import inputs
from loopwright.schedule.tree.formula import formula_from_json

_KEPT = 512  # sizes whose libraries are kept


@dataclass(frozen=True)
class Choice:
    """The program that a call runs, and why. Print it, or read its attributes.

    Attributes
    ----------
    sizes: the values of the dims.
    rule: the number of the program, and the sizes for which it is chosen.
    program: its config, its threads, the sizes it was made for, and those it is right for.
    seconds: what NN+C predicts of each program that is right for the sizes and was measured, by
        number.
    """

    sizes: Mapping[str, int]
    rule: Rule
    program: Mapping[str, Any]
    seconds: Mapping[int, float]

    def __str__(self) -> str:
        box = self.rule.box(self.sizes)
        lines = [f"{assigned(self.sizes)}: program {self.rule.program}, which is chosen for {box}"]
        if self.program:
            own = "; ".join(
                ", ".join(f"{name}={sizes[name]}" for name in self.sizes)
                for sizes in self.program["made_for"]
            )
            lines.append(f"made for {own}, on {self.program['threads']} threads")
        for number, seconds in sorted(self.seconds.items(), key=lambda item: item[1]):
            chosen = ", chosen" if number == self.rule.program else ""
            lines.append(f"program {number}: {seconds * 1e6:.4g} µs predicted{chosen}")
        if not self.seconds:
            lines.append("nothing was measured: of the programs that are right, the one is chosen")
            lines.append("that does few operations and was made for sizes near these")
        return "\n".join(lines)


class OpenLibrary(Library):
    """A compiled computation whose sizes are known only at the call.

    ::

        lib(A, W)                 # the sizes come from the shapes
        lib.at(n=777)             # the library of one size, as `lw.build` makes it of fixed shapes
        lib.bind(W=W)(A)          # W laid out for the kernels once
        lib.explain(n=777)        # which program a size runs, and why

    A size that is not allowed, and shapes that disagree, are errors before anything runs.
    `signature` and `inputs` are those of the greatest sizes; `open_signature` has dims.
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
        self.open_signature = signature
        first = {signature.sizes: np.zeros(1 + len(signature.dims), np.int64)}
        super().__init__(signature.largest, binary, origin, sources, {**(bound or {}), **first})
        self._made: dict[tuple[int, ...], Library] = {}
        self._by_shapes: dict[tuple[tuple[int, ...], ...], Library] = {}

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The numbers of the call, in order."""
        return self.open_signature.dims

    def at(self, /, **sizes: int) -> Library:
        """The library for a value of every dim; it shares the code. Raises `RangeError`."""
        return self._at(chosen(self.dims, sizes, "the call"))

    def _at(self, sizes: Mapping[str, int], program: int | None = None) -> Library:
        number = self.open_signature.program(sizes) if program is None else program
        key = (number, *sizes.values())
        found = self._made.get(key)
        if found is None:
            bound = {**self._bound, self.open_signature.sizes: np.array(key, np.int64)}
            signature = self.open_signature.at(sizes)
            found = Library(signature, self._binary, self.origin, self._sources, bound)
            found._layout = self._layout
            if len(self._made) >= _KEPT:
                self._made.clear()
            self._made[key] = found
        return found

    def _of(self, inputs: tuple[Any, ...]) -> Library:
        """The library for the shapes of all inputs of a call."""
        try:
            key = tuple([tuple(getattr(x, "shape", None) or np.shape(x)) for x in inputs])
        except Exception:  # of lists in lists that are not equally long, or a value's own code
            self._check_arrays(inputs)
            raise
        found = self._by_shapes.get(key)
        if found is None:
            given = dict(zip(self._names, key, strict=True))
            every = [given.get(p.name, p.shape) for p in self.open_signature.inputs]
            try:
                found = self._at(self.open_signature.solve(every))
            except ShapeError:
                self._check_arrays(inputs)
                raise
            if len(self._by_shapes) >= _KEPT:
                self._by_shapes.clear()
            self._by_shapes[key] = found
        return found

    def _check_arrays(self, inputs: tuple[Any, ...]) -> None:
        """Raises `ShapeError` for an input that is no array, which has no shape to speak of."""
        parameters = {p.name: p for p in self.open_signature.inputs}
        for name, x in zip(self._names, inputs, strict=True):
            as_array(x, parameters[name])

    def __call__(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Computes, as `Library` does. Raises `ShapeError` and `RangeError` for wrong sizes."""
        if named or len(inputs) != len(self._names):
            inputs, out = calls.told_apart(inputs, named, out, self._names, self._shown)
        return self._of(inputs)(*inputs, out=out)

    def prepare_call(self, /, *inputs: Any, out: Any = None, **named: Any) -> Call:
        """The same call, made ready to be repeated; see `Library.prepare_call`."""
        inputs, out = calls.told_apart(inputs, named, out, self._names, self._shown)
        return self._of(inputs).prepare_call(*inputs, out=out)

    def bind(self, /, **values: Any) -> OpenLibrary:
        """`Library.bind`. Raises `ShapeError` for an input whose shape has open sizes."""
        for p in self.open_signature.inputs:
            if p.name in values and p.is_open:
                raise ShapeError(
                    f"{p} has open sizes and cannot be bound: bind it in the library of one size, "
                    f".at({', '.join(f'{d.name}=…' for d in self.dims)})"
                )
        bound = super().bind(**values)
        assert isinstance(bound, OpenLibrary), "what _with makes"
        return bound

    def _with(self, bound: Mapping[str, Any]) -> OpenLibrary:
        return OpenLibrary(self.open_signature, self._binary, self.origin, self._sources, bound)

    @property
    def _shown(self) -> str:
        return calls.shown(self.open_signature, self._names)

    def explain(self, /, **sizes: int) -> Choice:
        """The program that a call of these sizes runs, and why.

        Raises `RangeError`, and `LibraryError` where another version wrote the predictions.
        """
        values = chosen(self.dims, sizes, "the call")
        place = tuple(values.values())
        rule = next(r for r in self.open_signature.rules if r.holds(place))
        programs = self.origin.extra.get("programs", ())
        described = programs[rule.program] if programs else {}
        return Choice(values, rule, described, self._predicted(values, programs))

    def _predicted(
        self, sizes: Mapping[str, int], programs: Sequence[Mapping[str, Any]]
    ) -> dict[int, float]:
        """Seconds of each program that is right for the sizes and was measured."""
        times = self.origin.extra.get("times", ())
        dims = {d.name: d for d in self.dims}
        seconds: dict[int, float] = {}
        for k, (model, p) in enumerate(zip(times, programs)):
            if model is None:
                continue  # the program was not measured
            if "operations" not in model:
                raise LibraryError(
                    f"another version of Loopwright tuned {self.open_signature.name}, and this "
                    "one cannot read its predictions: tune it again"
                )
            if all(low <= sizes[n] <= high for n, (low, high) in p["takes"].items()):
                asked = inputs(sizes, formula_from_json(model["operations"], dims))
                seconds[k] = float(TimeModel.from_json(model).predict([asked])[0])
        return seconds

    def __reduce__(self) -> Any:
        restored, (_, *rest) = super().__reduce__()
        return restored, (self.open_signature, *rest)

    def _exported(self, path: Path) -> Path:
        from loopwright.codegen.open.export import export_open

        return export_open(self, path)

    def _repr_html_(self) -> str:
        signature, constants = self.open_signature, self.open_signature.constants
        rows = {
            "inputs": "\n".join(
                f"{p}{', constant' if p.name in constants else ''}" for p in signature.inputs
            ),
            "bound": ", ".join(calls.bound(signature, self._names)) or "none",
            "outputs": "\n".join(map(str, signature.outputs)),
            "sizes": "\n".join(map(str, self.dims)),
            "target": self.origin.target,
        }
        return html_table(f"{type(self).__name__} {signature.name}", rows)
