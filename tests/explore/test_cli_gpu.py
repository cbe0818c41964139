"""The command line on GPUs: what is refused, compiling alone, and a search through OpenCL."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from loopwright.cli.devices import devices
from loopwright.cli.inspect import inspect
from loopwright.cli.replay import replay
from loopwright.cli.tune import tune

pytestmark = pytest.mark.usefixtures("brief")

MATMUL = ["matmul", "a=40,24", "b=24,36"]


@pytest.mark.parametrize(("arch", "message"), [("sm_35", "too old"), ("hopper", "sm_90")])
def test_an_architecture_that_is_none_or_too_old_is_an_error_with_a_remedy(arch, message):
    result = CliRunner().invoke(inspect, [*MATMUL, "--arch", arch])
    assert result.exit_code == 1
    assert message in result.output


@pytest.mark.nvcc
def test_inspecting_tells_what_programs_use():
    result = CliRunner().invoke(inspect, [*MATMUL, "--arch", "sm_90", "--count", "3"])
    assert result.exit_code == 0, result.output
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    head = next(n for n, line in enumerate(lines) if line[0] == "kernels")
    assert lines[head][:4] == ["kernels", "registers", "spilled bytes", "shared bytes"]
    assert len(lines) == head + 4
    for kernels, registers, spilled, shared, *_ in lines[head + 1 :]:
        assert int(kernels) >= 1
        assert 8 <= int(registers) <= 255
        assert int(spilled) == 0
        assert int(shared) >= 0
    assert "3 compiled, 0 failed, 0 spill" in result.output


@pytest.mark.opencl
def test_a_search_through_opencl_works_end_to_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    command = [*MATMUL, "--target", "opencl", "--trials", "2", "-o", "mm.cl"]
    result = runner.invoke(tune, command)
    assert result.exit_code == 0, result.output
    for word in ("on opencl", "default", "best", "trials     2", "mm.cl"):
        assert word in result.output
    assert "__kernel" in (tmp_path / "mm.cl").read_text()
    result = runner.invoke(replay, ["1"])
    assert result.exit_code == 0, result.output
    assert "its results are right" in result.output


def test_devices_are_listed_with_what_is_missing():
    result = CliRunner().invoke(devices, [])
    assert result.exit_code == 0, result.output
    assert "device:" in result.output
    assert "llvm" in result.output
    assert "cuda" in result.output
    assert "opencl" in result.output.lower()
