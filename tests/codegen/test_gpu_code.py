"""The blob that build workers hand to run workers, and what the assembler says of kernels."""

import json

import pytest

from loopwright.codegen.devices import nvidia
from loopwright.codegen.devices.code import GpuCode, Launch, Plan, Resources, resources
from loopwright.codegen.devices.nvidia import read_resources
from loopwright.dsl.errors import BuildError, LibraryError

CODE = GpuCode(
    "cuda",
    "sm_90",
    b"\x7fELF\n\0image",
    {"main": Plan(3, (Launch("k", (0, 3, 2), 7, 64, 512),), (1024,))},
    (Resources("k", 40, 0, 8, 2048),),
)

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'lw_main_1' for 'sm_90'
ptxas info    : Function properties for lw_main_1
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 1248 bytes smem
ptxas info    : Compiling entry function 'lw_main_0' for 'sm_90'
ptxas info    : Function properties for lw_main_0
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""


def test_a_blob_gives_back_what_went_in():
    assert GpuCode.from_bytes(CODE.to_bytes()) == CODE
    assert resources(CODE.to_bytes()) == [
        {"kernel": "k", "registers": 40, "stack": 0, "spills": 8, "shared": 2048}
    ]


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\x7fELF",
        CODE.to_bytes()[:-1],
        CODE.to_bytes() + b"x",
        CODE.to_bytes().replace(b'"schema": 1', b'"schema": 2'),
        json.dumps({"format": "loopwright-gpu-code", "schema": 1}).encode() + b"\n",
    ],
)
def test_a_damaged_blob_is_an_error(blob):
    with pytest.raises(LibraryError, match="not the code of a GPU library, or damaged"):
        GpuCode.from_bytes(blob)


def test_the_assemblers_report_is_read():
    assert read_resources(LOG) == (
        Resources("lw_main_1", 255, 16, 32, 1248),
        Resources("lw_main_0", 10, 0, 0, 0),
    )


NVRTC_LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 256 bytes smem
ptxas info    : Compile time = 5.388 ms
"""


def test_what_nvrtc_reports_is_read_too():
    assert read_resources(NVRTC_LOG) == (Resources("k", 10, 8, 16, 256),)


def test_no_compiler_is_an_error_with_a_remedy(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(nvidia, "_nvrtc_library", lambda: None)
    with pytest.raises(BuildError, match="neither nvcc nor the library nvrtc: install"):
        nvidia.compile_cuda("", "sm_90", portable=False)


@pytest.mark.nvcc
def test_an_error_of_the_compiler_comes_with_its_words():
    with pytest.raises(BuildError, match='identifier "wrong" is undefined'):
        nvidia.compile_cuda("__global__ void k() { wrong; }", "sm_90", portable=False)
    with pytest.raises(BuildError, match="install a CUDA toolkit that knows"):
        nvidia.compile_cuda("", "sm_999", portable=False)
