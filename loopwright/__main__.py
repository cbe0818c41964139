"""The command line: `loopwright`, or `python -m loopwright`."""

import signal
import threading
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


def _end(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does: nothing that was measured is lost."""
    raise KeyboardInterrupt


for command in COMMANDS:
    main.add_command(command)

if __name__ == "__main__":
    main()
