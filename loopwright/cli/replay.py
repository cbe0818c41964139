"""`loopwright replay`: one record again, alone."""

from __future__ import annotations

import click

from loopwright.cli.common.command import Command
from loopwright.cli.common.options import DEVICE, RECORDS
from loopwright.transfer.records.location import Location


@click.command(cls=Command)
@click.argument("number", metavar="ID", type=click.IntRange(1))
@RECORDS
@DEVICE
def replay(number: int, records: Location, device: str | None) -> None:
    """Build, run and check the config of one record again, alone."""
    from loopwright.explore.result import speed
    from loopwright.measure.opening import open_device
    from loopwright.measure.timing import Timing
    from loopwright.transfer.records.record import NETWORK
    from loopwright.transfer.records.store import RecordStore

    with RecordStore(records, create=False) as store:
        record = store.get(number)
    workload = record.computation()
    target, codegen = record.made_for
    cold = Timing(cache="cold") if record.cache == "cold" else None
    click.echo(f"{workload}\n{record.config}")
    then = record.failure or speed(workload.flops, record.cost, None)
    click.echo(f"recorded   {then}")
    if record.cache == NETWORK:
        click.echo("note: it was timed inside of a network, and is alone now", err=True)
    with open_device(device, target, record.threads, cold, codegen) as opened:
        if str(opened.target) != record.target:
            note = f"note: the record is of another target, {record.target}"
            where = "" if device else "; --device URL measures on the machine that it is of"
            click.echo(note + where, err=True)
        (now,) = opened.measure(workload, [record.config])
        failure = now.failure or opened.verify(workload, record.config)
    if failure is not None:
        click.echo(f"now        {failure}\n{failure.traceback}".rstrip())
        raise SystemExit(1)
    click.echo(f"now        {speed(workload.flops, now.cost, None)}; its results are right")
    click.echo(f"spent      {now.build_seconds:.3f} s building, {now.run_seconds:.3f} s running")
