"""Workloads as the command line names them: an operator, an einsum string, or a Python file.

conv2d x=1,128,28,28 w=128,128,3,3:constant padding=1
"ij,jk->ik" i=512 j=512 k=512
"ij,jk->ik" A=512,512 B=512,512:constant
my.py:workload
"""

from __future__ import annotations

import ast
import inspect
import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from loopwright.dsl import ops
from loopwright.dsl.dtypes import DTYPES
from loopwright.dsl.errors import LoopwrightError, NotationError
from loopwright.dsl.ops.einsum import einsum, parse
from loopwright.dsl.tensor import Tensor, tensor
from loopwright.dsl.words import brief
from loopwright.dsl.workload import Workload, workload
from loopwright.paths import file_at, shown

_F = TypeVar("_F", bound=Callable[..., Any])


def workload_arguments(command: _F) -> _F:
    """The arguments `what` and `settings` of a command, for `read_workload`."""
    settings = click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
    return click.argument("what")(settings(command))


@dataclass(frozen=True)
class Request:
    """A workload and how it was named.

    Attributes
    ----------
    name: an operator, "einsum", or the file.
    arguments: of the operator, tensors among them; of einsum, the string under "spec" and the
        operands; none for a file.
    """

    workload: Workload
    name: str
    arguments: Mapping[str, Any]


def read_workload(what: str, settings: Sequence[str]) -> Request:
    """The workload that `what` names, with `name=value` settings.

    Raises `NotationError`, `ShapeError` or `RangeError`, saying what is allowed.
    """
    values = _settings(settings)
    if what.endswith(".onnx"):
        raise NotationError(
            f"{what} is a network: `loopwright tune-model` tunes networks, `loopwright tasks` and "
            "`loopwright profile` tell of them, `loopwright build` compiles them"
        )
    if ".py" in what:
        if values:
            raise NotationError(f"{what} takes no settings: write them in the file")
        return _from_file(what)
    if "->" in what or "," in what:
        return _from_einsum(what, values)
    if what in ops.__all__:
        return _from_operator(what, values)
    raise NotationError(
        f"'{shown(what)}' is no workload; give an operator ({', '.join(ops.__all__)}), an einsum "
        "string such as 'ij,jk->ik', or a Python file and a name, my.py:workload"
    )


def _settings(settings: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name and equals and value) or name in values:
            raise NotationError(f"{setting!r}: write name=value, each name once")
        values[name] = value
    return values


OPERATORS = f"Operators: {', '.join(ops.__all__)}."
"""Last paragraph of the help of commands that take a workload."""


def _from_operator(name: str, values: Mapping[str, str]) -> Request:
    """Parameters that are tensors take `shape[:dtype][:constant]`, others a Python literal or a
    word."""
    operator = getattr(ops, name)
    parameters = inspect.signature(operator).parameters
    for given in values:
        if given not in parameters:
            raise NotationError(f"{name} has no {given!r}; it takes {_usage(parameters)}")
    needed = [p.name for p in parameters.values() if p.default is p.empty]
    missing = [n for n in needed if n not in values]
    if missing:
        raise NotationError(f"{name} needs {', '.join(missing)}; it takes {_usage(parameters)}")
    arguments = {
        n: _tensor(n, v) if _is_tensor(parameters[n], v) else _literal(v)
        for n, v in values.items()
    }
    try:
        made = operator(**arguments)
    except (TypeError, ValueError) as error:
        raise NotationError(f"{name}: {error}") from error
    outputs = made if isinstance(made, tuple) else (made,)
    return Request(workload(*outputs), name, arguments)


def _is_tensor(parameter: inspect.Parameter, value: str = "") -> bool:
    """Return whether a parameter is a tensor; an operand may be a number too."""
    annotation = str(parameter.annotation)
    number = isinstance(_literal(value), (int, float))
    return "Tensor" in annotation or ("Operand" in annotation and not number)


