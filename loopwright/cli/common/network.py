"""Networks as the command line names them: an ONNX file, and how to compile it."""

from __future__ import annotations

import functools
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from loopwright.cli.common.command import STORE
from loopwright.cli.common.options import EXISTING, NUMERICS, RECORDS, THREADS, choice, collect
from loopwright.transfer.records.location import Location, may_exist

if TYPE_CHECKING:
    from loopwright.graph.compile.model import TunedModel
    from loopwright.graph.tasks import Work
    from loopwright.schedule.target import Target

_DIM = functools.partial(
    click.option,
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=1:512",
    help="An axis that stays open, and its least and greatest extent: one library is made for "
    "all. --shape may have its name, or a sum as past+new, in place of a number.",
)
_OPTIONS = (
    click.argument("path", metavar="NET.onnx", type=EXISTING),
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=1,3,224,224",
        help="The shape of an input that the network leaves open; once for each.",
    ),
    click.option(
        "--value",
        "values",
        multiple=True,
        metavar="NAME=true",
        help="The value of an input that decides what is computed, as a flag: true, 16000, or "
        "several as 1,3,5; once for each. It is no input of the library.",
    ),
    THREADS,
    RECORDS,
    NUMERICS,
    click.option(
        "--sparse",
        is_flag=True,
        help="Allow programs that skip zeros of the data: their time depends on it.",
    ),
    choice(
        "--layout",
        among=["auto", "given"],
        default="auto",
        help="Of images between operators: as suits these, or as the network has it.",
    ),
    click.option(
        "--check/--no-check", default=True, help="Compare with onnxruntime, if installed."
    ),
)


@dataclass(frozen=True)
class Network:
    """A network and how to compile it."""

    path: Path
    shapes: tuple[str, ...]
    values: tuple[str, ...]
    dims: tuple[str, ...]
    threads: int | None
    records: Location
    numerics: str
    sparse: bool
    layout: str
    check: bool

    def built(self, policy: str, targets: Sequence[str] | None = None) -> Any:
        """The network compiled by the records there are: a `TunedModel`; an `OpenModel` where it
        has dims; with targets, a `PlacedModel`."""
        from loopwright.graph.build import build_model

        source = click.get_current_context().get_parameter_source("records")
        if source == ParameterSource.COMMANDLINE and not may_exist(self.records):
            click.echo(f"note: there is no record store {self.records} yet", err=True)
        with _in_options():
            return build_model(
                self.source,
                self.inputs,
                records=self.store,
                policy=policy,
                name=self.path.stem,
                targets=targets,
                **self.how,
            )

    @property
    def how(self) -> dict[str, Any]:
        """Options of `lw.build_model` and `lw.tune_model`."""
        names = ("threads", "layout", "check", "numerics", "sparse")
        return {name: getattr(self, name) for name in names} | {"dims": self.bounds}

    @property
    def inputs(self) -> dict[str, Any] | None:
        """The shapes that were given; sizes of dims where these are named."""
        given = shapes_of(self.shapes, self.bounds) or {}
        known = {text.rpartition("=")[0] for text in self.values}
        return {name: shape for name, shape in given.items() if name not in known} or None

    @functools.cached_property
    def source(self) -> Any:
        """The file, or the model of it whose inputs of known values are weights."""
        if not self.values:
            return self.path
        return with_values(self.path, self.values, shapes_of(self.shapes, self.bounds) or {})

    @property
    def bounds(self) -> dict[str, Any]:
        """The size of each dim, by its name."""
        from loopwright.graph.open.source import sizes_of

        given = dict[str, tuple[int, ...]]()
        for name, bounds in map(bounds_of, self.dims):
            if name in given:
                raise click.UsageError(f"--dim {name} is given twice: give it once")
            given[name] = bounds
        return sizes_of(given)

    def imported(self, target: Target) -> Work:
        """The tasks of the network."""
        from loopwright.graph.compile.build import import_model
        from loopwright.graph.tasks import Work

        self.check_closed()
        with _in_options():
            work = import_model(
                self.source,
                self.inputs,
                target,
                self.layout,
                numerics=self.numerics,
                sparse=self.sparse,
            )
        assert isinstance(work, Work)  # as of all ONNX files
        return work

    def check_closed(self) -> None:
        """A usage error where there are dims."""
        if self.dims:
            raise click.UsageError(
                "--dim is for `build`, `profile` and `tune-model`: give a --shape here"
            )

    def compiled(
        self, work: Work, target: Target, machine: Mapping[str, str] | None = None
    ) -> TunedModel:
        """The tasks compiled by the records of a machine, by default this one."""
        from loopwright.graph.compile.build import build_work
        from loopwright.graph.compile.model import TunedModel

        made = build_work(work, target, self.store, name=self.path.stem, machine=machine)
        assert isinstance(made, TunedModel)  # as of all ONNX files
        return made

    @property
    def store(self) -> Location | None:
        """The record store, if there is one."""
        return self.records if may_exist(self.records) else None

    def tune_command(self, targets: Sequence[str] | None = None) -> str:
        """The command that makes missing records."""
        words = ["loopwright", "tune-model", str(self.path)]
        several = {"--shape": self.shapes, "--value": self.values, "--dim": self.dims}
        words += [word for name, each in several.items() for text in each for word in (name, text)]
        if self.threads is not None:
            words += ["--threads", str(self.threads)]
        if self.records != STORE:
            words += ["--records", str(self.records)]
        if self.numerics != "standard":
            words += ["--numerics", self.numerics]
        if self.sparse:
            words += ["--sparse"]
        if self.layout != "auto":
            words += ["--layout", self.layout]
        if not self.check:
            words += ["--no-check"]
        if targets is not None:
            words += ["--targets", ",".join(targets)]
        return shlex.join(words)


