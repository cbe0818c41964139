"""Every operator, by its default schedule and by random configs, on a GPU's terms: run through
OpenCL (on PoCL, where there is no GPU) and CUDA, and compiled for other architectures.

The targets of both kinds have the limits of one NVIDIA GPU, tensor cores included, so that their
spaces are the same. Only what runs through CUDA has the limits of the GPU that is here.
"""

from __future__ import annotations

import functools
import zlib
from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.codegen.compile import compile_by
from loopwright.codegen.devices.code import resources
from loopwright.codegen.target import resolve
from loopwright.dsl.oracle import evaluate, random_inputs, tolerance
from loopwright.explore.strategies.encoded_space import EncodedSpace, Seen
from loopwright.explore.strategies.legality import legal_points
from loopwright.measure.checking import difference
from loopwright.schedule.space import space
from loopwright.schedule.target import Target
from tests.collection import WORKLOADS

pytestmark = pytest.mark.sampled(0.34)

FEW = [
    "matmul_of_odd_extents",
    "matmul_in_float16_accumulated_in_float32",
    "conv2d_with_stride_2_and_batch_2",
    "depthwise_conv2d",
    "softmax",
]
"""One of every kind of kernel; the others run with --slow."""
RANDOM = 100
ARCHITECTURES = ("sm_80", "sm_90")


@functools.cache
def opencl() -> Target:
    return replace(cuda_alike(ARCHITECTURES[0]), kind="opencl")


@functools.cache
def cuda(arch: str) -> Target:
    return resolve({"kind": "cuda", "arch": arch})


def cuda_alike(arch: str) -> Target:
    """A target of an architecture with the limits, and so the space, of the first one."""
    gpu = cuda(ARCHITECTURES[0]).gpu
    assert gpu is not None
    return Target("cuda", gpu=replace(gpu, arch=arch))


RUN = [
    pytest.param(opencl, marks=pytest.mark.opencl, id="opencl"),
    pytest.param(lambda: resolve("cuda"), marks=pytest.mark.cuda, id="cuda"),
]


def cases(names):
    every = dict.fromkeys([*names, *WORKLOADS])
    return [n if n in names else pytest.param(n, marks=pytest.mark.slow) for n in every]


@functools.cache
def drawn(name: str):
    """A workload of the collection with inputs and outputs."""
    workload = WORKLOADS[name]()
    inputs = random_inputs(workload, np.random.default_rng(7))
    return workload, inputs, evaluate(workload, inputs)


def random_config(number: int, target: Target):
    """The name of a workload, and a legal config of its space."""
    names = list(WORKLOADS)
    name = names[number % len(names)]
    points = space(WORKLOADS[name](), target)
    domain = EncodedSpace(points, legal_points(points))
    rng = np.random.default_rng(number + zlib.crc32(name.encode()))
    found = domain.fresh(1, Seen(), rng)
    return name, domain.configs(found)[0]


def assert_right(name: str, config, target: Target) -> None:
    workload, inputs, expected = drawn(name)
    library = lw.build(workload, config, target)
    found = library(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    growth = program(workload, config, target).error_growth
    assert difference(workload, found, expected, tolerance(workload, growth)) is None, config


def spills(name: str, config, target: Target) -> int:
    """Bytes that the kernels of a config spill, compiled by nvcc."""
    (code,) = compile_by(program(WORKLOADS[name](), config, target)).objects
    found = resources(code)
    assert found
    return sum(r["spills"] for r in found)


@pytest.mark.parametrize("target", RUN)
@pytest.mark.parametrize("name", cases(FEW))
def test_the_default_schedule_of_an_operator_is_right(name, target):
    assert_right(name, None, target())


@pytest.mark.slow
@pytest.mark.parametrize("target", RUN)
@pytest.mark.parametrize("number", range(RANDOM))
def test_a_random_config_is_right(number, target):
    assert_right(*random_config(number, target()), target())


@pytest.mark.nvcc
@pytest.mark.parametrize("name", cases(FEW[:2]))
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nvcc_takes_the_default_schedule_of_an_operator_and_spills_nothing(name, arch):
    assert spills(name, None, cuda(arch)) == 0


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("number", range(RANDOM))
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nvcc_takes_a_random_config(number, arch):
    spills(*random_config(number, opencl()), cuda_alike(arch))
