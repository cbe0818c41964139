"""Context vectors: one per loop of a batched tree, for all configs of the batch at once.

They follow section 4 of Chen et al. 2018 ("context encoded" features) and its appendix. A loop's
vector holds what is known of the loop itself and of every buffer accessed below it. Buffers have
*roles*, so that the vector has one length for all programs:

    written    what a store writes, and reads again to update it
    register   register buffers, written or read: accumulators
    vector     what a store reads at an address that moves with its innermost loop
    broadcast  what a store reads at one address for all of its innermost loop

The vector, in the order of `names`; n = log₂(1 + x), so that nothing is 0:

    column                    meaning                                              unit   transform
    extent                    iterations; the mean where `bound` clips             1      n
    serial, parallel,         kind, one-hot                                        0, 1   -
      unrolled, vectorized
    depth                     loops outside of this one                            1      -
    busiest                   iterations that the busiest thread runs              1      n
    outside                   product of the extents outside: runs of this loop    1      n
    inside                    product of the extents from here inwards, summed
                              over the stores below: stores executed in one run    1      n
    <role>.elements           distinct elements touched in one run, per buffer,
                              summed over the buffers of the role                  1      n
    <role>.reuse              accesses in one run / distinct elements              1      n
    <role>.stride             elements by which one iteration of this loop moves
                              an access; the greatest of the role                  1      n

In programs for GPUs, loops are also of the kinds `block` and `thread`, and the roles are

    written    what a store writes to global memory, and reads again to update it
    register   registers of a thread, matrix tiles of a warp
    shared     shared memory, written or read
    global     what a store reads of global memory

`Touch` knows further numbers that the relation features need: cache lines and vector operations.

How they are computed: a variable of a `Let` stands for its linear expression (its `min` only
clips); ⌊v/d⌋ moves 1/d as fast as v, and v mod d as fast as v. An access to an axis of extent E,
moved by loops of extents eₖ with coefficients cₖ, reaches 1 + Σ|cₖ|(eₖ - 1) places, of which at
most Πeₖ are distinct, and at most E exist. Loops without iterations have vectors of zeros and add
nothing to what stands around them, as if they were absent.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from loopwright.costmodel.features.access import GPU_ROLES, MEMORY, ROLES, Access, Statement, Touch
from loopwright.costmodel.features.batch_arithmetic import (
    Mask,
    Real,
    both,
    least,
    log,
    most,
    only,
    plus,
    real,
    times,
    total,
)
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.elements import FLOAT_FUNCTIONS, FUNCTIONS_OF_TWO
from loopwright.dsl.expr import ARITHMETIC, Binary, Expr, Unary
from loopwright.dsl.traversal import walk
from loopwright.schedule.target import Target
from loopwright.schedule.tree import grammar as g

_KINDS = g.KINDS + g.GPU_KINDS
IDENTIFIERS = 255
"""Names of loop variables that are told apart."""


class _Touching:
    """What touches memory."""

    touch: tuple[Touch, ...]

    @functools.cached_property
    def lines(self) -> Real:
        """Cache lines outside of registers that one run touches."""
        return total([self.touch[r].lines for r in MEMORY])


@dataclass(frozen=True, eq=False)
class StoreContext(_Touching):
    """A store: its arithmetic operations, calls of elementary functions, and vector width; or
    another statement of a GPU: its products of matrix tiles, or of barriers, one."""

    arithmetic: float
    functions: float
    width: Real
    touch: tuple[Touch, ...]
    products: float = 0.0
    barriers: float = 0.0


@dataclass(frozen=True, eq=False)
class LoopContext(_Touching):
    """A loop, with what one run of it does: columns of the module's table, not transformed. For a
    GPU also the bytes of shared memory and the registers of 4 bytes that are allocated inside.
    Where it runs another loop once, and nothing else, `same` is that one, or that one's."""

    kind: str
    extent: Real
    depth: int
    identifier: int
    outside: Real
    inside: Real
    touch: tuple[Touch, ...]
    children: tuple[Context, ...]
    shared: Real = 0.0
    registers: Real = 0.0
    same: LoopContext | None = None

    def loops(self) -> Iterator[LoopContext]:
        """This loop and all inside of it, in the order in which they are written."""
        yield self
        yield from loops(self.children)


