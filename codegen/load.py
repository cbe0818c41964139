"""`load`: a library that was exported, back into this process."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loopwright.codegen.library.binary import MAX_THREADS, Binary
from loopwright.codegen.library.library import Library, kept_sources
from loopwright.codegen.library.linker import architecture
from loopwright.codegen.library.manifest import check_manifest
from loopwright.codegen.library.signature import Origin, Signature, functions_of
from loopwright.codegen.open.library import OpenLibrary
from loopwright.codegen.open.signature import OpenSignature
from loopwright.codegen.processors import missing_features, usable_processors
from loopwright.dsl.errors import LibraryError
from loopwright.paths import file_at, shown, why
from loopwright.temporary import TemporaryFolder


def load(path: str | os.PathLike[str]) -> Library:
    """The library that `Library.export` wrote to `path`, a file NAME.so with NAME.json beside.

    Needs neither TVM nor a compiler. Raises `LibraryError` where a file is missing, damaged, of
    another version, not ours, or made for another processor.
    """
    if isinstance(path, str | os.PathLike) and Path(path).suffix != ".so":
        raise LibraryError(f"{shown(path)}: give the file that ends in .so")
    path = file_at(path, "the library", LibraryError)
    try:
        code = path.read_bytes()
    except OSError as error:
        raise LibraryError(f"{path}: cannot read the library: {why(error)}") from error
    manifest = check_manifest(path, code)
    made_for, here = manifest["target"]["architecture"], architecture()
    if made_for != here:
        raise LibraryError(f"{path} was made for {made_for}; this machine is {here}")
    read = OpenSignature.from_json if "dims" in manifest["signature"] else Signature.from_json
    signature = read(manifest["signature"])
    features = tuple(manifest["target"]["cpu_features"])
    _check_features(path, features)
    target, extra = manifest["target"], dict(manifest["extra"])
    place, sha = path.absolute(), hashlib.sha256(code).hexdigest()
    origin = Origin(target["triple"], target["description"], features, (), extra, place, sha)
    if "gpu" in manifest and isinstance(signature, Signature):
        with _loadable(path, code) as file:
            return _load_gpu(file, signature, origin, manifest["gpu"])
    with _loadable(path, code) as file:
        binary = Binary(file, functions_of(signature))
    binary.threads = min(signature.threads, usable_processors(), MAX_THREADS)
    if isinstance(signature, OpenSignature):
        return OpenLibrary(signature, binary, origin, kept_sources(extra))
    return Library(signature, binary, origin, kept_sources(extra))


def _load_gpu(path: Path, signature: Signature, origin: Origin, gpu: dict[str, str]) -> Library:
    """The library of a file that `export` wrote. Raises `TargetError` without a GPU or driver,
    `LibraryError` for code of another GPU."""
    from loopwright.codegen.devices.code import GpuCode
    from loopwright.codegen.devices.cuda import CudaProgram
    from loopwright.codegen.devices.cuda_driver import Launcher
    from loopwright.codegen.gpu.library import GpuLibrary

    code = GpuCode(gpu["language"], gpu["arch"], b"", {})
    return GpuLibrary(signature, code, CudaProgram(code, Launcher(path)), origin)


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
    with TemporaryFolder() as folder:
        copy = folder / path.name
        copy.write_bytes(code)
        yield copy


def _check_features(path: Path, features: tuple[str, ...]) -> None:
    missing = missing_features(features)
    if missing:
        raise LibraryError(
            f"{path} needs processor features that this machine lacks: {', '.join(missing)}; "
            "build it for this machine, or for a more general one"
        )
