"""The command line: `loopwright`, or `python -m loopwright`."""

import click

from loopwright import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="loopwright")
def main() -> None:
    """Find fast programs for tensor computations."""


if __name__ == "__main__":
    main()
