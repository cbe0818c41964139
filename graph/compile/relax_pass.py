"""A Relax pass that puts our programs into a module of TVM's."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from loopwright.codegen.target import processor
from loopwright.dsl.errors import BuildError, ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.workload import Workload
from loopwright.graph.compile.kernels import TunedKernel, tuned_kernel
from loopwright.graph.errors import UnsupportedOperator
from loopwright.graph.importers.passes import fused
from loopwright.graph.importers.tir import Imported, import_function
from loopwright.graph.tasks import Task
from loopwright.measure.machine import fingerprint
from loopwright.schedule.space import space
from loopwright.schedule.target import Target
from loopwright.temporary import TemporaryFolder
from loopwright.transfer.records.location import GivenLocation
from loopwright.transfer.records.store import Record, RecordStore

_log = logging.getLogger(__name__)


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
    records: GivenLocation | None = None,
    target: str | Mapping[str, Any] | Target = "cpu",
    threads: int | None = None,
    policy: str = "exact",
    defaults: bool = False,
    numerics: str | Numerics = "standard",
) -> Any:
    """A pass for modules that are legalized and fused, by `lower` or another pipeline:

        mod = tvm.transform.Sequential([lower(), apply("tuning.db")])(mod)

    Calls of functions that have a record become calls of our machine code, which `tvm.compile`
    links in; it runs on the threads of TVM. Weights are laid out now. All other functions take
    TVM's own path. With `defaults`, those without a record that the notation can say are replaced
    as well, by our default schedules. Only programs that `numerics` allows are used, see
    `dsl.numerics`.

    What became of each function goes to the log of this module: a warning where none was
    replaced, else one line of INFO, and one for each that keeps TVM's path, with the reason.

    Raises `RecordError` for a missing store, `TargetError` for one that is no processor.
    """
    wanted = BuildOptions(processor(target, threads), Numerics.of(numerics), defaults)
    if records is not None:
        with RecordStore(records, create=False) as store:
            store.settings()  # a missing one is told now, not inside of a pass

    @tvm.transform.module_pass(opt_level=0, name="LoopwrightApply")
    def run(module: Any, _: Any) -> Any:
        if records is None:
            return replaced(module, wanted, lambda _: None)[0]
        here = fingerprint()
        with RecordStore(records, create=False) as store:

            def best(workload: Workload) -> Record | None:
                # One that no longer is of the space may be all that there is, and is told.
                points = space(workload, wanted.target, wanted.numerics)
                known = functools.partial(
                    store.best, workload, wanted.target, policy, machine=here
                )
                return known(among=points) or known()

            return replaced(module, wanted, best)[0]

    return run


@dataclass(frozen=True)
class BuildOptions:
    """Request for a module's programs, as the parameters of `apply` say."""

    target: Target
    numerics: Numerics
    defaults: bool


def replaced(
    module: Any, wanted: BuildOptions, best: Callable[[Workload], Record | None]
) -> tuple[Any, dict[str, str]]:
    """A module with our programs, by the record that is `best` for each, as `apply` says; and by
    the workload's key why a record could not be built."""
    made = _Apply(module, wanted, best)
    return made.run(), made.failed


def tasks_in(module: Any) -> tuple[tuple[Task, ...], dict[str, str]]:
    """The distinct work that the functions of a fused module call, that with the most arithmetic
    first, and the functions that the notation cannot say, with the reasons."""
    listing = _Listing(module)
    _visited(listing)
    tasks = [Task(w, name, tuple(range(n)), n) for w, name, n in listing.found.values()]
    return tuple(sorted(tasks, key=lambda t: -t.flops)), listing.foreign