def network_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes a `Network`, then its own options, with the options for it."""
    return _with_options(command, _DIM())


def closed_network_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same of a network of fixed shapes: --dim is not shown, and told where it belongs."""
    return _with_options(command, _DIM(hidden=True))


def _with_options(command: Callable[..., None], dim: Any) -> Callable[..., None]:
    with_options = collect(Network)(command)
    path, shape, *others = _OPTIONS
    for option in reversed((path, shape, dim, *others)):
        with_options = option(with_options)
    return with_options


@contextmanager
def _in_options() -> Iterator[None]:
    """Say how to give open shapes as the command line takes them, not as Python does."""
    from loopwright.graph.errors import OpenShape

    try:
        yield
    except OpenShape as error:
        shape = f"--shape {error.name}={','.join(map(str, error.example))}"
        bounds = " ".join(f"--dim {axis}=1:512" for axis in error.axes)
        more = (
            f", or for `build`, `profile` and `tune-model` bounds, e.g. {bounds}" if bounds else ""
        )
        raise click.ClickException(
            f"{error.problem}: give its shape, e.g. {shape}{more}"
        ) from error


def shapes_of(shapes: Sequence[str], dims: Mapping[str, Any]) -> dict[str, Any] | None:
    """The shapes of options `--shape`, by the inputs' names; names of `dims` stand for these, and
    may be summed, as `past+new`."""
    found = {}
    for text in shapes:
        name, equals, value = text.rpartition("=")
        if name in found:
            raise click.UsageError(f"--shape {name} is given twice: give it once")
        try:
            found[name] = tuple(_extent(part, dims) for part in value.split(","))
        except ValueError:
            equals = ""
        if not (name and equals):
            raise click.UsageError(
                f"--shape {text}: write NAME=1,3,224,224, extents from 1 up, or names of --dim, "
                "and sums of these"
            )
    return found or None


def with_values(path: Path, values: Sequence[str], shapes: Mapping[str, Any]) -> Any:
    """The model of an ONNX file with the inputs of options `--value` as weights, by the shapes of
    options `--shape`."""
    from loopwright.graph.importers.onnx.file import inputs_of, onnx_file

    model = onnx_file(path)
    from onnx import numpy_helper

    inputs = {value.name: value for value in inputs_of(model)}
    for text in values:
        name, equals, written = text.rpartition("=")
        if not equals:
            raise click.UsageError(f"--value {text}: write NAME=true, NAME=16000 or NAME=1,3,5")
        if name not in inputs:
            left = ", ".join(inputs) or "none that is left"
            raise click.UsageError(f"--value {text}: the inputs are {left}; give each once")
        array = _array(inputs.pop(name), text, written.split(","), shapes.get(name))
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _array(value: Any, option: str, written: Sequence[str], given: Any) -> Any:
    """The array of an input, whose shape may be `given`. One open axis follows from the count."""
    import numpy as np
    from onnx.helper import tensor_dtype_to_np_dtype

    from loopwright.graph.importers.onnx.file import check_shape

    name, tensor = value.name, value.type.tensor_type
    is_tensor = value.type.HasField("tensor_type") and tensor.elem_type
    dtype = np.dtype(tensor_dtype_to_np_dtype(tensor.elem_type) if is_tensor else object)
    if dtype.kind in "Oc":
        raise click.UsageError(f"--value {option}: {name} is no tensor of real numbers")
    if given is None and not tensor.HasField("shape"):
        raise click.UsageError(f"--value {option}: {name} has no shape: add --shape {name}=1,3")
    extents: list[Any] = [n if (n := d.dim_value) > 0 else "?" for d in tensor.shape.dim]
    if given is not None:
        check_shape(value, tuple(given))
        extents = [*given]
    whole = "int" in dtype.name
    read = _TRUTH.__getitem__ if dtype.kind == "b" else int if whole else float
    try:
        numbers = [read(word.strip().lower()) for word in written]
        with np.errstate(all="ignore"):
            array = np.array(numbers, dtype)
        if [int(x) for x in array] != numbers if whole else _overflown(array, numbers):
            raise OverflowError
        return array.reshape([-1 if n == "?" else n for n in extents])
    except (KeyError, ValueError, OverflowError, TypeError) as error:
        kind = "whole numbers that it holds" if whole else "numbers that it holds"
        kind = "true or false" if dtype.kind == "b" else kind
        shape = ", ".join(map(str, extents))
        more = f", and its shape by --shape {name}=1,3" if extents.count("?") > 1 else ""
        raise click.UsageError(
            f"--value {option}: {name} is {dtype} of shape [{shape}]; give {kind}, one for "
            f"each element, with commas between{more}"
        ) from error


def _overflown(array: Any, numbers: Sequence[float]) -> bool:
    """Return whether a number became an infinity."""
    return any(math.isinf(x) and not math.isinf(n) for x, n in zip(array, numbers))


_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def _extent(text: str, dims: Mapping[str, Any]) -> Any:
    """An extent, a dim, or a sum of these."""
    parts = [text] if text in dims else text.split("+")
    found = [dims[p] if p in dims else int(p) for p in parts]
    if any(isinstance(n, int) and n < 1 for n in found):
        raise ValueError(text)
    return sum(found[1:], found[0])


def bounds_of(text: str) -> tuple[str, tuple[int, ...]]:
    """The name of an option `--dim`, its bounds and a divisor, if any."""
    name, equals, value = text.rpartition("=")
    try:
        numbers = [int(part) for part in value.split(":")]
    except ValueError:
        numbers = []
    if not (name and equals and len(numbers) in (2, 3)):
        raise click.UsageError(f"--dim {text}: write NAME=1:512, or NAME=8:512:8 for multiples")
    return name, tuple(numbers)
