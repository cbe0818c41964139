"""Signature of a library of open sizes: shapes with dims, and the rules that choose a program."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.dsl.errors import LibraryError, LoopwrightError
from loopwright.dsl.serial import extent_from_json, extent_to_json
from loopwright.dsl.size import Dim, Size, dim, extent_at, solved
from loopwright.schedule.open.rule import Rule
from loopwright.schedule.tree.formula import Formula, formula_from_json


@dataclass(frozen=True)
class OpenParameter:
    """One array argument: dense, in C order. Its shape may have sizes of dims; that of an output
    may have formulas too, where the notation has no word for an extent, as `n * m` or
    `min(n, 10)`."""

    name: str
    shape: tuple[int | Size | Formula, ...]
    dtype: str

    @property
    def is_open(self) -> bool:
        """Return whether its shape follows from dims."""
        return not all(isinstance(n, int) for n in self.shape)

    def at(self, sizes: Mapping[str, int]) -> Parameter:
        """The parameter for values of the dims."""
        shape = (
            int(n.at(sizes)) if isinstance(n, Formula) else extent_at(n, sizes) for n in self.shape
        )
        return Parameter(self.name, tuple(shape), self.dtype)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class OpenSignature:
    """The arguments of a library of open sizes.

    The object file's `main` takes an array named `sizes`, then the inputs that are no constants,
    `prepared` and the outputs. `rules` say which program a call runs: the first that holds.
    """

    name: str
    dims: tuple[Dim, ...]
    inputs: tuple[OpenParameter, ...]
    outputs: tuple[OpenParameter, ...]
    constants: tuple[str, ...]
    prepared: tuple[Parameter, ...]
    rules: tuple[Rule, ...]
    threads: int = 1

    @functools.cached_property
    def sizes(self) -> str:
        """The name of the array of sizes, which no argument has."""
        names = {p.name for p in (*self.inputs, *self.outputs)}
        name = "sizes"
        while name in names:
            name += "_"
        return name

    def solve(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The value of every dim, from shapes of inputs. Raises `ShapeError`, `RangeError`."""
        of_inputs = (cast("tuple[int | Size, ...]", p.shape) for p in self.inputs)  # no formulas
        names = (p.name for p in self.inputs)
        given = [*zip(names, of_inputs, shapes, strict=True)]
        return solved(self.dims, given)

    def program(self, sizes: Mapping[str, int]) -> int:
        """The number of the program that sizes run."""
        values = [sizes[d.name] for d in self.dims]
        return next(rule.program for rule in self.rules if rule.holds(values))

    def at(self, sizes: Mapping[str, int]) -> Signature:
        """The signature for values of the dims, with the array of sizes as its first input."""
        array = Parameter(self.sizes, (1 + len(self.dims),), "int64")
        return Signature(
            self.name,
            (array, *(p.at(sizes) for p in self.inputs)),
            tuple(p.at(sizes) for p in self.outputs),
            self.constants,
            self.prepared,
            self.threads,
        )

    @property
    def largest(self) -> Signature:
        """The signature for the greatest sizes."""
        return self.at({d.name: d.high for d in self.dims})

    @property
    def main_parameters(self) -> tuple[Parameter, ...]:
        """The arguments of the object's `main`, of the greatest sizes."""
        return self.largest.main_parameters

    @property
    def prepare_parameters(self) -> tuple[Parameter, ...]:
        """The arguments of the object's `prepare`."""
        return self.largest.prepare_parameters

    def __str__(self) -> str:
        inputs, outputs = (", ".join(map(str, ps)) for ps in (self.inputs, self.outputs))
        return f"{self.name}({inputs}) -> {outputs}; {'; '.join(map(str, self.dims))}"

    def to_json(self) -> dict[str, Any]:
        """A value that `json` can write, and `from_json` reads."""
        return {
            "name": self.name,
            "dims": [[d.name, d.low, d.high, d.multiple] for d in self.dims],
            "inputs": [_to_json(p) for p in self.inputs],
            "outputs": [_to_json(p) for p in self.outputs],
            "constants": list(self.constants),
            "prepared": [_to_json(p) for p in self.prepared],
            "rules": [[list(map(list, r.bounds)), r.program] for r in self.rules],
            "threads": self.threads,
        }

    @staticmethod
    def from_json(data: Any) -> OpenSignature:
        """The inverse of `to_json`. Raises `LibraryError` where `data` is not its work."""
        try:
            known = {str(n): dim(str(n), int(a), int(b), int(m)) for n, a, b, m in data["dims"]}

            def parameter(p: Any) -> OpenParameter:
                shape = tuple(_from_json(n, known) for n in p["shape"])
                return OpenParameter(str(p["name"]), shape, str(p["dtype"]))

            return OpenSignature(
                str(data["name"]),
                tuple(size.dims[0] for size in known.values()),
                tuple(map(parameter, data["inputs"])),
                tuple(map(parameter, data["outputs"])),
                tuple(str(name) for name in data["constants"]),
                tuple(parameter(p).at({}) for p in data["prepared"]),
                tuple(
                    Rule(tuple((int(a), int(b)) for a, b in bounds), int(program))
                    for bounds, program in data["rules"]
                ),
                int(data["threads"]),
            )
        except (KeyError, TypeError, ValueError, LoopwrightError) as error:
            raise LibraryError(f"not a signature: {type(error).__name__}: {error}") from error


def _from_json(data: Any, known: Mapping[str, Size]) -> int | Size | Formula:
    if isinstance(data, (int, list)):
        return extent_from_json(data, known)
    return formula_from_json(data, {name: size.dims[0] for name, size in known.items()})


def _to_json(parameter: OpenParameter | Parameter) -> dict[str, Any]:
    shape = [n.to_json() if isinstance(n, Formula) else extent_to_json(n) for n in parameter.shape]
    return {"name": parameter.name, "shape": shape, "dtype": parameter.dtype}
