"""Networks on two devices: the shortest path, and equal results wherever steps run."""

import ctypes
import itertools
import json
import threading

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.either.placed import Copy, Launch, Part, PlacedPlan
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import RangeError, TargetError
from loopwright.graph.errors import ModelError
from loopwright.graph.network import Value
from loopwright.graph.placed.path import CPU, GPU, Problem, Unit
from loopwright.measure.accelerator import facts
from loopwright.measure.device import Measurement
from loopwright.measure.machine import fingerprint
from loopwright.schedule.space import space
from loopwright.transfer.records.store import Record, RecordStore
from tests.graph.onnx_nodes import node_model


def value(number, nbytes=4):
    return Value(number, f"v{number}", (nbytes // 4,), "float32")


def moving(nbytes, device):
    return (2.0 if device == GPU else 3.0) + nbytes / 8


def drawn_problem(seed):
    """Six steps, each of one or two of the values before it; some cannot run on the GPU."""
    rng = np.random.default_rng(seed)
    values = [value(0, 4 * int(rng.integers(1, 9)))]
    units, seconds = [], []
    for number in range(6):
        count = min(len(values), int(rng.integers(1, 3)))
        reads = tuple(values[i] for i in rng.choice(len(values), count, replace=False))
        values.append(value(number + 1, 4 * int(rng.integers(1, 9))))
        units.append(Unit((number,), reads, (values[-1],)))
        seconds.append({CPU: float(rng.integers(1, 20))})
        if rng.random() < 0.8:
            seconds[-1][GPU] = float(rng.integers(1, 8))
    outputs = (values[-1], values[int(rng.integers(0, 6))])
    return Problem(tuple(units), tuple(seconds), (values[0],), outputs, moving)


@pytest.mark.parametrize("seed", range(12))
def test_no_placement_takes_less_than_the_shortest_path(seed):
    problem = drawn_problem(seed)
    found = problem.shortest()
    every = [problem.along(d).total for d in itertools.product(*problem.seconds)]
    assert found.total == pytest.approx(min(every))


def test_a_value_is_moved_once_for_all_that_read_it():
    a, b, c = value(0), value(1), value(2)
    units = (Unit((0,), (a,), (b,)), Unit((1,), (a, b), (c,)))
    problem = Problem(units, ({CPU: 9.0, GPU: 1.0},) * 2, (a,), (b, c), moving)
    path = problem.along([GPU, GPU])
    assert [(m.value, m.to, m.before) for m in path.moves] == [
        (a, GPU, 0),
        (b, CPU, 2),
        (c, CPU, 2),
    ]
    assert path.total == 2 * 1.0 + moving(4, GPU) + 2 * moving(4, CPU)


def test_a_tie_is_the_processors():
    a, b = value(0), value(1)
    free = Problem((Unit((0,), (a,), (b,)),), ({CPU: 1.0, GPU: 1.0},), (a,), (b,), lambda n, d: 0)
    assert free.shortest().devices == (CPU,)


def placed(model, arrays, **options):
    return lw.build_model(model, arrays, targets=["cpu", "opencl"], threads=1, **options)


@pytest.fixture(scope="module")
def net():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Net(nn.Module):
        """Equal work twice, a residual, a reshape, two results, one of them read again."""

        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 5, 3, padding=1)
            self.c, self.head = nn.Conv2d(5, 5, 3, padding=1), nn.Linear(5 * 7 * 6, 11)

        def forward(self, x):
            x = torch.relu(self.a(x))
            x = torch.relu(self.b(x)) + x
            x = torch.relu(self.c(x)) + x
            y = self.head(torch.flatten(x, 1))
            return y, torch.softmax(y, -1), x

    torch.manual_seed(0)
    return Net().eval(), torch.randn(1, 3, 7, 6)


@pytest.fixture(scope="module")
def built(net):
    pytest.importorskip("pyopencl")
    model, x = net
    return placed(model, (x,))


def placements(model):
    able = [GPU if step is not None else CPU for step in model.steps]
    yield [CPU] * len(able)
    yield able
    for first in (0, 1):
        yield [d if k % 2 == first else CPU for k, d in enumerate(able)]
    rng = np.random.default_rng(0)
    yield from ([d if rng.random() < 0.5 else CPU for d in able] for _ in range(3))


@pytest.mark.opencl
@pytest.mark.torch
@pytest.mark.onnx
def test_results_are_equal_wherever_steps_run(net, built):
    model, x = net
    wanted = [y.detach().numpy() for y in model(x)]
    assert sum(step is not None for step in built.steps) > 4
    for devices in placements(built):
        one = built.at(devices)
        for _ in range(2):
            for a, b in zip(one(x.numpy()), wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.opencl
@pytest.mark.torch
@pytest.mark.onnx
def test_results_of_earlier_calls_stay_and_calls_may_come_from_several_threads(net, built):
    model, x = net
    one = built.at([GPU if step is not None else CPU for step in built.steps])
    given = [x * k for k in range(1, 5)]
    found = [None] * len(given)

    def call(k):
        found[k] = one(given[k])

    threads = [threading.Thread(target=call, args=(k,)) for k in range(len(given))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for result, each in zip(found, given, strict=True):
        for a, b in zip(result, model(each), strict=True):
            np.testing.assert_allclose(a, b.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.opencl
@pytest.mark.torch
@pytest.mark.onnx
def test_a_step_runs_on_the_device_that_it_is_forced_to(net, built):
    model, x = net
    problem, functions = (
        built.placement.problem,
        [s.function for s in built.cpu.work.network.steps],
    )
    for number, device in ((2, GPU), (2, CPU), (5, GPU)):
        one = built.at({number: device})
        (k,) = (k for k, unit in enumerate(problem.units) if number in unit.steps)
        path = one.explain().path
        assert path.devices[k] == device
        # All others are where the whole then ends first.
        least = problem.along(path.devices).total
        for other in (list(path.devices), [CPU] * len(path.devices)):
            other[k] = device
            assert least <= problem.along(other).total
        np.testing.assert_allclose(one(x.numpy())[0], model(x)[0].detach(), rtol=1e-4, atol=1e-5)
        assert functions[number] in str(one.explain())
    with pytest.raises(ModelError, match=f"no step 99: steps are 0 to {len(functions) - 1}"):
        built.at({99: GPU})
    with pytest.raises(ModelError, match=r"step 0, .*cannot run on 'opencl': give \"cpu\" or"):
        built.at({0: "opencl"})
    for devices in (3, None, "gpu", [0] * len(problem.units), [CPU]):
        with pytest.raises(ModelError, match=r"devices = .*: give a mapping"):
            built.at(devices)


@pytest.mark.opencl
@pytest.mark.torch
@pytest.mark.onnx
def test_the_explanation_has_the_sums_of_the_shortest_path(built):
    choice = built.explain()
    problem, path = choice.problem, choice.path
    assert path.total == pytest.approx(problem.shortest().total)
    assert path.total <= min(other.total for other in choice.others.values())
    spent = sum(s[d] for s, d in zip(problem.seconds, path.devices, strict=True))
    assert path.total == pytest.approx(spent + sum(m.seconds for m in path.moves))
    text = str(built.at([GPU if s else CPU for s in built.steps]).explain())
    assert text.splitlines()[1].startswith("all on the processor: ")
    assert "gpu: steps 0 to" in text
    assert ", x to the gpu" in text
    assert "at the end, " in text


def alternating(built):
    """Every other step on the GPU, of those that can be."""
    return [GPU if step and k % 2 else CPU for k, step in enumerate(built.steps)]


@pytest.fixture(scope="module")
def exported(built, tmp_path_factory):
    return built.at(alternating(built)).export(tmp_path_factory.mktemp("placed") / "net.so")


@pytest.mark.opencl
@pytest.mark.torch
@pytest.mark.onnx
def test_an_exported_network_runs_its_steps_where_they_were_placed(net, built, exported):
    x, one = net[1].numpy(), built.at(alternating(built))
    loaded = lw.either(cpu=lw.load(exported))
    assert loaded.plan == one._runner.plan
    assert any(isinstance(work, Launch) for work in loaded.plan.work)
    assert loaded.explain() == str(one.explain())
    for a, b in zip(loaded(x), one(x), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.opencl
@pytest.mark.torch
@pytest.mark.onnx
def test_c_calls_the_processors_part_of_an_exported_network(net, built, exported):
    x, wanted = net[1].numpy(), built.cpu(net[1].numpy())
    outs = [np.empty_like(y) for y in wanted]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, *outs)]
    assert ctypes.CDLL(str(exported)).net(*pointers) == 0
    for a, b in zip(outs, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.opencl
@pytest.mark.torch
@pytest.mark.onnx
def test_an_exported_network_runs_on_the_processor_where_no_device_is(
    net, built, exported, monkeypatch
):
    def nothing(code):
        raise TargetError("OpenCL finds no device")

    monkeypatch.setattr("loopwright.codegen.gpu.library.load_program", nothing)
    with pytest.warns(UserWarning, match="all steps run on the processor: OpenCL finds no device"):
        loaded = lw.either(cpu=lw.load(exported))
    assert loaded.explain().startswith("all on the processor: OpenCL finds no device")
    x = net[1].numpy()
    for a, b in zip(loaded(x), built.cpu(x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_plan_of_two_devices_is_the_same_after_a_file():
    work = (Part(0, 3), Copy(True, 0, 64, 8, 1), Launch(0, {"x": 1}), Copy(False, 3, 0, 8, 0))
    plan = PlacedPlan(128, (8, 16), work)
    assert PlacedPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def rows(width=6):
    """A dense layer with a ReLU, and its weights."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto
    w = np.random.default_rng(0).standard_normal((width, width)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, kind.FLOAT, [5, width]) for n in "xy"]
    weights = [onnx.numpy_helper.from_array(w, "w")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), w


def assert_product(built, w):
    x = np.random.default_rng(1).standard_normal((5, len(w))).astype(np.float32)
    for devices in ([CPU], [GPU]):
        found = built.at(devices)(x)
        np.testing.assert_allclose(found, np.maximum(x @ w, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.opencl
@pytest.mark.onnx
def test_steps_on_the_gpu_are_built_by_its_records(tmp_path):
    model, w = rows()
    built = placed(model, None, check=False)
    (task,) = built.cpu.work.tasks
    gpu = resolve("opencl")
    points = space(task.workload, gpu)
    config = points.sample(np.random.default_rng(0))
    assert config != points.default
    measured = Measurement(config, (1e-9,), None, 0.0, 0.0, "warm", 1, 0.0)
    here = fingerprint() | facts(gpu)
    with RecordStore(tmp_path / "r.db") as store:
        store.add([Record.of(task.workload, gpu, here, measured, seed=0, session="s")])
    built = placed(model, None, check=False, records=tmp_path / "r.db")
    (step,) = built.steps
    assert step.plain.origin.extra["config"] == config.to_json()
    assert_product(built, w)


@pytest.mark.slow
@pytest.mark.opencl
@pytest.mark.onnx
def test_a_network_is_searched_on_both_devices(tmp_path):
    model, w = rows()
    lines = []
    options = {"threads": 1, "targets": ["cpu", "opencl"], "records": tmp_path / "r.db"}
    made = lw.tune_model(model, trials=4, tell=lines.append, **options)
    assert any(line.startswith("1 task on opencl") for line in lines)
    assert any(line.startswith(("0 of 1 step", "1 of 1 step")) for line in lines)
    with RecordStore(tmp_path / "r.db") as store:
        assert {s.target.split()[0] for s in store.settings()} == {"llvm", "opencl"}
    assert_product(made, w)


def recurrence(rows):
    """An RNN along so many rows of a table, and a sum of their squares."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto
    rng = np.random.default_rng(0)
    width, hidden = 4, 3
    table = rng.standard_normal((9, width)).astype(np.float32)
    weights = {
        "table": table,
        "w": rng.standard_normal((1, hidden, width)).astype(np.float32),
        "r": rng.standard_normal((1, hidden, hidden)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["e"]),
        helper.make_node("Exp", ["e"], ["f"]),
        helper.make_node("RNN", ["f", "w", "r"], ["y", "h"], hidden_size=hidden),
        helper.make_node("Mul", ["f", "f"], ["e2"]),
        helper.make_node("ReduceSum", ["e2"], ["s"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("i", kind.INT64, [rows, 2])],
        [helper.make_tensor_value_info(n, kind.FLOAT, None) for n in ("y", "s")],
        [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.opencl
@pytest.mark.onnx
def test_loops_of_open_sizes_stay_on_the_processor():
    sizes = {"n": 5}
    built = placed(recurrence("n"), None, dims={"n": (2, 9)}, sizes=[sizes], check=False)
    part = built.sized[5,]
    assert any(step is None for step in part.steps)
    for devices in list(placements(part))[1:4]:
        built = built.at(devices, **sizes)
        for n in (5, 8):
            i = np.random.default_rng(n).integers(0, 9, (n, 2))
            for a, b in zip(built(i), built.whole(i), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    with pytest.raises(lw.LoopwrightError, match="i takes -9 to 8"):
        built(np.full((5, 2), 9))


@pytest.mark.opencl
@pytest.mark.onnx
def test_loops_and_what_indexes_stay_on_the_processor():
    built = placed(recurrence(5), None, check=False)
    network, units = built.cpu.work.network, built.placement.problem.units
    looped = [k for k, u in enumerate(units) if network.steps[u.steps[0]].loop is not None]
    assert looped
    assert all(built.steps[k] is None for k in (0, *looped))
    assert any(built.steps)
    i = np.random.default_rng(0).integers(0, 9, (5, 2))
    wanted = built.cpu(i)
    for devices in list(placements(built))[1:3]:
        for a, b in zip(built.at(devices)(i), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    with pytest.raises(lw.LoopwrightError, match="i"):
        built.at(list(placements(built))[1])(i + 9)


@pytest.mark.opencl
@pytest.mark.onnx
@pytest.mark.parametrize("seed", [13, 27])
def test_drawn_networks_compute_the_same_on_the_gpu(seed):
    pytest.importorskip("onnx")
    from tests.graph.random_nets import drawn_net

    model, net = drawn_net(seed)
    arrays = [net.array(net.shapes[name], net.dtypes[name]) for name in net.inputs]
    built = placed(model, None, check=False)
    assert sum(step is not None for step in built.steps) > 4
    wanted = built.cpu(*arrays)
    for devices in list(placements(built))[1:4]:
        made = built.at(devices)(*arrays)
        made, known = (x if isinstance(x, tuple) else (x,) for x in (made, wanted))
        for a, b in zip(made, known, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def grams():
    """A dense layer of n rows with a ReLU, and the softmax of the products of its rows; what that
    is of x."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto
    w = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["h"]),
        helper.make_node("Transpose", ["h"], ["t"]),
        helper.make_node("MatMul", ["h", "t"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    x, *outputs = (
        helper.make_tensor_value_info(name, kind.FLOAT, shape)
        for name, shape in (("x", ["n", 6]), ("y", ["n", "n"]), ("h", ["n", 5]))
    )
    weights = [onnx.numpy_helper.from_array(w, "w")]
    graph = helper.make_graph(nodes, "g", [x], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    def expected(x):
        h = np.maximum(x.astype(float) @ w, 0)
        e = np.exp((g := h @ h.T) - g.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True), h

    return model, expected


@pytest.mark.opencl
@pytest.mark.onnx
def test_a_network_of_open_sizes_has_placements_at_some_and_is_right_at_all():
    model, expected = grams()
    sizes = [{"n": 16}, {"n": 40}]
    built = placed(model, None, dims={"n": (1, 40)}, sizes=sizes)

    def assert_right(one):
        for n in (1, 3, 16, 17, 40):
            x = np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32)
            for a, b in zip(one(x), expected(x), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

    assert_right(built)
    for at in sizes:
        choice, part = built.explain(**at), built.sized[at["n"],]
        assert choice.path.total == pytest.approx(choice.problem.shortest().total)
        assert sum(step is not None for step in part.steps) > 1
        for devices in list(placements(part))[1:]:
            built = built.at(devices, **at)
            assert_right(built)
    assert built.explain(n=3) == "all on the processor: the GPU has programs for n=16; n=40"
    with pytest.raises(RangeError, match="n is 41"):
        built.explain(n=41)
    with pytest.raises(ModelError, match="give dims and targets too"):
        lw.build_model(model, {"x": (3, 6)}, sizes=sizes)
    with pytest.raises(ModelError, match="leave targets out"):
        lw.tune_model(model, dims={"n": (1, 40)}, targets=["cpu", "opencl"])


@pytest.mark.onnx
def test_targets_that_are_not_two_are_refused():
    model = node_model("Neg", {"x": np.ones((2, 3), np.float32)}, {})
    for targets in (["cpu"], "cpu", ["cuda", "opencl"], ["cpu", "tpu"]):
        with pytest.raises(ModelError, match=r'give \["cpu", "cuda"\] or \["cpu", "opencl"\]'):
            lw.build_model(model, targets=targets)
    with pytest.raises(ModelError, match="in place of a target"):
        lw.build_model(model, target="c", targets=["cpu", "opencl"])
    with pytest.raises(ModelError, match="in place of a target and a device"):
        lw.tune_model(model, device="ssh://somewhere", targets=["cpu", "opencl"])
