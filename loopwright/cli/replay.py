"""`loopwright replay`: one record again, alone."""

from __future__ import annotations

import click

from loopwright.cli.common.command import Command
from loopwright.cli.common.options import RECORDS
from loopwright.transfer.records.location import Location


@click.command(cls=Command)
@click.argument("number", metavar="ID", type=click.IntRange(1))
@RECORDS
def replay(number: int, records: Location) -> None:
    """Build, run and check the config of one record again, alone."""
    from loopwright.codegen.build import by_codegen
    from loopwright.codegen.target import resolve
    from loopwright.explore.result import speed
    from loopwright.measure.local import LocalDevice
    from loopwright.measure.timing import Timing
    from loopwright.transfer.records.record import NETWORK
    from loopwright.transfer.records.store import RecordStore

    with RecordStore(records, create=False) as store:
        record = store.get(number)
    workload = record.computation()
    kind = record.target.partition(" ")[0]
    target = resolve(kind if kind in ("cuda", "opencl") else "cpu", record.threads)
    if kind == "direct":
        target = by_codegen(target, kind)
    if str(target) != record.target:
        click.echo(f"note: the record is of another target, {record.target}", err=True)
    click.echo(f"{workload}\n{record.config}")
    then = record.failure or speed(workload.flops, record.cost, None)
    click.echo(f"recorded   {then}")
    cold = Timing(cache="cold") if record.cache == "cold" else None
    if record.cache == NETWORK:
        click.echo("note: it was timed inside of a network, and is alone now", err=True)
    with LocalDevice(target, timing=cold) as device:
        (now,) = device.measure(workload, [record.config])
        failure = now.failure or device.verify(workload, record.config)
    if failure is not None:
        click.echo(f"now        {failure}\n{failure.traceback}".rstrip())
        raise SystemExit(1)
    click.echo(f"now        {speed(workload.flops, now.cost, None)}; its results are right")
    click.echo(f"spent      {now.build_seconds:.3f} s building, {now.run_seconds:.3f} s running")
