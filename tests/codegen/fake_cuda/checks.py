"""What the launcher, the library and exported files do, with the stand-in for the driver.

`test_gpu_cuda.py` runs this file in a process that finds the stand-in: not by itself.
"""

import ctypes
import os
import subprocess
import sys
import types

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.codegen.compile import compile_by, signature
from loopwright.codegen.devices import cuda_driver
from loopwright.codegen.gpu import source as gpu_source
from loopwright.codegen.gpu.library import GpuLibrary, load_code
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import DeviceLostError, LibraryError, ShapeError
from loopwright.dsl.oracle import evaluate, random_inputs, tolerance
from tests.codegen.fake_cuda.emulation import emulated
from tests.collection import WORKLOADS

DRIVER = ctypes.CDLL("libcuda.so.1")


@pytest.fixture(autouse=True)
def compiler(monkeypatch, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    monkeypatch.setattr(
        gpu_source, "compile_cuda", lambda source, arch, portable: (emulated(source, folder), ())
    )


def product():
    A, B, C = lw.tensor("A", (24, 20)), lw.tensor("B", (20, 12), constant=True), lw.tensor("C")
    i, j, k = lw.indices("i j k")
    C[i, j] += A[i, k] * B[k, j]
    return lw.workload(C)


def data(workload):
    inputs = random_inputs(workload, np.random.default_rng(0))
    return inputs, evaluate(workload, inputs)


def assert_right(workload, outputs, expected):
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    rtol, atol = tolerance(workload, 1.0)
    for output, reference in zip(outputs, expected, strict=True):
        wide = np.asarray(output, np.float64)
        np.testing.assert_allclose(wide, np.asarray(reference, np.float64), rtol, atol)


class FakeTensor:
    """An array "on the GPU" of a package that is called torch."""

    def __init__(self, array, device=0):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return (2, self.device)

    def __dlpack__(self, stream=None):
        assert stream == 77
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 8).value = 2
        return capsule


FakeTensor.__module__ = "torch"


@pytest.fixture
def fake_torch(monkeypatch):
    stream = types.SimpleNamespace(cuda_stream=77)
    module = types.ModuleType("torch")
    module.cuda = types.SimpleNamespace(current_stream=lambda device: stream)
    module.float32, module.Tensor = "float32", FakeTensor

    def empty(shape, dtype, device):
        assert device in ("cuda:0", "cuda:1")
        return on_gpu(np.full(shape, np.nan, dtype))

    module.empty = empty
    monkeypatch.setitem(sys.modules, "torch", module)


def on_gpu(array):
    block = np.empty(array.nbytes + 64, np.uint8)
    start = -block.ctypes.data % 64
    placed = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return FakeTensor(placed)


def test_the_gpu_here_is_found():
    target = resolve("cuda")
    assert target.gpu.arch == "sm_90"
    assert target.gpu.multiprocessors == 132
    assert target.gpu.shared_bytes == 227 << 10
    assert cuda_driver.facts().name == "Fake H100"


