"""Heuristics of programs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProgramHeuristics:
    """Numbers by which programs are fused and grouped."""

    stack_tensor_bytes: int = 1 << 13
    """A local tensor of more bytes lives on the heap."""
    stack_panel_rows: int = 128
    """A packed panel of more rows lives on the heap."""
    phases: int = 16
    """More phases are not made: each is code of its own."""
    window_elements: int = 64
    """A row may use so many elements again: those of a window, not of a matrix."""
    expression_nodes: int = 200
    """Nothing more is inlined into a larger element expression."""
    large_result_ratio: int = 4
    """A result of so many times the bytes read is written in its own order."""
    written_out_taps: int = 9
    """More taps are not written out: each is code of its own."""
    counted_places: int = 1 << 16
    """The places of a test are counted one by one up to here."""


PROGRAM = ProgramHeuristics()
