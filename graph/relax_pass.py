"""A Relax pass that puts our programs into a module of TVM's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from loopwright.codegen.target import processor
from loopwright.dsl.errors import BuildError, ConfigError
from loopwright.graph.errors import NotSayable
from loopwright.graph.kernels import TunedKernel, tuned_kernel
from loopwright.graph.passes import fused
from loopwright.graph.tir import Imported, import_function
from loopwright.measure.machine import fingerprint
from loopwright.schedule.target import Target
from loopwright.transfer.records import RecordStore


def lower(target: str | Mapping[str, Any] | Target = "cpu") -> Any:
    """A pass that legalizes and fuses a module of operators as is done for whole models, so that
    their records fit: batch norms go into the weights, where `relax.get_pipeline("zero")` leaves
    them functions of their own.

    Raises `TargetError` for a target that is no processor.
    """
    machine = processor(target)

    @tvm.transform.module_pass(opt_level=0, name="LoopwrightLower")
    def run(module: Any, _: Any) -> Any:
        return fused(module, machine)

    return run


def apply(
    records: str | os.PathLike[str] | None = None,
    target: str | Mapping[str, Any] | Target = "cpu",
    threads: int | None = None,
    policy: str = "exact",
    defaults: bool = False,
) -> Any:
    """A pass for modules that are legalized and fused, by `lower` or another pipeline:

        mod = tvm.transform.Sequential([lower(), apply("tuning.db")])(mod)

    Calls of functions that have a record become calls of our machine code, which `tvm.compile`
    links in; it runs on the threads of TVM. Weights are laid out now. All other functions take
    TVM's own path. With `defaults`, those without a record that the notation can say are replaced
    as well, by our default schedules.

    Raises `RecordError` for a missing store, `TargetError` for one that is no processor.
    """
    machine = processor(target, threads)
    if records is not None:
        with RecordStore(records, create=False) as store:
            store.settings()  # a missing one is told now, not inside of a pass

    @tvm.transform.module_pass(opt_level=0, name="LoopwrightApply")
    def run(module: Any, _: Any) -> Any:
        if records is None:
            return _Apply(module, machine, None, policy, defaults).run()
        with RecordStore(records, create=False) as store:
            return _Apply(module, machine, store, policy, defaults).run()

    return run


class _Apply:
    def __init__(
        self,
        module: Any,
        target: Target,
        store: RecordStore | None,
        policy: str,
        defaults: bool,
    ) -> None:
        self.module, self.target, self.store = module, target, store
        self.policy, self.defaults = policy, defaults
        self.machine = fingerprint()
        self.kernels: dict[str, TunedKernel | None] = {}
        self.imports: dict[Any, Imported | None] = {}

    def run(self) -> Any:
        builder = _Calls(self)
        for var, function in self.module.functions.items():
            if isinstance(function, relax.Function):
                builder.builder_.update_func(var, builder.visit_expr(function))
        module = relax.transform.DeadCodeElimination()(builder.builder_.get())
        made = [k for k in self.kernels.values() if k is not None]
        if not made:
            return module
        known = list(module.attrs["external_mods"]) if _has_external(module) else []
        return module.with_attr("external_mods", known + [_static_library(k) for k in made])

    def kernel(self, var: Any, constants: tuple[int, ...]) -> tuple[Imported, TunedKernel] | None:
        """Our program for a call, if there is one."""
        key = (var.name_hint, constants)
        if key not in self.imports:
            try:
                self.imports[key] = import_function(self.module[var], constants)
            except NotSayable:
                self.imports[key] = None
        said = self.imports[key]
        if said is None:
            return None
        workload = said.workload
        if workload.key not in self.kernels:
            self.kernels[workload.key] = self.compiled(said)
        kernel = self.kernels[workload.key]
        return None if kernel is None else (said, kernel)

    def compiled(self, said: Imported) -> TunedKernel | None:
        workload = said.workload
        record = None
        if self.store is not None:
            record = self.store.best(workload, self.target, self.policy, machine=self.machine)
        if record is None and not self.defaults:
            return None
        config = None if record is None else record.config
        name = f"lw_{workload.key}"
        for tried in dict.fromkeys((config, None) if self.defaults else (config,)):
            with suppress(BuildError, ConfigError):  # a config of another version's space
                return tuned_kernel(workload, tried, self.target, name, own=False)
        return None


@relax.expr_functor.mutator
class _Calls(relax.PyExprMutator):
    """Replaces calls of TIR functions."""

    def __init__(self, owner: _Apply) -> None:
        super().__init__(owner.module)
        self.owner = owner

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") != "relax.call_tir" or len(call.args) != 2:
            return call
        args = call.args[1]
        fields = list(args.fields) if isinstance(args, relax.Tuple) else [args]
        data = [self.constant(x) for x in fields]
        found = self.owner.kernel(
            call.args[0], tuple(n for n, d in enumerate(data) if d is not None)
        )
        if found is None:
            return call
        said, kernel = found
        if max(said.inputs, default=-1) >= len(fields):
            return call  # it reads what it writes
        sig = kernel.signature
        at = dict(zip((p.name for p in sig.inputs), said.inputs))
        weights = {name: data[at[name]] for name in sig.constants}
        prepared = kernel.prepared({n: w for n, w in weights.items() if w is not None})
        given = [fields[at[p.name]] for p in sig.plain_inputs]
        given += [relax.const(tvm.runtime.tensor(array)) for array in prepared]
        outs = call.ty_args[0] if hasattr(call, "ty_args") else call.sinfo_args[0]
        return relax.call_dps_packed(kernel.kernel.name, relax.Tuple(given), outs)

    def constant(self, x: Any) -> np.ndarray[Any, Any] | None:
        """The data of an argument that is known now."""
        if isinstance(x, relax.Var):
            bound = self.lookup_binding(x)
            x = x if bound is None else bound
        return x.value.numpy() if isinstance(x, GenericConst) else None


def _has_external(module: Any) -> bool:
    return module.attrs is not None and "external_mods" in module.attrs


def _static_library(kernel: TunedKernel) -> Any:
    """The object file as a module that `tvm.compile` links into its own."""
    with tempfile.TemporaryDirectory(prefix="loopwright-") as folder:
        path = Path(folder) / f"{kernel.kernel.name}.o"
        path.write_bytes(kernel.kernel.code)
        return tvm.runtime.load_static_library(str(path), [kernel.kernel.name])
