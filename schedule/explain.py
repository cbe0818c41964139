"""Explanations: the rewrites that apply to a workload, those that do not and why, the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import counted
from loopwright.dsl.workload import Workload
from loopwright.schedule.cpu.cost_prior import estimate
from loopwright.schedule.lowering import lower
from loopwright.schedule.registry import REWRITES, Named, direct
from loopwright.schedule.rewrites.contract import Rewrite
from loopwright.schedule.rewrites.explicit_zeros import ExplicitZeros
from loopwright.schedule.sketch.naming import Derivation
from loopwright.schedule.sketch.sketch import Config, check_config
from loopwright.schedule.space import find_sketch, sketches_of_each
from loopwright.schedule.target import Target
from loopwright.schedule.tree.printer import show


@dataclass(frozen=True)
class Applies:
    """A program of the space: `cycles` of its default by the analytical prior, None on a GPU, by
    `prior` times which programs are ranked; its `error_growth`, and its number of `sketches`."""

    derivation: Derivation
    numerics: Numerics
    cycles: float | None
    prior: float
    error_growth: float
    sketches: int


@dataclass(frozen=True)
class Explanation:
    """Explanation of a space, a table as `str`: `programs`, the most promising first, and the
    `others` that rewrites do not make, with reasons; the default config. Of a config that was
    asked for, the loop tree and `facts` of its code, by the names of `codegen.facts`; `code` has
    them in words."""

    workload: Workload
    target: Target
    numerics: Numerics
    programs: tuple[Applies, ...]
    others: tuple[tuple[str, str], ...]
    default: Config
    tree: str = ""
    facts: Mapping[str, int] = field(default_factory=dict, hash=False)
    code: str = ""

    def __str__(self) -> str:
        rows = [("program", "numerics", "errors", "kcycles", "x prior", "sketches")]
        for p in self.programs:
            cycles = "-" if p.cycles is None else f"{p.cycles / 1e3:.1f}"
            ranked = "-" if p.cycles is None else f"{p.prior * p.cycles / 1e3:.1f}"
            growth, count = f"{p.error_growth:.3g}", str(p.sketches)
            rows.append((str(p.derivation), str(p.numerics), growth, cycles, ranked, count))
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            str(self.workload),
            f"on {self.target}, {counted(self.target.threads, 'thread')}",
            "",
        ]
        for first, *rest in rows:
            numbers = (cell.rjust(w) for cell, w in zip(rest, widths[1:], strict=True))
            lines.append("  ".join((first.ljust(widths[0]), *numbers)))
        by = "the first whose default fits the GPU" if self.target.gpu else "the lowest estimate"
        lines += ["", f"default: {self.programs[0].derivation}, {by}", f"  {self.default}", ""]
        lines += [f"not {name}: {why}" for name, why in self.others]
        lines += ["", self.tree] if self.tree else []
        lines += ["", self.code] if self.code else []
        return "\n".join(lines)

    __repr__ = __str__


def explanation(
    workload: Workload, target: Target, numerics: Numerics, config: Config | None = None
) -> Explanation:
    """Explain the space of a workload, and a config; `ConfigError` for one of no program."""
    programs = []
    each = sketches_of_each(workload, target, numerics)
    for variant, sketches in each:
        first = sketches[0]
        programs.append(
            Applies(
                variant.derivation,
                variant.numerics,
                None if target.gpu else estimate(first, target),
                variant.prior,
                variant.error_growth,
                len(sketches),
            )
        )
    made = {name for program in programs for name in program.derivation.names}
    others = tuple(
        (rewrite.name, _why_not(rewrite, workload, target, numerics))
        for rewrite in REWRITES
        if rewrite.name not in made
    )
    first = each[0][1][0]
    default, tree = first.at(first.default), ""
    if config is not None:
        check_config(config)
        sketch = find_sketch(workload, target, config.sketch)
        tree = f"{config}\n{show(lower(sketch, target, config))}"
    return Explanation(workload, target, numerics, tuple(programs), others, default, tree)


def _why_not(rewrite: Rewrite, workload: Workload, target: Target, numerics: Numerics) -> str:
    if target.gpu is not None and not rewrite.gpu:
        return "it is for processors"
    if isinstance(rewrite, ExplicitZeros) and numerics != Numerics.STRICT:
        return "it is for strict numerics: the others may skip zeros"
    if rewrite.data_dependent:
        needs = f"it needs {rewrite.needs}"
        return f"its time depends on the data: only networks have it, by sparse=True; {needs}"
    base = direct(Named(workload), target)
    starts = [base] if "direct" in rewrite.of else []
    least = [
        made.numerics
        for start in starts
        for parameters in rewrite.choices(start, target)
        if (made := rewrite.make(start, target, **parameters)) is not None
    ]
    if least:
        return f"it has {min(least)} numerics here, and {numerics} is asked for"
    return f"it needs {rewrite.needs}"
