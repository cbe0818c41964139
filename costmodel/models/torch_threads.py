"""The number of threads that torch computes with while a model learns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from loopwright.packages import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread within. Operations are small, so that more than one gains
    little, and loses much where something else runs: they wait for each other, spinning."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
