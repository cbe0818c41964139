"""`lw.either`: one callable on the processor and the GPU."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.either.join import either
from loopwright.codegen.either.sums import DeviceChoice, Sum
from loopwright.dsl.errors import LibraryError, ShapeError, TargetError

pytestmark = pytest.mark.opencl


def product(n=13, k=17):
    A, B = lw.tensor("A", (n, k)), lw.tensor("B", (k, n), constant=True)
    return lw.workload(lw.einsum("ij,jk->ik", A, B))


@pytest.fixture(scope="module")
def libraries():
    return {"cpu": lw.build(product()), "gpu": lw.build(product(), target="opencl")}


def sums(cpu=10e-6, kernel=1e-6, moved=3e-6, launch=2e-6):
    names = [p.name for p in (*product().inputs, *product().outputs)]
    gpu = Sum(launch, dict.fromkeys(names, moved), kernel)
    return {"cpu": Sum(0.0, {}, cpu), "gpu": gpu}


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((13, 17), np.float32), rng.random((17, 13), np.float32)


class OnGpu:
    """An array that says that it lies on an NVIDIA GPU."""

    def __dlpack_device__(self):
        return (2, 0)


@pytest.mark.parametrize(("cpu", "device"), [(1.0, "gpu"), (1e-9, "cpu")])
def test_either_device_computes_the_same_as_numpy(libraries, cpu, device):
    lib = either(**libraries, sums=sums(cpu))
    a, b = arrays()
    assert lib.explain(a, b).device == device
    np.testing.assert_allclose(lib(a, b), a @ b, rtol=1e-5)
    out = np.empty((13, 13), np.float32)
    assert lib(A=a, B=b, out=out) is out
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)


def test_the_device_of_the_smaller_sum_runs_the_call(libraries, monkeypatch):
    ran = []
    for device, library in libraries.items():
        kind = type(library)
        monkeypatch.setattr(
            kind, "__call__", lambda self, *a, d=device, **k: ran.append(d), raising=True
        )
    for cpu in (1.0, 1e-9):
        either(**libraries, sums=sums(cpu))(*arrays())
    assert ran == ["gpu", "cpu"]


def test_the_sums_are_launch_transfers_and_kernel(libraries):
    choice = either(**libraries, sums=sums(cpu=13e-6)).explain(*arrays())
    assert choice.sums["gpu"].total == pytest.approx(2e-6 + 3 * 3e-6 + 1e-6)
    assert choice.sums["cpu"].total == pytest.approx(13e-6)
    lines = str(choice).splitlines()
    assert lines[0] == "cpu: 13 µs = launch 0 + kernel 13"
    assert lines[1] == "gpu: 12 µs = launch 2 + A 3 + B 3 + einsum 3 + kernel 1, chosen"


def test_it_is_shown_with_the_choice_and_the_sums(libraries):
    lib = either(**libraries, sums=sums(cpu=13e-6))
    assert repr(lib).endswith("; arrays of the host: gpu>")
    shown = lib._repr_html_()
    assert "<caption>Either" in shown
    assert "13 µs = launch 0 + kernel 13" in shown


def test_a_tie_goes_to_the_processor(libraries):
    same = Sum(0.0, {}, 4e-6)
    assert either(**libraries, sums={"cpu": same, "gpu": same}).explain(*arrays()).device == "cpu"


def test_what_is_bound_is_moved_no_more_and_can_turn_the_choice(libraries):
    lib = either(**libraries, sums=sums(cpu=10e-6))
    a, b = arrays()
    assert lib.explain(a, b).device == "cpu"
    bound = lib.bind(B=b)
    assert bound.explain(a).device == "gpu"
    assert list(bound.explain(a).sums["gpu"].transfers) == ["A", "einsum"]
    assert [p.name for p in bound.inputs] == ["A"]
    np.testing.assert_allclose(bound(a), a @ b, rtol=1e-5)


def test_an_array_on_the_gpu_is_used_there_and_is_not_moved(libraries):
    choice = either(**libraries, sums=sums(cpu=1e-9)).explain(OnGpu(), arrays()[1])
    assert choice.device == "gpu"
    assert list(choice.sums) == ["gpu"]
    assert list(choice.sums["gpu"].transfers) == ["B"]
    assert "an array lies on the GPU" in str(choice)


def test_without_sums_they_are_measured(libraries):
    lib = either(**libraries)
    choice = lib.explain(*arrays())
    assert isinstance(choice, DeviceChoice)
    assert set(choice.sums["gpu"].transfers) == {"A", "B", "einsum"}
    assert choice.sums["cpu"].transfers == {}
    assert all(s.kernel > 0 and s.launch >= 0 for s in choice.sums.values())
    a, b = arrays(1)
    np.testing.assert_allclose(lib(a, b), a @ b, rtol=1e-5)


def test_libraries_of_other_devices_are_refused(libraries):
    for cpu, gpu in (("gpu", "cpu"), ("cpu", "cpu"), ("gpu", "gpu")):
        with pytest.raises(TargetError, match="a library of the processor as cpu"):
            either(cpu=libraries[cpu], gpu=libraries[gpu])
    for others in ({"cpu": 3}, {"cpu": product(5), "gpu": 3}):
        with pytest.raises(TargetError, match="a library of the processor as cpu"):
            either(**others)


def test_an_explanation_refuses_the_shapes_that_a_call_refuses(libraries):
    lib = either(**libraries, sums=sums(1.0))
    a, b = arrays()
    for use in (lib, lib.explain):
        with pytest.raises(ShapeError, match=r"A has shape \(17, 13\); the library was built for"):
            use(b, a)


def test_sums_that_are_no_mapping_are_refused(libraries):
    with pytest.raises(LibraryError, match="sums = int 3: give those of cpu and gpu"):
        either(**libraries, sums=3)
    with pytest.raises(LibraryError, match=r"sums\['cpu'\] is float 1.0: give a Sum"):
        either(**libraries, sums={"cpu": 1.0, "gpu": 2.0})


def test_libraries_of_what_has_no_elements_are_joined_and_called():
    workload = lw.workload(lw.ops.relu(lw.tensor("x", (0, 3))))
    lib = either(cpu=lw.build(workload), gpu=lw.build(workload, target="opencl"))
    assert lib(np.zeros((0, 3), np.float32)).shape == (0, 3)


def of_each(function, n=6):
    (i,), x, y = lw.indices("i"), lw.tensor("x", (n,)), lw.tensor("y")
    y[i] = function(x[i])
    return y


@pytest.mark.parametrize("extent", [6, lw.dim("n", 1, 9)])
def test_libraries_of_equal_arrays_that_compute_different_things_are_refused(extent):
    cpu, gpu = lw.build(of_each(lw.exp, extent)), lw.build(of_each(lw.tanh), target="opencl")
    with pytest.raises(ShapeError, match="compute different things"):
        either(cpu=cpu, gpu=gpu)


def test_what_is_constant_on_one_device_alone_is_joined(libraries):
    A, B = lw.tensor("A", (13, 17)), lw.tensor("B", (17, 13))
    plain = lw.build(lw.einsum("ij,jk->ik", A, B), target="opencl")
    a, b = arrays()
    lib = either(cpu=libraries["cpu"], gpu=plain)
    np.testing.assert_allclose(lib(a, b), a @ b, rtol=1e-5)


def test_libraries_of_wrong_devices_are_told_by_their_targets(libraries):
    with pytest.raises(TargetError, match="cpu is a library for opencl, and gpu a library for l"):
        either(cpu=libraries["gpu"], gpu=libraries["cpu"])


def test_unlike_libraries_are_refused(libraries):
    with pytest.raises(ShapeError, match="build both of one workload"):
        either(cpu=lw.build(product(5)), gpu=libraries["gpu"])
    with pytest.raises(ShapeError, match="bind the same inputs"):
        either(cpu=libraries["cpu"].bind(B=arrays()[1]), gpu=libraries["gpu"])


def test_libraries_that_are_bound_to_other_values_are_refused(libraries):
    bound = {device: lib.bind(B=arrays(n)[1]) for n, (device, lib) in enumerate(libraries.items())}
    with pytest.raises(ShapeError, match="bind the same values of both"):
        either(**bound)
    same = {device: lib.bind(B=arrays()[1]) for device, lib in libraries.items()}
    assert [p.name for p in either(**same).inputs] == ["A"]


def test_sums_of_both_devices_are_needed(libraries):
    with pytest.raises(LibraryError, match=r"sums = .*: give those of cpu and gpu"):
        either(**libraries, sums={"cpu": Sum(0.0, {}, 1.0)})


def test_an_exported_file_has_both_devices_inside(libraries, tmp_path):
    path = either(**libraries, sums=sums()).export(tmp_path / "both.so")
    a, b = arrays()
    np.testing.assert_allclose(lw.load(path)(a, b), a @ b, rtol=1e-5)
    for cpu, device in ((1.0, "gpu"), (1e-9, "cpu")):
        again = either(cpu=lw.load(path), sums=sums(cpu))
        assert again.explain(a, b).device == device
        np.testing.assert_allclose(again(a, b), a @ b, rtol=1e-5)
        np.testing.assert_allclose(again.bind(B=b)(a), a @ b, rtol=1e-5)


def test_what_no_file_can_hold_is_refused(libraries, tmp_path):
    lib = either(**libraries, sums=sums())
    with pytest.raises(LibraryError, match="export the libraries as they were built"):
        lib.bind(B=arrays()[1]).export(tmp_path / "both.so")
    assert not list(tmp_path.iterdir())
    with pytest.raises(LibraryError, match="holds no code for a GPU"):
        either(cpu=libraries["cpu"])
