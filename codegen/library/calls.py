"""The arguments of one call: read, checked, and turned into addresses."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from loopwright.codegen.library import arrays
from loopwright.codegen.library.arrays import Array
from loopwright.codegen.library.binary import Binary, raise_for
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.dsl.dtypes import numpy_dtype
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.words import brief

Located = tuple[Array, int, int]
"""A dense array, the address of its first byte, and that after its last byte."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one argument, with what is asked of it at every call looked up already."""

    parameter: Parameter
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    itemsize: int
    nbytes: int

    @staticmethod
    def of(p: Parameter) -> Slot:
        """The place of the argument `p`."""
        dtype = numpy_dtype(p.dtype)
        return Slot(p, p.name, p.shape, dtype, dtype.itemsize, p.nbytes)

    def read(self, value: Any) -> Located:
        """`value` as a dense array, a copy where it is none. Raises `ShapeError`."""
        array = value if type(value) is np.ndarray else arrays.as_array(value, self.parameter)
        if array.dtype is not self.dtype or array.shape != self.shape:
            arrays.check(array, self.parameter)
        at = arrays.address(array)
        if array.flags.c_contiguous and not at % self.itemsize:
            return array, at, at + self.nbytes
        array = arrays.dense(array)
        at = arrays.address(array)
        return array, at, at + self.nbytes

    def write(self, value: Any) -> Located:
        """`value` as an array to be written to. Raises `ShapeError` where it cannot be."""
        array = value if type(value) is np.ndarray else self._foreign(value)
        if array.dtype is not self.dtype or array.shape != self.shape:
            arrays.check(array, self.parameter)
        flags = array.flags
        if not flags.c_contiguous:
            raise ShapeError(
                f"output {self.name} is not contiguous in C order; give a dense array"
            )
        if not flags.writeable:
            raise ShapeError(f"output {self.name} is read-only; give an array that can be written")
        at = arrays.address(array)
        return array, at, at + self.nbytes

    def _foreign(self, value: Any) -> Array:
        if not isinstance(value, np.ndarray) and not hasattr(value, "__dlpack__"):
            raise ShapeError(f"output {self.name} is {brief(value)}; give an array")
        return arrays.as_array(value, self.parameter)

    def make(self) -> Located:
        """A new array."""
        array, at = arrays.aligned(self.shape, self.dtype, self.nbytes)
        return array, at, at + self.nbytes

    def shares(self, value: Any, array: Array) -> bool:
        """Return whether `array`, which `read` made of `value`, is the same memory."""
        if isinstance(value, np.ndarray):
            return array is value
        return hasattr(value, "__dlpack__") and not array.flags.owndata


@dataclass(frozen=True)
class Plan:
    """Order of the pointers of `main`.

    They are chosen by `order` from: the inputs of the call, then the arrays prepared for this
    call alone (where `unprepared`), then `fixed`, then the outputs.
    """

    order: tuple[int, ...] | None
    """None where all come as they are."""
    fixed: tuple[int, ...]
    unprepared: bool
    pointers: Callable[..., bytes]
    """Pointers, as an array of C's."""

    @staticmethod
    def of(signature: Signature, inputs: Sequence[str], bound: Mapping[str, Array]) -> Plan:
        """The plan for a library that still takes `inputs`, the others being `bound`."""
        prepared = [p.name for p in signature.prepared]
        unprepared = bool(prepared) and prepared[0] not in bound
        main = [p.name for p in signature.main_parameters]
        fixed = [name for name in main if name in bound]
        outputs = [p.name for p in signature.outputs]
        names = [*inputs, *(prepared if unprepared else ()), *fixed, *outputs]
        order = tuple(names.index(name) for name in main)
        return Plan(
            None if order == tuple(range(len(names))) else order,
            tuple(arrays.address(bound[name]) for name in fixed),
            unprepared,
            struct.Struct(f"{len(main)}P").pack,
        )


class Inputs(Protocol):
    """A signature, of known or open shapes."""

    @property
    def inputs(self) -> Sequence[arrays.Named]: ...


def bound(signature: Inputs, names: Collection[str]) -> list[str]:
    """Names of the inputs that are bound, where a call takes `names`."""
    return [p.name for p in signature.inputs if p.name not in names]


