"""Elementary functions: accurate on every float32, vectorized, and free of libm."""

import importlib.util
import math
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm
from scipy import special
from tvm import tirx
from tvm.target.codegen import llvm_get_system_cpu
from tvm.tirx import ForKind

from loopwright.codegen.tir import elementary, exponential, trigonometry
from loopwright.codegen.tir.bindings import Scratch, with_lets
from loopwright.codegen.tir.convert import convert
from loopwright.codegen.tir.elementary import ELEMENTARY, apply, apply_scaling
from loopwright.dsl.errors import NotationError

pytestmark = [pytest.mark.optimized, pytest.mark.sampled(0.34)]

HOST = llvm_get_system_cpu()
REFERENCE = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10")},
    **{name: getattr(np, name) for name in ("log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sinh", "cosh", "tanh")},
    "sigmoid": special.expit,
    "erf": special.erf,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc")},
    "round": np.rint,
}
# As the module says them; measured on every float32 that is not trivial, with and without fma.
ULPS = {
    "exp": 1.3, "exp2": 1.6, "expm1": 2.5, "log": 1.0, "log2": 2.5, "log10": 2.5, "log1p": 2.5,
    "sin": 1.6, "cos": 1.6, "tan": 3.5, "asin": 2.5, "acos": 2.5, "atan": 3.0,
    "sinh": 2.5, "cosh": 2.5, "tanh": 2.7, "asinh": 3.5, "acosh": 3.5, "atanh": 3.5,
    "sigmoid": 2.5, "erf": 3.2, "sqrt": 0.51, "rsqrt": 1.51,
    "floor": 0.0, "ceil": 0.0, "trunc": 0.0, "round": 0.0,
}  # fmt: skip
TVMS = ("sqrt", "rsqrt", "floor", "ceil", "trunc", "round")
TRIGONOMETRIC = ("sin", "cos", "atan", "asin")
OURS = [name for name in ULPS if name not in TVMS]
HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for x86-64")


def loop_of(variable, extent, kind, body):
    return tirx.For(variable, tirx.IntImm("int32", 0), tirx.IntImm("int32", extent), kind, body)


def module_of(function, dtype="float32", out=None, count=1 << 16, lanes=8, kind=None):
    """out[i] = function(in[i], bind) in loops of `lanes`; `lanes` divides `count`."""
    source = tirx.decl_buffer((count,), dtype, "source")
    target = tirx.decl_buffer((count,), out or dtype, "target")
    row, lane = tirx.Var("row", "int32"), tirx.Var("lane", "int32")
    at = row * lanes + lane
    bind = Scratch(lane, lanes)
    store = tirx.BufferStore(target, function(tirx.BufferLoad(source, [at]), bind), [at])
    body = bind.statements([store])
    loop = loop_of(lane, lanes, ForKind.VECTORIZED if kind is None else kind, body)
    loop = bind.around(loop)
    nest = loop_of(row, count // lanes, ForKind.SERIAL, loop)
    main = tirx.PrimFunc([source, target], nest).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": main.with_attr("tirx.noalias", True)})


def build(function, *, mcpu=HOST, **how):
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        target = tvm.target.Target({"kind": "llvm", "mcpu": mcpu})
        return tirx.build(module_of(function, **how), target)


def run(function, x, *, lanes=8, out=None, **how):
    padded = np.resize(x, -(-len(x) // lanes) * lanes)
    library = build(function, dtype=x.dtype.name, out=out, count=len(padded), lanes=lanes, **how)
    result = tvm.runtime.empty(padded.shape, out or x.dtype.name)
    library["main"](tvm.runtime.tensor(padded), result)
    return result.numpy()[: len(x)]


def samples():
    """Floats of every sign and exponent, more of them where the functions change, and specials."""
    bits = np.arange(0, 2**32, 2**32 // 500_009, dtype=np.uint64).astype(np.uint32)
    usual = np.linspace(-110, 110, 200_003, dtype=np.float32)
    near_one = np.linspace(0.4, 2.5, 50_021, dtype=np.float32)
    return np.concatenate([bits.view(np.float32), usual, near_one, SPECIALS])


SPECIALS = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38,
     88.722839, 88.722847, -87.33655, -103.97208, -103.97209, -104.5, 1.0, -1.0, 9.1, -9.1, 3.92],
    dtype=np.float32,
)  # fmt: skip


def ulps(result, exact, digits=24, lowest=-149):
    """Errors in units of the last place; 0 where infinities or NaNs agree, inf where not."""
    unit = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - digits, lowest))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(result.astype(np.float64) - exact) / unit
        rounded = exact.astype(result.dtype)
    same = (result == rounded) | (np.isnan(result) & np.isnan(exact))
    finite = np.isfinite(result) & np.isfinite(rounded)
    return np.where(finite, error, np.where(same, 0.0, np.inf))


