"""`OpenModel`: a network of open sizes as one library, and how it is made."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright.codegen.library.library import Library
from loopwright.codegen.library.loading import loaded
from loopwright.codegen.library.plan import PlannedCall, entries, plan_objects
from loopwright.codegen.library.signature import Origin
from loopwright.codegen.open.library import OpenLibrary
from loopwright.codegen.open.plan import SYMBOL, OpenPlan, c_source
from loopwright.codegen.open.signature import OpenParameter, OpenSignature
from loopwright.codegen.target import cpu_features
from loopwright.dsl.errors import NoAttributeError, RangeError, ShapeError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.size import Dim, Size, boxes, chosen, dim, named
from loopwright.dsl.words import assigned, counted, html_table
from loopwright.graph.compile.call import ModelCall
from loopwright.graph.compile.model import measured, random_array, seconds_of
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import Inputs
from loopwright.graph.importers.reference import Reference
from loopwright.graph.network import Value
from loopwright.graph.open.frames import Frame, Number, frames
from loopwright.graph.open.link import LinkedFrame, Linker
from loopwright.graph.open.source import OpenSource, read_at
from loopwright.graph.open.step_pool import StepPool
from loopwright.graph.open.steps import StepCompiler
from loopwright.graph.tasks import Work
from loopwright.schedule.open.fit import Fit
from loopwright.schedule.open.rule import Rule
from loopwright.schedule.open.samples import drawn, everywhere
from loopwright.schedule.target import Target
from loopwright.schedule.tree.formula import EXTREMES, Formula, evaluated, extreme

_OR_PROGRAMS = (
    "Or a program for all sizes is wrong, which is a bug of loopwright's, if the model built for "
    "these sizes alone gives what it should: please report it. "
)
_CHECKED = 2  # sizes at which results are compared, beside the least and the greatest
_COMPARED = 64 << 20  # bytes of the largest value where results are compared

_RECORDS = (
    "records are of single sizes; build the model for some, with shapes in place of dims, to have "
    "those of them"
)
_OF_ONE_SIZE = {
    "estimate": _RECORDS,
    "records": _RECORDS,
    "work": "it has a network for each box of sizes, as .frames[0].work",
    "step_seconds": "the seconds of each step are by .profile(…), at sizes or of arrays",
}
"""What a `TunedModel` has and an `OpenModel` has not, and what to do."""


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A network, compiled for all sizes of its open axes.

    ::

        model(x)                     # the sizes come from the shapes
        print(model.explain(n=128))  # which steps run at a size, and the program of each
        model.profile(n=128)         # and what each takes
        model.measure(n=128)         # the seconds of a whole call
        model.export("net.so")       # and net.h, whose functions take the sizes as int64_t

    Attributes
    ----------
    library: runs the model; `library.dims` are its sizes.
    frames: the steps of the network, for each of the boxes of sizes that have the same.
    linked: the plan of each frame.
    target: what its code is for.
    unchecked: why its results could not be compared with those of the model, if so.
    """

    library: OpenLibrary
    frames: tuple[Frame, ...]
    linked: tuple[LinkedFrame, ...]
    source: OpenSource
    numerics: Numerics
    target: Target
    unchecked: str = ""

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Computes, as a `TunedModel` does. Raises `ShapeError` for shapes that disagree, and
        `RangeError` for sizes that are not allowed."""
        return self._call(*inputs, **named)

    @functools.cached_property
    def _call(self) -> ModelCall:
        work = self.frames[0].work
        return ModelCall(
            self.library,
            work.network.several,
            self.source.structure,
            tuple(self.source.shapes),
            work.fixed,
            self.source.arguments,
        )

    def export(self, path: str | os.PathLike[str], extras: Sequence[str] = ()) -> Path:
        """Writes NAME.so with the weights inside, NAME.h and NAME.json; `extras` as
        `Library.export` has them."""
        return self.library.export(path, extras)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines on what users should know of the model."""
        work = self.frames[0].work
        left = f"its results were not compared: {self.unchecked}"
        return (*work.notes(), *([left] if self.unchecked else []))

    def explain(self, /, **sizes: int) -> str:
        """The steps that a call of these sizes runs, a line for each, with the program that is
        chosen and its sizes; nothing runs. Raises `RangeError` for sizes that are not allowed."""
        values = chosen(self.library.dims, sizes, "the call")
        place = tuple(values.values())
        number = next(r for r in self.library.open_signature.rules if r.holds(place)).program
        frame, every = self.frames[number], self.linked[number].entries
        known = [entry for entry in every if entry.kernel is not None]
        which = f"frame {number + 1} of {len(self.frames)}"
        box = "; ".join(map(str, frame.dims))
        lines = [f"{assigned(values)}: {which}, for {box}, with {counted(len(known), 'step')}"]
        for entry in known:
            step, kernel = frame.work.network.steps[entry.step], entry.kernel
            program = f"{entry.step:5}  {step.function}"
            if kernel.rules:
                rule = next(r for r in kernel.rules if r.holds(place))
                own = f"program {rule.program + 1} of {len(kernel.names)}"
                program += f": {own}, for {rule.box(values)}"
            lines.append(program)
        return "\n".join(lines)

    def profile(self, /, *inputs: Any, calls: int = 20, **sizes: int) -> list[tuple[str, float]]:
        """The median seconds of every entry of the plan in a call on these arrays, or on random
        numbers at these sizes: `model.profile(n=128)`; as `TunedModel.profile` has them. Raises
        `ShapeError`, `RangeError` for sizes that are not allowed, and `LibraryError`."""
        if inputs and sizes:
            raise RangeError(
                f"profile: got arrays and {assigned(sizes)}; give arrays, whose shapes tell the "
                "sizes, or sizes alone"
            )
        wanted = self.library.open_signature.inputs
        if inputs and len(inputs) != len(wanted):
            takes = ", ".join(map(str, wanted))
            raise ShapeError(f"{counted(len(inputs), 'input')} given; the model takes {takes}")
        library = self.library._of(inputs) if inputs else self.library.at(**sizes)
        frame = int(library._bound[self.library.open_signature.sizes][0])
        given = inputs or self._examples(library)
        entries, steps = self.linked[frame].entries, self.frames[frame].work.network.steps
        names = ["copy" if e.step < 0 else steps[e.step].function for e in entries]
        return list(zip(names, seconds_of(library, given, len(entries), calls), strict=True))

    def measure(self, /, seconds: float = 0.5, **sizes: int) -> float:
        """The median seconds of a whole call at these sizes, warm, on the arrays given for inputs
        of fixed shapes and random numbers for others, taking about `seconds`. Raises `RangeError`
        for sizes that are not allowed."""
        library = self.library.at(**sizes)
        return measured(library, self._examples(library), seconds)

    def examples(self, /, **sizes: int) -> list[Any]:
        """Arrays for a call at these sizes: those given for inputs of fixed shapes, and random
        numbers for others. Raises `RangeError` for sizes that are not allowed."""
        return self._examples(self.library.at(**sizes))

    def _examples(self, library: Library) -> list[Any]:
        return [self.source.arrays.get(p.name, random_array(p, 1)) for p in library.inputs]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _OF_ONE_SIZE:
                raise AttributeError(f"an OpenModel has no .{name}")
            raise NoAttributeError(f"an OpenModel has no .{name}: {_OF_ONE_SIZE[name]}")

    def _repr_html_(self) -> str:
        signature = self.library.open_signature
        rows = {
            "inputs": "\n".join(map(str, signature.inputs)),
            "outputs": "\n".join(map(str, signature.outputs)),
            "sizes": "\n".join(map(str, signature.dims)),
            "frames": len(self.frames),
            "steps": len(self.frames[0].steps),
            "numerics": self.numerics,
        }
        return html_table("OpenModel", rows)

    def __repr__(self) -> str:
        steps = counted(len(self.frames[0].steps), "step")
        sizes = "; ".join(map(str, self.library.dims))
        return f"<OpenModel: {steps}, {sizes}, {self.numerics} numerics>"


