"""GPU targets, from what the user says; machines without a GPU."""

import os
import subprocess
import sys

import pytest

from loopwright.codegen.target import resolve
from loopwright.dsl.errors import TargetError
from loopwright.schedule.target import Target
from tests import interpreter


def test_a_named_architecture_has_its_limits():
    gpu = resolve({"kind": "cuda", "arch": "sm_90"}).gpu
    assert gpu.arch == "sm_90"
    assert gpu.shared_bytes == 227 << 10
    assert gpu.tensor_cores
    assert gpu.async_copies
    turing = resolve({"kind": "cuda", "arch": "sm_75", "multiprocessors": 40}).gpu
    assert turing.multiprocessors == 40
    assert turing.sm_threads == 1024
    assert not turing.async_copies


def test_an_architecture_between_known_ones_has_the_older_ones_limits():
    assert resolve({"kind": "cuda", "arch": "sm_88"}).gpu.sm_threads == 1536


def test_limits_of_an_opencl_device_may_be_said():
    target = resolve({"kind": "opencl", "most_threads": 128, "tensor_cores": True})
    assert isinstance(target, Target)
    assert target.gpu.most_threads == 128
    assert resolve(target) is target
    assert resolve(target, threads=3) == target


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": "cuda", "arch": "sm_61"}, 'sm_61 is too old: .* use target="opencl"'),
        ({"kind": "cuda", "arch": "hopper"}, 'write it as "sm_90"'),
        ({"kind": "cuda", "arch": 90}, "arch = 90: give a str"),
        ({"kind": "cuda", "arch": "sm_90", "mcpu": "x"}, "a GPU has no mcpu; the keys are"),
        ({"kind": "opencl", "arch": "sm_90"}, "OpenCL compiles for any device"),
        ({"kind": "opencl", "most_threads": 0}, "numbers at least 1"),
        ({"kind": "opencl", "most_threads": True}, "give a int"),
    ],
)
def test_a_gpu_that_is_not_known_is_an_error(config, message):
    with pytest.raises(TargetError, match=message):
        resolve(config)


def run_python(code, *folders, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=interpreter.environment(*folders, **environment),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU")
def test_a_machine_without_a_driver_is_told_what_to_do():
    text = run_python(
        "import loopwright as lw\n"
        "from loopwright.codegen.target import resolve\n"
        "try: resolve('cuda')\n"
        "except lw.LoopwrightError as e: print(type(e).__name__, e)"
    )
    assert text.startswith("TargetError")
    assert "install the driver" in text
    assert '"arch": "sm_90"' in text


def test_opencl_without_pyopencl_is_told_what_to_install(tmp_path):
    (tmp_path / "pyopencl.py").write_text("raise ImportError('not here')")
    text = run_python(
        "import loopwright as lw\n"
        "from loopwright.codegen.target import resolve\n"
        "try: resolve('opencl')\n"
        "except lw.LoopwrightError as e: print(type(e).__name__, e)",
        tmp_path,
    )
    assert "TargetError" in text
    assert 'pip install "loopwright[opencl]"' in text


@pytest.mark.opencl
def test_opencl_without_a_device_is_told_what_to_install(tmp_path):
    text = run_python(
        "import loopwright as lw\n"
        "from loopwright.codegen.target import resolve\n"
        "try: resolve('opencl')\n"
        "except lw.LoopwrightError as e: print(type(e).__name__, e)",
        OCL_ICD_VENDORS=str(tmp_path),
    )
    assert "TargetError" in text
    assert "apt-get install pocl-opencl-icd" in text
