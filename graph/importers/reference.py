"""Reference outputs of a model where it comes from, to find what is imported wrongly.

A torch program is run in torch, for its example inputs; an ONNX model in onnxruntime, where that
is installed, for its example inputs or random ones. Examples that are the same everywhere, such as
zeros that stand for a shape, tell little: random numbers take their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.codegen.library.torch_tensors import to_numpy
from loopwright.dsl.dtypes import largest
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import reason
from loopwright.graph.importers.torch.halves import has_halves
from loopwright.packages import install, onnx, torch

_CLOSE = 1e-2
"""Share of an output's largest value: more than rounding, less than another operator."""
_COARSE = 0.1
"""The same where halves, or steps of a quantization, are rounded to in between."""
_NOTHING = 1e-6
"""Magnitude below which a value may be what rounding has left of zero."""
_NEAR = 0.1
"""Share of the largest number of a type: what is above may be rounded to infinity."""
_FLIPPED = 0.1
"""The share of truth values that rounding may decide otherwise."""
_OTHERS = 0.5
"""The share of integers that may be others: where there are many ties, most tell other places."""
_FEW = 64
"""Elements of an example that may well be meant to be the same, such as scales."""
_QUANTIZED = ("QuantizeLinear", "DynamicQuantize")
_WHOLE = ("MatMulInteger", "ConvInteger", "QLinear", "QGemm", "DynamicQuantize")
"""Names of operators with products of integers."""
_DRAWN = ("RandomNormal", "RandomUniform", "Multinomial", "Bernoulli")
"""Names of the operators whose results differ from run to run."""

_OF_NOTHING = ("ReduceMean", "LSTM", "GRU", "RNN")
"""Operators that onnxruntime gives a value of its own without elements, or at which it aborts."""

_COUNT_ONES = ("GroupQueryAttention",)
"""Operators that take counts of a mask's ones: with few of these, new keys are not the last."""

_REMEDIES = {
    "torch": "use others, or give the model as ONNX (torch.onnx.export); a model in another "
    "type than float32 by .float()",
    "onnxruntime": "use others, as by exporting the model with another opset",
}

_UNLIKE_TEXT = {"ConvTranspose": "pads or output_shape", "LpPool": "pads"}
"""Operators whose padding SAME is not ONNX's in onnxruntime, and what says the same in both."""

_SPREADS = (
    "It rounds to steps or halves in between, and one number that is rounded otherwise changes "
    "those after it: give arrays of real data as inputs, on which both may agree. Or "
)


def no_reference() -> None:
    """No framework's results; a function with a name, which pickles."""


