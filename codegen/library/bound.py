"""Libraries with bound inputs as object files: the arrays are part of the code.

A plan of one call (`plan.py`) stands around the library's `main`, where the linker's `--wrap` puts
it. It gives `main` the arrays: those that were laid out as they are laid out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loopwright.codegen.library.arrays import Array
from loopwright.codegen.library.plan import (
    ARGUMENTS,
    Kernel,
    Place,
    PlannedCall,
    Weights,
    object_files,
)
from loopwright.codegen.library.signature import Origin, Signature
from loopwright.dsl.errors import LibraryError


def without_bound(signature: Signature, bound: Mapping[str, Array]) -> Signature:
    """The signature of what is left to be given. Raises `LibraryError` where some constants are
    bound and others are not, since they are laid out together."""
    prepared = {p.name for p in signature.prepared}
    missing = [name for name in signature.constants if name not in bound]
    if prepared and not prepared & set(bound):
        raise LibraryError(
            f"the constants of {signature.name} are laid out together, and some are not bound: "
            f"bind {', '.join(missing)} too, or export the library that bind was called on"
        )
    given = {*signature.constants, *bound}
    inputs = tuple(p for p in signature.inputs if p.name not in given)
    return replace(signature, inputs=inputs, constants=(), prepared=())


def bind_objects(
    signature: Signature, origin: Origin, bound: Mapping[str, Array]
) -> tuple[Signature, Origin]:
    """The same library with the arrays inside, to be linked with `wrap`. Raises `LibraryError` as
    `without_bound`, and `BuildError`."""
    left = without_bound(signature, bound)
    arguments = (*left.inputs, *left.outputs)
    places = {p.name: Place(ARGUMENTS + n) for n, p in enumerate(arguments)}
    weights = Weights()
    places |= {name: weights.add(name, array) for name, array in bound.items()}
    main = Kernel("main", b"", signature.main_parameters)
    call = PlannedCall(main, tuple(places[p.name] for p in main.parameters))
    plan = object_files([call], weights, 0, len(arguments), origin.triple, around=True)
    kept = {p.name for p in signature.inputs} - {p.name for p in left.inputs}
    extra = {**origin.extra, "bound": sorted(kept)}
    return left, replace(origin, objects=(*origin.objects, *plan), extra=extra)
