"""Programs of torch.export as ONNX, by torch's own exporter."""

from __future__ import annotations

import functools
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import reason
from loopwright.graph.importers.torch.halves import rounded_once
from loopwright.graph.importers.torch.inputs import input_names
from loopwright.graph.importers.torch.layers import in_parts
from loopwright.graph.importers.torch.operators.scans import name_scans
from loopwright.graph.importers.torch.quiet import quiet
from loopwright.graph.importers.torch.translations import translations
from loopwright.packages import aten, optional, torch

_WITHOUT = re.compile(
    r"No ONNX function found for <(?:OpOverload\(op='\w+|torch\._higher_order_ops)\.(\w+)"
)
"""The exporter's words for an operator that it does not know, after the name of its family."""
_FUNCTIONS = 4096  # of onnxscript that the exporter keeps, at most


def onnx_of(program: Any) -> Any:
    """The `ModelProto` of a program of torch.export, by torch's own exporter. Its inputs have the
    names that the user calls them by. Raises `ModelError`."""
    for package in ("onnxscript", "onnx"):  # torch reads models of its own as ONNX
        optional(package, "a model of torch", ModelError)
    _read_functions_once()
    program = in_parts(program)
    # The exporter tells of packages that are not installed, and of its own code.
    logs = quiet(logging.ERROR, "torch.onnx", "onnxscript", "onnx_ir")
    with logs, warnings.catch_warnings(), _reshaping(program), rounded_once(program):
        warnings.simplefilter("ignore")
        try:
            made = _to_onnx(program)
        except Exception as error:  # noqa: BLE001 - of many kinds
            try:  # some operators are known by their parts alone
                made = _to_onnx(in_parts(program.run_decompositions()))
            except Exception:  # noqa: BLE001 - the first one says what the user's program has
                raise ModelError(_why(error)) from error
    _cast_outputs(made.graph, program)
    _rename(made.graph, dict(zip((v.name for v in made.graph.input), input_names(program))))
    return made


def _to_onnx(program: Any) -> Any:
    from onnx_ir.passes.common import NameFixPass
    from onnxscript import optimizer

    # The exporter's optimizer takes numbers for 0 and 1 that are near: x + 1e-9 becomes x.
    made = torch.onnx.export(
        program,
        dynamo=True,
        verbose=False,
        optimize=False,
        custom_translation_table=translations(),
    )
    assert made is not None
    name_scans(made.model)
    optimizer.inline(made.model)
    optimizer.fold_constants(made.model)  # sequences that splits make, too
    optimizer.remove_unused_nodes(made.model)
    NameFixPass()(made.model)  # a weight may be called as an input is, or as a result
    return made.model_proto


def _read_functions_once() -> None:
    """Have the exporter keep the functions of onnxscript and their signatures: it would parse the
    source of all five hundred in every call, which takes longer than a small model."""
    with suppress(ImportError, AttributeError):  # another version may have no such function
        from torch.onnx._internal.exporter import _registration

        for module, name in (
            (_registration.onnxscript_apis, "get_torchlib_ops"),
            (_registration._schemas, "op_signature_from_function"),
        ):
            function = getattr(module, name)
            if not hasattr(function, "cache_info"):
                setattr(module, name, functools.lru_cache(_FUNCTIONS)(function))


@contextmanager
def _reshaping(program: Any) -> Iterator[None]:
    """Let the views of a program be reshapes for a while: when the exporter takes a program apart,
    results may have other strides than they had when it was traced."""
    views = [n for n in program.graph.nodes if n.target is aten.view.default]
    for node in views:
        node.target = aten.reshape.default
    try:
        yield
    finally:
        for node in views:
            node.target = aten.view.default


def _cast_outputs(graph: Any, program: Any) -> None:
    """Give outputs the types that torch gives them: the exporter leaves a result of halves that it
    computes in float32 as it is, where nothing else reads it."""
    from onnx.helper import np_dtype_to_tensor_dtype

    (results,) = next(n for n in program.graph.nodes if n.op == "output").args
    tensors = [n for n in results if hasattr(getattr(n, "meta", {}).get("val"), "dtype")]
    for number, (value, node) in enumerate(zip(graph.output, tensors, strict=True)):
        kind = value.type.tensor_type
        name = str(node.meta["val"].dtype).removeprefix("torch.")
        wanted = int(np_dtype_to_tensor_dtype(np.dtype(name)))
        if kind.elem_type != wanted:
            new = graph.node.add(op_type="Cast", input=[value.name], output=[f"cast_{number}"])
            new.attribute.add(name="to", type=2, i=wanted)  # an integer
            value.name, kind.elem_type = new.output[0], wanted


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Give inputs of a graph other names."""
    taken = {name for node in graph.node for name in node.output}
    taken.update(w.name for w in graph.initializer)
    names = {old: new for old, new in names.items() if new not in taken}
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for n, name in enumerate(node.input):
            node.input[n] = names.get(name, name)


def _why(error: BaseException) -> str:
    """What is told of an error of the exporter's."""
    cause = _cause(error)
    if (named := _WITHOUT.search(cause)) is not None:
        return (
            f"torch's operator {named[1]} has no counterpart in ONNX: write it by "
            "others, or compute it outside of the model and give it to it as an input or a buffer"
        )
    return f"torch.onnx cannot export the model: {cause}; use other operators"


def _cause(error: BaseException) -> str:
    """The first cause of an error, in a line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return reason(error).splitlines()[0] if isinstance(error, Exception) else str(error)
