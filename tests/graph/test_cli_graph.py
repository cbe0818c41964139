"""The commands for whole models, from an ONNX file to a library that runs."""

from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.cli.common.network import shapes_of, with_values
from loopwright.codegen.target import resolve
from loopwright.dsl.dtypes import numpy_dtype
from loopwright.measure.device import Measurement
from loopwright.measure.machine import fingerprint
from loopwright.schedule.sketch.sketch import Config
from loopwright.transfer.records.store import Record, RecordStore
from tests.sketches import direct

pytestmark = [pytest.mark.onnx, pytest.mark.usefixtures("brief")]
_TUNE = ["tune-model", "net.onnx", "--shape", "x=7,13"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder with net.onnx: y = relu(x @ w) @ v, x of open length."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal(s).astype(np.float32) for s in ((13, 24), (24, 5)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 13])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(v, "v")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    model.ir_version = 9
    onnx.save(model, tmp_path / "net.onnx")
    monkeypatch.chdir(tmp_path)
    data = rng.standard_normal((7, 13)).astype(np.float32)
    np.save("x.npy", data)
    return np.maximum(data @ w, 0) @ v


def _call(*words, code=0):
    result = CliRunner().invoke(main, [*words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_an_interrupted_search_of_open_axes_exports_what_was_found(here, monkeypatch):
    from loopwright.graph.tuning import tune as tuning

    def ended(*words, **options):
        raise lw.Interrupted(lw.build_model(words[0], dims=options["dims"], threads=1))

    monkeypatch.setattr(tuning, "tune_model", ended)
    said = _call("tune-model", "net.onnx", "--dim", "N=1:8", "-o", "lengths.so")
    assert "saved" in said
    assert lw.load("lengths.so")(np.load("x.npy")) == pytest.approx(here, rel=1e-4, abs=1e-4)


def test_a_model_is_tuned_built_and_run(here):
    said = _call(
        "tune-model", "net.onnx", "--shape", "x=7,13", "--trials", "4", "--tasks", "1",
        "--threads", "1", "-o", "tuned.so",
    )  # fmt: skip
    assert "1 of 2 tasks, 4 trials" in said
    assert "saved      tuned.so" in said
    said = _call("tasks", "net.onnx", "--shape", "x=7,13", "--threads", "1")
    lines = [line.split() for line in said.splitlines() if line.strip()[:1].isdigit()]
    assert "1 of 2 tasks" in said
    rows = {line[0]: line for line in lines if len(line) == 7}
    assert rows["1"][5] != "none"
    assert rows["2"][5] == "none"
    said = _call("build", "net.onnx", "--shape", "x=7,13", "--threads", "1", "-o", "net.so")
    assert "1 of 2 tasks" in said
    assert "has no record" in said
    assert "loopwright tune-model net.onnx --shape x=7,13 --threads 1\n" in said
    said = _call("run", "net.so", "--input", "x.npy", "-o", "y.npy")
    assert "y: float32[7, 5]" in said
    np.testing.assert_allclose(np.load("y.npy"), here, rtol=1e-4, atol=1e-5)
    inputs = ("run", "net.so", "--input", "x.npy")
    assert "there is no folder nowhere" in _call(*inputs, "-o", "nowhere/y.npy", code=2)
    assert "ends in .npy" in _call(*inputs, "-o", "y.txt", code=2)
    Path("empty.npy").touch()
    assert "cannot read it as a .npy" in _call("run", "net.so", "--input", "empty.npy", code=1)
    said = _call(*inputs, "-o", "a.npy", "-o", "b.npy", code=2)
    assert "2 times --output, for 1 output of net.so: y: float32[7, 5]" in said
    assert not [*Path().glob("*.txt*"), *Path().glob("[ab].npy")]


@pytest.mark.slow
def test_a_share_of_the_time_is_tuned_and_the_end_compares_estimate_and_measurement(here):
    options = ("--shape", "x=7,13", "--threads", "1", "--layout", "given")
    said = _call("tune-model", "net.onnx", *options, "--share", "0.01", "--trials", "2")
    assert "1 of 2 tasks, 2 trials" in said
    assert "estimate   none: 1 of 2 tasks without a record" in said
    said = _call("tune-model", "net.onnx", *options, "--share", "1", "--trials", "32")
    assert "2 of 2 tasks" in said
    assert "the sum of the tasks' records" in said


_TWO = ("--shape", "x=7,13", "--threads", "1", "--targets", "cpu, opencl")


@pytest.mark.opencl
def test_a_network_is_built_for_two_devices(here):
    said = _call("build", "net.onnx", *_TWO, "-o", "net.so")
    assert "--threads 1 --targets cpu,opencl\n" in said
    assert "all that can on the GPU: " in said
    loaded = lw.either(cpu=lw.load("net.so"))
    np.testing.assert_allclose(loaded(np.load("x.npy")), here, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.opencl
def test_a_network_is_tuned_for_two_devices(here):
    said = _call("tune-model", "net.onnx", *_TWO, "--trials", "2", "--tasks", "1")
    assert "1 task on opencl" in said
    assert "all that can on the GPU: " in said
    loaded = lw.either(cpu=lw.load("net.so"))
    np.testing.assert_allclose(loaded(np.load("x.npy")), here, rtol=1e-4, atol=1e-5)


def test_an_operator_whose_shape_depends_on_data_is_refused_with_the_remedy(here):
    import onnx
    from onnx import TensorProto, helper

    model = onnx.load("net.onnx")
    model.graph.node.append(helper.make_node("NonZero", ["y"], ["places"]))
    model.graph.output[0].CopyFrom(
        helper.make_tensor_value_info("places", TensorProto.INT64, [2, "N"])
    )
    onnx.save(model, "places.onnx")
    said = _call("tasks", "places.onnx", "--shape", "x=7,13", code=1)
    assert "NonZero: the shape of its result depends on data" in said
    assert "end the model at y and compute the rest outside (onnx.utils.extract_model" in said
    onnx.utils.extract_model("places.onnx", "front.onnx", ["x"], ["y"])
    assert "matmul" in _call("tasks", "front.onnx", "--shape", "x=7,13")


def test_a_profile_names_every_step(here):
    said = _call("profile", "net.onnx", "--shape", "x=7,13", "--threads", "1", "--calls", "2")
    assert said.count("matmul") == 2


def test_a_strict_build_fails_where_a_record_is_missing(here):
    options = ("--shape", "x=7,13", "--records", "my records.db")
    said = _call("build", "net.onnx", *options, "--strict", code=1)
    assert "2 tasks have no record" in said
    assert "there is no record store my records.db yet" in said
    assert "loopwright tune-model net.onnx --shape x=7,13 --records 'my records.db'" in said


def test_a_strict_build_fails_where_a_record_does_not_fit(here):
    """One of another version of the rules, say."""
    options = ("--shape", "x=7,13", "--threads", "1", "--records", "r.db")
    from loopwright.graph.compile.build import import_model

    target = resolve("cpu", 1)
    measured = Measurement(Config(direct("of old"), ()), (1e-5,), None, 0.0, 0.0, "warm", 1, 0.0)
    with RecordStore("r.db") as store:
        for task in import_model("net.onnx", {"x": (7, 13)}, target).tasks:
            record = Record.of(task.workload, target, fingerprint(), measured, seed=0, session="s")
            store.add([record])
    assert "note: " in _call("build", "net.onnx", *options)
    assert "its record cannot be built" in _call("build", "net.onnx", *options, "--strict", code=1)


def test_a_library_has_a_name_that_c_takes_and_no_other_file_goes_for_it(here):
    options = ("--shape", "x=7,13", "--threads", "1")
    Path("net.onnx").rename("my-net 2.onnx")
    assert "saved      my_net_2.so" in _call("build", "my-net 2.onnx", *options)
    assert "saved      my_net_2.so" in _call("build", "my-net 2.onnx", *options)  # once more
    Path("c.json").write_text('{"mine": 1}')
    said = _call("build", "my-net 2.onnx", *options, "-o", "c.so", code=1)
    assert "c.json is there, and is no library's manifest" in said
    assert Path("c.json").read_text() == '{"mine": 1}'
    assert not Path("c.so").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tasks", "net.onnx"], "give its shape, e.g. --shape x=1,13, or for"),
        (["tune-model", "net.onnx"], "give its shape, e.g. --shape x=1,13, or for"),
        (["build", "net.onnx", "-o", "nowhere/net.so"], "there is no folder nowhere"),
        (["tasks", "missing.onnx"], "no such file"),
        (["tune-model", "net.onnx", "-o", "my-net.so"], "cannot be one; try my_net.so"),
        (["build", "net.onnx", "--shape", "x=7,13", "-o", "net.lib"], "ends in .so"),
        (["tasks", "net.onnx", "--shape", "x7"], "NAME=1,3,224,224"),
        (["tasks", "net.onnx", "--shape", "x=7,,13"], "NAME=1,3,224,224"),
        (["tasks", "net.onnx", "--shape", "x=0,13"], "extents from 1 up"),
        (["tasks", "net.onnx", "--value", "x"], "write NAME=true, NAME=16000 or NAME=1,3,5"),
        (["tasks", "net.onnx", "--value", "flag=1"], "the inputs are x"),
        (["tasks", "net.onnx", "--value", "x=1,2"], "x is float32 of shape [?, 13]"),
        (["tasks", "net.onnx", "--value", "x=1e39", "--shape", "x=1,13"], "numbers that it holds"),
        ([*_TUNE, "--targets", "cpu,tpu"], "give cpu,cuda or cpu,opencl"),
        ([*_TUNE, "--targets", "cpu,cuda", "--device", "ssh://a"], "leave --device, --fleet and"),
        (["build", "net.onnx", "--dim", "N=1:9", "--targets", "cpu,cuda"], "and no --dim"),
        ([*_TUNE, "--tasks", "3"], "tasks 1 to 2"),
        ([*_TUNE, "--tasks", "1-"], "write numbers as 1,3-5"),
        ([*_TUNE, "--tasks", ""], "write numbers as 1,3-5"),
    ],
)
def test_a_mistake_ends_with_a_message(here, words, said):
    result = CliRunner().invoke(main, words)
    assert result.exit_code != 0
    assert said in result.output


def test_bfloat16_goes_in_and_out_of_files_that_have_no_name_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dtype = numpy_dtype("bfloat16")
    lw.build(lw.ops.relu(lw.tensor("x", (4,), "bfloat16")), threads=1).export("r.so")
    np.save("x.npy", np.array([-1, 2, -3, 4], dtype))
    said = _call("run", "r.so", "--input", "x.npy", "-o", "y.npy")
    assert "from 0 to 4" in said
    np.testing.assert_array_equal(np.load("y.npy").view(dtype), np.array([0, 2, 0, 4], dtype))


def test_run_tells_the_shapes_of_the_results_that_it_computed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = lw.tensor("x", (lw.dim("n", 1, 9), 3))
    lw.build(lw.ops.relu(x), threads=1).export("r.so")
    np.save("x.npy", np.ones((2, 3), "float32"))
    said = _call("run", "r.so", "--input", "x.npy")
    assert "relu: float32[2, 3], from 1 to 1" in said


def test_an_option_that_a_command_refuses_is_not_in_its_help():
    helps = {
        c: CliRunner().invoke(main, [c, "--help"]).output for c in ("tasks", "profile", "build")
    }
    assert [name for name, text in helps.items() if "--dim" in text] == ["profile", "build"]


@pytest.mark.parametrize(
    ("flag", "rate", "factor"), [("true", 16, 2), ("false", 16, 3), ("True", 8, 3)]
)
def test_values_of_inputs_decide_what_is_computed(tmp_path, monkeypatch, flag, rate, factor):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def branch(name, number):
        number = numpy_helper.from_array(np.float32(number), f"{name}_factor")
        node = helper.make_node("Mul", ["x", f"{name}_factor"], [name])
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3])
        return helper.make_graph([node], name, [], [out], [number])

    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, [1]),
        helper.make_tensor_value_info("rate", TensorProto.INT64, []),
    ]
    nodes = [
        helper.make_node("Equal", ["rate", "known"], ["usual"]),
        helper.make_node("And", ["usual", "flag"], ["first"]),
        helper.make_node(
            "If", ["first"], ["y"], then_branch=branch("a", 2), else_branch=branch("b", 3)
        ),
    ]
    weights = [numpy_helper.from_array(np.int64(16), "known")]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])
    graph = helper.make_graph(nodes, "g", inputs, [y], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        tmp_path / "net.onnx",
    )
    monkeypatch.chdir(tmp_path)
    words = ["--value", f"flag={flag}", "--value", f"rate={rate}", "--dim", "N=1:4"]
    _call("build", "net.onnx", *words, "-o", "net.so")
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(lw.load("net.so")(x), factor * x)


