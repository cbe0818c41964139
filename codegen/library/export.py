"""Libraries as files: a shared object, its C header, and a manifest that says what it is.

NAME.so needs libc alone, NAME.h declares its functions, and `load` goes by NAME.json, the
manifest. Each of NAME.json and NAME.so carries the hash or the text of the other, so that damage
is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopwright.codegen.library.arrays import Array
from loopwright.codegen.library.bound import bind_objects
from loopwright.codegen.library.header import (
    MADE_BY,
    Functions,
    check_name,
    header,
    public_symbols,
    wrapper,
)
from loopwright.codegen.library.linker import link
from loopwright.codegen.library.manifest import FORMAT, describe, embedded
from loopwright.codegen.library.signature import Origin, Signature
from loopwright.dsl.errors import LibraryError
from loopwright.paths import new_file, shown, why
from loopwright.temporary import TemporaryFolder

_BEGINNING = f'{{"format":"{FORMAT}"'
"""Beginning of every manifest, spaces left out."""


def export(
    signature: Signature, origin: Origin, path: Path, bound: Mapping[str, Array] | None = None
) -> Path:
    """Writes NAME.so, NAME.h and NAME.json, where `path` is …/NAME.so; returns `path`.

    The arrays that are `bound` are inside, as they are laid out, and no parameters of the C call.
    Each file appears whole or not at all, the manifest last. Raises `LibraryError` for a bad
    name or place, `BuildError` where the toolchain fails.
    """
    check_place(path)
    if not origin.objects:
        remedy = "copy its .so, .h and .json instead"
        if bound:
            remedy += "; to have arrays inside, bind those of the library that was built"
        raise LibraryError(
            f"{signature.name} was loaded from a file, which is an export already: {remedy}"
        )
    if bound:
        signature, origin = bind_objects(signature, origin, bound)
    functions = Functions(path.stem, signature)
    return write_linked(
        path, origin, functions, describe(path.name, signature, origin), bool(bound)
    )


def write_linked(
    path: Path, origin: Origin, functions: Functions, manifest: Mapping[str, Any], wrap: bool
) -> Path:
    """Link the objects with the functions for C, and write the three files. Raises `LibraryError`
    or `BuildError`."""
    with TemporaryFolder() as folder:
        built = folder / path.name
        link(
            origin.objects,
            built,
            triple=origin.triple,
            wrapper=wrapper(functions) + embedded(manifest),
            public=public_symbols(path.stem, functions.signature),
            complete=True,
            wrap=wrap,
        )
        code = built.read_bytes()
    write_library(path, code, header(functions), manifest)
    return path


def check_path(path: Path) -> None:
    """Raises `LibraryError` where no shared object can be: it is NAME.so in a folder."""
    if path.suffix != ".so":
        raise LibraryError(
            f"{shown(path)}: the name of a library ends in .so; a workload that is built for "
            'target="c" can be written to a folder, too'
        )
    new_file(path, "the library", LibraryError)


def check_place(path: Path) -> None:
    """Raises `LibraryError` where no library can have this name: one that C has no function for,
    or one whose manifest would take the place of another file."""
    check_path(path)
    check_name(path.stem)
    beside = path.with_suffix(".h")
    with contextlib.suppress(OSError):  # as when there is none
        if MADE_BY not in beside.read_text(encoding="utf-8", errors="replace").partition("\n")[0]:
            raise LibraryError(
                f"{beside} is there, and is no library's header, for which {path.name} needs that "
                "name: move it, or give the library another name"
            )
    where = path.with_suffix(".json")
    try:
        found = where.read_text(encoding="utf-8", errors="replace")
    except OSError:  # there is none
        return
    begins = "".join(found[: 2 * len(_BEGINNING)].split())[: len(_BEGINNING)]
    if not _BEGINNING.startswith(begins):  # as one that was cut short does
        raise LibraryError(
            f"{where} is there, and is no library's manifest, for which {path.name} needs that "
            "name: move it, or give the library another name"
        )


def write_library(path: Path, code: bytes, text: str, manifest: Mapping[str, Any]) -> None:
    """Writes a shared object, its header and its manifest with the hash of `code`, the manifest
    last. Raises `LibraryError`."""
    manifest = {"format": FORMAT, "sha256": hashlib.sha256(code).hexdigest(), **manifest}
    write_together(
        {
            path: code,
            path.with_suffix(".h"): text.encode(),
            path.with_suffix(".json"): (json.dumps(manifest, indent=1) + "\n").encode(),
        }
    )


def write_together(files: Mapping[Path, bytes]) -> None:
    """Writes files in their order, each whole or not at all. Raises `LibraryError`."""
    temporary: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".loopwright-")
            temporary[path] = Path(name)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o755 if path.suffix == ".so" else 0o644)
        for path in files:
            os.replace(temporary[path], path)
            del temporary[path]
    except OSError as error:
        raise LibraryError(f"cannot write the library: {why(error)}") from error
    finally:
        for left in temporary.values():
            left.unlink(missing_ok=True)
