"""Models in: what ONNX, Relax and programs of torch.export say, and what is refused."""

import numpy as np
import pytest

from loopwright.codegen.load import load
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.size import dim
from loopwright.dsl.tensor import tensor
from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError, UnsupportedOperator
from loopwright.graph.tuning.tune import tune_model

pytestmark = [pytest.mark.torch, pytest.mark.onnx]


def _onnx(nodes, shape, weights=()):
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    return made


def _convolution(shape=(1, 3, 9, 7)):
    from onnx import helper

    w = np.random.default_rng(0).standard_normal((5, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    return _onnx(nodes, shape, [("w", w)])


def _reference(model, x):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, {"x": x})


def test_an_onnx_file_computes_what_onnx_says(tmp_path):
    import onnx

    model = _convolution()
    onnx.save(model, tmp_path / "m.onnx")
    x = np.random.default_rng(1).standard_normal((1, 3, 9, 7)).astype(np.float32)
    got = build_model(tmp_path / "m.onnx", threads=1)(x)
    np.testing.assert_allclose(got, _reference(model, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("open_in_file", [False, True])
def test_tensors_of_the_notation_stand_for_inputs_of_an_onnx_file(open_in_file):
    model = _convolution((None, 3, 9, 7) if open_in_file else (1, 3, 9, 7))
    x = np.random.default_rng(1).standard_normal((1, 3, 9, 7)).astype(np.float32)
    got = build_model(model, [tensor("x", x.shape)], threads=1)(x)
    np.testing.assert_allclose(got, _reference(model, x)[0], rtol=1e-4, atol=1e-5)


def test_tensors_of_the_notation_stand_for_inputs_of_a_torch_module():
    import torch

    table = torch.nn.Embedding(7, 5)
    ids = torch.tensor([[6, 0, 3]])
    given = (tensor("ids", (1, 3), "int64"),)
    with torch.no_grad():
        torch.testing.assert_close(build_model(table, given, threads=1)(ids), table(ids))


@pytest.mark.parametrize(
    ("given", "words"),
    [(("x",), "text 'x'"), ((np.zeros((2, 3), np.complex64),), "complex numbers")],
)
def test_inputs_of_text_and_of_complex_numbers_are_told_what_to_give(given, words):
    import torch

    with pytest.raises(ModelError, match=words):
        build_model(torch.nn.Linear(3, 3), given)


def test_a_build_says_what_goes_on_where_that_is_wanted(monkeypatch, capsys):
    build_model(_convolution(), threads=1)
    assert capsys.readouterr().err == ""
    build_model(_convolution(), threads=1, progress=True)
    said = ["reading the model", "compiling 1 task", "comparing results"]
    assert capsys.readouterr().err.splitlines() == said
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal, after some seconds
    build_model(_convolution(), threads=1, progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("loopwright.graph.build.Timer", _Passed)
    build_model(_convolution(), threads=1, progress=True)
    assert said[-1] in capsys.readouterr().err


class _Passed:
    """A timer whose seconds are over."""

    def __init__(self, seconds, then):
        self.then = then

    def start(self):
        self.then()

    def cancel(self):
        pass

    join = cancel


def test_missing_weights_are_an_error(tmp_path):
    import onnx

    path = tmp_path / "m.onnx"
    onnx.save(
        _convolution(), path, save_as_external_data=True, location="m.data", size_threshold=0
    )
    (tmp_path / "m.data").unlink()
    with pytest.raises(ModelError, match="weights are missing"):
        build_model(path)


def test_an_open_shape_is_an_error_that_says_how_to_close_it():
    model = _convolution(("N", 3, 9, 7))
    with pytest.raises(ModelError, match=r'\(N, 3, 9, 7\).*inputs=\{"x": \(1, 3, 9, 7\)\}'):
        build_model(model)
    for wrong in (5, (None, 3, 9, 7), (0, 3, 9, 7)):
        with pytest.raises(ModelError, match=r"input x: .* is no shape: give an array"):
            build_model(model, {"x": wrong})
    x = np.ones((2, 3, 9, 7), np.float32)
    got = build_model(model, {"x": (2, 3, 9, 7)}, threads=1)(x)
    np.testing.assert_allclose(got, _reference(model, x)[0], rtol=1e-4, atol=1e-5)


def test_an_operator_that_cannot_be_tuned_keeps_tvms_path_and_says_so():
    from onnx import TensorProto, helper

    node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"])
    model = _onnx([node], (3, 7))
    for name, kind, shape in (("i", TensorProto.INT64, (2, 1)), ("u", TensorProto.FLOAT, (2, 7))):
        model.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
    rng = np.random.default_rng(1)
    x, u = (rng.standard_normal(s).astype(np.float32) for s in ((3, 7), (2, 7)))
    made = build_model(model, threads=1)
    wanted = x.copy()
    wanted[[2, 0]] = u
    np.testing.assert_array_equal(made(x, np.array([[2], [0]]), u), wanted)
    (note,) = made.notes
    assert "ScatterND" in note
    assert "keeps TVM's path" in note


def test_inputs_and_outputs_keep_the_names_that_the_model_gives_them(tmp_path):
    from onnx import helper

    node = helper.make_node("Relu", ["input.1"], ["probs:0"])
    model = _onnx([node], (3, 7))
    model.graph.input[0].name, model.graph.output[0].name = "input.1", "probs:0"
    made = build_model(model, threads=1)
    made.export(tmp_path / "net.so")
    assert [p.name for p in load(tmp_path / "net.so").signature.outputs] == ["probs:0"]
    assert "float *probs_0" in (tmp_path / "net.h").read_text()
    x = np.random.default_rng(1).standard_normal((3, 7)).astype(np.float32)
    np.testing.assert_array_equal(made(**{"input.1": x}), np.maximum(x, 0))


def test_a_shape_of_unknown_rank_is_asked_for():
    from onnx import helper

    model = _onnx([helper.make_node("Relu", ["x"], ["y"])], None)
    with pytest.raises(ModelError, match=r"x has a shape of unknown rank: give it.*--shape x="):
        build_model(model, threads=1)
    x = np.random.default_rng(1).standard_normal((3, 7)).astype(np.float32)
    np.testing.assert_array_equal(
        build_model(model, {"x": (3, 7)}, threads=1)(x), np.maximum(x, 0)
    )
    made = build_model(model, {"x": (dim("n", 1, 5), 7)}, threads=1)
    np.testing.assert_array_equal(made(x), np.maximum(x, 0))


def test_weights_in_another_file_are_asked_for_by_the_path_of_the_model(tmp_path):
    import onnx

    onnx.save(_convolution(), tmp_path / "a.onnx", save_as_external_data=True, size_threshold=0)
    model = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    with pytest.raises(ModelError, match="weight w lies in another file: give the path"):
        build_model(model, threads=1)


def test_texts_as_an_output_are_refused_with_what_to_do():
    from onnx import TensorProto, helper

    texts = helper.make_tensor("t", TensorProto.STRING, [1], [b"a"])
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Constant", [], ["t"])]
    nodes[1].attribute.append(helper.make_attribute("value", texts))
    model = _onnx(nodes, (2, 3))
    model.graph.output.append(helper.make_tensor_value_info("t", TensorProto.STRING, [1]))
    with pytest.raises(UnsupportedOperator, match="output t is texts: leave it out"):
        build_model(model, threads=1)


def _open_relax():
    import tvm
    from tvm import relax

    n = tvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType((n, 4), "float32")) for name in "xy")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.relu(builder.emit(relax.op.add(x, y))))
        builder.emit_func_output(out)
    return builder.get()


def test_open_shapes_of_a_relax_module_are_those_of_its_inputs():
    made = build_model(_open_relax(), {"x": (3, 4)}, threads=1)
    x, y = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(made(x, y), np.maximum(x + y, 0))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (None, r"input x has the open shape \(n, 4\)"),
        ({"x": (3, 5)}, r"\(3, 5\) is given"),
        ({"x": (3, 4), "y": (2, 4)}, r"\(2, 4\) is given"),
        ({"z": (3, 4)}, "no input 'z'"),
    ],
)
def test_shapes_that_a_relax_module_cannot_have_are_refused(inputs, said):
    with pytest.raises(ModelError, match=said):
        build_model(_open_relax(), inputs, threads=1)