@pytest.mark.parametrize("name", ["conv2d_with_constant_weights_bias_and_relu", "layer_norm"])
def test_numpy_arrays_are_copied(name):
    workload = WORKLOADS[name]()
    inputs, expected = data(workload)
    library = lw.build(workload, target="cuda")
    assert_right(workload, library(*inputs), expected)
    out = tuple(np.empty_like(e, a.dtype) for e, a in zip(expected, expected))
    assert library(*inputs, out=out) is out
    assert_right(workload, out, expected)
    constants = {t.name: a for t, a in zip(workload.inputs, inputs) if t.constant}
    rest = [a for t, a in zip(workload.inputs, inputs) if not t.constant]
    assert_right(workload, library.bind(**constants)(*rest), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tensor_cores_multiply(dtype):
    A, B, C = lw.tensor("A", (48, 40), dtype), lw.tensor("B", (40, 33), dtype), lw.tensor("C")
    i, j, k = lw.indices("i j k")
    C[i, j] += lw.cast(A[i, k], "float32") * lw.cast(B[k, j], "float32")
    workload = lw.workload(C)
    space = lw.space(workload, "cuda")
    inputs, expected = data(workload)
    matrices = [s for s in space.sketches if "matrix" in s.name.structure]
    assert matrices
    for sketch in matrices:
        library = lw.build(workload, sketch.at(sketch.default), target="cuda")
        assert "lw_matrix_multiply_" + dtype + "((&" in library.source("cuda")
        assert_right(workload, library(*inputs), expected)


def test_asynchronous_copies_arrive_when_they_are_waited_for():
    workload = WORKLOADS["matmul_of_a_matrix_with_itself"]()
    inputs, expected = data(workload)
    space = lw.space(workload, "cuda")
    sketches = [s for s in space.sketches if "async" in s.name.structure]
    assert sketches
    library = lw.build(workload, sketches[0].at(sketches[0].default), target="cuda")
    assert "lw_async_wait<" in library.source("cuda")
    assert_right(workload, library(*inputs), expected)


def test_arrays_on_the_gpu_are_used_where_they_are(fake_torch):
    workload = product()
    (a, b), expected = data(workload)
    library = lw.build(workload, target="cuda")
    result = library(on_gpu(a), on_gpu(b))
    assert isinstance(result, FakeTensor)
    assert_right(workload, result.array, expected)
    out = on_gpu(np.zeros((24, 12), np.float32))
    assert library(on_gpu(a), b, out=out) is out
    assert_right(workload, out.array, expected)
    assert_right(workload, library.bind(B=b)(on_gpu(a)).array, expected)


def test_arrays_on_another_gpu_are_used_there(fake_torch):
    workload = product()
    (a, b), expected = data(workload)
    library = lw.build(workload, target="cuda")
    a1, b1 = (FakeTensor(on_gpu(x).array, 1) for x in (a, b))
    assert_right(workload, library(a1, b1).array, expected)
    with pytest.raises(ShapeError, match="on several GPUs"):
        library(a1, on_gpu(b))
    with pytest.raises(ShapeError, match="lie on another GPU"):
        library.bind(B=b)(a1)


def test_arrays_on_the_gpu_are_checked(fake_torch):
    workload = product()
    (a, b), _ = data(workload)
    library = lw.build(workload, target="cuda")
    for wrong, message in (
        (on_gpu(a.astype(np.float64)), "has dtype float64; it must be float32"),
        (on_gpu(a[:-1]), r"has shape \(23, 20\)"),
        (FakeTensor(on_gpu(np.zeros((24, 40), np.float32)).array[:, ::2]), "not dense"),
        (FakeTensor(on_gpu(np.zeros(481, np.float32)).array[1:].reshape(24, 20)), "16 bytes"),
    ):
        with pytest.raises(ShapeError, match=message):
            library(wrong, on_gpu(b))
    out = FakeTensor(on_gpu(np.zeros(480, np.float32)).array[:288].reshape(24, 12))
    whole = FakeTensor(np.lib.stride_tricks.as_strided(out.array, (24, 20), (80, 4)))
    with pytest.raises(ShapeError, match="overlaps"):
        library(whole, on_gpu(b), out=out)
    with pytest.raises(ShapeError, match="that is on the GPU"):
        library(on_gpu(a), on_gpu(b), out=np.zeros((24, 12), np.float32))


def test_memory_is_given_back():
    workload = product()
    (a, b), _ = data(workload)
    library = lw.build(workload, target="cuda")
    library(a, b)
    before = DRIVER.fake_blocks()
    for _ in range(3):
        library(a, b)
        library.bind(B=b)(a)
    assert DRIVER.fake_blocks() == before


def test_too_little_memory_is_an_error_with_a_remedy():
    X, Y = lw.tensor("X", (40, 1 << 20)), lw.tensor("Y")
    i, j = lw.indices("i j")
    Y[i, j] = X[i, j] * 2.0
    library = lw.build(lw.workload(Y), target="cuda")
    with pytest.raises(LibraryError, match=r"no memory on the GPU .*free memory of the GPU"):
        library(np.zeros((40, 1 << 20), np.float32))


def test_a_blob_is_loaded_and_timed_without_the_builder():
    workload = WORKLOADS["long_dot_product_over_threads"]()
    inputs, expected = data(workload)
    made = program(workload, None, resolve("cuda"))
    library = load_code(signature(made, "k"), compile_by(made, draft=True).objects[0])
    call = library.prepare_call(*inputs)
    call.flush()
    elapsed, same = call.repeat(2)
    assert 0 < elapsed == same
    assert_right(workload, call.outputs, expected)


def test_code_for_another_gpu_is_an_error_with_a_remedy(monkeypatch):
    monkeypatch.setattr(gpu_source, "compile_cuda", lambda s, a, portable: (b"other\0", ()))
    made = program(product(), None, resolve("cuda"))
    with pytest.raises(LibraryError, match=r"compiled for another GPU .*build it for this GPU"):
        load_code(signature(made, "k"), compile_by(made).objects[0])


def test_an_exported_library_is_loaded_and_called(tmp_path):
    for name in ("conv2d_with_constant_weights_bias_and_relu", "layer_norm"):
        workload = WORKLOADS[name]()
        inputs, expected = data(workload)
        path = lw.build(workload, target="cuda", name=name).export(tmp_path / f"{name}.so")
        loaded = lw.load(path)
        assert isinstance(loaded, GpuLibrary)
        assert_right(workload, loaded(*inputs), expected)
        with pytest.raises(LibraryError, match="an export already"):
            loaded.export(tmp_path / "again.so")


MAIN = """#include <stdio.h>
#include <stdlib.h>
#include "{name}.h"
int cuMemAlloc_v2(void **, size_t);
int main(void) {{
  float *a, *b, *c;
  cuMemAlloc_v2((void **)&a, 4 * 24 * 20);
  cuMemAlloc_v2((void **)&b, 4 * 20 * 12);
  cuMemAlloc_v2((void **)&c, 4 * 24 * 12);
  for (int i = 0; i < 24 * 20; i++) a[i] = 1;
  for (int i = 0; i < 20 * 12; i++) b[i] = 2;
  int status = {name}(a, b, c, NULL);
  if (status) {{ printf("%s: %s\\n", {name}_error(status), {name}_detail()); return 1; }}
  printf("%g %g\\n", c[0], c[24 * 12 - 1]);
  printf("%s\\n", {name}_error({name}(a + 1, b, c, NULL)));
  printf("%s\\n", {name}_error({name}(a, NULL, c, NULL)));
  printf("%s\\n", {name}_error({name}(a, b, a, NULL)));
  return 0;
}}
"""


def test_an_exported_library_is_called_from_c(tmp_path):
    lw.build(product(), target="cuda").export(tmp_path / "mm.so")
    (tmp_path / "main.c").write_text(MAIN.format(name="mm"))
    folder = os.environ["LD_LIBRARY_PATH"].split(":")[0]
    command = ["cc", "-Wall", "-Werror", "main.c", "mm.so", f"{folder}/libcuda.so.1", "-ldl"]
    subprocess.run([*command, "-Wl,-rpath,.", "-o", "main"], cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "40 40",
        "a pointer is not aligned to 16 bytes",
        "a pointer is null",
        "an output overlaps an input or another output",
    ]


def test_zz_a_lost_context_is_told_from_other_failures(monkeypatch):
    # The last one: nothing works in this process afterwards, as on a GPU.
    workload = product()
    inputs, _ = data(workload)
    library = lw.build(workload, target="cuda")
    os.putenv("FAKE_CUDA_FAULT", "1")
    with pytest.raises(DeviceLostError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        library(*inputs)
    with pytest.raises(DeviceLostError):
        library(*inputs)
