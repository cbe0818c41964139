"""From object files to code in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from loopwright.c_names import as_identifier
from loopwright.codegen.library.binary import MAX_THREADS, Binary
from loopwright.codegen.library.linker import is_native, link
from loopwright.codegen.library.mapped import MappedBinary, is_builtin
from loopwright.codegen.library.signature import Origin, Parameter, functions_of
from loopwright.codegen.processors import missing_features, usable_processors
from loopwright.dsl.errors import BuildError, LibraryError
from loopwright.temporary import TemporaryFolder


def loaded(signature: Any, origin: Origin, threads: int | None = None) -> Binary | None:
    """The code of a library, linked if need be and loaded, with so many `threads` or those of its
    signature, an open one or not; None where this machine cannot run it. Raises `BuildError`."""
    if not is_native(origin.triple) or missing_features(origin.cpu_features):
        return None
    functions = functions_of(signature)
    if origin.objects:
        binary = load_objects(origin.objects, as_identifier(signature.name), functions)
    else:
        with TemporaryFolder() as folder:
            path = folder / "library.so"
            path.write_bytes(origin.read())
            binary = Binary(path, functions)
    wanted = signature.threads if threads is None else threads
    if wanted > 1:  # the processors are looked for in files
        wanted = min(wanted, usable_processors(), MAX_THREADS)
    binary.threads = wanted
    return binary


def load_objects(
    objects: Sequence[bytes], name: str, functions: dict[str, Sequence[Parameter]]
) -> Binary:
    """Links object files for this machine and loads the result; leaves no file behind.

    Built-in code needs no linker, where the system lets pages that were written be executed.
    Raises `BuildError`.
    """
    if len(objects) == 1 and is_builtin(objects[0]):
        with contextlib.suppress(BuildError):
            return MappedBinary(objects[0], functions)
    with TemporaryFolder() as folder:
        path = folder / f"{name}.so"
        link(objects, path)
        try:
            return Binary(path, functions)
        except LibraryError:
            # A symbol that this process has not got. The slow way brings what libc and libm
            # have, and fails with the linker's own message for anything else.
            path = folder / f"{name}-complete.so"
            link(objects, path, complete=True)
            return Binary(path, functions)
