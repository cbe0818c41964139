"""Libraries as files: a shared object, its C header, and a manifest that says what it is.

NAME.so needs libc alone. NAME.h declares its functions. NAME.json, the manifest, is what `load`
goes by; it carries the hash of NAME.so, so that a damaged or mistaken file is not run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loopwright.codegen.binary import MAX_THREADS, Binary
from loopwright.codegen.header import MADE_BY, check_name, header, public_symbols, wrapper
from loopwright.codegen.library import Library, Origin, functions_of
from loopwright.codegen.linker import architecture, link, scratch
from loopwright.codegen.processors import missing_features, usable_processors
from loopwright.codegen.signature import Signature
from loopwright.dsl.errors import LibraryError

FORMAT = "loopwright-library"
SCHEMA = 1
"""The version of the manifest's layout; `load` refuses any other."""
_BEGINNING = f'{{"format":"{FORMAT}"'
"""Of every manifest, spaces left out."""

# e_machine of ELF.
_MACHINES = {3: "i686", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


def export(signature: Signature, origin: Origin, path: Path) -> Path:
    """Writes NAME.so, NAME.h and NAME.json, where `path` is …/NAME.so; returns `path`.

    Each file appears whole or not at all, the manifest last. Raises `LibraryError` for a bad
    name or place, `BuildError` where the toolchain fails.
    """
    check_place(path)
    if not origin.objects:
        raise LibraryError(
            f"{signature.name} was loaded from a file, which is an export already: copy its "
            ".so, .h and .json instead"
        )
    name = path.stem
    with scratch() as folder:
        built = folder / path.name
        link(
            origin.objects,
            built,
            triple=origin.triple,
            wrapper=wrapper(name, signature),
            public=public_symbols(name, signature),
            complete=True,
        )
        code = built.read_bytes()
    manifest = describe(path.name, signature, origin, code)
    write_library(path, code, header(name, signature), manifest)
    return path


def check_place(path: Path) -> None:
    """Raises `LibraryError` where no library can have this name: one that C has no function for,
    or one whose manifest would take the place of another file."""
    if path.suffix != ".so":
        raise LibraryError(f"{path}: the name of a library ends in .so")
    check_name(path.stem)
    beside = path.with_suffix(".h")
    with contextlib.suppress(OSError):  # as when there is none
        if MADE_BY not in beside.read_text(errors="replace").partition("\n")[0]:
            raise LibraryError(
                f"{beside} is there, and is no library's header, for which {path.name} needs that "
                "name: move it, or give the library another name"
            )
    where = path.with_suffix(".json")
    try:
        found = where.read_text(errors="replace")
    except OSError:  # there is none
        return
    begins = "".join(found[: 2 * len(_BEGINNING)].split())[: len(_BEGINNING)]
    if not _BEGINNING.startswith(begins):  # as one that was cut short does
        raise LibraryError(
            f"{where} is there, and is no library's manifest, for which {path.name} needs that "
            "name: move it, or give the library another name"
        )


def write_library(path: Path, code: bytes, text: str, manifest: Mapping[str, Any]) -> None:
    """Writes a shared object, its header and its manifest, the manifest last. Raises
    `LibraryError`."""
    write_together(
        {
            path: code,
            path.with_suffix(".h"): text.encode(),
            path.with_suffix(".json"): (json.dumps(manifest, indent=1) + "\n").encode(),
        }
    )


def describe(name: str, signature: Signature, origin: Origin, code: bytes) -> dict[str, Any]:
    """The manifest of a library."""
    from loopwright import __version__

    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "version": __version__,
        "library": name,
        "sha256": hashlib.sha256(code).hexdigest(),
        "signature": signature.to_json(),
        "target": {
            "triple": origin.triple,
            "architecture": architecture(origin.triple),
            "description": origin.target,
            "cpu_features": list(origin.cpu_features),
        },
        "extra": dict(origin.extra),
    }