Context = LoopContext | StoreContext


def loops(nodes: Iterable[Context]) -> Iterator[LoopContext]:
    """Every loop, in the order in which they are written."""
    for node in nodes:
        if isinstance(node, LoopContext):
            yield from node.loops()


def names(gpu: bool = False) -> tuple[str, ...]:
    """Names of the columns of `vector`."""
    parts = itertools.product(GPU_ROLES if gpu else ROLES, ("elements", "reuse", "stride"))
    own = (*text_names()[:-1], "busiest", "outside", "inside")
    return (*own, *(f"{role}.{part}" for role, part in parts))


def vector(loop: LoopContext, threads: int) -> list[Real]:
    """A loop's context vector, as columns. Processors and GPUs have the same ones."""
    share = float(threads) if loop.kind == "parallel" else 1.0
    columns = [-(-loop.extent // share), loop.outside, loop.inside]
    for t in loop.touch:
        columns += [t.elements, t.reuse, t.stride]
    runs = _runs(loop)
    return [*text(loop)[:-1], *(only(runs, log(column)) for column in columns)]


def text_names() -> tuple[str, ...]:
    """Names of the columns of `text`."""
    return ("extent", *_KINDS, "depth", "identifier")


def text(loop: LoopContext) -> list[Real]:
    """Text of a loop, without what follows from it. It is the extent, kind and depth as in its
    context vector, and the number of its variable, from 1 to `IDENTIFIERS`."""
    kinds = [float(kind == loop.kind) for kind in _KINDS]
    columns = [log(loop.extent), *kinds, float(loop.depth), float(loop.identifier)]
    return [only(_runs(loop), column) for column in columns]


def _runs(loop: LoopContext) -> Mask:
    return both(loop.outside > 0.0, loop.extent > 0.0)


class Walk:
    """Gathers contexts from the innermost loops outwards."""

    roles = ROLES

    def __init__(self, target: Target) -> None:
        self.target = target
        self.path: list[g.Loop] = []
        self.lets: dict[g.Var, dict[g.Var, Real]] = {}
        self.extents: dict[g.Var, Real] = {}
        self.axes: dict[str, int] = {}

    def block(
        self, body: Sequence[g.Stmt], outside: Real
    ) -> tuple[tuple[Context, ...], list[Statement]]:
        nodes: list[Context] = []
        statements: list[Statement] = []
        for stmt in body:
            if isinstance(stmt, g.Let):
                self.let(stmt)
            elif isinstance(stmt, g.Store):
                parts = list(walk(stmt.value))
                statements.append(self.store(stmt, parts))
                nodes.append(self.store_context(parts, statements[-1]))
            elif isinstance(stmt, g.Loop) and isinstance(stmt.body[0], g.Prefetch):
                continue  # hints, which are no work
            elif isinstance(stmt, g.Loop) and (inner := self.loop(stmt, outside)) is not None:
                nodes.append(inner[0])
                statements += inner[1]
        return tuple(nodes), statements

    def loop(self, loop: g.Loop, outside: Real) -> tuple[LoopContext, list[Statement]] | None:
        extent = real(loop.extent)
        if isinstance(extent, float) and extent == 0:
            return None
        self.extents[loop.var] = extent
        mean = extent if loop.bound is None else self.mean(extent, loop.bound)
        self.path.append(loop)
        children, statements = self.block(loop.body, outside * mean)
        self.path.pop()
        own = (loop.kind, mean, len(self.path), self.identifier(loop.var), outside)
        if (same := _once(extent, mean, children)) is not None:
            touch = tuple([t.along(loop.var) for t in same.touch])
            return LoopContext(*own, same.inside, touch, children, same=same), statements
        for statement in statements:
            statement.repeat(loop.var, extent, mean)
        inside = total([s.count for s in statements])
        touch = Touch.of(self.roles, statements, loop.var)
        return LoopContext(*own, inside, touch, children), statements

    def identifier(self, var: g.Var) -> int:
        """A number for a loop's variable: axes count by the order in which they come."""
        axis, _, level = var.name.partition(".")
        number = self.axes.setdefault(axis, len(self.axes))
        return 1 + zlib.crc32(f"{number}.{level}".encode()) % IDENTIFIERS

    def mean(self, extent: Real, bound: g.Linear) -> Real:
        """The mean of min(extent, c - extent·block) over the blocks, which together have c
        iterations. A bound of another form, as that of a guard, is taken never to clip."""
        if len(bound.terms) != 1:
            return extent
        ((block, step),) = bound.terms
        if block not in self.extents or (isinstance(step, int) and step > 0):
            return extent
        return least(extent, real(bound.const) / most(self.extents[block], 1.0))

    def let(self, let: g.Let) -> None:
        self.lets[let.var] = self.linear(let.value)

    def linear(self, value: g.Linear) -> dict[g.Var, Real]:
        """The coefficients of the loops in an index expression."""
        result: dict[g.Var, Real] = {}
        for term, coefficient in value.terms:
            factor = real(coefficient)
            if isinstance(term, g.Var):
                inner = self.lets.get(term)
                if inner is None:
                    result[term] = plus(result.get(term, 0.0), factor)
                    continue
            else:
                inner = self.linear(term.value)
                factor = factor / (real(term.divisor) if isinstance(term, g.Quotient) else 1)
            for var, slope in inner.items():
                result[var] = plus(result.get(var, 0.0), times(factor, slope))
        return result

    def store(self, store: g.Store, parts: Iterable[Expr]) -> Statement:
        """A store of a value of these parts."""
        innermost = self.path[-1] if self.path else None
        width: Real = 1.0
        if innermost is not None and innermost.kind == "vectorized":
            width = most(self.width(store.buffer.dtype, self.extents[innermost.var]), 1.0)
        lane = None if innermost is None else innermost.var
        accesses = [self.access(store.buffer, store.index, True, lane, width)]
        for part in parts:
            if isinstance(part, g.Load):
                written = part.buffer.name == store.buffer.name
                accesses.append(self.access(part.buffer, part.index, written, lane, width))
        return Statement(width, list({a.key: a for a in accesses}.values()))

    def width(self, dtype: str, extent: Real) -> Real:
        """Elements of one vector operation of a loop."""
        return least(float(self.target.lanes(item_bytes(dtype))), extent)

    def access(
        self,
        buffer: g.Buffer,
        index: Sequence[g.Linear],
        written: bool,
        lane: g.Var | None,
        width: Real,
    ) -> Access:
        slopes = tuple(self.linear(position) for position in index)
        moves = any(lane in slope for slope in slopes)
        return Access.of(buffer, self.role(buffer, written, moves), slopes, lane, width)

    def role(self, buffer: g.Buffer, written: bool, moves: bool) -> str:
        """The role of a buffer in a store; `moves`: it goes with the innermost loop."""
        if buffer.scope == "register":
            return "register"
        return "written" if written else "vector" if moves else "broadcast"

    def store_context(self, parts: Sequence[Expr], statement: Statement) -> StoreContext:
        touch = Touch.of(self.roles, [statement], None)
        return StoreContext(
            float(sum(map(is_arithmetic, parts))),
            float(sum(map(is_function, parts))),
            statement.width,
            touch,
        )


def _once(extent: Real, mean: Real, children: Sequence[Context]) -> LoopContext | None:
    """The loop that a loop of these extents and this body runs once, if it does nothing else."""
    if not (isinstance(extent, float) and isinstance(mean, float) and extent == mean == 1.0):
        return None
    if len(children) != 1 or not isinstance(children[0], LoopContext):
        return None
    return children[0].same or children[0]


def is_arithmetic(part: Expr) -> bool:
    """Return whether it is one operation of arithmetic."""
    return isinstance(part, Binary) and (part.op in ARITHMETIC or part.op in ("min", "max"))


def is_function(part: Expr) -> bool:
    """Return whether it costs about as much as an exp."""
    if isinstance(part, Binary):
        return part.op in FUNCTIONS_OF_TWO and not is_arithmetic(part)
    return isinstance(part, Unary) and part.op in FLOAT_FUNCTIONS
