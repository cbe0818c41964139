"""Networks whose axes stay open: one library for all sizes."""

import ctypes
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import BuildError, LoopwrightError, RangeError, ShapeError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.size import Dim
from loopwright.graph import build
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.reference import Reference
from loopwright.graph.open import step_pool, steps
from loopwright.graph.open.model import OpenModel
from loopwright.graph.open.steps import StepCompiler, StepJob
from loopwright.graph.tuning.search import Searched
from loopwright.schedule.open.family import Family
from tests.explore.synthetic import MadeUp
from tests.graph.open_nets import model_of, random

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")
helper = onnx.helper
pytestmark = pytest.mark.onnx

SIZES = (1, 2, 3, 5, 16, 17, 40)


def sentences():
    """A dense layer, a place's own weights, softmax along the open axis, and a mean over it."""
    node = helper.make_node
    numbers = {"zero": 0, "one": 1, "axis": 1, "two": 2}
    weights = [("W", random(16, 16)), ("P", random(1, 40, 16))]
    weights += [(name, np.array([value])) for name, value in numbers.items()]
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "one", "two"], ["n"]),
        node("Slice", ["P", "zero", "n", "axis"], ["places"]),
        node("MatMul", ["x", "W"], ["h"]),
        node("Add", ["h", "places"], ["hp"]),
        node("Transpose", ["hp"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["hp", "t"], ["scores"]),
        node("Softmax", ["scores"], ["y"], axis=-1),
        node("ReduceMean", ["hp"], ["mean"], axes=[1], keepdims=0),
    ]
    return model_of(nodes, {"x": (1, "n", 16)}, ("y", "mean"), weights)


def expected_of_sentences(x):
    h = x.astype(float) @ random(16, 16) + random(1, 40, 16)[:, : x.shape[1]]
    scores = h @ h.transpose(0, 2, 1)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True), h.mean(1)