def _masked(path):
    """A file net.onnx of which a mask and a bias of bytes are inputs."""
    import onnx
    from onnx import TensorProto, helper

    kinds = {"x": (TensorProto.FLOAT, [2, 3]), "mask": (TensorProto.BOOL, ["A", "B"])}
    kinds |= {"bias": (TensorProto.INT8, [3]), "text": (TensorProto.STRING, [1])}
    inputs = [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
    nodes = [
        helper.make_node("Cast", ["bias"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("Where", ["mask", "x", "b"], ["y"]),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    opset = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "g", inputs, [y])
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path / "net.onnx")
    return path / "net.onnx"


def test_a_value_of_two_open_axes_takes_its_shape_from_an_option(tmp_path):
    words = ["mask=true,false,1", "bias=-1,2,-128"]
    model = with_values(_masked(tmp_path), words, {"mask": (1, 3)})
    from onnx import numpy_helper

    found = {w.name: numpy_helper.to_array(w).tolist() for w in model.graph.initializer}
    assert found == {"mask": [[True, False, True]], "bias": [-1, 2, -128]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("mask=true,false", r"give true or false, .*and its shape by --shape mask="),
        ("bias=1,2,128", "bias is int8 of shape.*give whole numbers that it holds"),
        ("bias=1,2,0.5", "give whole numbers that it holds, one for each element"),
        ("text=1", "text is no tensor of real numbers"),
    ],
)
def test_a_value_that_an_input_does_not_hold_is_refused(tmp_path, value, message):
    with pytest.raises(click.UsageError, match=message):
        with_values(_masked(tmp_path), [value], {})


def test_an_extent_of_a_shape_may_be_a_sum_of_dims():
    dims = {"past": lw.dim("past", 0, 4), "new": lw.dim("new", 1, 2)}
    batch, total = shapes_of(["mask=2,past+new+1"], dims)["mask"]
    assert batch == 2
    assert total.at({"past": 3, "new": 2}) == 6
    with pytest.raises(click.UsageError, match="sums of these"):
        shapes_of(["mask=2,past+0"], dims)
