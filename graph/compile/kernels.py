"""The compiled steps of a network: our programs, or TVM's own where the notation ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from loopwright.codegen.build import program
from loopwright.codegen.compile import Program, signature
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.plan import Kernel
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.codegen.target import resolve
from loopwright.codegen.tir.emit import emit, emit_preparation
from loopwright.codegen.tir.pipeline import compiled, object_file
from loopwright.codegen.tvm_target import tvm_target
from loopwright.dsl.errors import BuildError, LoopwrightError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.workload import Workload
from loopwright.graph.network import check_plannable
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.temporary import TemporaryFolder

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class TunedKernel:
    """Our program of a workload: its arguments, and what lays the constants out, if that is
    needed."""

    kernel: Kernel
    config: Config
    signature: Signature
    prepare: Library | None

    def prepared(self, constants: dict[str, Array]) -> tuple[Array, ...]:
        """The constants as the kernel wants them, given those of the signature by name."""
        if self.prepare is None:
            return ()
        made = self.prepare(*(constants[name] for name in self.signature.constants))
        return made if isinstance(made, tuple) else (made,)


def tuned_kernel(
    workload: Workload,
    config: Config | None,
    target: Target,
    name: str,
    numerics: Numerics,
    own: bool = True,
) -> TunedKernel:
    """Compile a workload by a config, the default one if None; `own` says that it is to run on our
    run-time, not on TVM's. Raises `BuildError`, and `ConfigError` for a config that `numerics`
    does not allow."""
    made = program(workload, config, target, numerics)
    try:
        tree = made.tree
        arguments = (*tree.inputs, *tree.prepared, *tree.outputs)
        main = emit(name, arguments, tree.body, target, own=own)
        code = object_file(compiled({name: main}, target, variant=True))
        sig = signature(made, name)
        prepare = _preparation(made, sig) if tree.prepared else None
    except LoopwrightError:
        raise
    except Exception as error:  # TVM's errors have no root of their own
        raise BuildError(f"TVM could not compile {made.config}: {error}") from error
    return TunedKernel(Kernel(name, code, sig.main_parameters), made.config, sig, prepare)


def tvm_kernel(function: Any, target: Target, name: str) -> Kernel:
    """A function by TVM's own path, on one thread. Raises `NotPlannable` where it needs TVM's
    run-time, and `BuildError`."""
    check_plannable(function, name)
    parameters = tuple(
        Parameter(f"p{n}", tuple(int(e) for e in p.shape), str(p.dtype))
        for n, p in enumerate(function.params)
    )
    module = tvm.IRModule({name: function.with_attr("global_symbol", name)})
    try:
        with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
            built = tirx.build(module, tvm_target(target))
        with TemporaryFolder() as folder:
            path = folder / "kernel.o"
            built.write_to_file(str(path))
            code = path.read_bytes()
    except Exception as error:  # TVM's errors have no root of their own
        raise BuildError(f"TVM could not compile {name}: {error}") from error
    return Kernel(name, code, parameters, aligned=True)


def _preparation(made: Program, sig: Signature) -> Library:
    """Library that lays the constants out, from constants to prepared arrays. It runs now, on this
    machine, whatever the program is for."""
    tree, here = made.tree, resolve("cpu", 1)
    function = emit_preparation("main", tree, here)
    code = object_file(compiled({"main": function}, here, optimized=False))
    known = {p.name: p for p in sig.inputs}
    inputs = tuple(known[b.name] for b in tree.constants)
    ours = Signature("prepare", inputs, sig.prepared)
    return Library.from_object(code, ours)
