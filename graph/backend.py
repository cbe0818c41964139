"""`torch.compile(model, backend="loopwright")`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from loopwright.dsl.errors import LoopwrightError


def backend(graph: Any, examples: Sequence[Any]) -> Callable[..., Any]:
    """Compile a graph that torch's Dynamo captured, for inference.

    Records come from the store that $LOOPWRIGHT_RECORDS names, by default tuning.db where there is
    one; work without a record gets a default schedule. Parameters and buffers are laid out once;
    after they have changed, the graph runs in torch, and so it does where gradients are wanted or
    where it cannot be built, which a warning explains.
    """
    import torch

    weights = _static(graph, examples)
    try:
        made = _built(graph, examples, weights)
    except LoopwrightError as error:
        warnings.warn(f"loopwright leaves a graph to torch: {error}", stacklevel=2)
        forward: Callable[..., Any] = graph.forward
        return forward
    versions = {n: (examples[n].data_ptr(), examples[n]._version) for n in weights}

    def call(*inputs: Any) -> Any:
        gradients = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
        changed = any(
            (inputs[n].data_ptr(), inputs[n]._version) != known for n, known in versions.items()
        )
        if gradients or changed:
            return graph.forward(*inputs)
        result = made(*(x for n, x in enumerate(inputs) if n not in versions))
        return result if isinstance(result, tuple) else (result,)

    return call


def _static(graph: Any, examples: Sequence[Any]) -> list[int]:
    """The numbers of the inputs that are parameters or buffers of the model."""
    import torch

    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [
        n
        for n, (node, x) in enumerate(zip(nodes, examples))
        if isinstance(x, torch.nn.Parameter)
        or node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    ]


def _built(graph: Any, examples: Sequence[Any], weights: list[int]) -> Callable[..., Any]:
    """A graph as a model of ours, its parameters and buffers inside."""
    import torch

    from loopwright.graph.model import build_model

    if not all(isinstance(x, torch.Tensor) for x in examples):
        raise LoopwrightError("it takes numbers beside tensors: give dynamic=False")

    class Closed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for n in weights:
                self.register_buffer(f"w{n}", examples[n].detach())

        def forward(self, *rest: Any) -> Any:
            left = iter(rest)
            every = [
                getattr(self, f"w{n}") if n in weights else next(left)
                for n in range(len(examples))
            ]
            return graph(*every)

    store = os.environ.get("LOOPWRIGHT_RECORDS", "tuning.db")
    inputs = tuple(x.detach() for n, x in enumerate(examples) if n not in weights)
    with torch.no_grad():
        return build_model(Closed(), inputs, records=store if os.path.exists(store) else None)
