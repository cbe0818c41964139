"""Training of a model of sources from a table, for `loopwright model train --table`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource

from loopwright.cli.common.options import EXISTING, choice, collect
from loopwright.cli.common.source_table import SourceTable, read_source_table
from loopwright.dsl.words import counted

_FOLDS = 5
_OF_RECORDS = ("stores", "targets", "kind", "base", "beside", "note")


@dataclass(frozen=True)
class SourceOptions:
    """Options that tell how a table of sources is read; None and () where no table is given."""

    table: Path | None
    target: str | None
    source: str
    auxiliary: str
    group: str | None
    language: str
    reader: str


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a table of sources, as one object."""
    command = collect(SourceOptions)(command)
    for option in (
        choice(
            "--reader",
            among=["trees", "lstm"],
            default="trees",
            help="With --table: boosted trees, or a recurrent network, which needs torch.",
        ),
        choice(
            "--language",
            among=["opencl", "c", "cuda"],
            default="opencl",
            help="With --table: of its sources.",
        ),
        click.option("--group", help="With --table: the column that says what belongs together."),
        click.option(
            "--auxiliary", default="", help="With --table: columns of numbers, joined by commas."
        ),
        click.option(
            "--source",
            default="src",
            show_default=True,
            help="With --table: the column of sources, or of names of files beside the table.",
        ),
        click.option("--target", help="With --table: the column to learn."),
        click.option(
            "--table",
            type=EXISTING,
            help="A CSV file of sources and labels to learn from, instead of records.",
        ),
    ):
        command = option(command)
    return command


def train_from_table(options: SourceOptions, output: Path, seed: int) -> str:
    """Train a model, write it, and return a line about it."""
    from loopwright.costmodel.source.model import SourceModel

    assert options.table is not None
    context = click.get_current_context()
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name in _OF_RECORDS
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)}: options of records, which a --table replaces")
    if options.target is None:
        raise click.UsageError("--table needs --target, the column to learn")
    columns = [name for name in options.auxiliary.split(",") if name]
    table = read_source_table(
        options.table, options.source, options.target, columns, options.group
    )
    model = SourceModel(options.reader, options.language, seed)
    model.fit(table.sources, table.labels, table.auxiliary, table.groups)
    model.save(output)
    learned = counted(len(table.sources), "source")
    return f"{output}: learned from {learned}{_judged(options, table, seed)}"


def _judged(options: SourceOptions, table: SourceTable, seed: int) -> str:
    """Share of right answers for groups that models have not seen; empty without groups."""
    import numpy as np

    from loopwright.costmodel.source.model import SourceModel

    if table.groups is None or options.reader == "lstm":  # which takes minutes
        return ""
    groups = np.unique(table.groups, return_inverse=True)[1]
    count = int(groups.max()) + 1
    order = np.random.default_rng(seed).permutation(count)
    folds = order[groups] % min(_FOLDS, count)
    right = 0
    for fold in np.unique(folds):
        seen, unseen = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        if len({table.labels[i] for i in seen}) < 2:
            return "; too few groups to hold some out"
        model = SourceModel(options.reader, options.language, seed)
        learned, judged = (
            (
                [table.sources[i] for i in rows],
                None if table.auxiliary is None else [table.auxiliary[i] for i in rows],
            )
            for rows in (seen, unseen)
        )
        model.fit(
            learned[0],
            [table.labels[i] for i in seen],
            learned[1],
            [table.groups[i] for i in seen],
        )
        right += sum(p == table.labels[i] for p, i in zip(model.predict(*judged), unseen))
    share = 100 * right / len(groups)
    return f"; {share:.1f} % of the labels are right where whole groups are held out"
