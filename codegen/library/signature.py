"""Signature of a compiled library: the contract between builder, library and C header."""

from __future__ import annotations

import functools
import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loopwright.dsl.dtypes import DTYPES, item_bytes
from loopwright.dsl.errors import LibraryError


@dataclass(frozen=True)
class Parameter:
    """One array argument: dense, in C order.

    `shape` is in elements; `dtype` is one of `loopwright.dsl.dtypes.DTYPES`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise LibraryError(
                f"parameter {self.name!r} has dtype {self.dtype!r}; use one of {', '.join(DTYPES)}"
            )

    @property
    def elements(self) -> int:
        """Number of elements of the array."""
        return math.prod(self.shape)

    @functools.cached_property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return self.elements * item_bytes(self.dtype)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Signature:
    """The arguments of a library and of the two functions in its object file.

    The object file defines `main`, which takes `main_parameters`: the inputs that are not
    constants, then `prepared`, then `outputs`. Where `prepared` is not empty it also defines
    `prepare`, which takes `prepare_parameters`: the constants in the order of `constants`, then
    `prepared`; it lays the constants out anew, once.

    So `constants` names those inputs alone that `prepare` reads. A weight that needs no new
    layout is an ordinary input here.
    """

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    constants: tuple[str, ...] = ()
    prepared: tuple[Parameter, ...] = ()
    threads: int = 1
    """Number of threads of a call unless told otherwise."""

    def __post_init__(self) -> None:
        names = [p.name for p in (*self.inputs, *self.prepared, *self.outputs)]
        twice = [name for name, count in Counter(names).items() if count > 1]
        unknown = set(self.constants) - {p.name for p in self.inputs}
        if twice:
            raise LibraryError(f"{self.name}: parameters share the name {twice[0]!r}")
        if unknown or len(set(self.constants)) < len(self.constants):
            raise LibraryError(f"{self.name}: constants {self.constants} must be distinct inputs")
        if bool(self.constants) != bool(self.prepared):
            raise LibraryError(
                f"{self.name}: constants and prepared parameters come together; "
                "an input that is not prepared is no constant"
            )
        if not self.outputs:
            raise LibraryError(f"{self.name}: there is no output")
        if self.threads < 1:
            raise LibraryError(f"{self.name}: threads is {self.threads}; it must be at least 1")

    @property
    def constant_inputs(self) -> tuple[Parameter, ...]:
        """The inputs that `prepare` reads, in its order."""
        named = {p.name: p for p in self.inputs}
        return tuple(named[name] for name in self.constants)

    @property
    def plain_inputs(self) -> tuple[Parameter, ...]:
        """The inputs that `main` reads as they are, in its order."""
        return tuple(p for p in self.inputs if p.name not in self.constants)

    @property
    def main_parameters(self) -> tuple[Parameter, ...]:
        """The arguments of the object's `main`."""
        return (*self.plain_inputs, *self.prepared, *self.outputs)

    @property
    def prepare_parameters(self) -> tuple[Parameter, ...]:
        """The arguments of the object's `prepare`; empty where there is none."""
        return (*self.constant_inputs, *self.prepared)

    def __str__(self) -> str:
        inputs, outputs = (", ".join(map(str, ps)) for ps in (self.inputs, self.outputs))
        return f"{self.name}({inputs}) -> {outputs}"

    def to_json(self) -> dict[str, Any]:
        """A value that `json` can write, and `from_json` reads."""
        return asdict(self)

    @staticmethod
    def from_json(data: Any) -> Signature:
        """The inverse of `to_json`. Raises `LibraryError` where `data` is not its work."""
        try:
            return Signature(
                name=str(data["name"]),
                inputs=tuple(_parameter_from_json(p) for p in data["inputs"]),
                outputs=tuple(_parameter_from_json(p) for p in data["outputs"]),
                constants=tuple(str(name) for name in data["constants"]),
                prepared=tuple(_parameter_from_json(p) for p in data["prepared"]),
                threads=int(data["threads"]),
            )
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise LibraryError(f"not a signature: {type(error).__name__}: {error}") from error


def _parameter_from_json(data: Any) -> Parameter:
    return Parameter(str(data["name"]), tuple(int(n) for n in data["shape"]), str(data["dtype"]))


@dataclass(frozen=True)
class Origin:
    """Provenance of a library: what an export needs, and what a manifest tells."""

    triple: str | None = None
    """The target triple of LLVM; None is this machine."""
    target: str = ""
    """The target, as its maker describes it."""
    cpu_features: tuple[str, ...] = ()
    """Features that the processor must have, in the words of Linux's /proc/cpuinfo."""
    objects: tuple[bytes, ...] = ()
    """The object files; none for a library that was loaded from a file."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Whatever the builder wants kept in the manifest; JSON."""
    file: bytes | Path | None = None
    """The shared object, or where it was loaded from; None where it was built here."""
    sha256: str = ""
    """Hash of a shared object that was loaded from a path."""
    kernels: Mapping[str, str] = field(default_factory=dict)
    """C source in parts, "head", "prepare" and "main", of what was built for target "c"."""

    def read(self) -> bytes:
        """The shared object. Raises `LibraryError` where it is gone, or is another one now."""
        if isinstance(self.file, bytes):
            return self.file
        try:
            code = self.file.read_bytes() if self.file is not None else b""
        except OSError as error:
            raise LibraryError(f"{self.file}: cannot read the library: {error}") from error
        if hashlib.sha256(code).hexdigest() != self.sha256:
            raise LibraryError(
                f"{self.file} is not what was loaded from it any more: load it again"
            )
        return code


def functions_of(signature: Any) -> dict[str, Sequence[Parameter]]:
    """The functions of the object file of a signature or an open one, as `Binary` takes them."""
    functions: dict[str, Sequence[Parameter]] = {"main": signature.main_parameters}
    if signature.prepared:
        functions["prepare"] = signature.prepare_parameters
    return functions
