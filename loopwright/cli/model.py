"""`loopwright model`: cost models in files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loopwright.cli.common.command import STORE, File, NewFile, Store, show_details
from loopwright.cli.common.command import Group as _Commands
from loopwright.cli.common.options import SEED, choice, records_option
from loopwright.cli.common.source_training import SourceOptions, source_options, train_from_table
from loopwright.dsl.words import counted
from loopwright.paths import problem_of_file, shown
from loopwright.transfer.records.location import Location

if TYPE_CHECKING:
    from loopwright.transfer.pretrained.dataset import RecordGroup
    from loopwright.transfer.records.lookup import Setting

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_LISTED = 8
"""Entries of a list that are shown."""
_stores = functools.partial(records_option, "stores", type=Store(exists=True), multiple=True)
_STORES = _stores(default=(STORE,), help="A record store; may be given several times.")
_STORES_OR_TABLE = _stores(
    default=(),
    show_default=False,
    help=f"A record store; may be given several times. {STORE} if there is no --table either.",
)
_TARGETS = choice(
    "--targets",
    among=["family", "all"],
    default="family",
    help="Records of targets with this machine's architecture and vector features, or all.",
)
_COST_MODELS = ["gbt", "mlp", "blend", "treegru"]
_SEQUENCE = "sequence"


class _ModelFile(File):
    """The path of a model's file, or the name of a model that comes with the package."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from loopwright.transfer.pretrained.base import SHIPPED

        problem = problem_of_file(value, exists=True)
        known = {path.stem: path for path in SHIPPED.glob("*.json")} if problem else {}
        if problem and str(value) not in known:
            self.fail(
                f"{shown(value)}: {problem}; give one of `loopwright model train`, or the name of "
                f"a shipped model: {', '.join(sorted(known))}",
                param,
                ctx,
            )
        return known.get(str(value), Path(value))


def _kind(*more: str, text: str = "") -> Callable[[Decorated], Decorated]:
    return choice(
        "--model",
        "kind",
        among=[*_COST_MODELS, *more],
        default="gbt",
        help="Boosted trees, perceptrons, both, or a network over loop trees, which needs torch"
        f"{text}.",
    )


def _reads(kind: str) -> str:
    """The representation that a kind of model reads."""
    return "tree" if kind == "treegru" else "relation"


@click.group(cls=_Commands)
def model() -> None:
    """Train cost models on records, judge them, look into their files."""


@model.command()
@click.argument("file", type=_ModelFile())
@click.option(
    "--features", type=click.IntRange(0), default=12, show_default=True, help="How many to list."
)
def show(file: Path, features: int) -> None:
    """Show the card of a model: what it is, what it learned from, which features matter to it.

    FILE may be the name of a model that comes with the package, such as x86-avx2.
    """
    from loopwright.costmodel.models.file import SEQUENCE, SOURCE, load_model, read_model
    from loopwright.costmodel.sequence.model import SequenceModel
    from loopwright.costmodel.source.model import SourceModel

    size = f"{file}, {file.stat().st_size / 1e6:.2f} MB"
    kind = read_model(file)[0]
    if kind == SEQUENCE:
        sequence = SequenceModel.load(file)
        show_details(("file", size), ("model", sequence.describe()), *_lines(sequence.about))
        return
    if kind == SOURCE:
        labels = SourceModel.load(file)
        told = ", ".join(map(str, labels.labels))
        show_details(("file", size), ("model", labels.describe()), ("labels", told))
        return
    loaded = load_model(file)
    show_details(("file", size), ("model", loaded.describe()), ("reads", loaded.reads))
    show_details(*_lines(loaded.about))
    shares = sorted(loaded.importance().items(), key=lambda share: -share[1])
    listed = [f"{share:6.1%}  {name}" for name, share in shares[:features]]
    if listed:
        show_details(("importance", "\n".join(listed)))


