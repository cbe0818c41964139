"""What torch.export leaves to be asserted of open sizes: it holds at all of them, or is an error.

The exporter proves few properties of sizes: not that `2 * (n // 2) < n + 2`, nor that 8 divides a
multiple of 8. Sizes have bounds here, so each assertion is computed for all of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.dsl.size import Size
from loopwright.dsl.words import assigned
from loopwright.graph.errors import ModelError

Array = np.ndarray[Any, Any]


def check_asserted(
    program: Any, shapes: Sequence[Sequence[int | Size]], sizes: Mapping[str, Array]
) -> None:
    """Raises `ModelError` where an assertion of a program does not hold at some of these sizes.
    `shapes` are those of its inputs. An assertion that depends on data is not looked at."""
    from torch.ops import aten

    functions = _functions()

    known: dict[Any, Any] = {}
    inputs = [n for n in program.graph.nodes if n.name in program.graph_signature.user_inputs]
    own = dict(zip(inputs, shapes))

    def value(node: Any) -> Any:
        """A number at all sizes. Raises `LookupError` for what is none."""
        if not hasattr(node, "op"):
            return node
        if node not in known:
            if node.target is aten.sym_size.int:
                known[node] = _at(own[node.args[0]][node.args[1]], sizes)
            else:
                known[node] = functions.get(node.target, node.target)(*map(value, node.args))
        return known[node]

    for node in program.graph.nodes:
        if node.target is not aten._assert_scalar.default:
            continue
        try:
            holds = np.asarray(value(node.args[0]))
        except (LookupError, TypeError, ValueError):
            continue
        if not holds.all():
            place = int(np.argmin(holds))
            some = {n: int(x.flat[place]) for n, x in sizes.items()}
            at = {n: np.asarray(x) for n, x in some.items()}
            if _is_of_an_extent(program, own, node.args[0], at):
                continue
            raise ModelError(
                f"the model does not take all of these sizes, as {assigned(some)}: torch.export "
                f"asserts {node.args[0].meta['val']}; give the dims other bounds, or a multiple"
            )


def _is_of_an_extent(program: Any, own: Mapping[Any, Any], node: Any, at: Any) -> bool:
    """Return whether an assertion says that an extent is not 1, as it is at some sizes. Torch
    would broadcast it; a model is read at fixed sizes, where that is seen."""
    import torch

    if type(node.meta["val"].node.expr).__name__ != "Unequality":
        return False
    values = {
        n.node.expr: int(_at(extent, at))
        for placeholder, shape in own.items()
        for n, extent in zip(placeholder.meta["val"].shape, shape)
        if isinstance(n, torch.SymInt)
    }
    shapes = (getattr(each.meta.get("val"), "shape", ()) for each in program.graph.nodes)
    extents = {n.node.expr for s in shapes for n in s if isinstance(n, torch.SymInt)}
    return any(e.subs(values) == 1 for e in extents)


def _at(extent: int | Size, sizes: Mapping[str, Array]) -> Any:
    return extent if isinstance(extent, int) else extent.over(sizes)


def _functions() -> dict[Any, Callable[..., Any]]:
    """NumPy's forms of functions on numbers that take no arrays."""
    import torch

    return {
        torch.sym_max: np.maximum,
        torch.sym_min: np.minimum,
        torch.sym_not: np.logical_not,
        torch.sym_ite: np.where,
        operator.not_: np.logical_not,
    }
