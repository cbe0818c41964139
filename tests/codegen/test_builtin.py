"""Built-in code: right results from every program that it covers, LLVM's for the others."""

import pickle
import re
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.codegen.builtin.code import AVX2
from loopwright.codegen.builtin.compile import object_file, vector_set
from loopwright.codegen.builtin.emit import emit_tree
from loopwright.codegen.compile import compile_by, signature
from loopwright.codegen.explain import space_of
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.linker import disassembly
from loopwright.codegen.library.mapped import MappedBinary
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.codegen.processors import cpu_flags
from loopwright.dsl.errors import LibraryError, TargetError
from loopwright.dsl.oracle import evaluate, random_inputs, slack, tolerance
from loopwright.measure.checking import difference
from loopwright.schedule.tree.grammar import Allocate, Buffer, Linear, Load, Loop, Store, Tree, Var
from tests.targets import AVX2_SMALL, AVX512_LARGE, HERE, narrow

pytestmark = [
    pytest.mark.skipif(
        not {"avx2", "fma"} <= set(cpu_flags()), reason="a processor with AVX2 and FMA is needed"
    ),
    pytest.mark.optimized,
    pytest.mark.sampled(0.34),
]

LLVM_SINCE = "llvm, since the built-in code generator does not cover"


def t(name, *shape, constant=False):
    return lw.tensor(name, shape, constant=constant)


OPERATORS = {
    "matmul": lambda: lw.ops.matmul(t("A", 37, 29), t("B", 29, 41)),
    "dense": lambda: lw.ops.dense(t("x", 5, 67), t("w", 31, 67, constant=True)),
    "batch matmul": lambda: lw.ops.batch_matmul(t("A", 3, 17, 23), t("B", 3, 23, 19)),
    "conv2d": lambda: conv2d(1),
    "conv2d, stride 2": lambda: conv2d(2),
    "conv2d, 1x1": lambda: lw.ops.conv2d(t("x", 1, 23, 7, 7), t("w", 29, 23, 1, 1)),
    "conv2d, bias, ReLU": lambda: lw.ops.relu(lw.ops.bias_add(conv2d(1), t("b", 17), axis=1)),
    "depthwise": lambda: lw.ops.depthwise_conv2d(
        t("x", 1, 19, 13, 13), t("w", 19, 1, 3, 3), padding=1
    ),
    "transposed": lambda: lw.ops.conv2d_transpose(
        t("x", 1, 7, 5, 5), t("w", 7, 11, 4, 4, constant=True), stride=2, padding=1
    ),
    "conv1d": lambda: lw.ops.conv1d(t("x", 1, 11, 37), t("w", 13, 11, 3)),
    "max pool": lambda: lw.ops.max_pool2d(t("x", 1, 11, 13, 13), 3, stride=2),
    "average pool": lambda: lw.ops.avg_pool2d(t("x", 1, 11, 13, 13), 2, stride=2),
    "layer norm": lambda: lw.ops.layer_norm(t("x", 13, 37), t("g", 37), t("b", 37)),
    "softmax": lambda: lw.ops.softmax(t("x", 13, 37)),
    "GELU": lambda: lw.ops.gelu(t("x", 13, 37)),
    "sum": lambda: lw.einsum("ij->i", t("x", 37, 53)),
    "transpose": lambda: lw.einsum("ij->ji", t("x", 37, 53)),
    "add, ReLU": lambda: lw.ops.relu(lw.ops.add(t("x", 13, 37), t("y", 13, 37))),
}


def conv2d(stride):
    x, w = t("x", 1, 13, 11, 11), t("w", 17, 13, 3, 3, constant=True)
    return lw.ops.conv2d(x, w, stride=stride, padding=1)


def wide(threads):
    """`HERE` with the vectors of AVX-512, where it has them."""
    if not {"avx512f", "avx512vl", "avx512dq"} <= set(cpu_flags()):
        pytest.skip("a processor with AVX-512 is needed")
    return replace(HERE, threads=threads, vector_bytes=64, vector_registers=32)


MACHINES = {"AVX2": narrow, "AVX-512": wide}


def built(workload, config, target):
    """A program with its library of built-in code."""
    made = program(workload, config, target)
    code = object_file(emit_tree(made.tree, target.threads, vector_set(target)))
    return made, Library.from_object(code, signature(made, "kernel"))


