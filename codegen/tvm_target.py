"""TVM's object for a target."""

from __future__ import annotations

import functools
from typing import Any

import tvm

from loopwright.codegen.llvm import target_config
from loopwright.schedule.target import Target


def tvm_target(target: Target, optimized: bool = True) -> Any:
    """TVM's object for a target that emits machine code."""
    return _tvm_target(target.triple, target.mcpu, target.features, optimized)


@functools.cache
def _tvm_target(triple: str, mcpu: str, features: tuple[str, ...], optimized: bool = True) -> Any:
    config = target_config(triple, mcpu, features)
    return tvm.target.Target(config if optimized else config | {"opt-level": 0})
