"""Torch modules and programs of torch.export: programs for inference."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.dsl.index import Index
from loopwright.dsl.size import Dim, Size
from loopwright.dsl.tensor import Tensor
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import Inputs, check_several, reason
from loopwright.graph.importers.torch.inference import check_inference
from loopwright.graph.importers.torch.inputs import (
    arranged,
    check_fixed,
    check_given,
    check_numbers,
    check_results,
    check_tensors,
    fixed_shapes,
)
from loopwright.graph.importers.torch.opened import (
    for_all_sizes,
    for_fixed_sizes,
    layouts_unasked,
    masks_as_given,
)
from loopwright.graph.importers.torch.quiet import fake_tensors_quiet, suggesting, without_graph
from loopwright.packages import torch

_FIXING = re.compile(
    r"Constraints violated|Specializations|inconsistent min|specialized it"
    r"|\b(\d+) <= \S+ and \S+ <= \1\b"
)
"""Words of torch's where a program is right for some sizes alone."""
_FIXED = (
    "; what the module does fixes a size, or allows some alone: float(n), math.sqrt(n) and "
    "int(n * 0.5) make a number of it, and so may an if, or a loop in Python over an open axis, "
    "unlike nn.LSTM; write n as it is, n ** 0.5, n // 2, and (8 - n % 8) % 8 for -n % 8, or build "
    "the model for each size"
)
_AGREE = (
    "; where two axes must agree, give both the same dim, or a size of the other's, as n + 1 for n"
)
_UNEVEN = '; where a size must be a multiple, as of 8, say so of its dim: lw.dim("n", 8, 512, 8)'
_ONE_SIZE = re.compile(r"\d+ not in VR\[(\d+), \1\]")
_SOME_SIZES = re.compile(r"\d+ not in VR\[(\d+), (\w+)\]")
_PACKED = (
    "; weights that torch.ao.quantization has packed cannot be exported: give the module as it "
    "was before, or an ONNX file that onnxruntime has quantized"
)
_MOVED = (
    "; a module that moves or casts a layer in forward, as by self.layer.to(dtype), changes its "
    "weights: do so before"
)
_SCRIPT = "torch.jit has made a script of it: give the torch.nn.Module that it was made of"
_OF_DATA = (
    "; a branch, or a shape, follows elements of tensors, which are not known before a call: take "
    "torch.where of both results, or wrap the module in one that decides beforehand"
)
_UNKNOWN = re.compile(r"Found <class '([^']+)'> in output.*", re.DOTALL)
_STRUCTURES = (
    "return tensors, or tuples, lists and dicts of them, as models of transformers do that are "
    "called with use_cache=False; a dataclass is one after torch.export.register_dataclass(…)"
)
_EXAMPLE = 64
"""A size at which a program is traced: what pools leave of it is not 1, which torch would fix."""
_ABOVE = 6
"""Steps above the least size at which it is traced at least."""
_SHARE = 0.3
"""Of truth values that are true."""


def torch_program(model: Any, inputs: Inputs) -> Any:
    """The program of a torch.nn.Module; None for a model that is neither that nor a program.
    Raises `ModelError` for one that does more than infer."""
    if type(model).__module__.startswith("torch.export") and hasattr(model, "graph_module"):
        check_tensors(model)
        program = _closed(model, inputs)
    elif _is_module(model):
        program = _exported(model, inputs)
        check_tensors(program)
    else:
        return None
    check_inference(program)
    check_results(program)
    return program


def open_program(model: Any, inputs: Inputs) -> Any:
    """The program of a torch.nn.Module for inputs of which shapes may have sizes of dims, or one
    of torch.export that has open shapes; None for a model that is neither. Raises `ModelError`."""
    if type(model).__module__.startswith("torch.export") and hasattr(model, "graph_module"):
        if fixed_shapes(model):
            raise ModelError(
                "the program is of fixed shapes: export it by torch.export.export(…, "
                "dynamic_shapes=…), or give the module and inputs with sizes of lw.dim"
            )
        program = model
    elif _is_module(model):
        program = _exported(model, inputs, is_open=True)
    else:
        return None
    check_tensors(program)
    check_inference(program)
    check_results(program)
    return program


