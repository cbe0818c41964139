"""`Source`: a workload as the nests that rewrites start from."""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.dsl.expr import Binary, Cast, Const, Expr, Select
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload
from loopwright.schedule.program.canonical import Program
from loopwright.schedule.program.combine import combined
from loopwright.schedule.program.nest import Nest
from loopwright.schedule.program.plan import decomposed, names_of


@dataclass(frozen=True)
class Source:
    """A workload, its nests with producers and consumers `combined`, and its `program`: the same
    without products with zeros that are known to be such (`polyphase`)."""

    workload: Workload
    combined: Program
    program: Program

    @staticmethod
    def of(workload: Workload, fills: bool = False) -> Source:
        """The source of a workload; `fills` as `combined` has it."""
        nests = combined(workload, fills)
        return Source(workload, nests, decomposed(nests, workload))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Outputs of the workload."""
        return self.workload.outputs

    def names(self) -> set[str]:
        """The names that are taken; a new set at every call."""
        return names_of((*self.combined, *self.program), self.workload)

    @property
    def numerics(self) -> Numerics:
        """Numerics of the program. It is strict if it multiplies every zero that the definition
        multiplies, since zero times infinity is NaN."""
        dense = self.program == self.combined and not any(map(multiplies_padding, self.program))
        return Numerics.STRICT if dense else Numerics.STANDARD


def multiplies_padding(nest: Nest) -> bool:
    """Return whether a factor of a sum's terms is 0 where a test fails."""

    def padded(x: Expr) -> bool:
        if isinstance(x, Binary) and x.op == "mul":
            return padded(x.x) or padded(x.y)
        if isinstance(x, Cast):
            return padded(x.x)
        return isinstance(x, Select) and isinstance(x.y, Const) and x.y.value == 0

    product = isinstance(nest.body, Binary) and nest.body.op == "mul"
    return nest.reducer == "sum" and product and padded(nest.body)
