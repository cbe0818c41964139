"""`loopwright devices`: what can measure here."""

from __future__ import annotations

import click

from loopwright.cli.common.command import Command, show_details


@click.command(cls=Command)
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option("--check", is_flag=True, help="Build, run and verify a trivial program on each.")
def devices(urls: tuple[str, ...], check: bool) -> None:
    """List the devices that can measure here, GPUs among them, or the machines at URLs:
    ssh://user@host[:port], docker://container, adb://serial."""
    from loopwright.dsl.errors import LoopwrightError
    from loopwright.measure.machine import versions
    from loopwright.measure.opening import open_device

    failed = False
    here = [(target, None, target) for target in ("cpu", "cuda", "opencl")]
    for name, url, target in [(url, url, "cpu") for url in urls] or here:
        try:
            device = open_device(url, target)
        except LoopwrightError as error:
            if url is None:
                show_details((f"no {name}", str(error)))
            else:  # which names the device
                click.echo(f"Error: {error}", err=True)
                failed = True
            continue
        with device:
            details = {"target": str(device.target), "threads": str(device.target.threads)}
            details |= device.fingerprint()
            if not device.here:  # versions are those of this one, which builds
                own = ["python", *versions()]
                details["built by"] = ", ".join(f"{n} {details.pop(n)}" for n in own)
            show_details(("device", device.name), *details.items())
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
