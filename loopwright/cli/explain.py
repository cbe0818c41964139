"""`loopwright explain`: what a space is made of, and a config of it."""

from __future__ import annotations

import click

from loopwright.cli.common.command import Command, record_of
from loopwright.cli.common.options import NUMERICS, RECORDS, TARGET, THREADS
from loopwright.cli.common.workload import OPERATORS, read_workload, workload_arguments
from loopwright.transfer.records.location import Location


@click.command(cls=Command, epilog=OPERATORS)
@workload_arguments
@TARGET
@THREADS
@NUMERICS
@RECORDS
@click.option(
    "--record",
    "number",
    type=click.IntRange(1),
    metavar="ID",
    help="Its config, too, for its own target.",
)
def explain(
    what: str,
    settings: tuple[str, ...],
    target: str,
    threads: int | None,
    numerics: str,
    records: Location,
    number: int | None,
) -> None:
    """Explain which rewrites apply to WHAT, which do not and why, and the default schedule.

    WHAT is as for `loopwright tune`:

    \b
      loopwright explain conv2d x=1,128,28,28 w=128,128,3,3:constant padding=1

    With --record, the loops of a measured config follow, and its time beside that of the direct
    sum at the roofline, its data in memory. Programs with fewer operations, or whose data wait in
    caches, take less.
    """  # noqa: D301 - the \b is for click, which leaves the lines after it as they are
    from loopwright.codegen.explain import explain as explained
    from loopwright.codegen.target import by_codegen, resolve

    workload = read_workload(what, settings).workload
    if number is None:
        click.echo(str(explained(workload, target, threads, numerics)))
        return
    record = record_of(workload, records, number)
    of, codegen = record.made_for
    machine = by_codegen(resolve(of, record.threads), codegen)
    click.echo(str(explained(workload, machine, None, numerics, record.config)))
    if str(machine) != record.target:
        click.echo(f"note: the record is of another target, {record.target}", err=True)
        return
    if record.failure is None and machine.gpu is None and workload.flops:
        from loopwright.measure.roofline import roofline  # which takes TVM: seconds

        least = roofline(machine).seconds(workload.flops, workload.min_bytes)
        click.echo(
            f"measured   {record.cost * 1e3:.4g} ms; the direct sum at the roofline takes "
            f"{least / record.cost:.2f} times as long, {least * 1e3:.4g} ms"
        )
