"""From object files to code in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from loopwright.codegen.library.binary import Binary
from loopwright.codegen.library.linker import link, scratch
from loopwright.codegen.library.mapped import MappedBinary, is_builtin
from loopwright.codegen.library.signature import Parameter
from loopwright.dsl.errors import BuildError, LibraryError


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
    with scratch() as folder:
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
