"""Recurrences of torch over any number of steps, each as one operator.

torch.export takes `nn.LSTM`, `nn.GRU` and `nn.RNN` apart, step by step, which fixes their length.
While a program of open sizes is traced, they are operators of ours, which become those of ONNX.
An LSTM that projects its states has none in ONNX, so that it is traced step by step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.torch.operators.parts import op, whole
from loopwright.packages import functional, torch

_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
"""The places of ONNX's gates among torch's, by torch's function: i, o, f and g of an LSTM among
i, f, g and o; z, r and n of a GRU among r, z and n."""


def whole_recurrences() -> dict[Any, Callable[..., Any]]:
    """What traces a recurrence as an operator of ours, by torch's function. One that ONNX has no
    operator for raises `ModelError`."""
    packing = {torch._VF._pack_padded_sequence: _packed}
    return packing | {f: functools.partial(_called, op) for f, op in _operators().items()}


def step_by_step() -> dict[Any, Callable[..., Any]]:
    """What traces recurrences of fixed lengths that ONNX has no operator for."""
    return {torch.lstm: _by_steps}


def _by_steps(x: Any, hx: Any, *rest: Any) -> Any:
    """An LSTM that projects its states, forwards and backwards, layer by layer; others as torch
    has them."""
    if not isinstance(rest[1], bool) or hx[0].shape[-1] == hx[1].shape[-1]:
        return torch.lstm(x, hx, *rest)
    params, has_biases, layers, dropout, train, bidirectional, batch_first = rest
    if train and dropout > 0 and layers > 1:
        return torch.lstm(x, hx, *rest)
    x = x.transpose(0, 1) if batch_first else x
    ways, ends = 2 if bidirectional else 1, list[Any]()
    count = len(params) // (layers * ways)
    for _ in range(layers):
        made = []
        for way in range(ways):
            at = len(ends)
            w, r, *biases, project = params[at * count : (at + 1) * count]
            of_input, of_state = biases if has_biases else (None, None)
            hidden, cell, steps = hx[0][at], hx[1][at], functional.linear(x, w, of_input).unbind()
            rows = list[Any]()
            for step in reversed(steps) if way else steps:
                gates = (step + functional.linear(hidden, r, of_state)).chunk(4, -1)
                i, f, o = (gates[k].sigmoid() for k in (0, 1, 3))
                cell = f * cell + i * gates[2].tanh()
                hidden = functional.linear(o * cell.tanh(), project)
                rows.append(hidden)
            made.append(torch.stack(rows[::-1] if way else rows))
            ends.append((hidden, cell))
        x = torch.cat(made, -1)
    return x.transpose(0, 1) if batch_first else x, *map(torch.stack, zip(*ends))


def translations() -> dict[Any, Callable[..., Any]]:
    """Functions that make ONNX operators of a call, by our operator."""
    _operators()
    own = torch.ops.loopwright
    return {getattr(own, name).default: functools.partial(_translated, name) for name in _GATES}


@functools.cache
def _operators() -> Mapping[Any, Callable[..., Any]]:
    """Our operators, by the functions of torch that they compute and have the arguments of."""
    rest = "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train"
    made: dict[Any, Any] = {}
    for name in _GATES:
        function = getattr(torch, name)
        states, results = ("Tensor[]", "Tensor, Tensor") if name == "lstm" else ("Tensor",) * 2
        made[function] = torch.library.custom_op(
            f"loopwright::{name}",
            functools.partial(_contiguous, function),
            mutates_args=(),
            schema=f"(Tensor input, {states} hx, {rest}, bool bidirectional)"
            f" -> (Tensor, {results})",
        )
        made[function].register_fake(_shapes)
    return made


def _contiguous(function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """What torch computes, in the order of elements that `_shapes` says: steps first."""
    return tuple(x.contiguous() for x in function(*args, False))


def _shapes(x: Any, hx: Any, params: Any, *rest: Any) -> tuple[Any, ...]:
    """The results' shapes: the hidden states of all steps, and the last states."""
    states, bidirectional = _listed(hx), rest[4]
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return x.new_empty((*x.shape[:2], width)), *(h.new_empty(h.shape) for h in states)


def _called(  # noqa: PLR0913 - torch's own signature
    operator: Callable[..., Any],
    x: Any,
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> Any:
    """A call of torch's as one of our operator. One in which dropout has no effect trains not."""
    if not isinstance(has_biases, bool):  # another signature, that of packed sequences
        _packed()
    hidden, *cells = (h.shape[-1] for h in _listed(hx))
    if cells not in ([], [hidden]):
        raise ModelError(
            f"an nn.LSTM has a proj_size of {hidden}, which ONNX has not: without it "
            "sizes may be open, with it give example inputs of fixed shapes"
        )
    train = train and dropout > 0 and num_layers > 1
    x = x.transpose(0, 1) if batch_first else x
    y, *ends = operator(x, hx, params, has_biases, num_layers, dropout, train, bidirectional)
    # Strides are as torch has them: whether a view can be made follows from these.
    return y.transpose(0, 1) if batch_first else y, *ends


def _listed(hx: Any) -> Sequence[Any]:
    """States as torch has them: those of an LSTM in a list, others as one tensor."""
    return hx if isinstance(hx, (list, tuple)) else [hx]


def _packed(*_: Any) -> NoReturn:
    raise ModelError(
        "the model packs sequences, the lengths of which are data: give nn.LSTM, nn.GRU or nn.RNN "
        "a tensor without pack_padded_sequence, and mask what is behind an end"
    )


def _translated(  # noqa: PLR0913 - torch's own signature
    name: str,
    x: Any,
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Any, ...]:
    """One ONNX operator for each layer, and the last states of all layers together."""
    starts = _listed(hx)
    ways, hidden = (2 if bidirectional else 1), params[1].shape[-1]
    how: dict[str, Any] = {"linear_before_reset": 1} if name == "gru" else {}
    if name.startswith("rnn"):
        how["activations"] = [name.removeprefix("rnn_").capitalize()] * ways
    kind = getattr(op, name.partition("_")[0].upper())
    rows = whole(*(gate * hidden + k for gate in _GATES[name] for k in range(hidden)))

    def together(parts: Sequence[Any]) -> Any:
        """A weight of each direction, its gates in ONNX's order."""
        ordered = [op.Unsqueeze(op.Gather(part, rows), whole(0)) for part in parts]
        return op.Concat(*ordered, axis=0)

    ends: list[list[Any]] = [[] for _ in starts]
    count = len(params) // num_layers
    for layer in range(num_layers):
        own = params[layer * count : (layer + 1) * count]
        w, r, *biases = (together(own[k :: count // ways]) for k in range(count // ways))
        first, stop = whole(layer * ways), whole((layer + 1) * ways)
        y, *lasts = kind(
            x,
            w,
            r,
            op.Concat(*biases, axis=1) if has_biases else None,
            None,
            *(op.Slice(start, first, stop, whole(0)) for start in starts),
            hidden_size=hidden,
            direction="bidirectional" if bidirectional else "forward",
            **how,
        )
        # (steps, directions, batch, hidden) ↦ (steps, batch, directions * hidden)
        x = op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), whole(0, 0, ways * hidden))
        for kept, last in zip(ends, lasts, strict=True):
            kept.append(last)
    return x, *(op.Concat(*kept, axis=0) for kept in ends)