def _lines(about: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Lines about a model's origin, with what is nested on lines of its own."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            value = "\n".join(f"{key}: {entry}" for key, entry in value.items())
        elif isinstance(value, list):
            value = f"{len(value)} entries" if len(value) > _LISTED else "\n".join(map(str, value))
        yield name, value


@model.command()
@_STORES_OR_TABLE
@_TARGETS
@click.option(
    "-o",
    "--output",
    type=NewFile(),
    default="model.json",
    show_default=True,
    help="The model's file.",
)
@_kind(_SEQUENCE, text=", and so does a sequence model of good configs")
@click.option("--base", type=_ModelFile(), help="A model to go on from.")
@click.option(
    "--beside",
    type=_ModelFile(),
    multiple=True,
    help="A model whose scores count half as much as those of a part of the new one; repeatable.",
)
@SEED
@click.option("--note", help="Anything that should be known of it, kept in the file.")
@source_options
def train(  # noqa: PLR0913 - options of users
    sources: SourceOptions,
    stores: tuple[Location, ...],
    targets: str,
    output: Path,
    kind: str,
    base: Path | None,
    beside: tuple[Path, ...],
    seed: int,
    note: str | None,
) -> None:
    """Learn a global model from records of many workloads, to begin searches with:
    `loopwright tune --transfer FILE`.

    A sequence model proposes configs, for `--strategy sampled` and `--model policy`. With --table
    a label of sources is learned instead, and `lw.SourceModel.load` reads the file.
    """
    if sources.table is not None:
        click.echo(train_from_table(sources, output, seed))
        return
    if sources.target is not None or sources.group is not None:
        raise click.UsageError("--target and --group are columns of a table: give --table too")
    stores = stores or (Store(exists=True).convert(STORE, None, None),)
    if kind == _SEQUENCE:
        if beside:
            raise click.UsageError("--beside is for models that score; a sequence model has none")
        _train_sequence(stores, targets, output, base, seed, note)
        return
    from loopwright.transfer.pretrained.training import load_global
    from loopwright.transfer.pretrained.training import train as trained

    groups = _groups(stores, targets, _reads(kind))
    before = None if base is None else load_global(base)
    made = trained(groups, kind, seed, before, [load_global(file) for file in beside])
    if note:
        made.about["note"] = note
    made.save(output)
    click.echo(
        f"{output}: {made.describe()}, of {counted(made.about['records'], 'record')} "
        f"of {counted(len(made.about['workloads']), 'workload')}; `loopwright model eval "
        "--records …` says how well such a model ranks workloads that it has not seen"
    )


def _train_sequence(
    stores: Sequence[Location],
    targets: str,
    output: Path,
    base: Path | None,
    seed: int,
    note: str | None,
) -> None:
    from loopwright.costmodel.sequence.model import SequenceModel
    from loopwright.transfer.pretrained.training import read_examples, train_sequence
    from loopwright.transfer.records.store import RecordStore

    with ExitStack() as stack:
        opened = [stack.enter_context(RecordStore(path, create=False)) for path in stores]
        groups = list(read_examples(opened, _wanted(targets)))
    made = train_sequence(groups, seed, None if base is None else SequenceModel.load(base))
    if note:
        made.about["note"] = note
    made.save(output)
    click.echo(
        f"{output}: {made.describe()}, of {counted(made.about['configs'], 'good config')} in "
        f"{counted(made.about['groups'], 'group')}"
    )


def _wanted(targets: str) -> Callable[[Setting], bool]:
    from loopwright.codegen.target import resolve
    from loopwright.transfer.pretrained.dataset import of_family

    return of_family(str(resolve("cpu"))) if targets != "all" else lambda _: True


@model.command("eval")
@click.argument("file", type=_ModelFile(), required=False)
@_STORES
@_TARGETS
@choice(
    "--hold-out",
    among=["workload", "kind"],
    default="workload",
    help="What a model that judges a group has not seen: its workload, or any of its kind.",
)
@click.option(
    "--folds",
    type=click.IntRange(2),
    default=5,
    show_default=True,
    help="Parts of the workloads, each held out once.",
)
@_kind()
@SEED
def evaluate(
    file: Path | None,
    stores: tuple[Location, ...],
    targets: str,
    hold_out: str,
    folds: int,
    kind: str,
    seed: int,
) -> None:
    """Judge a model on workloads that it has not learned from.

    With FILE, that model, on those of the records that it has not seen. Without, models that are
    trained here, each with a part of the workloads held out.
    """
    from loopwright.transfer.pretrained import evaluation
    from loopwright.transfer.pretrained.training import load_global
    from loopwright.transfer.pretrained.training import train as trained

    loaded = None if file is None else load_global(file)
    reads = loaded.reads if loaded else _reads(kind)
    groups = _groups(stores, targets, reads)
    if loaded is not None:
        seen = set(loaded.about[f"{hold_out}s"])
        new = [g for g in groups if evaluation.label(g, hold_out) not in seen]
        scores = evaluation.judged(loaded, new)
    else:
        scores = list(
            evaluation.cross_validated(groups, lambda g: trained(g, kind, seed), hold_out, folds)
        )
    click.echo(evaluation.table(scores))


def _groups(stores: Sequence[Location], targets: str, reads: str) -> list[RecordGroup]:
    from loopwright.codegen.processors import usable_processors
    from loopwright.transfer.pretrained.dataset import read_groups
    from loopwright.transfer.records.store import RecordStore

    with ExitStack() as stack:
        opened = [stack.enter_context(RecordStore(path, create=False)) for path in stores]
        wanted = _wanted(targets)
        processes = usable_processors()
        groups = list(read_groups(opened, reads, wanted=wanted, processes=processes))
        measured = [s for store in opened for s in store.settings() if s.measured]
    if any(map(wanted, measured)) and not groups:
        raise click.ClickException(
            "none of the records says what a model can learn: they are of GPUs, or of configs "
            "that another version had; collect new ones"
        )
    if measured and not groups:
        seen = ", ".join(sorted({s.target for s in measured})[:3])
        raise click.ClickException(
            f"the records are of other targets, {seen}: --targets all takes them too"
        )
    if skipped := sum(g.skipped for g in groups):
        click.echo(
            f"left out: {counted(skipped, 'record')} with configs of another version", err=True
        )
    return groups