@pytest.mark.parametrize("how", [{}, {"reverse": 1, "exclusive": 1}])
def test_cumulative_sums_go_along_an_open_axis(how):
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("CumSum", ["r", "axis"], ["y"], **how),
    ]
    model = model_of(nodes, {"x": (2, "n")}, ["y"], [("axis", np.array(1))])
    built = lw.build_model(model, dims={"n": (1, 300)})
    for n in (1, 2, 33, 64, 65, 96, 300):
        x = random(2, n, seed=n)
        r = np.maximum(x, 0).astype(float)
        r = np.cumsum(r[:, ::-1], 1)[:, ::-1] - r if how else np.cumsum(r, 1)
        np.testing.assert_allclose(built(x), r, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def built():
    return lw.build_model(sentences(), dims={"n": (1, 40)}, threads=2)


def test_one_library_is_right_at_all_sizes(built):
    for n in SIZES:
        x = random(1, n, 16, seed=n)
        for got, wanted in zip(built(x), expected_of_sentences(x), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def test_worker_processes_compile_what_this_process_would(built, monkeypatch):
    monkeypatch.setattr(step_pool, "WORTH", 2)
    monkeypatch.setattr(step_pool, "builders", lambda: (2, 0))
    first, last = built.frames[0].steps, built.frames[-1].steps
    jobs = [StepJob(step, f"k{n}", f"f{n}") for n, step in enumerate((*first[:2], last[-1]))]
    endless = Family((Dim("n", 1, 1 << 23),), first[0].form)
    compiler = StepCompiler(resolve("cpu", 2), Numerics.STANDARD)
    with step_pool.StepPool(compiler) as pool:
        for made, here in zip(pool.kernels(jobs), map(compiler.kernel, jobs), strict=True):
            for what in ("names", "parameters", "rules", "sized"):  # not code: see tests/thin.py
                assert getattr(made.kernel, what) == getattr(here.kernel, what)
            assert (made.plain, made.constants) == (here.plain, here.constants)
        with pytest.raises(BuildError, match="wide has no programs for all sizes: 8388608 sizes"):
            pool.kernels([StepJob(endless, "k", "wide"), *jobs])


def test_steps_are_compiled_in_this_process_where_no_worker_can_start(built, monkeypatch, caplog):
    def broken():
        raise OSError("no more folders")

    monkeypatch.setattr(step_pool, "WORTH", 2)
    monkeypatch.setattr(step_pool, "builders", lambda: (2, 0))
    monkeypatch.setattr(step_pool, "TemporaryFolder", broken)
    made = lw.build_model(sentences(), dims={"n": (1, 40)}, threads=2)
    assert made.library.origin.objects == built.library.origin.objects
    assert caplog.text.count("no more folders") == 1  # of two frames


def test_a_size_of_one_has_the_frame_of_the_others(built):
    assert [[(d.low, d.high) for d in frame.dims] for frame in built.frames] == [[(1, 40)]]


def test_a_model_says_which_programs_a_size_runs(built):
    first, *steps = built.explain(n=7).splitlines()
    assert first.startswith("n=7: frame 1 of 1, for n: 1 to 40, with")
    called = [entry.kernel for entry in built.linked[0].entries if entry.kernel is not None]
    assert len(steps) == len(called)
    for step, kernel in zip(steps, called, strict=True):
        number = next(r.program for r in kernel.rules if r.holds((7,)))
        assert f"program {number + 1} of {len(kernel.names)}, for n from" in step
    assert built.explain(n=1).startswith("n=1: frame 1 of 1")
    with pytest.raises(RangeError, match="41"):
        built.explain(n=41)


def test_a_model_is_measured_at_some_sizes(built):
    assert built.measure(0.01, n=7) > 0
    with pytest.raises(RangeError, match="give one value for each of: n: 1 to 40"):
        built.measure(0.01)


def test_a_model_has_what_one_of_fixed_shapes_has_or_says_why_not(built):
    fixed = lw.build_model(sentences(), {"x": (1, 5, 16)}, check=False)
    assert built.numerics == fixed.numerics
    assert built.target == fixed.target
    assert [x.shape for x in built.examples(n=5)] == [x.shape for x in fixed.examples()]
    for name in {name for name in dir(fixed) if not name.startswith("_")} - {*dir(built)}:
        assert not hasattr(built, name)
        with pytest.raises(LoopwrightError, match=rf"an OpenModel has no \.{name}: "):
            getattr(built, name)
    with pytest.raises(AttributeError, match=r"has no \.sizes"):
        _ = built.sizes


def test_notebooks_show_a_model_with_its_sizes(built):
    shown = built._repr_html_()
    assert "x: float32[1, n, 16]" in shown
    assert "n: 1 to 40" in shown
    assert "x: float32[1, n, 16]" in built.library._repr_html_()
    assert "standard numerics" in repr(built.library)


def test_sizes_that_are_not_allowed_are_refused_before_anything_runs(built):
    with pytest.raises(RangeError, match=r"n is 41 by axis 1 of x.*takes 1 to 40"):
        built(random(1, 41, 16))
    with pytest.raises(ShapeError, match="axis 2 of x"):
        built(random(1, 4, 15))


def test_a_library_is_exported_with_sizes_as_parameters(built, tmp_path):
    path = built.export(tmp_path / "net.so")
    assert "int64_t n" in (tmp_path / "net.h").read_text()
    loaded, x = lw.load(path), random(1, 9, 16)
    for got, wanted in zip(loaded(x), built(x), strict=True):
        np.testing.assert_array_equal(got, wanted)
    function = ctypes.CDLL(str(path)).net
    outs = [np.empty((1, 9, 9), np.float32), np.empty((1, 16), np.float32)]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, *outs)]
    assert function(ctypes.c_int64(9), *pointers) == 0
    np.testing.assert_array_equal(outs[0], built(x)[0])
    assert function(ctypes.c_int64(41), *pointers) != 0


def test_a_model_goes_to_other_processes_and_so_does_its_library(built):
    x = random(1, 9, 16)
    for given in (built, built.library):
        again = pickle.loads(pickle.dumps(given))
        np.testing.assert_array_equal(again(x)[0], built(x)[0])
    assert "program 1 of" in pickle.loads(pickle.dumps(built)).explain(n=9)


