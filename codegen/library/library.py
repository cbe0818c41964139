"""A compiled computation, callable from Python."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopwright.codegen.library import arrays, calls
from loopwright.codegen.library.arrays import Array, KeptLayout
from loopwright.codegen.library.binary import Binary, raise_for
from loopwright.codegen.library.calls import Call, Located, Slot
from loopwright.codegen.library.linker import link
from loopwright.codegen.library.loading import loaded
from loopwright.codegen.library.signature import Origin, Parameter, Signature
from loopwright.codegen.library.torch_tensors import given_back
from loopwright.codegen.processors import missing_features
from loopwright.dsl.errors import LibraryError, ShapeError, TargetError
from loopwright.dsl.words import brief, html_table
from loopwright.temporary import TemporaryFolder

Sources = Mapping[str, Callable[[], str]]


class Library:
    """A compiled computation: call it with arrays, give it weights, export it.

    ::

        lib(A, W)                 # a new array, or a tuple of them
        lib(A, W=W, out=C)        # into C
        lib.bind(W=W)(A)          # W laid out for the kernel once, not at every call
        lib.export("mm.so")       # for C, C++ and `load`: needs libc alone

    Arguments are NumPy arrays, or anything that speaks DLPack on the CPU. Results are arrays of
    NumPy's, or tensors of torch's where an input is one. Inputs that are not dense are copied,
    and so is an output that overlaps an input. Calls may come from several threads at once; one
    kernel at a time runs on the threads.

    Constants that are not bound are compared with those of the call before, byte by byte, and
    laid out anew only if they differ. `bind` spares the comparison and the copy that it needs.

    Copies share the code. A pickle holds what an export holds, and what is bound.
    """

    def __init__(
        self,
        signature: Signature,
        binary: Binary | None,
        origin: Origin,
        sources: Sources | None = None,
        bound: Mapping[str, Any] | None = None,
    ) -> None:
        """Use `from_object`, `load` or `bind`. `binary` is None where it cannot run here;
        `bound` holds arrays for inputs and, once they could be made, all prepared ones."""
        self.signature = signature
        self.origin = origin
        self._binary = binary
        self._sources = dict(sources or {})
        self._bound = dict(bound or {})
        used_up = signature.constants if signature.prepared and self._is_ready else ()
        rest = (p for p in signature.inputs if p.name not in (*self._bound, *used_up))
        self._inputs = tuple(map(Slot.of, rest))
        self._outputs = tuple(map(Slot.of, signature.outputs))
        self._names = tuple(s.name for s in self._inputs)
        self._layout = KeptLayout()

    @classmethod
    def from_object(
        cls,
        code: bytes | Sequence[bytes],
        signature: Signature,
        *,
        target_triple: str | None = None,
        target: str = "",
        cpu_features: Sequence[str] = (),
        sources: Sources | None = None,
        extra: Mapping[str, Any] | None = None,
        kernels: Mapping[str, str] | None = None,
    ) -> Library:
        """Links and loads the object file (or files) that TVM made, with its asserts off.

        `target_triple` is LLVM's (None: this machine); code for another processor, or for one with
        `cpu_features` that this one lacks, can only be exported. `target` describes it in the
        manifest. `sources` compute the texts that `source` shows, when asked.
        `extra` is kept in the manifest; `kernels` are parts of C source, for `export`. Raises
        `BuildError`, `TargetError`.
        """
        objects = (code,) if isinstance(code, bytes) else tuple(code)
        features = tuple(cpu_features)
        origin = Origin(
            target_triple,
            target,
            features,
            objects,
            dict(extra or {}),
            kernels=dict(kernels or {}),
        )
        return cls(signature, loaded(signature, origin), origin, sources)

    @property
    def _is_ready(self) -> bool:
        """Return whether all constants are laid out, if there are any."""
        prepared = self.signature.prepared
        return not prepared or prepared[0].name in self._bound

    @functools.cached_property
    def _plan(self) -> calls.Plan:
        return calls.Plan.of(self.signature, self._names, self._bound)

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """Inputs of a call, in order: the signature's inputs without those bound."""
        return tuple(p for p in self.signature.inputs if p.name in self._names)

    @property
    def _loaded(self) -> Binary:
        if self._binary is None:
            missing = missing_features(self.origin.cpu_features)
            lacks = f"lacks {', '.join(missing)} and " if missing else ""
            raise TargetError(
                f"{self.signature.name} was built for {self.origin.triple}; this machine {lacks}"
                "cannot run it: export it and call it there"
            )
        return self._binary

    # ---- calling ----

    def __call__(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Computes. Inputs go by position, in the order of `inputs`, or by name.

        Returns the output, or a tuple where there are several; `out` gives arrays to write to
        (they are returned), else new ones are made, aligned to 64 bytes. Where an input has that
        name and is not given by position, `out` is that. Raises `ShapeError` for a wrong count,
        dtype, shape or layout, `LibraryError` when memory runs out.
        """
        if named or len(inputs) != len(self._inputs):
            inputs, out = calls.told_apart(inputs, named, out, self._names, self._shown)
        taken = [slot.read(value) for slot, value in zip(self._inputs, inputs)]
        if out is not None:
            return self._into(out, taken)
        made = [slot.make() for slot in self._outputs]
        pointers, keep = self._pointers(taken, made)
        self._run("main", pointers)
        del keep  # the arrays prepared for this call, until now
        return given_back(tuple(a for a, _, _ in made), inputs)

    def _into(self, out: Any, taken: list[Located]) -> Any:
        wanted = calls.take_outputs(out, self._outputs)
        written = calls.place_outputs(wanted, self._outputs, taken)
        pointers, keep = self._pointers(taken, written)
        self._run("main", pointers)
        del keep
        for one, other in zip(wanted, written):
            if one is not other:
                one[0][...] = other[0]
        return out

    def prepare_call(self, /, *inputs: Any, out: Any = None, **named: Any) -> Call:
        """The same call, made ready to be repeated with next to no overhead.

        Constants are prepared now, outside of what is repeated. The arrays are kept and read
        anew each time, so they must be of a kind that a kernel can use as they are: `ShapeError`
        where a copy would be needed.
        """
        inputs, out = calls.told_apart(inputs, named, out, self._names, self._shown)
        taken = [slot.read(value) for slot, value in zip(self._inputs, inputs)]
        for slot, value, (array, _, _) in zip(self._inputs, inputs, taken):
            if not slot.shares(value, array):
                raise ShapeError(f"{slot.name} is not a dense, aligned array: copy it first")
        wanted = calls.take_outputs(out, self._outputs)
        written = calls.place_outputs(wanted, self._outputs, taken)
        if any(one is not other for one, other in zip(wanted, written)):
            raise ShapeError("an output overlaps an input or is misaligned; give another array")
        pointers, keep = self._pointers(taken, written)
        outputs = tuple(a for a, _, _ in wanted)
        return Call(self._loaded, pointers, outputs, (taken, keep, self._bound))

    def _pointers(self, taken: list[Located], written: list[Located]) -> tuple[bytes, list[Array]]:
        """The arguments of `main`, and arrays made for it that must live as long."""
        plan = self._plan
        values = [at for _, at, _ in taken]
        keep: list[Array] = []
        if plan.unprepared:
            keep = self._prepared({s.name: a[0] for s, a in zip(self._inputs, taken)})
            values += map(arrays.address, keep)
        values += plan.fixed
        values += [at for _, at, _ in written]
        if plan.order is not None:
            values = [values[i] for i in plan.order]
        return plan.pointers(*values), keep

    def _run(self, name: str, pointers: bytes | ctypes.Array[ctypes.c_void_p]) -> None:
        binary = self._binary or self._loaded
        status = binary.call(binary.addresses[name], pointers)
        if status:
            raise_for(status, self.origin.extra.get("indexed"))

    # ---- weights ----

    def bind(self, /, **values: Any) -> Library:
        """A library with these inputs fixed, to be called with the remaining ones.

        The arrays are copied now. Once all of the signature's constants are bound they are laid
        out for the kernel, and later calls are spared that. Raises `ShapeError`.
        """
        known = {s.name: s for s in self._inputs}
        for name in values:
            if name not in known:
                raise ShapeError(
                    f"there is no unbound input {name!r}; these are: {', '.join(known) or 'none'}"
                )
        bound = dict(self._bound)
        for name, value in values.items():
            bound[name] = self._kept(known[name], value)
        constants = self.signature.constants
        if not self._is_ready and all(name in bound for name in constants):
            rest = {name: a for name, a in bound.items() if name not in constants}
            bound = rest | self._laid_out(bound)
        return self._with(bound)

    def _kept(self, slot: Slot, value: Any) -> Any:
        """A copy of an input's value, where calls find it."""
        copy = arrays.empty(slot.parameter)
        copy[...] = slot.read(value)[0]
        return copy

    def _laid_out(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        """The prepared parameters, made of constants that are `bound`."""
        return dict(zip((p.name for p in self.signature.prepared), self._prepare(bound)))

    def _with(self, bound: Mapping[str, Any]) -> Library:
        return Library(self.signature, self._binary, self.origin, self._sources, bound)

    def _prepared(self, values: Mapping[str, Array]) -> list[Array]:
        """The constants laid out, from `values` and from what is bound; kept for later calls."""
        given = [values[n] for n in self.signature.constants if n in values]
        found = self._layout.find(given)
        if found is None:
            found = self._prepare(values)
            self._layout.keep(given, found)
        return found

    def _prepare(self, values: Mapping[str, Array]) -> list[Array]:
        """Lays the constants out anew, from `values` and from what is bound."""
        sources = [values[n] if n in values else self._bound[n] for n in self.signature.constants]
        made = [arrays.empty(p) for p in self.signature.prepared]
        addresses = [arrays.address(a) for a in (*sources, *made)]
        self._run("prepare", (ctypes.c_void_p * len(addresses))(*addresses))
        return made

    # ---- the rest ----

    @property
    def threads(self) -> int:
        """Number of threads of a call, the caller's included; for all that share this code."""
        return self.signature.threads if self._binary is None else self._binary.threads

    @threads.setter
    def threads(self, count: int) -> None:
        self._loaded.threads = count

    @property
    def codegen(self) -> str:
        """The maker of the code: "builtin", or "llvm" with the reason, where `codegen="builtin"`
        was asked for; else the target's kind."""
        made = str(self.origin.extra.get("codegen", self.origin.target.split(" ")[0]))
        reason = self.origin.extra.get("not_builtin")
        if not reason:
            return made
        return f"{made}, since the built-in code generator does not cover {reason}"

    @property
    def passes(self) -> str:
        """Passes by which LLVM compiled the program, where `passes=` was given; else nothing."""
        return str(self.origin.extra.get("passes", ""))

    def source(self, kind: str) -> str:
        """The text of the program as `kind`: what there is depends on the builder.

        Raises `LibraryError` for a kind that is not there, naming those that are.
        """
        if not isinstance(kind, str) or kind not in self._sources:
            kinds = ", ".join(sorted(self._sources))
            why = f"there are: {kinds}" if kinds else "networks and exported libraries keep none"
            raise LibraryError(f"{self.signature.name}: no source of kind {kind!r}; {why}")
        return self._sources[kind]()

    def export(self, path: str | os.PathLike[str], extras: Sequence[str] = ()) -> Path:
        """Write `path` (NAME.so), NAME.h and NAME.json; see `export.py`.

        A library for target "c" is written as C source too, where `path` is a folder that does not
        end in .so; see `folder.py`. What is bound is inside, laid out, and no parameter of the
        functions. `extras` are "c++", for the header NAME.hpp, and "pkg-config", for NAME.pc.

        Raises `LibraryError` for a bad name or place, `BuildError` where the toolchain fails.
        """
        from loopwright.codegen.library.bound import without_bound
        from loopwright.codegen.library.extras import check_extras, write_extras

        if not isinstance(path, str | os.PathLike):
            raise LibraryError(f"{brief(path)} is no path: give that of a file, NAME.so")
        check_extras(extras, Path(path), type(self) is Library)
        written = self._exported(Path(path))
        if extras:
            left = without_bound(self.signature, self._bound) if self._bound else self.signature
            write_extras(extras, left, written)
        return written

    def _repr_html_(self) -> str:
        constants = self.signature.constants
        rows = {
            "inputs": "\n".join(
                f"{p}{', constant' if p.name in constants else ''}" for p in self.inputs
            ),
            "bound": ", ".join(calls.bound(self.signature, self._names)) or "none",
            "outputs": "\n".join(map(str, self.signature.outputs)),
            "target": self.origin.target,
        } | ({"code": self.codegen} if "codegen" in self.origin.extra else {})
        rows |= {"passes": self.passes} if self.passes else {}
        return html_table(f"{type(self).__name__} {self.signature.name}", rows)

    def __copy__(self) -> Library:
        """A library that shares the code and what is bound: neither is ever written."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def __deepcopy__(self, memo: Any) -> Library:
        return self.__copy__()

    def __reduce__(self) -> Any:
        """Code and signature. Raises `LibraryError` where the loaded file is gone or another."""
        origin = replace(self.origin, objects=(), file=self._code())
        threads = None if self._binary is None else self._binary.threads
        return type(self)._restored, (self.signature, origin, self._bound, threads)

    def _code(self) -> bytes:
        """The shared object."""
        if not self.origin.objects:
            return self.origin.read()
        with TemporaryFolder() as folder:
            path = folder / "library.so"
            link(self.origin.objects, path, triple=self.origin.triple, complete=True)
            return path.read_bytes()

    @classmethod
    def _restored(
        cls, signature: Any, origin: Origin, bound: Mapping[str, Any], threads: int | None
    ) -> Library:
        """The library of a pickle, loaded where this machine can run it."""
        binary = loaded(signature, origin, threads)
        aligned = {name: arrays.aligned_copy(array) for name, array in bound.items()}
        return cls(signature, binary, origin, kept_sources(origin.extra), aligned)

    def _exported(self, path: Path) -> Path:
        from loopwright.codegen.library.export import export
        from loopwright.codegen.library.folder import export_folder

        if path.suffix != ".so" and self.origin.kernels:
            return export_folder(self.signature, self.origin.kernels, path, self._bound)
        return export(self.signature, self.origin, path, self._bound)

    @property
    def _shown(self) -> str:
        """The signature, and which of its inputs are bound."""
        return calls.shown(self.signature, self._names)

    def __repr__(self) -> str:
        numerics = self.origin.extra.get("numerics")
        kept = f", {numerics} numerics" if numerics else ""
        if "codegen" in self.origin.extra:
            kept += f", code: {self.codegen}"
        if self.passes:
            kept += f", passes: {self.passes}"
        loose = [name for name in self.signature.constants if name in self._names]
        constants = f", constants to bind: {', '.join(loose)}" if loose else ""
        return f"<{type(self).__name__} {self._shown}{kept}{constants}>"


def kept_sources(extra: Mapping[str, Any]) -> Sources:
    """The texts that the builder put into the manifest's `extra`, under "sources"."""
    kept = extra.get("sources")
    if not isinstance(kept, dict):
        return {}
    return {str(kind): functools.partial(str, text) for kind, text in kept.items()}