def test_an_unknown_operator_is_named():
    from onnx import helper

    with pytest.raises(ModelError, match="Frobnicate"):
        build_model(_onnx([helper.make_node("Frobnicate", ["x"], ["y"])], (3, 7)))


def test_operators_of_optional_values_are_refused_by_name():
    from onnx import helper

    nodes = [
        helper.make_node("Optional", ["x"], ["s"]),
        helper.make_node("OptionalGetElement", ["s"], ["y"]),
    ]
    with pytest.raises(ModelError, match=r"Optional .*takes or gives a sequence"):
        build_model(_onnx(nodes, (3, 7)))


def test_operators_of_other_domains_are_none_of_onnx():
    from onnx import helper

    model = _onnx([helper.make_node("Relu", ["x"], ["y"], domain="my.domain")], (3, 7))
    with pytest.raises(
        ModelError, match=r"operator Relu is of .* 'my\.domain'.*: compute it outside"
    ):
        build_model(model)


def test_functions_of_the_models_own_are_what_they_say_whatever_they_are_called():
    from onnx import helper

    model = _onnx([helper.make_node("Relu", ["x"], ["y"], domain="my.domain")], (3, 7))
    body = [helper.make_node("Neg", ["a"], ["b"])]
    opset = helper.make_opsetid("", 17)
    model.functions.append(helper.make_function("my.domain", "Relu", ["a"], ["b"], body, [opset]))
    model.opset_import.append(helper.make_opsetid("my.domain", 1))
    x = np.random.default_rng(1).standard_normal((3, 7)).astype(np.float32)
    np.testing.assert_array_equal(build_model(model, threads=1)(x), -x)