def _usage(parameters: Mapping[str, inspect.Parameter]) -> str:
    shown = []
    for p in parameters.values():
        value = "SHAPE[:DTYPE][:constant]" if _is_tensor(p) else "VALUE"
        optional = p.default is not p.empty
        shown.append(f"[{p.name}={value}]" if optional else f"{p.name}={value}")
    return " ".join(shown)


def _tensor(name: str, text: str) -> Tensor:
    shape, *marks = text.split(":")
    constant = "constant" in marks
    dtypes = [m for m in marks if m != "constant"]
    try:
        extents = tuple(map(int, shape.removesuffix(",").split(","))) if shape else ()
    except ValueError as error:
        raise NotationError(f"{name}={text}: a shape is integers: 1,128,28,28") from error
    if len(dtypes) > 1 or not set(dtypes) <= set(DTYPES):
        raise NotationError(
            f"{name}={text}: after the shape there may be 'constant' and one dtype of "
            f"{', '.join(DTYPES)}"
        )
    return tensor(name, extents, dtypes[0] if dtypes else "float32", constant)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a word, such as a layout


def _from_einsum(spec: str, values: dict[str, str]) -> Request:
    """Operands with their names and shapes, as `A=512,512 B=512,512:constant`; or sizes of the
    indices, and `dtype=…` and `constant=0,2`: operands constant."""
    rest = dict(values)
    dtype = rest.pop("dtype", "float32")
    constants = rest.pop("constant", "")
    equation = parse(spec)
    operands = equation.operands
    letters = {c for part in (*operands, equation.result) for c in part.letters}
    if any(part.ellipsis for part in operands):
        raise NotationError(f"{spec!r}: name the axes that '...' stands for")
    if len(values) == len(operands) and not set(values) & {*letters, "spec", "dtype", "constant"}:
        return _einsum_of(spec, [_tensor(name, shape) for name, shape in values.items()])
    if set(rest) != letters:
        sizes_of = " ".join(f"{c}=SIZE" for c in sorted(letters))
        wrong = [f"{name}= is none of its indices" for name in sorted(set(rest) - letters)]
        wrong += [f"{letter}= is missing" for letter in sorted(letters - set(rest))]
        raise NotationError(
            f"{spec!r} needs {sizes_of} [dtype=DTYPE] [constant=0,1], or a NAME=SHAPE for each of "
            f"its {len(operands)} operands; {', '.join(wrong)}"
        )
    try:
        sizes = {c: int(v) for c, v in rest.items()}
        known = {int(n) for n in constants.split(",") if n}
    except ValueError as error:
        raise NotationError(
            f"{spec!r}: sizes and numbers of operands are integers: {error}"
        ) from error
    if not known <= set(range(len(operands))):
        raise NotationError(f"{spec!r} has operands 0 to {len(operands) - 1}, not {constants}")
    tensors = [
        tensor(f"T{n}", tuple(sizes[c] for c in part.letters), dtype, n in known)
        for n, part in enumerate(operands)
    ]
    return _einsum_of(spec, tensors)


def _einsum_of(spec: str, tensors: Sequence[Tensor]) -> Request:
    arguments = {"spec": spec, **{t.name: t for t in tensors}}
    return Request(workload(einsum(spec, *tensors)), "einsum", arguments)


def _from_file(what: str) -> Request:
    path, _, name = what.rpartition(":") if ".py:" in what else (what, "", "workload")
    file_at(path, "the file", NotationError)
    try:
        found = runpy.run_path(path)
        value = found.get(name)
        value = value() if inspect.isfunction(value) else value
    except LoopwrightError:
        raise
    except (Exception, SystemExit) as error:
        raise NotationError(f"{path} raised {type(error).__name__}: {error}") from error
    if name not in found:
        raise NotationError(f"{path} defines no {name!r}; write {path}:NAME")
    if isinstance(value, Tensor):
        value = workload(value)
    if not isinstance(value, Workload):
        raise NotationError(f"{what} is {brief(value)}; a workload or tensor is needed")
    return Request(value, path, {})