ReadAt = Callable[[Any, Inputs], Work]
"""Reads a model for inputs of fixed shapes."""


def build_open_model(
    source: OpenSource,
    read_model: ReadAt,
    compiler: StepCompiler,
    name: str,
    tell: Callable[[str], None] = lambda now: None,
) -> OpenModel:
    """Compile a model of open axes, its steps by a `compiler`. `tell` is told what is compiled.
    Raises `ModelError`, `BuildError`."""
    target = compiler.target

    def read(sizes: Mapping[str, int]) -> Work:
        with read_at(sizes):
            return _taking_all(source, read_model(source.model, source.inputs(sizes)))

    found = frames(source.dims, read)
    taken = [{v.name for v in frame.work.network.inputs} for frame in found]
    some = {name for names in taken for name in names if any(name not in n for n in taken)}
    if some:
        raise ModelError(
            f"inputs {', '.join(sorted(some))} count at some sizes alone: build the model for "
            "those sizes and for the others"
        )
    with StepPool(compiler) as pool:
        linker = Linker(pool, tell)
        linked = tuple(linker.plan(frame) for frame in found)
    signature = _signature(source, found, name, target.threads)
    objects = _objects([each.plan for each in linked], linker, signature, target)
    extra = {
        "notes": found[0].work.notes(),
        "numerics": str(compiler.numerics),
        "indexed": {
            v.name: n if isinstance(n, int) else str(n) for v, n in found[0].extents.items()
        },
    }
    origin = Origin(target.triple, str(target), tuple(cpu_features(target)), objects, extra)
    library = OpenLibrary(signature, loaded(signature, origin), origin)
    return OpenModel(library, found, linked, source, compiler.numerics, target)