def _is_module(model: Any) -> bool:
    """Return whether a model is a torch.nn.Module. Raises `ModelError` for a class of those."""
    if not (hasattr(model, "state_dict") and hasattr(model, "forward")):
        return False
    if isinstance(model, type):
        raise ModelError(f"{model.__name__} is a class: make a module of it, {model.__name__}(…)")
    return True


def structure_of(program: Any) -> Callable[[Sequence[Any]], Any] | None:
    """Function that makes dicts, lists and the like of a program's outputs."""
    spec = program.call_spec.out_spec
    tensors = [not hasattr(s.arg, "value") for s in program.graph_signature.output_specs]
    plain = spec.type is tuple and all(c.is_leaf() for c in spec.children()) and all(tensors)
    if spec.is_leaf() or (plain and spec.num_leaves > 1):
        return None

    return functools.partial(_nested, spec, tensors[-spec.num_leaves :])


def _nested(spec: Any, tensors: Sequence[bool], outputs: Sequence[Any]) -> Any:
    left = iter(outputs)
    return torch.utils._pytree.tree_unflatten(
        [next(left) if tensor else None for tensor in tensors], spec
    )


def _closed(program: Any, inputs: Inputs) -> Any:
    """A program of torch.export, its open shapes those of the inputs that are given."""
    if inputs is None:
        check_fixed(program)
        return program
    if fixed_shapes(program):
        check_given(program, inputs)
        return program
    return _traced(program.module(), *arranged(program, inputs))


def _exported(module: Any, inputs: Inputs, is_open: bool = False) -> Any:
    """A module as a program, traced in inference mode; `is_open`: shapes may have sizes."""
    traced = _traced_open if is_open else _traced
    if inputs is None:
        raise ModelError(
            "a torch.nn.Module has no shapes of its own: give example inputs as a tuple, such as "
            "(torch.zeros(1, 3, 224, 224),)"
        )
    trained = any(each.training for each in module.modules())
    with inferring(module):
        if isinstance(inputs, Mapping):
            # A program takes its inputs in the order in which they are given here.
            own: Iterable[str] = ()
            with suppress(ValueError):  # what is traced by torch.jit has no signature
                own = inspect.signature(module.forward).parameters
            words = {name: inputs[name] for name in (*own, *inputs) if name in inputs}
            program = traced(module, (), words)
        else:
            program = traced(module, inputs)
        if trained:  # and may undo in place what it has merged into its weights
            program.state_dict.update(copy.deepcopy(dict(program.state_dict)))
    return program


@contextmanager
def inferring(module: Any) -> Iterator[None]:
    """Have a module infer for a while."""
    modes = {each: each.training for each in module.modules()}
    try:
        module.eval()
        yield
    finally:
        for each, mode in modes.items():
            if each.training != mode:
                each.train(mode)  # which may do more: undo what it merged for inference
            each.training = mode


def _traced(module: Any, inputs: Sequence[Any], words: Mapping[str, Any] | None = None) -> Any:
    """Program that torch.export makes of a module for inputs of these shapes."""
    check_several(inputs)
    check_numbers((inputs, words))
    try:
        tensors = torch.utils._pytree.tree_map(as_torch, (tuple(inputs), words))
    except Exception as error:  # of many kinds
        raise ModelError(f"an input is no tensor: {reason(error)}") from error
    try:
        with for_fixed_sizes(), masks_as_given():
            program = _export(module, *tensors)
    except ModelError:
        raise
    except Exception as error:  # of many kinds
        leaves = torch.utils._pytree.tree_leaves((inputs, words))
        none = not any(hasattr(x, "shape") for x in leaves)
        hint = "; no input is a tensor: give examples, as torch.zeros(2, 16) for a shape" * none
        hint = hint or _of_numbers(leaves)
        raise ModelError(
            f"torch.export cannot export the model: {why_not(error)}{hint}"
        ) from error
    if getattr(program, "_guards_code", None):
        # Made inside of torch.compile, they name what is not defined. All shapes are fixed.
        program._guards_code = []
    return program


