"""Check that a program of torch's only computes outputs from inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.inputs import reason
from loopwright.graph.importers.torch.quiet import decomposed
from loopwright.packages import torch


def check_inference(program: Any) -> None:
    """Raises `ModelError` where a program of torch.export trains, draws random numbers, or changes
    what it is given.

    TVM's importer takes dropout for nothing, forgets what is written to buffers, and keeps what
    was drawn once.
    """
    for node in _calls(program):
        if _trains(node):
            raise ModelError(
                f"{node.target} computes as in training: programs are for inference; call "
                ".eval(), and give training=self.training to functions such as F.dropout"
            )
        if _draws(node):
            raise ModelError(
                f"{node.target} draws random numbers, which a compiled program cannot: draw them "
                "outside of the model and give them to it as an input"
            )
    # Most writes are to intermediate results and harmless. Which are not, only decompositions
    # say, and they take seconds.
    if any(node.target._schema.is_mutable for node in _calls(program)):
        try:
            signature = decomposed(program).graph_signature
        except Exception as error:  # of many kinds
            raise ModelError(
                "torch.export cannot tell what the model writes to, among its operators that end "
                f"in _: {reason(error).splitlines()[0]}; use others, which return what they make"
            ) from error
        for kind, changed in (
            ("buffer", signature.buffers_to_mutate),
            ("parameter", signature.parameters_to_mutate),
            ("input", signature.user_inputs_to_mutate),
        ):
            for name in changed.values():
                raise ModelError(
                    f"the model writes to its {kind} {name}, which a compiled program cannot: "
                    "take the old value as an input and return the new one"
                )


def _calls(program: Any) -> Iterator[Any]:
    """The nodes that call operators, those of branches and loops among them."""
    for part in program.graph_module.modules():
        for node in part.graph.nodes if hasattr(part, "graph") else ():
            if hasattr(node.target, "_schema"):
                yield node


def _draws(node: Any) -> bool:
    """Return whether results differ from call to call, in inference too."""
    switches = {"train", "training", "dropout_p"}  # `_trains` has looked at them
    names = {argument.name for argument in node.target._schema.arguments}
    return torch.Tag.nondeterministic_seeded in node.target.tags and not switches & names


def _trains(node: Any) -> bool:
    names = [argument.name for argument in node.target._schema.arguments]
    given = {**dict(zip(names, node.args)), **node.kwargs}
    if any(given.get(name) for name in ("train", "training", "use_input_stats")):
        # A norm without statistics of its own takes those of its input, in inference too.
        return "running_mean" not in given or given["running_mean"] is not None
    return bool(given.get("dropout_p"))
