"""The space of a workload, and an explanation of it: without TVM, where nothing is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from loopwright.codegen.facts.facts import facts_of, shown
from loopwright.codegen.target import by_codegen, resolve
from loopwright.dsl.errors import BuildError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, as_workload
from loopwright.schedule.explain import Explanation, explanation
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target


def space_of(
    workload: Workload | Tensor,
    target: str | Mapping[str, Any] | Target = "cpu",
    threads: int | None = None,
    numerics: str | Numerics = "standard",
) -> Space:
    """Every program that is considered for a workload, or a defined tensor, on a target."""
    return space(as_workload(workload), resolve(target, threads), numerics)


def explain(
    workload: Workload | Tensor,
    target: str | Mapping[str, Any] | Target = "cpu",
    threads: int | None = None,
    numerics: str | Numerics = "standard",
    config: Config | None = None,
    passes: str | None = None,
    codegen: str | None = None,
) -> Explanation:
    """Explain the space of a workload: the rewrites that apply, those that do not and why, and the
    default; of a config also its loop tree, and what its code tells once it is compiled, by LLVM's
    own passes or by others. Print it, or read its attributes. Parameters are as for `build`."""
    given, machine = as_workload(workload), resolve(target, threads)
    if codegen is not None:
        machine = by_codegen(machine, codegen)
    found = explanation(given, machine, Numerics.of(numerics), config)
    if config is None and passes is None:
        return found
    from loopwright.codegen.build import program
    from loopwright.codegen.compile import by_passes, compile_by

    made = program(given, config or found.default, machine)
    if passes is not None:
        made = by_passes(made, passes)
    try:
        compiled = compile_by(made)
    except BuildError as error:
        return replace(found, code=f"its code is not known: {error}")
    facts = facts_of(compiled.objects[0])
    by = f"{compiled.codegen}, passes {made.passes}" if made.passes else compiled.codegen
    return replace(found, facts=facts, code=f"its code, made by {by}:\n{shown(facts)}")
