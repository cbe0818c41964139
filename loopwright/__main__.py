"""The command line: `loopwright`, or `python -m loopwright`."""

import functools
import os
import signal
import threading
from collections.abc import Sequence
from types import FrameType

import click

from loopwright.cli.build import build
from loopwright.cli.devices import devices
from loopwright.cli.explain import explain
from loopwright.cli.fleet import fleet
from loopwright.cli.inspect import inspect
from loopwright.cli.model import model
from loopwright.cli.passes import passes
from loopwright.cli.profile import profile, tasks
from loopwright.cli.records import records
from loopwright.cli.replay import replay
from loopwright.cli.run import bench, run
from loopwright.cli.tune import tune
from loopwright.cli.tune_model import tune_model
from loopwright.version import __version__

COMMANDS = (
    tune, tune_model, explain, inspect, replay, bench, tasks, build, run, profile, records, model,
    devices, passes, fleet,
)  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="loopwright")
def main() -> None:
    """Find fast programs for tensor computations."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # under nohup it is ignored
            terminals = [number for number in range(3) if os.isatty(number)]
            signal.signal(signal.SIGHUP, functools.partial(_hang_up, terminals))


def _end(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does: nothing that was measured is lost."""
    raise KeyboardInterrupt


def _hang_up(terminals: Sequence[int], number: int, frame: FrameType | None) -> None:
    """End so when the terminal is closed. Nothing can be printed there any more."""
    signal.signal(number, signal.SIG_IGN)  # a shell tells its jobs once more
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in terminals:
        os.dup2(nothing, each)
    os.close(nothing)
    raise KeyboardInterrupt


for command in COMMANDS:
    main.add_command(command)

if __name__ == "__main__":
    main()