def write_together(files: Mapping[Path, bytes]) -> None:
    """Writes files in their order, each whole or not at all. Raises `LibraryError`."""
    temporary: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            temporary[path] = Path(name)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o755 if path.suffix == ".so" else 0o644)
        for path in files:
            os.replace(temporary.pop(path), path)
    except OSError as error:
        raise LibraryError(f"cannot write the library: {error}") from error
    finally:
        for left in temporary.values():
            left.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Library:
    """The library that `Library.export` wrote to `path`, a file NAME.so with NAME.json beside.

    Needs neither TVM nor a compiler. Raises `LibraryError` where a file is missing, damaged, of
    another version, not ours, or made for another processor.
    """
    path = Path(path)
    manifest = _read_manifest(path)
    try:
        code = path.read_bytes()
    except OSError as error:
        raise LibraryError(f"{path}: cannot read the library: {error.strerror}") from error
    _check_architecture(path, code, manifest)
    if hashlib.sha256(code).hexdigest() != manifest["sha256"]:
        raise LibraryError(
            f"{path} is damaged, or is not the file that {path.with_suffix('.json').name} was "
            "written for: export or copy all three files anew"
        )
    signature = Signature.from_json(manifest["signature"])
    features = tuple(manifest["target"]["cpu_features"])
    _check_features(path, features)
    target, extra = manifest["target"], dict(manifest["extra"])
    origin = Origin(target["triple"], target["description"], features, (), extra)
    if "gpu" in manifest:
        from loopwright.codegen.gpu_export import load_exported

        with _loadable(path, code) as file:
            return load_exported(file, signature, origin, manifest["gpu"])
    with _loadable(path, code) as file:
        binary = Binary(file, functions_of(signature))
    binary.threads = min(signature.threads, usable_processors(), MAX_THREADS)
    return Library(signature, binary, origin, _kept_sources(extra))


_loaded: set[Path] = set()


@contextmanager
def _loadable(path: Path, code: bytes) -> Iterator[Path]:
    """A file with `code` to load: `path` itself the first time, then a copy that soon goes.

    The system's loader goes by name: asked for the same path again, it would hand out the
    library that it has loaded already, though the file may have been replaced since.
    """
    path = path.absolute()
    if path not in _loaded:
        _loaded.add(path)
        yield path
        return
    with scratch() as folder:
        copy = folder / path.name
        copy.write_bytes(code)
        yield copy


def _read_manifest(path: Path) -> dict[str, Any]:
    if path.suffix != ".so":
        raise LibraryError(f"{path}: give the file that ends in .so")
    where = path.with_suffix(".json")
    try:
        manifest = json.loads(where.read_text())
    except FileNotFoundError:
        what = "its manifest is missing" if path.exists() else "there is no such library"
        raise LibraryError(
            f"{path}: {what}; a library is loaded from the .so with the .json of the same name "
            "beside it, as Library.export writes them"
        ) from None
    except (OSError, ValueError) as error:
        raise LibraryError(f"{where} is damaged: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise LibraryError(f"{where} is not the manifest of a Loopwright library")
    if manifest.get("schema") != SCHEMA:
        raise LibraryError(
            f"{where} has schema {manifest.get('schema')}, this version of Loopwright reads "
            f"{SCHEMA}; it was written by version {manifest.get('version')}: export it anew"
        )
    target = manifest.get("target")
    keys = {"triple", "description", "cpu_features", "architecture"}
    if not {"sha256", "signature", "extra"} <= manifest.keys() or not (
        isinstance(target, dict)
        and keys <= target.keys()
        and isinstance(target["cpu_features"], list)
        and isinstance(manifest["extra"], dict)
    ):
        raise LibraryError(f"{where} is damaged: fields are missing, or are what they cannot be")
    return manifest


def _check_architecture(path: Path, code: bytes, manifest: dict[str, Any]) -> None:
    here, made_for = architecture(), manifest["target"]["architecture"]
    if code[:4] == b"\x7fELF" and len(code) > 20:
        machine = int.from_bytes(code[18:20], "little" if code[5] == 1 else "big")
        made_for = _MACHINES.get(machine, made_for)
    if made_for != here:
        raise LibraryError(f"{path} was made for {made_for}; this machine is {here}")


def _check_features(path: Path, features: tuple[str, ...]) -> None:
    missing = missing_features(features)
    if missing:
        raise LibraryError(
            f"{path} needs processor features that this machine lacks: {', '.join(missing)}; "
            "build it for this machine, or for a more general one"
        )


def _kept_sources(extra: Mapping[str, Any]) -> dict[str, Callable[[], str]]:
    """The texts that the builder put into the manifest's `extra`, under "sources"."""
    kept = extra.get("sources")
    if not isinstance(kept, dict):
        return {}
    return {str(kind): functools.partial(str, text) for kind, text in kept.items()}
