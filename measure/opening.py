"""`open_device`: from what a user gives to the device that measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopwright.dsl.words import brief
from loopwright.measure.device import Device, DeviceError
from loopwright.measure.timing import Timing
from loopwright.schedule.target import Target


def check_device(device: Device | str | None, fleet: str | None) -> None:
    """Raise `DeviceError` for what is no device, and where a device and a fleet are given."""
    if not isinstance(device, Device | str | None):
        raise DeviceError(
            f"device = {brief(device)}: give a URL such as ssh://user@host, a Device, or None"
        )
    if device is not None and fleet is not None:
        raise DeviceError("a device and a fleet both say what measures: give one of them")


def open_device(
    url: str | None,
    target: str | Mapping[str, Any] | Target = "cpu",
    threads: int | None = None,
    timing: Timing | None = None,
    codegen: str = "llvm",
    fleet: str | None = None,
) -> Device:
    """The machine that a URL names, those of a fleet, or this one if both are None. See
    `RemoteDevice`, `FleetDevice` and `LocalDevice`, also for what they raise. Built-in code is
    measured here alone: `DeviceError` elsewhere."""
    check_device(url, fleet)
    if url is None and fleet is None:
        from loopwright.codegen.target import by_codegen, resolve
        from loopwright.measure.local import LocalDevice

        if codegen != "llvm":
            target = by_codegen(resolve(target, threads), codegen)
        return LocalDevice(target, threads, timing=timing)
    if codegen != "llvm":
        raise DeviceError(f'codegen="{codegen}" is measured on this machine: leave out where')
    if fleet is not None:
        from loopwright.measure.fleet.device import FleetDevice

        return FleetDevice(fleet, target, threads, timing=timing)
    from loopwright.measure.remote.device import RemoteDevice

    assert url is not None
    return RemoteDevice(url, target, threads, timing=timing)
