"""Manifests of exported libraries, beside the shared object and inside of it.

A kernel takes addresses alone: a manifest that tells another shape would let it write past an
array. So NAME.so carries the text of its manifest, and NAME.json must say the same. Only the hash
of NAME.so, which that cannot carry, stands in NAME.json alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopwright.codegen.library.linker import architecture
from loopwright.codegen.library.signature import Origin
from loopwright.dsl.errors import LibraryError
from loopwright.version import __version__

FORMAT = "loopwright-library"
SCHEMA = 2
"""The version of the manifest's layout; `load` refuses any other."""

_LONGEST = 60  # characters of a value in a message
_MARK = "loopwright-manifest:"
"""Beginning of the text in a shared object; a zero ends it."""


def describe(name: str, signature: Any, origin: Origin) -> dict[str, Any]:
    """The manifest of a library, without the hash of its file; `signature` may be an open one."""
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "version": __version__,
        "library": name,
        "signature": signature.to_json(),
        "target": {
            "triple": origin.triple,
            "architecture": architecture(origin.triple),
            "description": origin.target,
            "cpu_features": list(origin.cpu_features),
        },
        "extra": dict(origin.extra),
    }


def embedded(manifest: Mapping[str, Any]) -> str:
    """C source that puts a manifest into a shared object."""
    text = json.dumps(_MARK + _canonical(manifest)).replace("?", "\\?")  # C11 has trigraphs
    return f"\n__attribute__((used)) static const char lw_manifest[] = {text};\n"


def check_manifest(path: Path, code: bytes) -> dict[str, Any]:
    """The manifest of a shared object with `code`, at `path`.

    Raises `LibraryError` where it is missing, of another version, or not what `code` carries; the
    message names the first field that differs.
    """
    where = path.with_suffix(".json")
    found = _read(where)
    if found.pop("sha256", None) != hashlib.sha256(code).hexdigest():
        raise LibraryError(
            f"{path} is damaged, or is not the file that {where.name} was written for (the field "
            "sha256): export or copy all three files anew"
        )
    _, mark, rest = code.partition(_MARK.encode())
    if not mark:
        raise LibraryError(f"{path}: it was not made by Loopwright")
    try:
        manifest: dict[str, Any] = json.loads(rest.partition(b"\0")[0])
    except ValueError as error:
        raise LibraryError(f"{path} is damaged: the manifest inside is {error}") from error
    if difference := _difference(found, manifest, ""):
        raise LibraryError(
            f"{where} is damaged, or was changed: {difference}; export or copy all three files "
            "anew"
        )
    return manifest


def _read(where: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(where.read_bytes())
    except FileNotFoundError:
        raise LibraryError(
            f"{where.with_suffix('.so')}: its manifest is missing; a library is loaded from the "
            ".so with the .json of the same name beside it, as Library.export writes them"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise LibraryError(f"{where} is damaged: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise LibraryError(
            f"{where} is not the manifest of a Loopwright library: the field format must be "
            f"{FORMAT!r}"
        )
    if _canonical(manifest.get("schema")) != _canonical(SCHEMA):
        raise LibraryError(
            f"{where} has schema {_shown(manifest.get('schema'))}, this version of Loopwright "
            f"reads {SCHEMA}; it was written by version {_shown(manifest.get('version'))}: export "
            "it anew"
        )
    return manifest


def _canonical(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        return "what is nested too deeply"


def _shown(value: Any) -> str:
    text = _canonical(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _difference(found: Any, carried: Any, field: str) -> str:
    """The first field in which two values differ, in words; empty where they are the same."""
    if isinstance(found, dict) and isinstance(carried, dict):
        for key, value in carried.items():
            name = f"{field}.{key}".lstrip(".")
            if key not in found:
                return f"the field {name} is missing"
            if said := _difference(found[key], value, name):
                return said
        more = [key for key in found if key not in carried]
        return f"{field or 'it'} has the unknown field {_shown(more[0])}" if more else ""
    if isinstance(found, list) and isinstance(carried, list) and len(found) == len(carried):
        pairs = enumerate(zip(found, carried))
        return next((s for i, (f, c) in pairs if (s := _difference(f, c, f"{field}[{i}]"))), "")
    if _canonical(found) == _canonical(carried):
        return ""
    return f"{field} is {_shown(found)}, and the library was made with {_shown(carried)}"
