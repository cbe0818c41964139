"""What torch.export leaves to be asserted of open sizes: it holds at all of them, or is an error.

The exporter proves few properties of sizes: not that `2 * (n // 2) < n + 2`, nor that 8 divides a
multiple of 8. Sizes have bounds here, so each assertion is computed for all of them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.dsl.size import Size
from loopwright.dsl.words import assigned
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.torch.eager import Differs
from loopwright.packages import aten, torch

Array = np.ndarray[Any, Any]


_TRIED = 4  # sizes at which a program is compared with its module


def check_asserted(
    program: Any,
    shapes: Sequence[Sequence[int | Size]],
    sizes: Mapping[str, Array],
    differs: Differs,
) -> None:
    """Raises `ModelError` where an assertion of a program does not hold at some of these sizes.
    `shapes` are those of its inputs. An assertion that depends on data is not looked at.

    Torch's own operators assert that an extent is not 1, which they would broadcast, and that a
    slice, whose end is the lesser of two numbers, is all of an axis. A branch of the user's may
    assert the same. Whether a program `differs` from its module there tells.
    """
    functions: dict[Any, Callable[..., Any]] = {
        torch.sym_max: np.maximum,
        torch.sym_min: np.minimum,
        torch.sym_not: np.logical_not,
        torch.sym_ite: np.where,
        operator.not_: np.logical_not,
    }

    known: dict[Any, Any] = {}
    inputs = [n for n in program.graph.nodes if n.name in program.graph_signature.user_inputs]
    own = dict(zip(inputs, shapes))
    count = len(next(iter(sizes.values()), ()))

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
        failing = np.flatnonzero(~np.broadcast_to(holds.astype(bool), count))
        if len(failing):
            some = [{n: int(x[k]) for n, x in sizes.items()} for k in failing]
            if _is_torchs(node.args[0].meta["val"].node.expr):
                some.sort(key=lambda each: math.prod(each.values()))
                ends = np.linspace(0, len(some) - 1, _TRIED).astype(int)
                if not any(differs(some[k]) for k in dict.fromkeys(ends.tolist())):
                    continue
            raise ModelError(
                f"the model does not take all of these sizes, as {assigned(some[0])}: "
                f"torch.export asserts {node.args[0].meta['val']}; give the dims other bounds, or "
                "a multiple"
            )


def _is_torchs(assertion: Any) -> bool:
    """Return whether torch's own operators may assert this of sizes at which they work."""
    from torch.utils._sympy.functions import Max, Min

    return type(assertion).__name__ == "Unequality" or bool(assertion.has(Min, Max))


def _at(extent: int | Size, sizes: Mapping[str, Array]) -> Any:
    return extent if isinstance(extent, int) else extent.over(sizes)
