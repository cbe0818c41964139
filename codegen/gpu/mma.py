"""Matrix statements for GPUs: calls of the functions of the preludes, on tiles that the lanes of
a warp hold together. Where which element is, the preludes say."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from loopwright.codegen.tir.indices import Indices, expression, number
from loopwright.schedule.tree import grammar as g

FRAGMENTS = ("matrix_a", "matrix_b", "accumulator")
_ROLE = {"matrix_a": "a", "matrix_b": "b"}
# What a lane holds of a tile: two elements a word in CUDA; in OpenCL whole rows and columns.
_LANE = {
    ("cuda", "matrix_a"): (4, "uint32"),
    ("cuda", "matrix_b"): (4, "uint32"),
    ("opencl", "matrix_a"): (32, "uint16"),
    ("opencl", "matrix_b"): (64, "uint16"),
}
_ACCUMULATORS = (8, "float32")
_ROW_ELEMENTS = 8  # 16 bytes: what ldmatrix reads at once


class MmaEmitter:
    """Emits matrix statements for "cuda" or "opencl"."""

    def __init__(self, language: str, at: Indices, buffers: dict[str, Any]) -> None:
        self.language, self.at, self.buffers = language, at, buffers

    def declare(self, b: g.Buffer) -> Any:
        """A lane's part of the tiles of a buffer."""
        each, dtype = self._lane(b)
        tiles = int(b.size) // g.MATRIX**2
        made = tirx.decl_buffer((tiles * each,), dtype, b.name, scope="local", data_alignment=16)
        self.buffers[b.name] = made
        return made

    def emit(self, stmt: g.GpuStmt) -> Any:
        """One statement."""
        if isinstance(stmt, g.MatrixFill):
            tile = self._tile(stmt.tile, stmt.index)
            return _call("lw_matrix_fill", tile, tirx.FloatImm("float32", stmt.value))
        if isinstance(stmt, g.MatrixLoad):
            return self._load(stmt)
        if isinstance(stmt, g.MatrixMultiply):
            return _call(
                f"lw_matrix_multiply_{stmt.left.dtype}",
                self._tile(stmt.tile, stmt.index),
                self._tile(stmt.left, stmt.left_at),
                self._tile(stmt.right, stmt.right_at),
            )
        assert isinstance(stmt, g.MatrixStore), stmt
        steps = [number(_step(stmt.target, axis)) for axis in (stmt.rows, stmt.columns)]
        name = f"lw_matrix_store_{stmt.target.dtype}{self._space(stmt.target)}"
        to = self._address(stmt.target, stmt.at)
        return _call(name, to, self._tile(stmt.tile, stmt.index), *steps)

    def _load(self, stmt: g.MatrixLoad) -> Any:
        name = f"lw_matrix_{_ROLE[stmt.tile.scope]}"
        tile, source = self._tile(stmt.tile, stmt.index), stmt.source
        rows, columns = _step(source, stmt.rows), _step(source, stmt.columns)
        step = max(rows, columns)
        place = self.at.step(g.flat(source, stmt.at))
        aligned = not place % _ROW_ELEMENTS and not step % _ROW_ELEMENTS
        start = self._address(source, stmt.at)
        if self.language == "cuda" and source.scope == "shared" and aligned:
            order = "rows" if columns == 1 else "columns"
            return _call(f"{name}_{order}", tile, start, number(step))
        space = self._space(source) or "_global"  # in CUDA, it reads from anywhere
        return _call(f"{name}{space}", tile, start, number(rows), number(columns))

    def _space(self, buffer: g.Buffer) -> str:
        if self.language == "cuda":
            return ""
        return "_shared" if buffer.scope == "shared" else "_global"

    def _lane(self, b: g.Buffer) -> tuple[int, str]:
        return _LANE.get((self.language, b.scope), _ACCUMULATORS)

    def _tile(self, b: g.Buffer, index: tuple[g.Linear, ...]) -> Any:
        """Address of a lane's part of a tile."""
        tiles = g.Buffer(b.name, b.shape[:-2], b.dtype, b.scope)
        place = g.flat(tiles, index) * self._lane(b)[0]
        return tirx.address_of(
            tirx.BufferLoad(self.buffers[b.name], [expression(self.at.linear(place))])
        )

    def _address(self, b: g.Buffer, index: tuple[g.Linear, ...]) -> Any:
        at = expression(self.at.offset(b, index))
        return tirx.address_of(tirx.BufferLoad(self.buffers[b.name], [at]))


def _step(buffer: g.Buffer, axis: int) -> int:
    """Elements from one subscript of an axis to the next."""
    return math.prod(map(int, buffer.shape[axis % len(buffer.shape) + 1 :]))


def _call(name: str, *arguments: Any) -> Any:
    return tirx.Evaluate(tirx.call_extern("int32", name, *arguments))
