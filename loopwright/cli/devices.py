"""`loopwright devices`: what can measure here."""

from __future__ import annotations

import click

from loopwright.cli.command import Command, show_details


@click.command(cls=Command)
@click.option("--check", is_flag=True, help="Build, run and verify a trivial program on each.")
def devices(check: bool) -> None:
    """List the devices that can measure here, GPUs among them."""
    from loopwright.dsl.errors import LoopwrightError
    from loopwright.measure.local import LocalDevice

    failed = False
    for target in ("cpu", "cuda", "opencl"):
        try:
            device = LocalDevice(target)
        except LoopwrightError as error:
            show_details((f"no {target}", str(error)))
            continue
        with device:
            details = {"target": str(device.target), "threads": str(device.target.threads)}
            show_details(("device", device.name), *(details | device.fingerprint()).items())
            if not check:
                continue
            said = "a program was built, ran, and its results are right"
            try:
                device.check()
            except LoopwrightError as error:
                said, failed = str(error), True
            show_details(("check", said))
    if failed:
        raise SystemExit(1)
