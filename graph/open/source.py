"""Models with open axes: their dims, and how they are read at a value of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.size import Dim, Size, boxes, dim, extent_at, merged, named
from loopwright.dsl.words import assigned
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import Inputs, by_name, shape_of
from loopwright.graph.importers.onnx.checks import empty_input
from loopwright.graph.importers.onnx.file import (
    KnownArrays,
    OpenOnnx,
    check_shape,
    inputs_of,
    is_zero,
    onnx_file,
    prepared,
    weights_of,
)
from loopwright.graph.importers.onnx.graph import written
from loopwright.graph.importers.onnx.values import Array
from loopwright.graph.importers.reference import Reference, no_reference
from loopwright.graph.importers.sums import renamed, size_of_sum, words_in
from loopwright.graph.importers.torch.asserts import check_asserted
from loopwright.graph.importers.torch.eager import BesideModule, check_least
from loopwright.graph.importers.torch.inputs import (
    arguments_of,
    dim_names,
    input_names,
    shapes_given,
)
from loopwright.graph.importers.torch.program import open_program, structure_of
from loopwright.graph.importers.torch.to_onnx import onnx_of
from loopwright.graph.open.known import fits, grows
from loopwright.schedule.open.samples import drawn, everywhere

Dims = Mapping[str, Any] | None
"""For the name of an open axis its least and greatest extent, and a divisor of all, if any."""
Shape = tuple[int | Size, ...]

_READ = 1  # sizes at which known values are compared, beside the least and the greatest two


@dataclass(frozen=True, eq=False)
class OpenSource:
    """A model with open axes.

    Attributes
    ----------
    model: the `OpenOnnx`; None once it is built.
    shapes: of its inputs, by their names.
    arrays: given for inputs of fixed shapes.
    structure: what the model returns, made of its outputs; None for these.
    arguments: nested as the model takes them, with the names of tensors; none of a file.
    reference: what the framework that it comes from gives for examples, if it has any.
    reference_at: what that gives at some sizes; None where the model says it itself.
    """

    model: Any
    shapes: Mapping[str, Shape]
    arrays: Mapping[str, Any]
    structure: Callable[[Sequence[Any]], Any] | None = None
    reference: Callable[[], Reference | str | None] = no_reference
    reference_at: Callable[[Mapping[str, int]], Reference | str] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The sizes known only at the call, in order of appearance."""
        return dims_of(self.shapes)

    def inputs(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Inputs that the model is read for at some sizes: shapes, and arrays where given, or
        where there are no elements."""
        return _given(inputs_of(self.model.model), self.shapes, self.arrays, sizes)

    def for_calls(self) -> OpenSource:
        """What calls need of it: the model itself may be as large as its weights."""
        return replace(self, model=None, reference=no_reference, reference_at=None)


@contextmanager
def read_at(sizes: Mapping[str, int]) -> Iterator[None]:
    """Name the sizes in errors of a model that others of its sizes do not have."""
    try:
        yield
    except ModelError as error:
        raise ModelError(
            f"the model cannot be read at {assigned(sizes)}, which the bounds of its dims allow: "
            f"{error}"
        ) from error


def _given(
    values: Sequence[Any],
    shapes: Mapping[str, Shape],
    arrays: Mapping[str, Any],
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for value in values:
        shape = tuple(extent_at(e, sizes) for e in shapes[value.name])
        empty = 0 in shape and value.name not in arrays
        known[value.name] = empty_input(value, shape) if empty else shape
    return {**known, **arrays}


def dims_of(shapes: Mapping[str, Shape]) -> tuple[Dim, ...]:
    """The dims of shapes, in order of appearance."""
    sizes = [n for shape in shapes.values() for n in shape if isinstance(n, Size)]
    return merged(tuple(d for n in sizes for d in n.dims))


def has_dims(inputs: Inputs, dims: Dims) -> bool:
    """Return whether a model's inputs, as they are given, leave an axis open."""
    given = tuple(inputs.values()) if isinstance(inputs, Mapping) else inputs
    if dims or not isinstance(given, Sequence) or hasattr(given, "shape"):
        return bool(dims)
    return any(map(_has_size, given))


def _has_size(x: Any) -> bool:
    """Return whether a size is in a shape, in that of a tensor, or in several of these."""
    own = getattr(x, "shape", x)
    return isinstance(own, Size) or (isinstance(own, (tuple, list)) and any(map(_has_size, own)))


def open_source(model: Any, inputs: Inputs, dims: Dims) -> OpenSource:
    """A model with open axes.

    Parameters
    ----------
    model: as for `read_model`, but for Relax, which has none here.
    inputs: by name or in order, arrays, shapes or tensors of the notation; a shape may have sizes
        of `lw.dim`.
    dims: bounds of the axes that the model has names for.

    Raises `ModelError` for an axis that is open and has no bounds, naming it.
    """
    known = sizes_of(dims)
    program = open_program(model, inputs)
    if program is not None:
        is_module = model is not program
        if is_module and known:
            raise ModelError(
                "dims name the axes of a file, and a torch.nn.Module has no names for its own: "
                "give sizes in its inputs, such as "
                f'(lw.tensor("x", (lw.dim("{next(iter(known))}", 1, 512), 64)),)'
            )
        read = onnx_of(program)
        if not is_module:
            _name_axes(read, dim_names(program))
        names = input_names(program)
        given = shapes_given(program, inputs) if is_module else dict(by_name(inputs, names))
        shapes = _shapes(read, given, known)
        own = dims_of(shapes)
        extents = [shapes.get(name, ()) for name in names]
        module = BesideModule(model, program, inputs)
        check_asserted(program, extents, everywhere(own), module.differs)
        if is_module:
            check_least(own, module.differs)
        return OpenSource(
            _with_varying(read, shapes, {}),
            shapes,
            {},
            structure_of(program),
            lambda: Reference.of_torch(program),
            module.reference_at,
            arguments_of(program),
        )
    if isinstance(model, (str, Path)):
        model = onnx_file(Path(model))
    if type(model).__name__ != "ModelProto":
        fixed = "; Relax modules are for fixed shapes" * (type(model).__name__ == "IRModule")
        raise ModelError(
            f"{type(model).__name__} is no model of open axes: give an ONNX file or ModelProto, a "
            f"torch.nn.Module, or a program of torch.export{fixed}"
        )
    given = dict(by_name(inputs, [value.name for value in inputs_of(model)]))
    shapes = _shapes(model, given, known)
    closed = {n for n, s in shapes.items() if not any(isinstance(e, Size) for e in s)}
    arrays = {n: x for n, x in given.items() if n in closed and hasattr(x, "__array__")}
    return OpenSource(_with_varying(model, shapes, arrays), shapes, arrays)


def _name_axes(model: Any, names: Mapping[str, str]) -> None:
    """Give the open axes of inputs other names."""
    for value in inputs_of(model):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = renamed(axis.dim_param, names)


def _with_varying(model: Any, shapes: Mapping[str, Shape], arrays: Mapping[str, Any]) -> OpenOnnx:
    """A model with the names of its known values that each call computes: at some sizes they are
    not what those of the greatest sizes begin with. What these are made of may be such as well."""
    whole = OpenOnnx(model, KnownArrays(weights_of(model.graph)))

    def given(sizes: Mapping[str, int]) -> dict[str, Any]:
        return _given(inputs_of(model), shapes, arrays, sizes)

    while True:
        fixed = whole.fixed
        for box in boxes(dims_of(shapes)):
            whole = _varying_in(box, whole, given)
        if whole.fixed == fixed:
            return whole


def _varying_in(
    box: tuple[Dim, ...], whole: OpenOnnx, given: Callable[[Mapping[str, int]], dict[str, Any]]
) -> OpenOnnx:
    """The same with what varies in a box, for inputs that are `given` at some sizes."""
    results = {value.name for value in whole.model.graph.output}
    least, most, *some = drawn(box, _READ)
    # Of two sizes side by side, no number divides both: of one dim, and of two in one size.
    beside = tuple(max(d.low, high - d.multiple) for d, high in zip(box, most, strict=True))
    mixed = [(*beside[:1], *most[1:])] if len(box) > 1 else []
    sizes = [named(box, each) for each in (most, least, beside, *mixed, *some)]
    growing = set(whole.growing)
    while True:
        try:
            greatest, fixed = _folded(whole, given(sizes[0]))
            for stage in (sizes[1:3], sizes[3:]):  # the ends tell most
                found = set[str]()
                for each in stage:
                    with read_at(each):
                        other, also = _folded(whole, given(each))
                    fixed |= also
                    shared = {name: x for name, x in other.items() if name in greatest}
                    found |= {
                        name
                        for name, x in shared.items()
                        if not fits(x, greatest[name], name in results)
                    }
                    growing |= {n for n, x in shared.items() if grows(x, greatest[n])}
                if not found <= whole.varying:
                    break
            else:
                return replace(whole, growing=frozenset(growing), fixed=whole.fixed | fixed)
        except ModelError:
            if not whole.varying:
                raise
            return replace(whole, varying=frozenset())  # some of them decide what is computed
        whole = replace(whole, varying=whole.varying | found)


def _folded(
    whole: OpenOnnx, given: Mapping[str, Any]
) -> tuple[Mapping[str, Array], frozenset[str]]:
    """The known values of a model at some sizes, and the inputs that are fixed there."""
    values = inputs_of(whole.model)
    made = written(prepared(whole.model, values, given), values, given, whole)
    return made.folded, frozenset(name for name, x in made.fixed.items() if x.size)


def sizes_of(dims: Dims) -> dict[str, Size]:
    """The dims that a user names, by these names."""
    if dims is not None and not isinstance(dims, Mapping):
        raise ModelError(f'dims is {dims!r}: give bounds by name, {{"batch": (1, 512)}}')
    for name in dims or ():
        if not isinstance(name, str):
            raise ModelError(f'dims: {name!r} is no name: give texts, {{"batch": (1, 512)}}')
    taken, found = set(dims or ()), dict[str, Size]()
    for name, bounds in (dims or {}).items():
        found[name] = _size_of(name, bounds, taken - {name})
        taken.update(d.name for d in found[name].dims)
    return found


def _size_of(name: str, bounds: Any, taken: Collection[str] = ()) -> Size:
    """The dim of a name, as a user gives its bounds. It is called by a word that is not `taken`:
    axes of a file may be named "n-1" and "n.1"."""
    if isinstance(bounds, Size):
        return bounds
    word = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    word = word if word.isidentifier() else f"d_{word}"
    while word in taken:
        word += "_"
    try:
        return dim(word, *(() if isinstance(bounds, str) else bounds))
    except TypeError as error:
        raise ModelError(
            f"dims: {name} is {bounds!r}: give its least and greatest value, "
            f'{{"{name}": (1, 512)}}'
        ) from error
    except LoopwrightError as error:
        raise ModelError(f"dims: {error}") from error


def _shapes(model: Any, given: Mapping[str, Any], known: Mapping[str, Size]) -> dict[str, Shape]:
    """The shapes of a model's inputs, its open axes those that are `given`, or `known` by name."""
    shapes: dict[str, Shape] = {}
    _check_names(model, given, known)
    for value in inputs_of(model):
        axes = value.type.tensor_type.shape.dim
        own = given.get(value.name)
        shape: list[int | Size] = []
        stated = None if own is None else _stated(value.name, own)
        if not value.type.tensor_type.HasField("shape"):
            check_shape(value, stated)
            shapes[value.name] = stated or ()
            continue
        if stated is not None and len(stated) != len(axes):
            shown = ", ".join(map(str, stated))
            raise ModelError(
                f"input {value.name} has {len(axes)} axes in the model, ({shown}) is given"
            )
        for k, axis in enumerate(axes):
            extent = None if stated is None else stated[k]
            if extent is not None and axis.dim_param in known:
                _check_once(axis.dim_param, value.name, extent)
            if isinstance(extent, Size):
                if axis.dim_value > 0 and extent.span() != (axis.dim_value, axis.dim_value):
                    raise ModelError(
                        f"axis {k} of input {value.name} is {axis.dim_value} in the model, "
                        f"{extent} is given: give {axis.dim_value}, or a model that was "
                        "exported with this axis open"
                    )
                shape.append(extent)
            elif axis.dim_param in known:
                shape.append(known[axis.dim_param])
            elif extent is not None:
                shape.append(extent)
            elif axis.dim_value > 0:
                shape.append(axis.dim_value)
            elif (size := size_of_sum(axis.dim_param, known)) is not None:
                shape.append(size)
            else:
                shown = "0 in the file" if is_zero(axis) else axis.dim_param
                raise ModelError(_unbounded(value.name, k, axis.dim_param, len(axes), shown))
        shapes[value.name] = tuple(shape)
    return shapes


def _stated(name: str, given: Any) -> Shape:
    """The shape of an array, or what is one, with sizes. Raises `ModelError` for anything else."""
    if hasattr(given, "shape") or not isinstance(given, (tuple, list)):
        return shape_of(name, given)
    fixed = iter(shape_of(name, [n for n in given if not isinstance(n, Size)]))
    return tuple(n if isinstance(n, Size) else next(fixed) for n in given)


def _check_names(model: Any, given: Mapping[str, Any], known: Mapping[str, Size]) -> None:
    """Raise `ModelError` for bounds of an axis that is not there."""
    axes = [axis for v in inputs_of(model) for axis in v.type.tensor_type.shape.dim]
    names = {axis.dim_param for axis in axes} - {""}
    parts = {part for name in names for part in words_in(name)}
    stated = dims_of({name: _stated(name, x) for name, x in given.items()})
    for name in known:
        if name in names | parts or name in {d.name for d in stated}:
            continue
        shown = (
            f"names are: {', '.join(sorted(names))}"
            if names
            else ("no axis has a name: export the model with open axes, or give lw.dim in inputs")
        )
        raise ModelError(f"dims: no axis of an input is named {name!r}; {shown}")


def _check_once(name: str, of: str, extent: int | Size) -> None:
    """Raise `ModelError` for an extent of inputs that is none of the dim that bounds its axis."""
    if not (isinstance(extent, Size) and name in {d.name for d in extent.dims}):
        raise ModelError(
            f"dims: an extent of {name!r} is in inputs, too, as {extent} of {of}: leave it out of "
            "one of these"
        )


def _unbounded(name: str, axis: int, word: str, rank: int, shown: str) -> str:
    """Error for an open axis, which is `shown` so in the file, with the remedy."""
    example = ", ".join('lw.dim("n", 1, 512)' if k == axis else "…" for k in range(rank))
    by_word = f'dims={{"{word}": (1, 512)}}, or ' if word else ""
    called = f" ({shown})" if shown else ""
    return (
        f"axis {axis} of input {name}{called} is open: give its bounds, as by {by_word}"
        f'inputs={{"{name}": ({example})}}; it may follow other dims, as past + new of two lw.dim'
    )