@dataclass(frozen=True)
class Reference:
    """Inputs of a model, in order, and what the framework that it comes from gives."""

    framework: str
    inputs: Sequence[Any]
    outputs: list[Any]
    close: float = _CLOSE
    differs: str = ""
    """A sentence on what the framework itself reads in another way than ONNX's text."""

    @staticmethod
    def of_torch(program: Any) -> Reference | str:
        """Runs a program of torch.export; why not, if it has no example inputs, or takes none
        like them: lengths of zero, for one, stand for a shape."""
        if program.example_inputs is None:
            return "the program has no example inputs"
        rng = np.random.default_rng(0)

        def copied(x: Any) -> Any:
            """Copy what a program may write to: the caller's inputs and buffers."""
            if id(x) not in copies and isinstance(x, torch.Tensor):
                copies[id(x)] = x.detach().clone()
            return copies.get(id(x), x)

        def telling(x: Any) -> Any:
            """Random numbers for an example that is the same everywhere; copies of others."""
            x = copied(x)
            if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not _even(x):
                return x
            return torch.as_tensor(rng.standard_normal(tuple(x.shape))).to(x.dtype)

        def found(examples: Any) -> Reference:
            inputs, words = torch.utils._pytree.tree_map(telling, examples)
            given = [x.clone() for x in tensors_of((inputs, words))]
            buffers = {name: copied(x) for name, x in module.named_buffers()}
            with torch.no_grad():
                outputs = _leaves(torch.func.functional_call(module, buffers, inputs, words))
            return Reference("torch", given, outputs, closeness(program))

        def counting(x: Any) -> Any:
            """Ones for integers that are zero."""
            whole = isinstance(x, torch.Tensor) and not x.is_floating_point()
            return torch.ones_like(x) if whole and not x.any() else x

        copies: dict[int, Any] = {}
        module = _with_order(program.module())
        try:
            return found(program.example_inputs)
        except (RuntimeError, IndexError):  # of the numbers, since the shapes are known to fit
            copies.clear()
        try:
            return found(torch.utils._pytree.tree_map(counting, program.example_inputs))
        except (RuntimeError, IndexError) as error:
            return f"torch fails for the example inputs: {reason(error).splitlines()[0]}"

    @staticmethod
    def of_onnx(model: Any, inputs: Sequence[Any], given: Mapping[str, Any]) -> Reference | str:
        """Runs a `ModelProto`; why not, where there is no onnxruntime or it cannot run the model,
        and for a model that draws random numbers. For its `inputs`, those that are no weights,
        arrays or shapes may be `given` by name."""
        operators = {node.op_type for node in _nodes(model)}
        if any(name.startswith(_DRAWN) for name in operators):
            return "the model draws random numbers"
        rng = np.random.default_rng(0)
        try:
            least = 1 if operators.intersection(_COUNT_ONES) else 0
            drawn = [_input(value, given.get(value.name), rng, least) for value in inputs]
            undefined = sorted(operators.intersection(_OF_NOTHING))
            if undefined and not all(x.size for x in drawn):
                return f"onnxruntime is not asked for a {undefined[0]} of inputs without elements"
            whole = any(name.startswith(_WHOLE) for name in operators)
            outputs = _by_onnxruntime(model, drawn, whole)
        except ImportError:
            return f"onnxruntime is not installed: {install('onnx')}"
        except Exception as error:  # noqa: BLE001 - of many kinds; it is one more opinion alone
            return f"onnxruntime fails: {reason(error).splitlines()[0]}"
        if not all(isinstance(x, np.ndarray) for x in outputs):
            return "an output is no array"
        close = _COARSE if any(n.startswith(_QUANTIZED) for n in operators) else _CLOSE
        return Reference("onnxruntime", drawn, outputs, close, _unlike_text(model))

    def check(self, model: Callable[..., Any], tuned: bool = False, also: str = "") -> None:
        """Raises `ModelError` if a compiled model, `tuned` or not, gives something else. Some
        integers may differ, as those that tell the place of the largest do where there are
        several. `also` is a sentence on other causes."""
        off = self._off(_leaves(model(*self.inputs)))
        if off and tuned:
            raise ModelError(
                f"compiled by records, the model gives other results than in {self.framework}: "
                f"{off}. If it does not without them, some program rounds more than this network "
                "bears, or is wrong. check=False, or --no-check, leaves this comparison out"
            )
        if off:
            raise ModelError(
                f"compiled, the model gives other results than in {self.framework}: {off}. "
                f"{_SPREADS + 'one' if self.close > _CLOSE else 'One'} "
                f"of its operators is read in another way: {_REMEDIES[self.framework]}. "
                f"{self.differs}{also}"
                "check=False, or --no-check, leaves this comparison out"
            )

    def _off(self, made: list[Any]) -> str:
        """Description of how outputs differ from those wanted, if they do."""
        wanted = self.outputs
        if len(made) != len(wanted):
            return f"it has {len(made)} outputs, not {len(wanted)}"
        for number, (a, b) in enumerate(zip(made, wanted, strict=True)):
            if tuple(a.shape) != tuple(b.shape):
                return f"output {number} is of shape {a.shape}, not {b.shape}"
            if _dtype(a) != _dtype(b):
                return f"output {number} is of type {_dtype(a)}, not {_dtype(b)}"
            if "float" in _dtype(b) and (off := _difference(a, b, self.close)):
                return f"output {number} {off}"
            if _dtype(b) == "bool" and (_doubles(a) != _doubles(b)).mean() > _FLIPPED:
                return f"output {number} differs in more than {_FLIPPED:.0%}"
            if "int" in _dtype(b) and _others(a, b) > _OTHERS:
                return f"output {number} differs in more than {_OTHERS:.0%}"
        return ""


def _others(got: Any, wanted: Any) -> float:
    """The share of integers that differ, those of 8 bits, which quantization rounds, by more than
    one step; 0 where there is but one, or none."""
    a, b = _doubles(got), _doubles(wanted)
    differ = np.abs(a - b) > (wanted.dtype.itemsize == 1)
    return float(differ.mean()) if differ.size > 1 else 0.0


def closeness(program: Any, usual: float = _CLOSE) -> float:
    """The share of its largest value by which an output of a program of torch.export may be off:
    more than is usual where there are halves in between."""
    return _COARSE if has_halves(program) else usual


def _difference(got: Any, wanted: Any, close: float) -> str:
    """Description of how far two arrays are apart, if that is more than rounding."""
    halves = wanted.dtype.itemsize < 4
    close = max(close, _COARSE) if halves else close
    a, b = _doubles(got), _doubles(wanted)
    finite = np.isfinite(b)
    if halves:  # what is too large for them may be kept in another type in between, by either
        near = np.abs(b) > largest(_dtype(wanted)) * _NEAR
        finite &= ~(near & np.isinf(a) & (np.sign(a) == np.sign(b)))
        a, b = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
    special = ~(finite & np.isfinite(a))
    if not np.array_equal(a[special], b[special], equal_nan=True):
        return "differs in an infinity or NaN"
    error = np.abs(a[finite] - b[finite]).max(initial=0.0)
    scale = np.abs(b[finite]).max(initial=0.0)
    if error <= max(close * scale, _NOTHING):
        return ""
    return f"is off by {error:.2g}, its largest value is {scale:.2g}"