class _Listing:
    """Looks at calls of functions, and replaces none: `found` has the work, a name and the calls
    by key, `foreign` the reasons of functions that the notation cannot say."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.imports: dict[Any, Imported | None] = {}
        self.foreign: dict[str, str] = {}
        self.found: dict[str, tuple[Workload, str, int]] = {}

    def imported(self, var: Any, constants: tuple[int, ...]) -> Imported | None:
        """A function in the notation, some arguments known, if that can say it."""
        key = (var.name_hint, constants)
        if key not in self.imports:
            try:
                self.imports[key] = import_function(self.module[var], constants)
            except UnsupportedOperator as reason:
                self.imports[key] = None
                self.foreign[var.name_hint] = str(reason)
        return self.imports[key]

    def kernel(self, var: Any, constants: tuple[int, ...]) -> tuple[Imported, TunedKernel] | None:
        """Our program for a call, if there is one."""
        said = self.imported(var, constants)
        if said is not None:
            workload = said.workload
            _, name, calls = self.found.get(workload.key, (workload, var.name_hint, 0))
            self.found[workload.key] = (workload, name, calls + 1)
        return None


class _Apply(_Listing):
    def __init__(
        self, module: Any, wanted: BuildOptions, best: Callable[[Workload], Record | None]
    ) -> None:
        super().__init__(module)
        self.wanted, self.best = wanted, best
        self.kernels: dict[str, TunedKernel | None] = {}
        self.failed: dict[str, str] = {}

    def run(self) -> Any:
        module = relax.transform.DeadCodeElimination()(_visited(self))
        made = [k for k in self.kernels.values() if k is not None]
        self.tell(len(made))
        if not made:
            return module
        known = list(module.attrs["external_mods"]) if _has_external(module) else []
        return module.with_attr("external_mods", known + [_static_library(k) for k in made])

    def tell(self, replaced: int) -> None:
        for name, reason in self.foreign.items():
            _log.info("%s keeps TVM's path: %s", name, reason)
        for reason in self.failed.values():
            _log.warning("a record cannot be built: %s", reason)
        in_vain = self.kernels and not replaced and not self.wanted.defaults
        _log.log(
            logging.WARNING if in_vain else logging.INFO,
            "%d of %d kinds of work that the notation can say are replaced; no record serves the "
            "others with %d threads",
            replaced,
            len(self.kernels),
            self.wanted.target.threads,
        )

    def kernel(self, var: Any, constants: tuple[int, ...]) -> tuple[Imported, TunedKernel] | None:
        said = self.imported(var, constants)
        if said is None:
            return None
        workload = said.workload
        if workload.key not in self.kernels:
            self.kernels[workload.key] = self.compiled(said)
        kernel = self.kernels[workload.key]
        return None if kernel is None else (said, kernel)

    def compiled(self, said: Imported) -> TunedKernel | None:
        workload = said.workload
        record = self.best(workload)
        if record is None and not self.wanted.defaults:
            return None
        config = None if record is None else record.config
        name = f"lw_{workload.key}"
        for tried in dict.fromkeys((config, None) if self.wanted.defaults else (config,)):
            try:
                wanted = self.wanted
                return tuned_kernel(
                    workload, tried, wanted.target, name, wanted.numerics, own=False
                )
            except (BuildError, ConfigError) as error:  # a config of another version's space
                if tried is not None:
                    self.failed[workload.key] = str(error).splitlines()[0]
        return None


def _visited(owner: _Listing) -> Any:
    """Its module, with calls of our programs where it has some."""
    visitor = _Calls(owner)
    for var, function in owner.module.functions.items():
        if isinstance(function, relax.Function):
            visitor.builder_.update_func(var, visitor.visit_expr(function))
    return visitor.builder_.get()


@relax.expr_functor.mutator
class _Calls(relax.PyExprMutator):
    """Replaces calls of TIR functions."""

    def __init__(self, owner: _Listing) -> None:
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
    with TemporaryFolder() as folder:
        path = folder / f"{kernel.kernel.name}.o"
        path.write_bytes(kernel.kernel.code)
        return tvm.runtime.load_static_library(str(path), [kernel.kernel.name])