def _traced_open(
    module: Any, inputs: Sequence[Any], words: Mapping[str, Any] | None = None
) -> Any:
    """The same for inputs among which tensors of the notation stand for all sizes of theirs."""
    axes = _OpenAxes()
    check_several(inputs)
    check_numbers((inputs, words))
    _check_no_shape((*inputs, *(words or {}).values()))
    every = torch.utils._pytree.tree_map
    shapes: Any = every(axes.dims_of, tuple(inputs))
    if words is not None:
        shapes = every(axes.dims_of, dict(words))
    elif len(shapes) > (named_ones := _before_any_number(module)):
        shapes = (*shapes[:named_ones], shapes[named_ones:])
    args, given = every(axes.example, (tuple(inputs), None if words is None else dict(words)))
    try:
        # 1 is a size like any other.
        oblivious = torch.fx.experimental._config.patch(backed_size_oblivious=True)
        with oblivious, suggesting(), for_all_sizes(), masks_as_given(), layouts_unasked():
            return _export(
                module,
                args,
                given,
                dynamic_shapes=shapes,
                prefer_deferred_runtime_asserts_over_guards=True,  # which `check_asserted` tries
            )
    except ModelError:
        raise
    except Exception as error:  # of many kinds
        why = why_not(error)
        why += _FIXED if _FIXING.search(why) else ""
        why += _UNEVEN if "Mod(" in why else ""
        why += _of_numbers(torch.utils._pytree.tree_leaves((tuple(inputs), words)))
        raise ModelError(f"torch.export cannot export the model for these sizes: {why}") from error