def _taking_all(source: OpenSource, work: Work) -> Work:
    """A network that takes inputs without elements, too, though nothing reads them."""
    own = {v.name: v for v in work.network.inputs}
    empty = {n: x for n, x in work.fixed.items() if n in source.shapes and n not in source.arrays}
    if not empty:
        return work
    for number, (name, x) in enumerate(empty.items(), 1):
        own[name] = Value(-number, name, x.shape, str(x.dtype))
    inputs = tuple(own[name] for name in source.shapes if name in own)
    fixed = {n: x for n, x in work.fixed.items() if n not in empty}
    return replace(work, network=replace(work.network, inputs=inputs), fixed=fixed)


def compared(built: OpenModel, read_model: ReadAt) -> OpenModel:
    """A model after a comparison, at some sizes, with the one that it was made of. Raises
    `ModelError` if it was read as something else."""
    source, dims = built.source, built.library.dims
    asked: list[Reference | str | None] = [source.reference()]
    tried = (_bearable(built.frames, dims, v) for box in boxes(dims) for v in drawn(box, _CHECKED))
    for values in dict.fromkeys(tried):
        sizes = named(dims, values)
        if source.reference_at is not None:
            asked.append(source.reference_at(sizes))
            continue
        whole = read_model(source.model, source.inputs(sizes)).source
        asked.append(None if whole is None else whole.reference)
    for reference in asked:
        if isinstance(reference, Reference):
            reference.check(built, also=_OR_PROGRAMS)
    return replace(built, unchecked=next((r for r in asked if isinstance(r, str)), ""))


def _bearable(
    found: Sequence[Frame], dims: Sequence[Dim], values: tuple[int, ...]
) -> tuple[int, ...]:
    """These sizes, or such nearer to the least at which a comparison takes no long time."""
    sizes = named(dims, values)
    frame = next(f for f in found if all(d.low <= sizes[d.name] <= d.high for d in f.dims))
    if max(evaluated(frame.nbytes(value), sizes) for value in frame.shapes) <= _COMPARED:
        return values
    smaller = tuple(
        d.low + (v - d.low) // 2 // d.multiple * d.multiple for d, v in zip(dims, values)
    )
    return values if smaller == values else _bearable(found, dims, smaller)


def _objects(
    plans: Sequence[OpenPlan], linker: Linker, signature: OpenSignature, target: Target
) -> tuple[bytes, ...]:
    count = len(signature.inputs) + len(signature.outputs)
    calls = (call for plan in plans for call in entries(plan.calls))
    kernels = {call.kernel: None for call in calls if isinstance(call, PlannedCall)}
    own = plan_objects(c_source(plans, count), linker.weights, SYMBOL, target.triple)
    return (*(code for kernel in kernels for code in kernel.codes), *own)