def _doubles(x: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """An array, or a tensor of torch's, whose types NumPy may lack."""
    return np.asarray(x if isinstance(x, np.ndarray) else x.detach().cpu().double(), np.float64)


def _dtype(x: Any) -> str:
    return str(x.dtype).removeprefix("torch.")


def _with_order(module: Any) -> Any:
    """The module of a program with its greatest elements in order, as ours are: what finds them
    may be free to give them in any."""
    for node in module.graph.nodes:
        if node.target is torch.ops.aten.topk.default:
            node.args = node.args[:4]
            node.kwargs = {name: x for name, x in node.kwargs.items() if name != "sorted"}
    module.recompile()
    return module


def tensors_of(values: Any) -> list[Any]:
    """The tensors in dicts, lists and the like."""
    leaves = torch.utils._pytree.tree_leaves(values)
    return [x for x in leaves if isinstance(x, torch.Tensor)]


def _even(x: Any) -> bool:
    """Return whether many elements are all the same."""
    size = int(np.prod(tuple(x.shape), dtype=np.int64))
    return size > _FEW and bool((x == x.reshape(-1)[0]).all())


def _leaves(outputs: Any) -> list[Any]:
    """The arrays, or tensors of torch's, of nested outputs."""
    if isinstance(outputs, np.ndarray):
        return [outputs]
    if isinstance(outputs, (tuple, list)):
        return [leaf for part in outputs for leaf in _leaves(part)]
    return [torch.as_tensor(x) for x in torch.utils._pytree.tree_leaves(outputs) if x is not None]


def _unlike_text(model: Any) -> str:
    """A sentence on an operator that onnxruntime reads in another way than ONNX's text, if the
    model has one: where a step is above the window, it takes no elements off, or other ones."""
    for node in _nodes(model):
        given = {a.name: a for a in node.attribute}
        auto = given["auto_pad"].s.decode() if "auto_pad" in given else ""
        if node.op_type not in _UNLIKE_TEXT or not auto.startswith("SAME"):
            continue
        strides = given["strides"].ints if "strides" in given else ()
        window = given["kernel_shape"].ints if "kernel_shape" in given else [0] * len(strides)
        if any(step > extent for step, extent in zip(strides, window)):
            return (
                f"Its {node.op_type} has auto_pad {auto}, which onnxruntime reads in another way "
                "than ONNX's text where strides are above the kernel: give "
                f"{_UNLIKE_TEXT[node.op_type]} in its place. "
            )
    return ""


def _nodes(model: Any) -> Iterator[Any]:
    """The operators of an ONNX model, those inside of functions and of control flow too."""
    left = [model.graph, *model.functions]
    while left:
        for node in left.pop().node:
            yield node
            for attribute in node.attribute:
                left += [attribute.g, *attribute.graphs]


def _onnx_with_order(model: Any) -> Any:
    """The same as `_with_order` for a model of ONNX."""
    if not any(_open_order(node) for node in _nodes(model)):
        return model
    made = type(model)()
    made.CopyFrom(model)
    for attribute in (a for node in _nodes(made) for a in _open_order(node)):
        attribute.i = 1
    return made


def _open_order(node: Any) -> list[Any]:
    """The attributes by which an operator leaves open in which order its results come."""
    every = node.attribute if node.op_type == "TopK" else ()
    return [a for a in every if a.name == "sorted" and not a.i]


def _input(value: Any, given: Any, rng: np.random.Generator, least: int) -> Any:
    """Value given for an input of an ONNX model, or random numbers: integers, which may count or
    name something, from `least` to 1."""
    kind = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if hasattr(given, "shape"):
        array = np.asarray(to_numpy(given))
        if not np.issubdtype(dtype, np.floating) or not _even(array):
            return array.astype(dtype)
        given = array.shape
    shape = given if given is not None else [d.dim_value for d in kind.shape.dim]
    if np.issubdtype(dtype, np.floating):
        return np.asarray(rng.standard_normal(tuple(shape)), dtype)
    return np.asarray(rng.integers(least, 2, tuple(shape)), dtype)


def _by_onnxruntime(model: Any, inputs: Sequence[Any], whole: bool) -> list[Any]:
    """The outputs of a model, with products of `whole` numbers or without."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Its rewrites round otherwise where a model is quantized.
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_DISABLE_ALL
    if whole:
        # Without VNNI its sums of pairs of products saturate, unless this rewrite is on.
        options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED
        options.add_session_config_entry("session.x64quantprecision", "1")
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        _onnx_with_order(model).SerializeToString(), options, ["CPUExecutionProvider"]
    )
    names = [x.name for x in session.get_inputs()]
    found: list[Any] = session.run(None, dict(zip(names, inputs, strict=True)))
    return found