def test_an_opset_that_nobody_knows_is_refused():
    from onnx import helper

    model = _onnx([helper.make_node("Relu", ["x"], ["y"])], (3, 7))
    model.opset_import[0].version = 99
    with pytest.raises(ModelError, match=r"opset 99 of ai\.onnx; the package onnx .* knows 1 to"):
        build_model(model)
    del model.opset_import[:]
    with pytest.raises(ModelError, match=r"no opset of ai\.onnx"):
        build_model(model)


def test_a_weight_that_is_missing_in_the_file_is_named():
    from onnx import TensorProto, helper

    inner = helper.make_graph(
        [helper.make_node("Add", ["x", "far"], ["z"])],
        "inner",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    whole = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    for node, name in ((helper.make_node("Add", ["x", "w"], ["y"]), "w"), (whole, "c")):
        with pytest.raises(ModelError, match=f"reads '{name}', which is no input, no weight"):
            build_model(_onnx([node], (3, 7)))
    with pytest.raises(ModelError, match="Add reads 'far'"):
        build_model(_onnx([whole], (3, 7), [("c", np.array(True))]))


def test_an_output_that_nothing_computes_is_named():
    from onnx import TensorProto, helper

    model = _onnx([helper.make_node("Relu", ["x"], ["y"])], (3, 7))
    model.graph.output.append(helper.make_tensor_value_info("far", TensorProto.FLOAT, (3, 7)))
    with pytest.raises(ModelError, match="output 'far' is the result of no operator"):
        build_model(model)


def test_a_length_of_minus_one_is_open():
    model = _convolution((-1, 3, 9, 7))
    with pytest.raises(ModelError, match=r'inputs=\{"x": \(1, 3, 9, 7\)\}'):
        build_model(model)
    assert build_model(model, {"x": (1, 3, 9, 7)}, threads=1)


def test_a_fixed_shape_is_what_it_is():
    for wrong in ((2, 3, 9, 7), (1, 3, 9)):
        with pytest.raises(ModelError, match=r"input x is \(1, 3, 9, 7\) in the model, .* given"):
            build_model(_convolution(), {"x": wrong})


def test_open_shapes_of_an_exported_program_are_those_of_its_inputs():
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(7, 3).eval()
    program = torch.export.export(
        layer, (torch.ones(4, 7),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    with pytest.raises(ModelError, match=r"has the open shape.*give example inputs"):
        build_model(program, threads=1)
    x = torch.randn(5, 7)
    for inputs in ((x,), {"input": x}):
        made = build_model(program, inputs, threads=1)
        torch.testing.assert_close(made(x), layer(x).detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ModelError, match="no input 'y'; it takes input"):
        build_model(program, {"y": x}, threads=1)


def test_named_inputs_of_an_exported_program_keep_their_names():
    torch = pytest.importorskip("torch")

    class Minus(torch.nn.Module):
        def forward(self, *, a, b):
            return a - 2 * b

    a, b = torch.randn(2, 3), torch.randn(2, 3)
    n = torch.export.Dim("n")
    for shapes in (None, {"a": {0: n}, "b": {0: n}}):
        program = torch.export.export(Minus(), (), {"a": a, "b": b}, dynamic_shapes=shapes)
        made = build_model(program, {"b": b, "a": a}, threads=1)
        torch.testing.assert_close(made(a=a, b=b), a - 2 * b)


def test_an_unknown_input_is_an_error():
    with pytest.raises(ModelError, match="no input 'z'; it takes x"):
        build_model(_convolution(), {"z": (1, 3, 9, 7)})


def test_what_is_no_model_is_an_error(tmp_path):
    with pytest.raises(ModelError, match="int 3 is no model"):
        build_model(3)
    with pytest.raises(ModelError, match=r"IRModule is no model of open axes: .*fixed shapes"):
        build_model(_open_relax(), dims={"n": (1, 4)})
    with pytest.raises(ModelError, match="no such file"):
        build_model(tmp_path / "missing.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"\x00nonsense")
    with pytest.raises(ModelError, match=r"bad.onnx"):
        build_model(tmp_path / "bad.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match=r"empty.onnx is no ONNX model.*it has no graph"):
        build_model(tmp_path / "empty.onnx")


@pytest.mark.parametrize("switch", ["check", "sparse"])
def test_a_switch_that_is_neither_on_nor_off_is_refused(switch):
    for door in (build_model, tune_model):
        with pytest.raises(ModelError, match=f"{switch} is 'no'; it must be True or False"):
            door(_convolution(), **{switch: "no"})


def test_inputs_that_are_none_are_told_what_to_give():
    model = _convolution()
    for door in (build_model, tune_model):
        for inputs in (5, object(), {1, 2}, "x"):
            with pytest.raises(
                ModelError, match=r"inputs is .*: give a tuple of arrays or shapes"
            ):
                door(model, inputs, **({"records": None} if door is tune_model else {}))


def test_zeros_are_not_skipped_in_a_network_of_open_axes():
    model = _convolution(("batch", 3, 9, 7))
    dims = {"batch": (1, 4)}
    with pytest.raises(ModelError, match="sparse=True is for networks of fixed sizes"):
        build_model(model, dims=dims, sparse=True)
    with pytest.raises(ModelError, match="sparse=True is for networks of fixed sizes"):
        tune_model(model, dims=dims, sparse=True, trials=1, records=None)


def test_a_list_in_place_of_an_input_is_told_briefly():
    with pytest.raises(ModelError, match=r"input x: list .*… is no shape: give an array") as told:
        build_model(_convolution(), {"x": np.zeros((1, 3, 9, 7)).tolist()})
    assert len(str(told.value)) < 200


def test_inputs_beside_a_fixed_one_are_counted():
    import onnx

    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    inputs = [info("x", onnx.TensorProto.FLOAT, [2, 6]), info("to", onnx.TensorProto.INT64, [2])]
    graph = onnx.helper.make_graph(
        [node("Reshape", ["x", "to"], ["y"])],
        "g",
        inputs,
        [info("y", onnx.TensorProto.FLOAT, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 9
    x, to = np.ones((2, 6), np.float32), np.array([3, 4])
    made = build_model(model, {"to": to}, threads=1)
    assert made(x, to).shape == made(x).shape == (3, 4)
    with pytest.raises(ShapeError, match="got 3 inputs; the model takes x, to"):
        made(x, to, x)
    with pytest.raises(ShapeError, match="'x' was given twice"):
        made(x, to, x=x)