def _signature(
    source: OpenSource, found: Sequence[Frame], name: str, threads: int
) -> OpenSignature:
    work = found[0].work
    inputs = tuple(
        OpenParameter(v.name, source.shapes[v.name], v.dtype) for v in work.network.inputs
    )
    outputs = tuple(
        OpenParameter(name, shape, v.dtype)
        for name, shape, v in zip(
            work.output_names(),
            _output_shapes(source.dims, found),
            work.network.outputs,
            strict=True,
        )
    )
    rules = tuple(
        Rule(tuple((d.low, d.high) for d in frame.dims), number)
        for number, frame in enumerate(found)
    )
    return OpenSignature(name, source.dims, inputs, outputs, (), (), rules, threads)


def _output_shapes(
    dims: tuple[Dim, ...], found: Sequence[Frame]
) -> list[tuple[int | Size | Formula, ...]]:
    """The shapes of the outputs in dims: one form for those of all frames."""
    made = []
    of_frames = ([f.shapes[v] for v in f.work.network.outputs] for f in found)
    for number, shapes in enumerate(zip(*of_frames, strict=True)):
        if len({len(shape) for shape in shapes}) > 1:
            raise ModelError(
                f"output {number} has other numbers of axes at other sizes, as squeeze makes of "
                "an extent of 1: name the axes that it removes, or give the dims narrower bounds"
            )
        made.append(tuple(_one_form(dims, found, each) for each in zip(*shapes, strict=True)))
    return made


def _one_form(
    dims: tuple[Dim, ...], found: Sequence[Frame], extents: Sequence[Number]
) -> int | Size | Formula:
    """An extent that is one of these in each frame. It is a size where the notation has a word for
    it, and where no formula is that of all frames, one that has that of each."""
    grids = [everywhere(frame.dims) for frame in found]
    grid = {d.name: np.concatenate([g[d.name] for g in grids]) for d in dims}
    columns = [evaluated(n, g) + 0 * g[dims[0].name] for n, g in zip(extents, grids, strict=True)]
    values = np.concatenate(columns)
    # Strides of audio make quotients by hundreds. What one frame has may hold in all, as the
    # product of two quotients does.
    parts = (part for n in extents if isinstance(n, Formula) for part in n.parts())
    own_divisors = (p.args[1] for p in parts if p.op == "floordiv")
    divisors = sorted({*range(2, 65), *(n for n in own_divisors if isinstance(n, int))})
    (forms,) = Fit(dims, grid, divisors, values[:, None]).formulas([values])
    own = [n for n in extents if isinstance(n, Formula) and np.array_equal(n.at(grid), values)]
    sizes = (_as_size(n, dims) for n in (*forms, *own))
    one = next((n for n in (*sizes, *forms, *own) if n is not None), None)
    return _by_frames(dims, found, extents) if one is None else one


def _by_frames(
    dims: tuple[Dim, ...], found: Sequence[Frame], extents: Sequence[Number]
) -> int | Formula:
    """The extent that the first frame with the sizes of a call has."""
    total = extents[-1]
    for frame, own in reversed([*zip(found, extents)][:-1]):
        inside: Number = 1
        for known, whole in zip(frame.dims, dims, strict=True):
            value = Formula.of(whole)
            for distance in (value - known.low, known.high - value):  # of a size that it has, >= 0
                inside = inside * extreme("min", 1, extreme("max", 0, distance + 1))
        total = total + inside * (own - total)
    return total


def _as_size(x: Any, dims: tuple[Dim, ...]) -> int | Size | None:
    """A formula as an extent of the notation; None where that has no word for it."""
    if not isinstance(x, Formula):
        return x if isinstance(x, int) else None
    if x.op == "dim":
        known = next(d for d in dims if d.name == x.args[0])
        return dim(known.name, known.low, known.high, known.multiple)
    parts = [_as_size(part, dims) for part in x.args]
    a, b = parts
    if a is None or b is None or x.op in EXTREMES:
        return None
    if x.op == "add":
        return a + b
    if (isinstance(a, Size) and isinstance(b, Size)) or not isinstance(b, int):
        return None
    return a * b if x.op == "mul" else a // b
