"""`loopwright fleet`: many machines that measure, by Ray."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from loopwright.cli.common.command import Command, Group, NewFolder
from loopwright.dsl.words import counted

_PORT = 6379  # Ray's own
_FLEET = click.option(
    "--fleet",
    "address",
    default="auto",
    show_default=True,
    metavar="ADDRESS",
    help="The fleet: auto for this machine's, or ray://host:port.",
)
_BUILDERS = click.option(
    "--builders",
    type=click.IntRange(0),
    help="Cores of this machine that build; all if not given.",
)
_MEASURES = click.option(
    "--measures/--builds-only", default=True, help="Whether this machine measures, too."
)


@click.group(cls=Group)
def fleet() -> None:
    """Measure by many machines, for many tuners."""


@fleet.command(cls=Command)
@click.option(
    "--listen",
    metavar="ADDRESS",
    help="This machine's address for others; loopback alone if not given.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=_PORT,
    show_default=True,
    help="Where the head listens.",
)
@_BUILDERS
@_MEASURES
@click.option("--folder", type=NewFolder(), help="Ray's folder, of logs.")
def start(
    listen: str | None, port: int, builders: int | None, measures: bool, folder: Path | None
) -> None:
    """Start a fleet on this machine, its head.

    It listens on loopback alone: other machines can be added by a URL, as `fleet add ssh://pi@board`.
    With --listen other machines can join by `fleet add HOST:PORT`, and tuners reach it by
    ray://HOST:10001. Ray runs what it is sent, so that whoever has its token can do as this user:
    keep its ports inside of a network that you trust. The token is in ~/.ray/auth_token, and each
    machine of the fleet needs it there.
    """
    from loopwright.measure.fleet import cluster
    from loopwright.measure.fleet.joining import join
    from loopwright.measure.fleet.nodes import start_head

    address = start_head(listen, port, builders, measures, folder and folder.absolute())
    click.echo(f"a fleet is at {address}, until `ray stop`")
    if listen is not None:
        click.echo(
            "its ports are open: whoever has ~/.ray/auth_token may run programs as you", err=True
        )
    leave = join("auto")
    _show_new(list(cluster.stations()))
    leave()


@fleet.command(cls=Command)
@click.argument("where", metavar="[URL|HOST:PORT]...", nargs=-1)
@_BUILDERS
@_MEASURES
@_FLEET
def add(where: tuple[str, ...], builders: int | None, measures: bool, address: str) -> None:
    """Add machines: those at URLs (ssh://user@host[:port], docker://container, adb://serial),
    which the head drives; or this machine, to the fleet whose head is at HOST:PORT. Without any,
    let those that are drained and still there take work again."""
    from loopwright.measure.fleet import cluster
    from loopwright.measure.fleet.joining import join
    from loopwright.measure.fleet.nodes import join_head
    from loopwright.measure.remote.route import route

    urls = [place for place in where if "://" in place]
    heads = [place for place in where if "://" not in place]
    for url in urls:
        route(url)
    if len(heads) > 1 or (heads and urls):
        raise click.UsageError("give URLs, or the one HOST:PORT that this machine is to join")
    if heads:
        join_head(heads[0], builders, measures)
    join("auto" if heads else address)
    before = cluster.actors()
    for url in urls:
        cluster.for_url(url)
    for actor in () if where else before.values():
        cluster.control(actor, "drain", False)
    after = cluster.stations()
    _show_new([name for name in after if name not in before or not where])


@fleet.command(cls=Command)
@click.argument("name")
@click.option(
    "--minutes", type=click.FloatRange(0), default=15.0, show_default=True, help="Time to wait."
)
@_FLEET
def drain(name: str, minutes: float, address: str) -> None:
    """Drain a machine: it takes no new work, and leaves when it has none. What waits for it goes
    to others. The head stays, for the fleet ends with it, but measures nothing."""
    from loopwright.measure.fleet import cluster
    from loopwright.measure.fleet.joining import join
    from loopwright.measure.fleet.nodes import drained

    join(address)
    actor = cluster.actors().get(name)
    if actor is None:
        known = ", ".join(cluster.actors()) or "none"
        raise click.UsageError(f"no machine is called {name}; there are: {known}")
    cluster.control(actor, "drain")
    click.echo(drained(name, actor, 60 * minutes))


@fleet.command(cls=Command)
@_FLEET
@click.option("--watch", is_flag=True, help="Keep it up to date, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="All of it, for programs.")
@click.option(
    "--page", metavar="[HOST:]PORT", help="Serve a live page, on loopback unless a host is given."
)
def status(address: str, watch: bool, as_json: bool, page: str | None) -> None:
    """Show machines, what they are at, tuners, and failures by kind."""
    from loopwright.measure.fleet.cluster import look
    from loopwright.measure.fleet.joining import join

    join(address)
    if page is not None:
        from loopwright.measure.fleet.page import serve

        host, _, port = page.rpartition(":")
        if not port.isdecimal():
            raise click.UsageError(f"--page {page}: give a port, or HOST:PORT")
        serve(look, host or "127.0.0.1", int(port), lambda url: click.echo(f"live at {url}"))
    elif as_json:
        click.echo(json.dumps(look(), indent=2))
    elif watch:
        _watch(look)
    else:
        from rich.console import Console

        Console(width=None if sys.stdout.isatty() else 160).print(_table(look()))


def _watch(look: Any) -> None:
    from rich.live import Live

    with Live(_table(look()), refresh_per_second=2, screen=False) as live:
        try:
            while True:
                time.sleep(1.0)
                live.update(_table(look()))
        except KeyboardInterrupt:
            return


def _table(found: dict[str, Any]) -> Any:
    """Machines, then tuners, then lines."""
    from rich.console import Group as Lines
    from rich.table import Table
    from rich.text import Text

    machines = Table("machine", "state", "target", "measured", "failures", "factor", "for")
    for m in found["machines"]:
        failures = _counts(m.get("failures", {}))
        factor = "" if m["factor"] is None else f"{m['factor']:.3f}"
        shown = (m["name"], m["state"], m.get("target", ""), str(m.get("measured", "")))
        machines.add_row(*map(Text, (*shown, failures, factor, m.get("for", ""))))
    tuners = Table("tuner", "trials", "queue", "best ms", "failures")
    for t in found["tuners"]:
        best = ", ".join(f"{curve[-1][1] * 1e3:.4g}" for curve in t["curves"].values() if curve)
        name = t["name"] + (" (ended)" if t["gone"] else "")
        row = (name, str(t["trials"]), str(t["queue"]), best, _counts(t["failures"]))
        tuners.add_row(*map(Text, row))
    head = (
        f"{counted(len(found['machines']), 'machine')}, candidates that wait: {found['queue']}, "
        f"{found['free_cores']:g} of {found['cores']:g} cores are free to build; "
        f"failures: {_counts(found['failures']) or 'none'}"
    )
    notes = [Text(note["text"]) for note in found["notes"][-5:]]
    return Lines(Text(head), machines, *([tuners] if found["tuners"] else []), *notes)


def _counts(failures: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(failures.items()))


def _show_new(names: list[str]) -> None:
    for name in names:
        click.echo(f"measures   {name}")