def check(workload, configs, target, seed=0):
    """Each config, compiled directly, gives what the oracle says."""
    inputs = random_inputs(workload, np.random.default_rng(seed))
    expected = evaluate(workload, inputs)
    rest = slack(workload, inputs, expected)
    rtol, atol = tolerance(workload)
    for config in configs:
        made, library = built(workload, config, target)
        outputs = [np.full(p.shape, np.nan, p.dtype) for p in library.signature.outputs]
        library(*inputs, out=outputs[0] if len(outputs) == 1 else tuple(outputs))
        close = rtol, atol * made.error_growth
        wrong = difference(workload, outputs, expected, close, None, rest)
        assert wrong is None, f"{config}: {wrong}"


def drawn(workload, count, seed, target):
    space = space_of(workload, target, numerics="fast")
    rng = np.random.default_rng(seed)
    return [space.default, *(space.sample(rng) for _ in range(count - 1))]


@pytest.mark.parametrize("vectors", MACHINES)
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_by_drawn_configs_equals_the_oracle(name, vectors):
    workload, target = lw.workload(OPERATORS[name]()), MACHINES[vectors](1)
    check(workload, drawn(workload, 3, len(name), target), target)


@pytest.mark.slow
@pytest.mark.parametrize("vectors", MACHINES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_by_many_configs_equals_the_oracle(name, threads, vectors):
    workload, target = lw.workload(OPERATORS[name]()), MACHINES[vectors](threads)
    check(workload, drawn(workload, 30, 1, target), target)


@pytest.mark.slow
@pytest.mark.parametrize("vectors", MACHINES)
@pytest.mark.parametrize("seed", range(40))
def test_fifty_trees_of_drawn_sizes_equal_the_oracle(seed, vectors):
    rng, target = np.random.default_rng(seed), MACHINES[vectors](1)
    for _ in range(10):
        workload = lw.workload(of_sizes(*(int(size) for size in rng.integers(1, 40, 5))))
        check(workload, drawn(workload, 5, seed, target), target, seed)


def of_sizes(m, n, k, r, kind):
    """One of five computations."""
    makers = [
        lambda: lw.ops.matmul(t("A", m, k), t("B", k, n)),
        lambda: lw.einsum("abk,kc->acb", t("A", r, m, k), t("B", k, n)),
        lambda: lw.ops.relu(lw.ops.conv2d(t("x", 1, r, m + 2, n + 2), t("w", k, r, 3, 3))),
        lambda: lw.ops.max_pool2d(t("x", 1, r, m + 3, n + 3), 3, stride=2),
        lambda: lw.einsum("abc->cab", t("x", m, n, r)),
    ]
    return makers[kind % len(makers)]()


@pytest.mark.parametrize("vectors", MACHINES)
@pytest.mark.parametrize("name", ["matmul", "conv2d", "depthwise", "max pool", "layer norm"])
def test_results_are_those_of_llvm_to_the_last_bit(name, vectors):
    workload, target = lw.workload(OPERATORS[name]()), MACHINES[vectors](1)
    inputs = random_inputs(workload, np.random.default_rng(3))
    made, library = built(workload, None, target)
    reference = lw.build(workload, made.config, target=target)
    np.testing.assert_array_equal(library(*inputs), reference(*inputs))


@pytest.mark.parametrize("vectors", MACHINES)
def test_nan_goes_through_minima_and_maxima(vectors):
    x, y = t("x", 19), t("y", 19)
    (i,) = lw.indices("i")
    z = lw.tensor("z")
    z[i] = lw.max(lw.min(x[i], y[i]), 0.5)
    library = lw.build(lw.workload(z), target=MACHINES[vectors](1), codegen="builtin")
    a, b = np.ones(19, np.float32), np.ones(19, np.float32)
    a[3] = b[5] = np.nan
    assert library.codegen == "builtin"
    assert np.flatnonzero(np.isnan(library(a, b))).tolist() == [3, 5]


@pytest.mark.parametrize("vectors", MACHINES)
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid", "atan", "round"])
def test_elementary_functions_equal_numpy_at_the_ends_of_the_type_too(name, vectors):
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 88.7, -103.9, 1e-40, 2.5, 3e38], "f4")
    x = np.concatenate([x, np.random.default_rng(0).uniform(-9, 9, 501).astype("f4")])
    (i,) = lw.indices("i")
    a, y = t("a", len(x)), lw.tensor("y")
    y[i] = getattr(lw, name)(a[i])
    workload = lw.workload(y)
    library = lw.build(workload, target=MACHINES[vectors](1), codegen="builtin")
    with np.errstate(all="ignore"):
        (expected,) = evaluate(workload, [x])
    assert library.codegen == "builtin"
    np.testing.assert_allclose(library(x), expected, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("target", [AVX2_SMALL, AVX512_LARGE], ids=str)
@pytest.mark.parametrize("name", ["conv2d, bias, ReLU", "layer norm", "softmax"])
def test_every_byte_of_a_kernel_disassembles(name, target):
    capstone = pytest.importorskip("capstone")
    made = program(lw.workload(OPERATORS[name]()), None, target)
    vectors = vector_set(target)
    code = emit_tree(made.tree, 2, vectors)
    end = len(code.text)
    found = list(
        capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm(bytes(code.text), 0)
    )
    last = max(n for n, i in enumerate(found) if i.mnemonic == "ret")
    assert end - (found[last].address + 1) < 64 + 4 * 64  # constants, and what aligns them
    ends = [i.address + i.size for i in found[:last]]
    assert [0, *ends] == [i.address for i in found[: last + 1]]  # it stops at what is none
    assert ("zmm" in " ".join(i.op_str for i in found)) == (vectors is not AVX2)


@pytest.mark.parametrize("extent", [16, 17, 64, 96])
@pytest.mark.parametrize("vectors", MACHINES)
def test_neighbours_that_may_be_outside_are_read_by_vectors_and_one_by_one(extent, vectors):
    (i,) = lw.indices(i=extent)
    x, y = t("x", extent), lw.tensor("y")
    y[i] = x[i] - lw.where(i >= 1, x[i - 1], 0.0)
    library = lw.build(lw.workload(y), target=MACHINES[vectors](1), codegen="builtin")
    assert library.codegen == "builtin"
    given = np.arange(extent, dtype=np.float32) ** 2
    np.testing.assert_array_equal(library(given), np.diff(given, prepend=0))


@pytest.mark.parametrize("extent", [16, 17, 64])
@pytest.mark.parametrize("function", [lambda x, z: x / z, lambda x, z: lw.exp(x) * z])
def test_a_schedule_by_hand_works_out_every_element(extent, function):
    (i,) = lw.indices(i=extent)
    x, z, y = t("x", extent), t("z", extent), lw.tensor("y")
    y[i] = function(x[i], z[i])
    nest = lw.nest(lw.workload(y), narrow(1))
    library = lw.build(nest.workload, nest.config, target=narrow(1), codegen="builtin")
    a, b = np.random.default_rng(0).uniform(0.5, 2, (2, extent)).astype(np.float32)
    (expected,) = evaluate(nest.workload, [a, b])
    assert library.codegen == "builtin"
    np.testing.assert_allclose(library(a, b), expected, rtol=1e-6)


def test_columns_of_fewer_than_four_rows_are_stored_by_masks():
    workload, target = lw.workload(OPERATORS["conv2d, stride 2"]()), wide(1)
    configs = drawn(workload, 4, 0, target)
    check(workload, configs, target)
    trees = (program(workload, config, target).tree for config in configs)
    codes = (object_file(emit_tree(tree, 1, vector_set(target))) for tree in trees)
    assert any(re.search(r"vmovups .+\{k\d\},xmm", disassembly(code)) for code in codes)


def test_programs_for_a_processor_with_only_a_part_of_avx512_are_llvms():
    target = {"kind": "llvm", "mcpu": "knl", "mtriple": narrow(1).triple}
    library = lw.build(OPERATORS["matmul"](), target=target, codegen="builtin")
    assert library.codegen == f"{LLVM_SINCE} AVX-512 without AVX512VL and AVX512DQ"


def test_more_conditions_at_once_than_there_are_masks_are_right():
    i = lw.indices(i=19)
    x, y = [t(f"x{n}", 19) for n in range(12)], lw.tensor("y")
    chosen = [lw.where(a[i] > 0.0, 1.0, 2.0) for a in x]
    both = [lw.where(a[i] > 0.0, b, 3.0) for a, b in zip(x, reversed(chosen))]
    y[i] = sum(chosen) * sum(both)
    workload = lw.workload(y)
    check(workload, [None], wide(1))


def test_a_target_of_built_in_code_is_built_as_it_says():
    target = replace(narrow(1), kind="builtin")
    assert lw.build(OPERATORS["matmul"](), target=target).codegen == "builtin"
    x = lw.tensor("x", (lw.dim("n", 1, 9), 8))
    with pytest.raises(TargetError, match="fixed sizes"):
        lw.build(lw.ops.relu(x), target=target)


def test_what_is_not_covered_is_llvms_and_says_so():
    library = lw.build(lw.ops.matmul(*halves()), target=narrow(1), codegen="builtin")
    assert library.codegen == f"{LLVM_SINCE} elements of float16"
    assert "elements of float16" in repr(library)


@pytest.mark.parametrize(
    ("element", "words"),
    [
        (lambda x: lw.sin(x), "the function sin"),
        (lambda x: lw.cast(lw.isnan(x), "float32"), "a cast of bool to float32"),
    ],
)
def test_the_reason_for_llvm_is_in_words_of_the_notation(element, words):
    i = lw.indices("i")
    x, y = t("x", 9), lw.tensor("y")
    y[i] = element(x[i])
    library = lw.build(lw.workload(y), target=narrow(1), codegen="builtin")
    assert library.codegen == f"{LLVM_SINCE} {words}"


def halves():
    return (lw.tensor("A", (5, 7), dtype="float16"), lw.tensor("B", (7, 3), dtype="float16"))


def test_another_machines_code_is_llvms():
    workload = lw.workload(OPERATORS["matmul"]())
    target = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
    made = lw.build(workload, target=target, codegen="builtin")
    assert made.codegen.startswith(f"{LLVM_SINCE} processors other than")


@pytest.mark.parametrize("wrong", [{"codegen": "fast"}, {"codegen": "builtin", "target": "c"}])
def test_a_wrong_codegen_is_refused(wrong):
    with pytest.raises(TargetError, match="codegen="):
        lw.build(OPERATORS["matmul"](), **wrong)


def test_an_export_and_a_pickle_compute_the_same(tmp_path):
    workload = lw.workload(OPERATORS["conv2d"]())
    library = lw.build(workload, target=narrow(2), codegen="builtin")
    inputs = random_inputs(workload, np.random.default_rng(0))
    expected = library(*inputs)
    loaded = lw.load(library.export(tmp_path / "conv.so"))
    assert loaded.codegen == library.codegen == "builtin"
    for other in (loaded, pickle.loads(pickle.dumps(library)), library.bind(w=inputs[1])):
        given = inputs if other.inputs == library.inputs else inputs[:1]
        np.testing.assert_array_equal(other(*given), expected)
    assembly = library.source("asm")
    assert "__tvm_ffi_main" in assembly
    assert "kernel.o" not in assembly, "it names a temporary file"


def test_libraries_have_threads_of_their_own_and_may_be_called_at_once():
    workload = lw.workload(OPERATORS["matmul"]())
    one, two = (lw.build(workload, target=narrow(n), codegen="builtin") for n in (1, 2))
    two.threads = 2
    one.threads = 1
    assert (one.threads, two.threads) == (1, 2)
    inputs = random_inputs(workload, np.random.default_rng(0))
    expected, wrong = two(*inputs), []

    def call():
        for _ in range(50):
            if not np.array_equal(two(*inputs), expected):
                wrong.append(1)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_no_page_is_writable_and_executable():
    library = lw.build(OPERATORS["matmul"](), target=narrow(1), codegen="builtin")
    binary = library._binary
    assert isinstance(binary, MappedBinary)
    assert permissions(binary._kernels["main"]) == "r-xp"
    assert permissions(binary._data) == "rw-p"


def permissions(address):
    """What this process may do with the page of an address; other packages have pages, too."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= address < last:
            return line.split()[1]
    return "none"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_for_which_there_is_no_memory_fails(threads):
    x, y = Buffer("x", (64,), "float32", "argument"), Buffer("y", (64,), "float32", "argument")
    much = Buffer("much", (1 << 29, 64), "float32", "heap")
    i = Var("i")
    at = (Linear(((i, 1),)),)
    body = (Allocate(much), Store(much, (Linear(), *at), Load(x, at)))
    body += (Store(y, at, Load(much, (Linear(), *at))),)
    tree = Tree(1, (x,), (), (y,), (), (), (Loop(i, 64, "parallel", body),))
    ours = Signature("k", (Parameter("x", (64,), "float32"),), (Parameter("y", (64,), "float32"),))
    library = Library.from_object(object_file(emit_tree(tree, threads, AVX2)), ours)
    library.threads = threads
    import resource

    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (64 << 30, limits[1]))
    try:
        with pytest.raises(LibraryError, match="no memory"):
            library(np.ones(64, np.float32))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_the_object_is_the_same_every_time():
    made = program(lw.workload(OPERATORS["conv2d"]()), None, narrow(2))
    one, other = (object_file(emit_tree(made.tree, 2, AVX2)) for _ in range(2))
    assert one == other


def test_compiling_says_what_made_the_code():
    from dataclasses import replace

    target = replace(narrow(1), kind="builtin")
    compiled = compile_by(program(lw.workload(OPERATORS["matmul"]()), None, target))
    assert (compiled.codegen, compiled.reason, len(compiled.objects)) == ("builtin", "", 1)
