"""CUDA without a GPU: a stand-in for the driver runs the kernels' text on the processor.

The checks are in fake_cuda/checks.py. They run in a process of their own, since a process that has
found a driver keeps it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import interpreter
from tests.codegen.fake_cuda.emulation import fake_driver, fake_runtime

CHECKS = Path(__file__).parent / "fake_cuda/checks.py"
ROOT = Path(__file__).parents[2]


def run(folder, *command, driver=fake_driver, **environment):
    path = f"{driver(folder)}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=interpreter.environment(LD_LIBRARY_PATH=path, **environment),
    )


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="a driver is here")
def test_the_launcher_and_libraries_work_with_a_stand_in_for_the_driver(tmp_path):
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", CHECKS)
    assert done.returncode == 0, done.stdout[-6000:]
    assert re.search(r"1[0-9] passed", done.stdout), done.stdout


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"FAKE_CUDA_NO_GPU": "1"}, "there is no NVIDIA GPU"),
        ({"FAKE_CUDA_MAJOR": "6"}, "sm_60 is too old"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_an_error_with_a_remedy(tmp_path, environment, message):
    code = (
        "import loopwright as lw\n"
        "from loopwright.codegen.target import resolve\n"
        "try: resolve('cuda')\n"
        "except lw.LoopwrightError as e: print(type(e).__name__, e)"
    )
    done = run(tmp_path, "-c", code, **environment)
    assert message in done.stdout, done.stderr
    assert "opencl" in done.stdout


def test_tvm_writes_kernels_and_leaves_compiling_them_to_us_where_it_could(tmp_path):
    code = (
        "import tvm, loopwright as lw\n"
        "assert tvm.get_global_func('ffi.Module.create.cuda', allow_missing=True) is not None\n"
        "from loopwright.codegen.build import program\n"
        "from loopwright.codegen.gpu.source import gpu_program\n"
        "from loopwright.codegen.target import resolve\n"
        "target = resolve({'kind': 'cuda', 'arch': 'sm_90'})\n"
        "product = lw.ops.matmul(lw.tensor('a', (256, 256)), lw.tensor('b', (256, 256)))\n"
        "print(gpu_program(program(lw.workload(product), None, target).tree, target).source)\n"
    )
    done = run(tmp_path, "-c", code, driver=fake_runtime)
    assert 'extern "C" __global__' in done.stdout, done.stderr