def exact(name, x):
    with np.errstate(all="ignore"):
        return REFERENCE[name](x.astype(np.float64))


def check_accuracy(name, x, result):
    truth = exact(name, x)
    error = ulps(result, truth)
    if name == "sigmoid":
        error[np.abs(truth) < 4.2e-39] = 0
        assert np.all(result[np.abs(truth) < 4.2e-39] < 4.3e-39)
    worst = np.argmax(error)
    assert error[worst] <= ULPS[name], (x[worst], result[worst], truth[worst])


@pytest.mark.parametrize("name", ULPS)
@pytest.mark.parametrize("lanes", [8, 7])
def test_a_vector_is_accurate_over_the_whole_range(name, lanes):
    x = samples()
    check_accuracy(name, x, run(ELEMENTARY[name], x, lanes=lanes))


@pytest.mark.parametrize("name", ULPS)
def test_a_scalar_is_accurate_over_the_whole_range(name):
    x = samples()
    check_accuracy(name, x, run(ELEMENTARY[name], x, lanes=1, kind=ForKind.SERIAL))


def scaled_exp(x, bind):
    return apply_scaling("exp", x, bind=bind)


@pytest.mark.parametrize("lanes", [16, 7])
def test_an_exp_that_scales_is_as_accurate(lanes):
    x = samples()
    check_accuracy("exp", x, run(scaled_exp, x, lanes=lanes))
    edges = np.array([-np.inf, -104.5, -0.0, np.inf, 89.0, np.nan], np.float32)
    expected = np.array([0.0, 0.0, 1.0, np.inf, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(run(scaled_exp, edges), expected)


@x86
@pytest.mark.parametrize("lanes", [1, 4, 7, 16])
def test_with_avx512_an_exp_scales_without_a_library(lanes):
    library = build(scaled_exp, mcpu="skylake-avx512", count=7 << 10, lanes=lanes)
    assembly = library.inspect_source("asm")
    kernel = assembly[assembly.index("main_compute_:") :]
    assert "vscalefps" in kernel
    assert not re.search(r"^\s+call", kernel, re.MULTILINE)


@x86
@pytest.mark.parametrize("name", OURS)
def test_it_is_accurate_without_fused_multiply_add(name):
    x = samples()
    check_accuracy(name, x, run(ELEMENTARY[name], x, mcpu="x86-64"))


@pytest.mark.parametrize(
    ("name", "x", "result"),
    [
        ("exp", [-np.inf, -104.5, 0.0, np.inf, 89.0], [0.0, 0.0, 1.0, np.inf, np.inf]),
        ("log", [0.0, -0.0, -1.0, -np.inf, 1.0], [-np.inf, -np.inf, np.nan, np.nan, 0.0]),
        ("log", [np.inf, np.nan], [np.inf, np.nan]),
        ("tanh", [-np.inf, np.inf, 0.0, -0.0, 1e-45], [-1.0, 1.0, 0.0, -0.0, 1e-45]),
        ("tanh", [9.1, -50.0, 3e38], [1.0, -1.0, 1.0]),
        ("sigmoid", [-np.inf, np.inf, 0.0, -0.0], [0.0, 1.0, 0.5, 0.5]),
        ("erf", [-np.inf, np.inf, 0.0, -0.0, 3.95], [-1.0, 1.0, 0.0, -0.0, 1.0]),
        ("rsqrt", [0.0, -0.0, np.inf, -1.0], [np.inf, -np.inf, 0.0, np.nan]),
        ("exp2", [-np.inf, -151.0, 10.0, 128.0, -149.0], [0.0, 0.0, 1024.0, np.inf, 1e-45]),
        ("expm1", [-np.inf, np.inf, 0.0, -0.0, 1e-45, -200.0], [-1, np.inf, 0.0, -0.0, 1e-45, -1]),
        ("log2", [0.0, -1.0, 8.0, 1e-45, np.inf], [-np.inf, np.nan, 3.0, -149.0, np.inf]),
        ("log10", [0.0, -1.0, 1.0, np.inf], [-np.inf, np.nan, 0.0, np.inf]),
        (
            "log1p",
            [-1.0, -2.0, 0.0, -0.0, np.inf, 1e-45],
            [-np.inf, np.nan, 0, -0.0, np.inf, 1e-45],
        ),
        ("sin", [0.0, -0.0, np.inf, -np.inf, 1e-45], [0.0, -0.0, np.nan, np.nan, 1e-45]),
        ("cos", [0.0, -0.0, np.inf, -np.inf, 1e-45], [1.0, 1.0, np.nan, np.nan, 1.0]),
        ("tan", [0.0, -0.0, np.inf, -np.inf, 1e-45], [0.0, -0.0, np.nan, np.nan, 1e-45]),
        ("asin", [0.0, -0.0, 1.5, -1.5, np.inf], [0.0, -0.0, np.nan, np.nan, np.nan]),
        ("acos", [1.0, 1.5, -1.5, np.inf], [0.0, np.nan, np.nan, np.nan]),
        ("atan", [0.0, -0.0, np.inf, -np.inf], [0.0, -0.0, np.pi / 2, -np.pi / 2]),
        ("sinh", [0.0, -0.0, np.inf, -np.inf, 90.0], [0.0, -0.0, np.inf, -np.inf, np.inf]),
        ("cosh", [0.0, -0.0, np.inf, -np.inf, 90.0], [1.0, 1.0, np.inf, np.inf, np.inf]),
        ("asinh", [0.0, -0.0, np.inf, -np.inf], [0.0, -0.0, np.inf, -np.inf]),
        ("acosh", [1.0, 0.5, -2.0, np.inf], [0.0, np.nan, np.nan, np.inf]),
        ("atanh", [0.0, -0.0, 1.0, -1.0, 1.5, np.inf], [0, -0.0, np.inf, -np.inf, np.nan, np.nan]),
        (
            "round",
            [0.5, 1.5, 2.5, -0.5, -0.2, 2**23 + 1, np.inf],
            [0, 2, 2, -0.0, -0.0, 2**23 + 1, np.inf],
        ),
        ("ceil", [-0.5, 0.5, np.inf], [-0.0, 1.0, np.inf]),
        ("trunc", [-0.5, 1.5, -1.5, -np.inf], [-0.0, 1.0, -1.0, -np.inf]),
        *[(name, [np.nan, -np.nan], [np.nan, np.nan]) for name in ULPS],
    ],
)
def test_special_arguments_have_exact_results(name, x, result):
    got = run(ELEMENTARY[name], np.array(x, np.float32))
    expected = np.array(result, np.float32)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
def test_nothing_leaves_its_bounds(name):
    x = np.linspace(-20, 20, 300_007, dtype=np.float32)
    assert np.all(np.abs(run(ELEMENTARY[name], x)) <= 1)


@pytest.mark.parametrize("name", ULPS)
@pytest.mark.parametrize("lanes", [8, 7])
def test_the_vectorizer_widens_it(name, lanes):
    module = tirx.transform.VectorizeLoop(True)(module_of(ELEMENTARY[name], lanes=lanes))
    assert "lane" not in module.script()  # what it cannot widen becomes a loop over lane_s


def undefined_symbols(library, folder):
    if shutil.which("nm") is None:
        pytest.skip("no nm here")
    path = folder / "kernel.o"
    library.write_to_file(str(path))
    listing = subprocess.run(["nm", "-u", path], capture_output=True, text=True, check=True)
    return set(re.findall(r"^\s+U (\S+)$", listing.stdout, re.MULTILINE))


@pytest.mark.parametrize("name", ULPS)
@pytest.mark.parametrize("dtype", ["float32", *HALVES])
def test_the_object_file_needs_no_library(name, dtype, tmp_path):
    library = build(lambda x, bind: apply(name, x, bind=bind), dtype=dtype)
    assert undefined_symbols(library, tmp_path) == set()


@pytest.mark.parametrize("name", ULPS)
def test_float64_needs_libm_alone(name, tmp_path):
    library = build(lambda x, bind: apply(name, x, bind=bind), dtype="float64")
    assert undefined_symbols(library, tmp_path) <= {name, "exp"}


@x86
@pytest.mark.parametrize("name", OURS)
def test_the_machine_code_calls_nothing(name):
    assembly = build(ELEMENTARY[name]).inspect_source("asm")
    kernel = assembly[assembly.index("main_compute_:") :]
    assert not re.search(r"^\s+call", kernel, re.MULTILINE)


@x86
def test_multiplications_and_additions_are_fused():
    assembly = build(ELEMENTARY["exp"], mcpu="x86-64-v3").inspect_source("asm")
    assert len(re.findall(r"vfn?m(?:add|sub)\d+ps", assembly)) >= 8


def mish(x, bind):
    one = tirx.FloatImm("float32", 1.0)
    e_x = ELEMENTARY["exp"](x, bind)
    return x * ELEMENTARY["tanh"](ELEMENTARY["log"](one + e_x, bind), bind)


@pytest.mark.parametrize(("lanes", "kind"), [(8, None), (7, None), (3, ForKind.SERIAL)])
def test_functions_of_functions_compile_through_scratch_arrays(lanes, kind):
    x = np.linspace(-5, 20, 10_009, dtype=np.float32)  # by Let this takes minutes
    wide = x.astype(np.float64)
    result = run(mish, x, lanes=lanes, kind=kind)
    np.testing.assert_allclose(result, wide * np.tanh(np.log1p(np.exp(wide))), rtol=1e-4)


def test_scratch_arrays_stay_off_the_heap(tmp_path):
    assembly = build(mish).inspect_source("asm")
    assert "Workspace" not in assembly[assembly.index("main_compute_:") :]


def test_lets_nest_in_the_order_of_binding():
    x = tirx.Var("x", "float32")
    value = with_lets(lambda bind: bind(bind(x + x) * x) - x)
    assert re.sub(r"\s", "", value.value.script()).endswith("x+x")
    assert isinstance(value.body, tirx.Let)


@pytest.mark.parametrize("name", ULPS)
def test_float64_is_as_good_as_libm(name):
    tiny = np.array([1e-300, 1e-10, 1e-5, -1e-10, 0.0, -0.0, np.inf, -np.inf, np.nan])
    x = np.concatenate([np.linspace(-30, 30, 10_007), tiny])
    error = ulps(run(lambda x, bind: apply(name, x, bind=bind), x), exact(name, x), 53, -1074)
    assert np.max(error) <= 3


@pytest.mark.parametrize("name", ULPS)
@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_rounded_once(name, dtype):
    x = np.arange(2**16, dtype=np.uint16).view(HALVES[dtype])
    digits, lowest = (11, -24) if dtype == "float16" else (8, -133)
    result = run(lambda x, bind: apply(name, x, bind=bind), x)
    truth = exact(name, x)
    error = ulps(result, truth, digits, lowest)
    error[np.abs(truth) < 2.0**-126] = 0
    assert np.max(error) <= 0.51


@pytest.mark.parametrize("dtype", HALVES)
def test_conversions_round_to_nearest_even_and_keep_every_nan(dtype):
    bits = np.random.default_rng(0).integers(0, 2**32, 1 << 18, dtype=np.uint32)
    few = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0x7F7FFFFF], np.uint32)
    x = np.concatenate([bits, few]).view(np.float32)
    narrow = run(lambda x, bind: convert(x, dtype, bind), x, out=dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(HALVES[dtype])
    np.testing.assert_array_equal(narrow.astype(np.float32), expected.astype(np.float32))
    wide = run(lambda x, bind: convert(x, "float32", bind), expected, out="float32")
    np.testing.assert_array_equal(wide, expected.astype(np.float32))


@pytest.mark.parametrize("dtype", HALVES)
def test_float64_becomes_a_half_without_a_library(dtype, tmp_path):
    library = build(lambda x, bind: convert(x, dtype, bind), dtype="float64", out=dtype)
    assert undefined_symbols(library, tmp_path) == set()


def test_unknown_functions_and_types_are_refused():
    number = tirx.Var("x", "float32")
    with pytest.raises(NotationError, match=r"no function 'gamma'; there are exp, exp2"):
        apply("gamma", number, bind=Scratch())
    with pytest.raises(NotationError, match="exp of int32: only floating types"):
        apply("exp", tirx.Var("x", "int32"), bind=Scratch())


def test_the_coefficients_are_those_of_the_script(monkeypatch):
    path = Path(elementary.__file__).resolve().parents[2] / "tools" / "minimax.py"
    if not path.exists():
        pytest.skip("installed without its tools")
    spec = importlib.util.spec_from_file_location("minimax", path)
    minimax = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "minimax", minimax)  # dataclasses look themselves up there
    spec.loader.exec_module(minimax)
    names = {exponential: ("exp", "log", "erf", "sinh"), trigonometry: TRIGONOMETRIC}
    tables = {n: getattr(module, f"_{n.upper()}") for module in names for n in names[module]}
    for name, table in tables.items():
        problem = minimax.PROBLEMS[name]
        _, best = minimax.fit(problem)
        x = problem.grid()
        polynomial = np.polynomial.polynomial.polyval(x, [float(np.float32(c)) for c in table])
        error = np.max(problem.weight(x) * np.abs(problem.value(x) - polynomial))
        assert error <= 1.01 * best
        assert math.log2(error) < -24