@dataclass
class _OpenAxes:
    """Dims of torch's for sizes of the notation, each `known` by what it says with an example;
    `places` are those of the dims that these follow."""

    known: dict[str, tuple[Any, int]] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)

    def dims_of(self, x: Any) -> dict[int, Any] | None:
        """The dims of an input's open axes; None for what is no tensor."""
        if not hasattr(x, "shape"):
            return None
        sizes = {k: n for k, n in enumerate(_shape(x)) if isinstance(n, Size)}
        return {k: self._of(n)[0] for k, n in sizes.items() if any(d.low < d.high for d in n.dims)}

    def example(self, x: Any) -> Any:
        """A tensor of torch's for an input."""
        if not isinstance(x, Tensor):
            return as_torch(x)
        return example_of(x, [self._of(n)[1] if isinstance(n, Size) else n for n in _shape(x)])

    def _of(self, size: Size) -> tuple[Any, int]:
        if (key := str(size)) not in self.known:
            example = size.at({d.name: self._example(d) for d in size.dims})
            self.known[key] = self._bound(size, key), example
        return self.known[key]

    def _bound(self, size: Size, name: str) -> Any:
        """A dim of torch's. It knows what is `a*n + b` of another one; sums and quotients have
        bounds of their own, and their relation to others is asserted."""
        low, high = size.span()
        line = size.line()
        if line is not None and name != line[0].name and line[1] > 0:
            own, times, more = line
            return times * self._of(Size(Index(own.name).affine(), (own,)))[0] + more
        word = name if name.isidentifier() else f"size{len(self.known)}"
        return torch.export.Dim(word, min=low, max=max(high, low + 1))

    def _example(self, known: Dim) -> int:
        """The value of a dim at which a program is traced, another one for each."""
        place = self.places.setdefault(known.name, len(self.places))
        steps = max(_ABOVE, (_EXAMPLE - known.low) // known.multiple) + place
        return known.values[min(len(known.values) - 1, steps)]


def _check_no_shape(inputs: Iterable[Any]) -> None:
    """Raises `ModelError` for a shape with open sizes in place of a tensor."""
    for x in inputs:
        if isinstance(x, (tuple, list)) and any(isinstance(n, Size) for n in x):
            shown = ", ".join(map(str, x))
            raise ModelError(
                f"an input is the shape ({shown}), which has no type: torch modules take tensors; "
                f'give lw.tensor("x", ({shown}))'
            )


def why_not(error: Exception) -> str:
    """What torch says of a module that it cannot export, with a remedy where there is one."""
    why = _ONE_SIZE.sub(r"an open axis may have \1 elements alone", reason(error))
    why = why.removesuffix("Suggested fixes:").rstrip()  # of dims of torch's
    why = _SOME_SIZES.sub(rf"the model takes \1 to \2 elements along an open axis{_AGREE}", why)
    why = _UNKNOWN.sub(
        rf"its result has a \1, which torch does not take apart: {_STRUCTURES}", why
    )
    why += _PACKED if "PackedParams" in why else ""
    if "ScriptModule" in why:
        return _SCRIPT
    if "swap" in why and "_apply()" in why:
        return why.splitlines()[0] + _place(error) + _MOVED
    if type(error).__name__ == "DynamicOutputShapeException":
        return f"the shape of what {why} gives depends on data: compute it outside of the model"
    data = "data-dependent" in why or type(error).__name__ == "DataDependentOutputException"
    return why.splitlines()[0] + _place(error) + _OF_DATA if data else why


def _place(error: Exception) -> str:
    """The line of the user's at which torch has failed, if there is one."""
    others = (Path(torch.__file__).parent, Path(__file__).parents[3])
    for at in reversed(traceback.extract_tb(error.__traceback__)):
        if not at.filename.startswith(("<", *(f"{folder}/" for folder in others))):
            return f", at {at.filename}:{at.lineno}, in {at.name}"
    return ""


def _of_numbers(leaves: Sequence[Any]) -> str:
    """The remedy where inputs are numbers of Python's, by which a module may decide."""
    numbers = ", ".join(repr(x) for x in leaves if isinstance(x, (bool, int, float)))
    remedy = "leave it out where the module has a default, or wrap the module in one that gives it"
    told = f"; each of the numbers given, {numbers}, is a tensor of unknown value: {remedy}"
    return told if numbers else ""


def _export(*args: Any, **how: Any) -> Any:
    """The program that torch.export makes."""
    with fake_tensors_quiet(), without_graph(), warnings.catch_warnings():
        # nn.LSTM keeps its weights in a list, too, and others keep what they have computed
        warnings.filterwarnings("ignore", "The tensor attribute")
        return torch.export.export(*args, **how)


def as_torch(x: Any) -> Any:
    """A tensor of torch's for an input of any kind; None stays None."""
    if isinstance(x, np.ndarray):  # torch knows no negative strides
        return torch.as_tensor(np.ascontiguousarray(x).reshape(x.shape))
    if isinstance(x, Tensor):
        return example_of(x, _shape(x))
    if isinstance(x, torch.Tensor):  # given twice, it would be one input to torch.export
        return x.detach()
    return x if x is None else torch.as_tensor(x)


def example_of(x: Tensor, shape: Sequence[int], whole: int = 0) -> Any:
    """A tensor of torch's in place of one of the notation; an integer of it is `whole`."""
    dtype = getattr(torch, str(x.dtype))
    if dtype == torch.bool:  # masks that leave out everything, or nothing, tell little
        return torch.as_tensor(np.random.default_rng(0).random(shape) < _SHARE)
    if not dtype.is_floating_point:
        return torch.full(shape, whole, dtype=dtype)
    # Of zeros, each is as well the largest as any other.
    return torch.as_tensor(np.random.default_rng(0).standard_normal(shape)).to(dtype)


def _before_any_number(module: Any) -> float:
    """Number of arguments before `*args`; infinite for a module that takes no such."""
    kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()]
    star = inspect.Parameter.VAR_POSITIONAL
    return kinds.index(star) if star in kinds else math.inf


def _shape(x: Any) -> tuple[Any, ...]:
    return tuple(getattr(x, "shape", None) or ())
