"""Recurrences: loops of steps inside of the one library."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.graph.build import build_model
from loopwright.graph.compile.build import import_model
from loopwright.graph.compile.link import link
from loopwright.graph.compile.loops import needed
from loopwright.graph.network import Value
from loopwright.schedule.space import space
from tests.graph.onnx_nodes import node_model

onnx = pytest.importorskip("onnx")
helper, T = onnx.helper, onnx.TensorProto
pytestmark = pytest.mark.onnx

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, WIDTH, HIDDEN = 7, 3, 5, 11


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def recurrence(
    op, steps=STEPS, known=("w", "r", "b"), lengths=None, peepholes=False, **attributes
):
    """A model of one recurrent operator, and arrays for a call."""
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    first = (BATCH, steps) if attributes.get("layout") else (steps, BATCH)
    state = (BATCH, ways, HIDDEN) if attributes.get("layout") else (ways, BATCH, HIDDEN)
    arrays = {"x": drawn(*first, WIDTH)}
    arrays["w"] = 0.4 * drawn(ways, GATES[op] * HIDDEN, WIDTH)
    arrays["r"] = 0.4 * drawn(ways, GATES[op] * HIDDEN, HIDDEN)
    arrays["b"] = drawn(ways, 2 * GATES[op] * HIDDEN)
    if lengths is not None:
        arrays["l"] = np.array(lengths, np.int32)
    arrays["h"] = drawn(*state, seed=1)
    order = ["x", "w", "r", "b", "l" if lengths is not None else "", "h"]
    if op == "LSTM":
        arrays["c"] = drawn(*state, seed=2)
        order.append("c")
    if peepholes:
        arrays["p"] = drawn(ways, 3 * HIDDEN)
        order.append("p")
    weights = {n: arrays.pop(n) for n in (*known, "p") if n in arrays}
    options = {"hidden_size": HIDDEN, "results": 3 if op == "LSTM" else 2, "opset": 17}
    return node_model(op, arrays, weights, order=order, **options, **attributes), arrays


def asked(model, arrays):
    """What onnxruntime computes."""
    session = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
    return session.run(None, arrays)


def compared(model, arrays, wanted=None, threads=1):
    """A built model, after a comparison."""
    built = build_model(model, arrays, threads=threads, check=False)
    made = built(**arrays)
    wanted = asked(model, arrays) if wanted is None else wanted
    for a, b in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return built


def counts(built):
    return [loop.count for loop in built.work.network.loops]


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("LSTM", {"direction": "bidirectional", "peepholes": True, "clip": 0.6}),
        ("LSTM", {"direction": "reverse", "lengths": [2, 7, 5], "input_forget": 1}),
        ("LSTM", {"layout": 1, "direction": "bidirectional"}),
        ("GRU", {"direction": "bidirectional", "linear_before_reset": 1}),
        ("GRU", {"lengths": [7, 1, 3], "clip": 0.7}),
        ("GRU", {"known": ()}),
        ("RNN", {"direction": "reverse", "activations": ["Relu"], "lengths": [7, 6, 2]}),
    ],
)
def test_a_recurrence_is_a_loop_that_computes_what_onnxruntime_does(op, options):
    model, arrays = recurrence(op, **options)
    wanted = reference(model, arrays) if "layout" in options else None  # onnxruntime lacks it
    built = compared(model, arrays, wanted)
    assert counts(built) == [STEPS] * (2 if options.get("direction") == "bidirectional" else 1)


def test_a_library_does_not_grow_with_the_length():
    short, long = (
        build_model(*recurrence("LSTM", steps), threads=1, check=False) for steps in (5, 300)
    )
    assert len(short.linked.steps) == len(long.linked.steps)
    for model, steps in ((short, 5), (long, 300)):
        assert sorted(task.count for task in model.work.tasks) == [1, steps]


def test_few_iterations_stand_one_behind_the_other():
    built = compared(*recurrence("GRU", 2))
    assert counts(built) == []


def graph(nodes, inputs, outputs, known=()):
    def value(name, x):
        return helper.make_tensor_value_info(name, x, None)

    return helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [value(n, t) for n, t in outputs.items()],
        [onnx.numpy_helper.from_array(np.asarray(x), n) for n, x in known],
    )


def model_of(nodes, arrays, outputs, known=()):
    kinds = {n: (helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in arrays.items()}
    made = graph(nodes, kinds, outputs, known)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def reference(model, arrays):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, arrays)


def scan():
    """States that change places, sequences along other axes and backwards, a row that is a result
    itself, and what follows from no row."""
    node = helper.make_node
    state, row = (T.FLOAT, (3, 5)), (T.FLOAT, (3, 1))
    body = graph(
        [
            node("MatMul", ["s", "W"], ["m"]),
            node("MatMul", ["x", "W"], ["xw"]),
            node("Add", ["m", "xw"], ["a"]),
            node("Tanh", ["a"], ["t"]),
            node("Identity", ["s"], ["before"]),
            node("Mul", ["x", "z"], ["p"]),
            node("Relu", ["V"], ["same"]),
            node("Identity", ["x"], ["x2"]),
        ],
        {"s": state, "u": state, "x": state, "z": row},
        dict.fromkeys(["t", "before", "p", "same", "x2"], T.FLOAT),
    )
    outer = node(
        "Scan",
        ["S", "U", "X", "Z"],
        list("abcde"),
        body=body,
        num_scan_inputs=2,
        scan_input_axes=[1, 0],
        scan_input_directions=[0, 1],
        scan_output_axes=[1, 0, -1],
        scan_output_directions=[1, 0, 1],
    )
    arrays = {"S": drawn(3, 5), "U": drawn(3, 5, seed=1), "X": drawn(3, 9, 5), "Z": drawn(9, 3, 1)}
    arrays |= {"W": 0.3 * drawn(5, 5), "V": drawn(5)}
    return model_of([outer], arrays, dict.fromkeys("abcde", T.FLOAT)), arrays


def test_a_scan_is_a_loop():
    model, arrays = scan()
    built = compared(model, arrays)
    assert counts(built) == [9]


def test_products_of_rows_are_one_product_before_the_loop():
    built = build_model(*scan(), threads=1, check=False)
    products = [
        step.loop is None
        for step, said in zip(built.work.network.steps, built.work.imported, strict=True)
        if any(t.definition.reducer == "sum" for t in said.workload.stages)
    ]
    assert sorted(products) == [False, True]


@pytest.mark.parametrize("count", [5, 6])
def test_states_that_change_places_do_not_overwrite_each_other(count):
    names = dict.fromkeys("suv", (T.FLOAT, (4,)))
    moves = (("Identity", "s", "x"), ("Identity", "u", "y"), ("Neg", "v", "z"))
    nodes = [helper.make_node(op, [a], [b]) for op, a, b in moves]
    inputs = {"i": (T.INT64, ()), "g": (T.BOOL, ()), **names}
    body = graph(nodes, inputs, {"g": T.BOOL} | dict.fromkeys("zxy", T.FLOAT))
    arrays = {n: drawn(4, seed=k) for k, n in enumerate("abc")}
    known = [("n", np.array(count)), ("on", np.array(True))]
    node = helper.make_node("Loop", ["n", "on", *"abc"], list("xyz"), body=body)
    model = model_of([node], arrays, dict.fromkeys("xyz", T.FLOAT), known)
    built = compared(model, arrays)
    assert counts(built) == [count]


def counted(condition=True):
    """A loop as Keras exports a recurrence: it counts itself, and its weights are states."""
    node = helper.make_node
    nodes = [
        node("Gather", ["X", "t"], ["x"]),
        node("MatMul", ["x", "W"], ["xw"]),
        node("MatMul", ["s", "W"], ["sw"]),
        node("Add", ["xw", "sw"], ["sum"]),
        node("Tanh", ["sum"], ["s2"]),
        node("Add", ["t", "one"], ["t2"]),
        node("Less", ["t2", "end"] if condition else ["s0", "half"], ["on"]),
        node("Identity", ["W"], ["W2"]),
    ]
    if not condition:
        nodes.insert(0, node("ReduceSum", ["s"], ["s0"], keepdims=0))
    inputs = {"i": (T.INT64, ()), "g": (T.BOOL, ()), "t": (T.INT64, ())}
    inputs |= {"s": (T.FLOAT, (2, 6)), "W": (T.FLOAT, (6, 6))}
    outputs = {"on": T.BOOL, "t2": T.INT64, "s2": T.FLOAT, "W2": T.FLOAT, "sum": T.FLOAT}
    known = [("one", 1), ("end", 8), ("half", np.float32(0.5))]
    body = graph(nodes, inputs, outputs, known)
    outer = node("Loop", ["", "start", "zero", "S", "V"], ["t", "s", "w", "y"], body=body)
    arrays = {"X": drawn(8, 2, 6), "S": drawn(2, 6)}
    weights = [("start", True), ("zero", 0), ("V", 0.4 * drawn(6, 6))]
    return model_of([outer], arrays, {"t": T.INT64, "s": T.FLOAT, "y": T.FLOAT}, weights), arrays


def test_a_loop_that_counts_itself_has_a_known_length():
    model, arrays = counted()
    built = compared(model, arrays)
    assert counts(built) == [8]
    assert built.linked.weight_bytes < 2048  # the weights, which are no state


def test_a_loop_that_the_data_end_is_refused_where_nothing_bounds_it():
    with pytest.raises(lw.LoopwrightError, match=r"computes at a call ends it: give a trip count"):
        build_model(*counted(condition=False), check=False)


@pytest.mark.parametrize(("most", "loops"), [(2, []), (9, [8])])
def test_a_loop_that_the_data_end_goes_on_without_effect_up_to_its_bound(most, loops):
    node = helper.make_node
    nodes = [
        node("Add", ["s", "s"], ["s2"]),
        node("ReduceSum", ["s2"], ["sum"], keepdims=0),
        node("Less", ["sum", "end"], ["on"]),
    ]
    inputs = {"i": (T.INT64, ()), "g": (T.BOOL, ()), "s": (T.FLOAT, (4,))}
    body = graph(nodes, inputs, {"on": T.BOOL, "s2": T.FLOAT}, [("end", np.float32(100))])
    outer = node("Loop", ["n", "start", "S"], ["y"], body=body)
    weights = [("n", np.array(most)), ("start", True)]
    model = model_of([outer], {"S": drawn(4)}, {"y": T.FLOAT}, weights)
    built = build_model(model, threads=1)
    assert counts(built) == loops
    for value in (0.5, 8, 200):
        wanted = np.full(4, value, np.float32)
        for _ in range(most):
            wanted = wanted * 2
            if wanted.sum() >= 100:
                break
        np.testing.assert_array_equal(built(np.full(4, value, np.float32)), wanted)


def test_iterations_that_differ_stand_one_behind_the_other():
    node = helper.make_node("Concat", ["s", "X"], ["s2"], axis=0)
    inputs = {"i": (T.INT64, ()), "g": (T.BOOL, ()), "s": (T.FLOAT, None)}
    body = graph([node], inputs, {"g": T.BOOL, "s2": T.FLOAT})
    arrays = {"S": drawn(2), "X": drawn(3)}
    outer = helper.make_node("Loop", ["n", "", "S"], ["y"], body=body)
    model = model_of([outer], arrays, {"y": T.FLOAT}, [("n", np.array(4))])
    built = compared(model, arrays, [np.concatenate([arrays["S"], *[arrays["X"]] * 4])])
    assert counts(built) == []


def test_a_recurrence_in_another_is_unrolled():
    node = helper.make_node
    weights = {"W": 0.4 * drawn(1, 9, 5), "R": 0.4 * drawn(1, 9, 3)}
    body = graph(
        [
            node("GRU", ["x", "W", "R"], ["", "h"], hidden_size=3),
            node("Squeeze", ["h", "zero"], ["now"]),
            node("Add", ["now", "s"], ["s2"]),
        ],
        {"s": (T.FLOAT, (2, 3)), "x": (T.FLOAT, (3, 2, 5))},
        {"s2": T.FLOAT, "now": T.FLOAT},
        [("zero", np.array([0]))],
    )
    outer = node("Scan", ["S", "X"], ["a", "b"], body=body, num_scan_inputs=1)
    arrays = {"S": drawn(2, 3), "X": drawn(6, 3, 2, 5)}
    model = model_of([outer], arrays, dict.fromkeys("ab", T.FLOAT), list(weights.items()))
    assert counts(compared(model, arrays)) == [6]


def test_convolutions_of_a_state_keep_its_layout():
    node, image = helper.make_node, (T.FLOAT, (1, 16, 5, 6))
    body = graph(
        [
            node("Conv", ["s", "K"], ["k"], pads=[1, 1, 1, 1]),
            node("Add", ["k", "x"], ["sum"]),
            node("Conv", ["sum", "K"], ["k2"], pads=[1, 1, 1, 1]),
            node("Tanh", ["k2"], ["s2"]),
        ],
        {"s": image, "x": image},
        {"s2": T.FLOAT, "sum": T.FLOAT},
    )
    outer = node("Scan", ["S", "X"], ["a", "b"], body=body, num_scan_inputs=1)
    arrays = {"S": drawn(*image[1]), "X": drawn(4, *image[1])}
    known = [("K", 0.1 * drawn(16, 16, 3, 3))]
    model = model_of([outer], arrays, dict.fromkeys("ab", T.FLOAT), known)
    assert counts(compared(model, arrays)) == [4]


@pytest.fixture(scope="module")
def built():
    model, arrays = recurrence("LSTM", direction="bidirectional")
    return compared(model, arrays, threads=2), arrays


def test_a_loop_is_exported_and_needs_libc_alone(built, tmp_path):
    model, arrays = built
    path = model.export(tmp_path / "net.so")
    wanted = model(**arrays)
    for got, expected in zip(lw.load(path)(**arrays), wanted, strict=True):
        np.testing.assert_array_equal(got, expected)
    outs = [np.empty_like(x) for x in wanted]
    given = [np.ascontiguousarray(arrays[p.name]) for p in model.library.signature.inputs]
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*given, *outs)]
    assert ctypes.CDLL(str(path)).net(*pointers) == 0
    for got, expected in zip(outs, wanted, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_calls_of_several_threads_have_states_of_their_own(built):
    model, arrays = built
    every = [{**arrays, "x": drawn(STEPS, BATCH, WIDTH, seed=n)} for n in range(8)]
    wanted = [model(**each) for each in every]
    with ThreadPoolExecutor(4) as threads:
        for got, expected in zip(threads.map(lambda each: model(**each), every * 5), wanted * 5):
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_profile_has_every_step_of_a_loop_once(built):
    model, _ = built
    assert len(model.profile(calls=2)) == len(model.linked.steps)
    spent = model.step_seconds(calls=2)
    assert all(spent[n] > 0 for task in model.work.tasks for n in task.steps)


def test_a_step_in_a_loop_is_built_by_the_config_of_its_task():
    model, arrays = recurrence("RNN")
    work = import_model(model, arrays, resolve("cpu", 1))
    task = next(t for t in work.tasks if t.count == STEPS)
    other = space(task.workload, resolve("cpu", 1)).sample(np.random.default_rng(1))
    linked = link(work, {task.workload.key: other}, resolve("cpu", 1), "model")
    assert linked.configs[task.workload.key] == other
    for a, b in zip(linked.library(**arrays), asked(model, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_network_with_a_loop_is_tuned(tmp_path):
    model, arrays = recurrence("RNN", 20)
    lines = []
    tuned = lw.tune_model(
        model, arrays, threads=1, trials=2, transfer=None, records=tmp_path / "r.db",
        check=False, tell=lines.append,
    )  # fmt: skip
    assert sorted(task.count for task in tuned.work.tasks) == [1, 20]
    assert "compared the best candidates inside of the network" in lines
    for a, b in zip(tuned(**arrays), asked(model, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_sequence_of_open_length_is_a_loop():
    model, arrays = recurrence("GRU", direction="reverse", lengths=[1, 2, 3])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "seq"
    open_model = lw.build_model(model, dims={"seq": (3, 40)}, threads=1, check=False)
    for steps in (3, 4, 17, 40):
        each = {**arrays, "x": drawn(steps, BATCH, WIDTH), "l": np.minimum([1, steps, 5], steps)}
        each["l"] = each["l"].astype(np.int32)
        for a, b in zip(open_model(**each), asked(model, each), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_arrays_of_one_iteration_share_memory_and_others_last_as_long_as_the_loop():
    read, state, inner, after = (Value(n, "v", (4,), "float32") for n in range(4))
    uses = {read: [0, 2], state: [1, 2, 4], inner: [2, 3], after: [3, 6]}
    ends = needed(uses, [(2, 4, {inner, after})])
    assert ends == {read: (0, 4), state: (1, 4), inner: (2, 3), after: (2, 6)}
