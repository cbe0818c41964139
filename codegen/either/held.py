"""Code of GPUs in the manifest of the processor's library."""

from __future__ import annotations

import base64
import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from loopwright.codegen.gpu.library import GpuLibrary, load_code
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Origin, Signature
from loopwright.dsl.errors import LibraryError

_HELD = "gpu"
L = TypeVar("L", bound=Library)


def with_held(cpu: L, gpus: Sequence[GpuLibrary], path: str | os.PathLike[str]) -> L:
    """The processor's library with the code of GPUs inside, for an export to `path`. Raises
    `LibraryError` for bound or loaded ones."""
    if any(gpu._bound or not gpu.code.image for gpu in gpus):
        raise LibraryError(
            f"{path}: what is bound or was loaded lies on the GPU, and a file has no place "
            "for it: export the libraries as they were built, and bind after loading"
        )
    held = [
        {
            "signature": gpu.signature.to_json(),
            "target": gpu.origin.target,
            "numerics": gpu.origin.extra.get("numerics"),
            "code": base64.b64encode(gpu.code.to_bytes()).decode(),
        }
        for gpu in gpus
    ]
    made = copy.copy(cpu)
    made.origin = replace(cpu.origin, extra={**cpu.origin.extra, _HELD: held})
    return made


def held(cpu: Library) -> list[GpuLibrary]:
    """The libraries of a GPU that a file holds beside the processor's."""
    found = cpu.origin.extra.get(_HELD)
    if not found:
        raise LibraryError(
            f"{cpu.signature.name} holds no code for a GPU: give a library as gpu, or load a file "
            "that the `export` of lw.either(…) wrote"
        )
    return [
        load_code(
            Signature.from_json(each["signature"]),
            base64.b64decode(each["code"]),
            Origin(target=each["target"], extra={"numerics": each["numerics"]}),
        )
        for each in found
    ]