def shown(signature: Inputs, names: Collection[str]) -> str:
    """A signature as text, with the inputs that are bound, where a call takes `names`."""
    given = ", ".join(bound(signature, names))
    return f"{signature}; bound: {given}" if given else str(signature)


def positional(
    inputs: tuple[Any, ...], named: Mapping[str, Any], names: Sequence[str], signature: str
) -> tuple[Any, ...]:
    """All inputs in order. Raises `ShapeError` for one that is missing, unknown or given twice."""
    rest = names[len(inputs) :]
    if len(inputs) > len(names):
        raise ShapeError(f"got {len(inputs)} inputs, takes {len(names)}: {signature}")
    for name in named:
        if name not in rest:
            why = "was given twice" if name in names else "is no input"
            raise ShapeError(f"{name!r} {why}: {signature}")
    missing = [name for name in rest if name not in named]
    if missing:
        what = (
            f"input {missing[0]} is" if len(missing) == 1 else f"inputs {', '.join(missing)} are"
        )
        raise ShapeError(f"{what} missing: {signature}")
    return (*inputs, *(named[name] for name in rest))


def told_apart(
    inputs: tuple[Any, ...], named: dict[str, Any], out: Any, names: Sequence[str], signature: str
) -> tuple[tuple[Any, ...], Any]:
    """All inputs in order, and the arrays to write to: `out` may be the name of an input, which it
    is where that is not given by position. Raises as `positional`."""
    if out is not None and "out" in names[len(inputs) :]:
        named, out = {**named, "out": out}, None
    return positional(inputs, named, names, signature), out


def take_outputs(out: Any, slots: Sequence[Slot]) -> list[Located]:
    """The arrays that want the results, new ones where `out` is None. Raises `ShapeError`."""
    if out is None:
        return [slot.make() for slot in slots]
    given = out if isinstance(out, (tuple, list)) else (out,)
    check_count(given, slots)
    return [slot.write(value) for slot, value in zip(slots, given)]


def check_count(given: Sequence[Any], slots: Sequence[Slot]) -> None:
    """Raises `ShapeError` unless there is an array for every output."""
    if len(given) != len(slots):
        raise ShapeError(
            f"out has {len(given)} arrays; there are {len(slots)} outputs: "
            f"{', '.join(s.name for s in slots)}"
        )


def place_outputs(
    given: Sequence[Located], slots: Sequence[Slot], inputs: Sequence[Located]
) -> list[Located]:
    """The arrays that the kernel writes to, where `given` are those that want the results.

    They differ where an array overlaps an input, or is misaligned: a temporary is written then,
    to be copied. Raises `ShapeError` where two outputs overlap.
    """
    for i, slot in enumerate(slots[1:], 1):
        if _touches(given[i], given[:i]):
            raise ShapeError(f"output {slot.name} overlaps another output")
    return [
        slot.make() if one[1] % slot.itemsize or _touches(one, inputs) else one
        for slot, one in zip(slots, given)
    ]


def _touches(one: Located, others: Sequence[Located]) -> bool:
    _, start, end = one
    for _, begin, stop in others:  # noqa: SIM110 - any() would take three times as long
        if start < stop and begin < end:
            return True
    return False


class Call:
    """A call whose arguments are fixed: `call()` computes, `repeat` measures.

    Not for several threads at once, since each call writes the same outputs.
    """

    def __init__(
        self, binary: Binary, pointers: bytes, outputs: tuple[Array, ...], keep: Any
    ) -> None:
        """`keep` holds whatever must live as long as the pointers."""
        self.outputs = outputs
        self._binary, self._keep = binary, keep
        self._function = binary.addresses["main"]
        self._pointers = pointers
        self._invoke = binary.call

    def __call__(self) -> None:
        """Computes once. Raises `LibraryError` when memory runs out."""
        status = self._invoke(self._function, self._pointers)
        if status:
            raise_for(status)

    def repeat(self, times: int) -> tuple[float, float]:
        """Computes `times` times in a loop of the library's own.

        Returns the time elapsed and the CPU time of the whole process, in seconds for all of
        them. CPU time well below elapsed time × threads means that the machine was busy.
        """
        elapsed, cpu = ctypes.c_int64(), ctypes.c_int64()
        raise_for(
            self._binary.table.repeat(
                self._function, self._pointers, times, ctypes.byref(elapsed), ctypes.byref(cpu)
            )
        )
        return elapsed.value * 1e-9, cpu.value * 1e-9
