"""The command line: `loopwright`, or `python -m loopwright`."""

import signal
import threading
from types import FrameType

import click

from loopwright import __version__
from loopwright.cli_graph import build, profile, run, tasks
from loopwright.cli_model import model
from loopwright.cli_records import devices, records
from loopwright.cli_tune import bench, replay, tune


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="loopwright")
def main() -> None:
    """Find fast programs for tensor computations."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> None:
    """What a batch system sends is what Ctrl-C is: nothing that was measured is lost."""
    raise KeyboardInterrupt


for command in (tune, bench, replay, records, devices, model, tasks, build, run, profile):
    main.add_command(command)

if __name__ == "__main__":
    main()