def test_extents_that_are_quotients_of_a_size_are_followed():
    """Strided convolutions, pools and a mean over what they leave."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "W"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["c", "V"], ["d"], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["d"], ["y"]),
    ]
    weights = [("W", random(8, 3, 3, 3)), ("V", random(8, 8, 3, 3))]
    model = model_of(nodes, {"x": (1, 3, 16, "w")}, ("c", "y"), weights)
    made = lw.build_model(model, dims={"w": (8, 31)}, threads=1)
    assert isinstance(made, OpenModel)
    reference = onnx.reference.ReferenceEvaluator(model)
    for w in (8, 9, 10, 11, 30, 31):
        x = random(1, 3, 16, w, seed=w)
        for got, wanted in zip(made(x), reference.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_results_may_have_a_frame_for_hundreds_of_samples():
    """The strides of models of speech: a hop of 160, and a half of the frames of that."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "W"], ["a"], strides=[160]),
        node("Conv", ["a", "V"], ["y"], strides=[2], pads=[1, 1]),
    ]
    weights = [("W", random(4, 1, 200)), ("V", random(3, 4, 3))]
    model = model_of(nodes, {"x": (1, 1, "n")}, ("a", "y"), weights)
    made = lw.build_model(model, dims={"n": (400, 1300)}, threads=1)
    reference = onnx.reference.ReferenceEvaluator(model)
    for n in (400, 519, 520, 680, 1299, 1300):
        x = random(1, 1, n, seed=n)
        for got, wanted in zip(made(x), reference.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_program_of_torch_may_have_open_sizes():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(12, 8)

        def forward(self, x, factor):
            y = self.layer(x * factor)
            return {"y": torch.relu(y), "sum": y.sum(1)}

    net = Net().eval()
    b, n = lw.dim("b", 2, 3), lw.dim("n", 2, 7)
    factor = lw.tensor("factor", (12,))
    made = lw.build_model(net, (lw.tensor("x", (b, n, 12)), factor), threads=1)
    for shape in ((2, 2), (3, 7), (2, 5)):
        given = torch.randn(*shape, 12), torch.randn(12)
        with torch.no_grad():
            wanted = net(*given)
        for name, got in made(*given).items():
            torch.testing.assert_close(got, wanted[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("extent", [3, 9, lw.dim("m", 1, 4)])
def test_an_axis_that_two_inputs_have_is_not_bounded_by_dims_and_fixed_in_one(extent):
    nodes = [helper.make_node("Add", ["a", "b"], ["c"])]
    both = model_of(nodes, {"a": ["n", 2], "b": ["n", 2]}, ["c"])
    with pytest.raises(ModelError, match=r"an extent of 'n' is in inputs, too, as .* of a"):
        lw.build_model(both, {"a": (extent, 2)}, dims={"n": (1, 4)})


def test_a_program_of_fixed_shapes_is_told_how_to_open_it():
    torch = pytest.importorskip("torch")
    program = torch.export.export(torch.nn.Linear(4, 4), (torch.zeros(2, 4),))
    with pytest.raises(ModelError, match=r"dynamic_shapes=….*lw\.dim"):
        lw.build_model(program, dims={"n": (1, 4)})


@pytest.mark.parametrize(
    ("inputs", "dims", "words"),
    [
        (None, {"m": (1, 4)}, r"no axis of an input is named 'm'; names are: n"),
        (None, "n", r"dims is 'n': give bounds by name"),
        ({"x": (1, lw.dim("k", 1, 4), 16)}, {"n": (1, 4)}, "an extent of 'n' is in inputs, too"),
        ({"x": (1, 9, 16)}, {"n": (1, 4)}, "an extent of 'n' is in inputs, too, as 9 of x"),
        (
            {"x": (1, "m", 16)},
            {"n": (1, 4)},
            r"input x: .* is no shape: give an array",
        ),
        ({"x": (1, None, 16)}, {"n": (1, 4)}, "input x: .* is no shape"),
        ({"x": (1, 2.5, 16)}, {"n": (1, 4)}, "input x: .* is no shape"),
        ({"x": 7}, {"n": (1, 4)}, "input x: int 7 is no shape"),
        ({"x": (lw.dim("k", 1, 4), 3, 16)}, None, "axis 0 of input x is 1 in the model, k is"),
        (None, {"n": (1, 4), "m": (1, 4)}, r"no axis of an input is named 'm'; names are: n"),
        (None, {"n": 4}, r"n is 4: give its least and greatest value"),
        (None, {"n": "1:4"}, r"n is '1:4': give its least and greatest value"),
        (None, {"n": (4, 1)}, r"the lower one first"),
        ({"x": (1, lw.dim("k", 1, 4))}, None, r"has 3 axes in the model, \(1, k\) is given"),
    ],
)
def test_bounds_that_do_not_fit_are_told_what_to_do(inputs, dims, words):
    with pytest.raises(ModelError, match=words):
        lw.build_model(sentences(), inputs, dims=dims)


def test_open_axes_without_bounds_are_told_of_both_remedies():
    remedies = r'inputs=\{"x": \(1, 1, 16\)\}, or bounds .*dims=\{"n": \(1, 512\)\}'
    with pytest.raises(ModelError, match=remedies):
        lw.build_model(sentences())


def test_sizes_of_a_module_are_given_in_its_inputs():
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(16, 4)
    with pytest.raises(ModelError, match=r'give sizes in its inputs.*lw.dim\("n", 1, 512\)'):
        lw.build_model(net, (torch.zeros(2, 16),), dims={"n": (1, 4)})


def test_an_axis_that_a_module_fixes_is_told_its_size(capfd):
    torch = pytest.importorskip("torch")
    x = lw.tensor("x", (2, lw.dim("n", 1, 64)))
    with pytest.raises(ModelError, match="an open axis may have 16 elements alone"):
        lw.build_model(torch.nn.Linear(16, 4), (x,))
    assert "Traceback" not in capfd.readouterr().err


def test_an_operator_of_fixed_sizes_is_named():
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    with pytest.raises(ModelError, match=r"NonZero"):
        lw.build_model(model_of(nodes, {"x": ("n", 4)}, ("y",)), dims={"n": (2, 8)})


def test_records_of_some_sizes_are_used(tmp_path):
    store, lines, device = tmp_path / "r.db", [], MadeUp()
    model = model_of(
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        {"x": ("n", 32)},
        ("y",),
        [("W", random(32, 24))],
    )
    made = lw.tune_model(
        model, dims={"n": (8, 32)}, trials=6, records=store, tell=lines.append, device=device
    )
    assert isinstance(made, OpenModel)
    assert [line for line in lines if line.startswith("at n=")] == ["at n=32:", "at n=8:"]
    x = random(19, 32)
    np.testing.assert_allclose(made(x), x @ random(32, 24), rtol=1e-5, atol=1e-5)


def test_what_another_machine_measured_is_looked_up_as_its_own(tmp_path, monkeypatch):
    model = model_of(
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        {"x": ("n", 32)},
        ("y",),
        [("W", random(32, 24))],
    )
    device, machines, best = MadeUp(), [], steps.best_record

    def looked_up(*words):
        machines.append(words[-1])
        return best(*words)

    monkeypatch.setattr(steps, "best_record", looked_up)
    options = {"dims": {"n": (8, 32)}, "trials": 2, "transfer": None, "check": False}
    lw.tune_model(model, device=device, records=tmp_path / "r.db", **options)
    assert device.measured
    assert machines
    assert all(machine == device.fingerprint() for machine in machines)


def test_the_sizes_that_are_searched_share_the_minutes_that_building_leaves(monkeypatch):
    now, parts = SimpleNamespace(seconds=0.0), []

    def built(*_):
        now.seconds += 10

    def searched(work, target, budget, records, options):
        assert options.clock.elapsed == 0
        parts.append(60 * budget.minutes)
        now.seconds += 60 * budget.minutes
        return Searched(())

    clock = SimpleNamespace(monotonic=lambda: now.seconds)
    monkeypatch.setattr("loopwright.explore.stopwatch.time", clock)
    monkeypatch.setattr("loopwright.graph.tuning.open_sizes.build_open", built)
    monkeypatch.setattr("loopwright.graph.tuning.open_sizes.search", searched)
    lw.tune_model(sentences(), dims={"n": (1, 40)}, minutes=5, records=None, progress=False)
    assert len(parts) > 1
    assert parts == pytest.approx([sum(parts) / len(parts)] * len(parts))
    assert 280 < now.seconds <= 300


def test_a_model_of_which_nothing_was_measured_is_compiled_once(monkeypatch, tmp_path):
    made, real = [], build.build_open

    def built(*given):
        made.append(real(*given))
        return made[-1]

    monkeypatch.setattr("loopwright.graph.tuning.open_sizes.build_open", built)
    path = tmp_path / "r.db"
    model = lw.tune_model(
        sentences(), dims={"n": (2, 9)}, minutes=1e-3, threads=1, records=path, progress=False
    )
    assert len(made) == 1
    assert model.library is made[0].library


def test_the_command_line_builds_for_all_sizes(tmp_path):
    path, out = tmp_path / "net.onnx", tmp_path / "net.so"
    onnx.save(sentences(), path)
    words = ["build", str(path), "--dim", "n=2:9", "-o", str(out), "--no-check"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "n: 2 to 9" in result.output
    x = random(1, 7, 16)
    wanted = expected_of_sentences(x)[0]
    np.testing.assert_allclose(lw.load(out)(x)[0], wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("words", ["n", "n=1", "n=a:b", "n=1:2:3:4"])
def test_a_dim_that_is_written_otherwise_is_refused(tmp_path, words):
    path = tmp_path / "net.onnx"
    onnx.save(sentences(), path)
    result = CliRunner().invoke(main, ["build", str(path), "--dim", words])
    assert result.exit_code == 2
    assert "write NAME=1:512" in result.output


def test_dims_of_the_command_line_that_are_one_word_stay_two(tmp_path):
    path, out = tmp_path / "net.onnx", tmp_path / "net.so"
    nodes = [helper.make_node("Relu", [x], [y]) for x, y in ("ab", "cd")]
    onnx.save(model_of(nodes, {"a": ("n.1", 4), "c": ("n_1", 4)}, ["b", "d"]), path)
    words = ["build", str(path), "-o", str(out), "--no-check", "--dim", "n.1=1:3"]
    result = CliRunner().invoke(main, [*words, "--dim", "n_1=1:5"])
    assert result.exit_code == 0, result.output
    x, y = random(2, 4), random(5, 4, seed=1)
    for got, wanted in zip(lw.load(out)(x, y), (x, y), strict=True):
        np.testing.assert_array_equal(got, np.maximum(wanted, 0))
    result = CliRunner().invoke(main, [*words, "--dim", "n.1=1:9"])
    assert "--dim n.1 is given twice" in result.output
    result = CliRunner().invoke(main, [*words, "--shape", "a=2,4", "--shape", "a=3,4"])
    assert "--shape a is given twice" in result.output


def test_a_profile_is_of_the_steps_at_the_sizes_of_arrays_or_of_words(built):
    names = [name for name, _ in built.profile(n=7, calls=1)]
    assert [name for name, _ in built.profile(random(1, 7, 16), calls=1)] == names
    assert len(names) == len(built.explain(n=7).splitlines()) - 1
    assert all(seconds >= 0 for _, seconds in built.profile(n=1, calls=2))
    for given, sizes, said in (
        ((), {}, "got nothing; give one value for each of: n: 1 to 40"),
        ((), {"n": 41}, "n is 41"),
        (
            (random(1, 7, 16),),
            {"n": 7},
            "give arrays, whose shapes tell the sizes, or sizes alone",
        ),
        ((), {"n": 7, "calls": 0}, "calls is 0"),
    ):
        with pytest.raises(RangeError, match=said):
            built.profile(*given, **sizes)
    with pytest.raises(ShapeError, match="2 inputs given; the model takes x: float32"):
        built.profile(random(1, 7, 16), random(1))


def test_a_profile_on_the_command_line_is_at_the_size_given(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(sentences(), path)
    words = ["profile", str(path), "--dim", "n=1:9", "--threads", "1", "--calls", "1"]
    result = CliRunner().invoke(main, [*words, "--at", "n=7"])
    assert result.exit_code == 0, result.output
    assert "ms in all" in result.output
    result = CliRunner().invoke(main, [*words, "--at", "n=x"])
    assert "--at n=x: write NAME=128" in result.output
    result = CliRunner().invoke(main, words)
    assert "give --dim NAME=1:512 for an open axis and --at NAME=128" in result.output


def test_commands_of_one_size_refuse_bounds(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(sentences(), path)
    result = CliRunner().invoke(main, ["tasks", str(path), "--dim", "n=1:9"])
    assert result.exit_code == 2
    assert "give a --shape here" in result.output


def test_a_comparison_that_fails_names_operators_and_programs(monkeypatch):
    monkeypatch.setattr(Reference, "_off", lambda self, made: "output 0 is off by 1")
    x = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ("n", 4)}, ["y"])
    with pytest.raises(ModelError, match=r"read in another way.*Or a program for all sizes"):
        lw.build_model(x, dims={"n": (1, 8)}, threads=1)


def test_comparisons_are_of_sizes_at_which_they_take_no_long_time(monkeypatch):
    asked = []
    check = Reference.check
    monkeypatch.setattr(
        Reference,
        "check",
        lambda self, *made, **words: (asked.append(self.inputs), check(self, *made, **words)),
    )
    monkeypatch.setattr("loopwright.graph.open.model._COMPARED", 1 << 16)
    n = lw.dim("n", 1, 1 << 9)
    x = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ("n", 64)}, ["y"])
    made = lw.build_model(x, {"x": lw.tensor("x", (n, 64))}, threads=1)
    assert made.library.dims[0].high == 1 << 9
    sizes = [x.nbytes for (x,) in asked]
    assert min(sizes) == 256
    assert 1 << 12 < max(sizes) <= 1 << 16
