"""TVM's part of the way from TIR statements to machine code: its passes, and LLVM."""

from __future__ import annotations

import functools
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir.pipeline import finalize_device_passes, finalize_host_passes

from loopwright.codegen.tvm_target import tvm_target
from loopwright.schedule.target import Target
from loopwright.temporary import TemporaryFolder

_NAME = "loopwright"
_VARIANT = "loopwright.variant"
# Arguments are checked before a call; the checks of TVM's own would only cost build time.
_OPTIONS = {"tirx.disable_assert": True}


def _passes(entry: bool) -> Any:
    """Passes that flat loops need, and no more; `entry` names the only function of a module, too.

    Of TVM's own, most look for things that are not there, and two do harm: StorageRewrite may let
    a result take the place of its operand, though the overlap of two tiles is computed again from
    that; StmtSimplify takes floats for reals (x == x for NaN). LLVM simplifies as well, and knows
    better.
    """
    t = tirx.transform
    return tvm.transform.Sequential(
        [
            t.VectorizeLoop(True),
            t.UnrollLoop(),
            *([t.AnnotateEntryFunc()] if entry else ()),
            t.SplitHostDevice(),
            t.MakePackedAPI(),
        ]
    )


for _name, _entry in ((_NAME, True), (_VARIANT, False)):
    tirx.register_tir_pipeline(
        _name,
        functools.partial(
            lambda entry: (_passes(entry), finalize_host_passes, finalize_device_passes), _entry
        ),
    )


def compiled(
    functions: dict[str, Any], target: Target, optimized: bool = True, variant: bool = False
) -> Any:
    """TVM's module of the functions, for LLVM. A `variant` is linked with others."""
    with tvm.transform.PassContext(config=_OPTIONS):
        pipeline = _VARIANT if variant else _NAME
        return tirx.build(tvm.IRModule(functions), tvm_target(target, optimized), pipeline)


def object_file(module: Any) -> bytes:
    """The machine code of a module."""
    with TemporaryFolder() as folder:
        path = folder / "kernel.o"
        module.write_to_file(str(path))
        return path.read_bytes()
