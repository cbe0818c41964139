"""Workloads: their key, order, numbers, printing, and JSON."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.errors import NotationError
from loopwright.dsl.oracle import evaluate, random_inputs
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, defined, reads, workload

T = lw.tensor
ops = lw.ops
i, j, k = lw.indices("i j k")


def matmul(
    names: str = "A B C", letters: str = "i j k", size: int = 7, constant: bool = False
) -> Workload:
    a, b, c = names.split()
    rows, columns, inner = lw.indices(letters)
    x, y, z = T(a, (5, size)), T(b, (size, 3), constant=constant), T(c)
    z[rows, columns] += x[rows, inner] * y[inner, columns]
    return workload(z)


def normalized(x: Tensor) -> Tensor:
    peak, out = T("peak"), T("out")
    peak[i] = lw.max(x[i, k])
    out[i, k] = x[i, k] - peak[i]
    return out


def test_the_key_does_not_depend_on_names() -> None:
    one, two = matmul(), matmul("weights x out", "q p z")
    assert one.key == two.key
    assert one == two
    assert hash(one) == hash(two)
    assert len({one, two}) == 1
    assert len(one.key) == 32
    assert int(one.key, 16) >= 0


def test_the_key_depends_on_everything_else() -> None:
    different = [
        matmul(),
        matmul(size=11),
        matmul(constant=True),
        workload(ops.matmul(T("a", (5, 7), "float16"), T("b", (7, 3), "float16"))),
        workload(ops.matmul(T("a", (5, 7)), T("b", (3, 7)), transpose_b=True)),
        workload(ops.relu(T("a", (5, 7)))),
        workload(ops.clip(T("a", (5, 7)), 0, 6)),
        workload(ops.clip(T("a", (5, 7)), 0, 7)),
        workload(lw.einsum("ij->i", T("a", (5, 7)))),
        workload(ops.max_pool2d(T("a", (1, 1, 5, 7)), 3)),
        workload(ops.max_pool2d(T("a", (1, 1, 5, 7)), (3, 2))),
    ]
    assert len({made.key for made in different}) == len(different)
    assert matmul() != "matmul"


def test_the_key_knows_which_stages_are_outputs() -> None:
    out = normalized(T("x", (5, 7)))
    (peak,) = (r.tensor for r in reads(defined(out).body) if r.tensor.name == "peak")
    assert len({workload(out), workload(out, peak), workload(peak, out)}) == 3
    with pytest.raises(NotationError, match="named twice"):
        workload(out, out)


def test_inputs_come_in_order_of_first_use() -> None:
    a, b, c = T("a", (5,)), T("b", (5,)), T("c", (5,))
    d, t = T("d"), T("t")
    d[i] = b[i] + c[i]
    t[i] = d[i] * a[i] + b[i]
    made = workload(t)
    assert [x.name for x in made.inputs] == ["b", "c", "a"]
    assert [x.name for x in made.stages] == ["d", "t"]


def test_inputs_of_operators_come_in_the_order_of_the_call() -> None:
    x, w, b = T("x", (1, 4, 5, 5)), T("w", (4, 4, 3, 3)), T("b", (4,))
    s, t, m = T("s", (4,)), T("t", (4,)), T("m", (5, 5))
    q, k, v = (T(n, (1, 4, 5, 5)) for n in "qkv")
    cases = [
        (ops.attention(q, k, v, m), "qkvm"),
        (ops.attention(q, k, v), "qkv"),
        (ops.conv2d(x, w, bias=b), "xwb"),
        (ops.batch_norm(x, s, t, b, T("c", (4,))), "xstbc"),
        (ops.layer_norm(x, T("s", (5,)), T("t", (5,))), "xst"),
        (ops.matmul(m, T("n", (5, 5)), transpose_a=True), "mn"),
        (ops.dense(x, m, T("b", (5,))), "xmb"),
        (ops.maximum(m, ops.add(T("a", (5, 5)), m)), "ma"),
        (ops.attention(ops.relu(q), k, ops.add(v, m), m), "qkvm"),
    ]
    for out, names in cases:
        assert "".join(y.name for y in workload(out).inputs) == names


def test_the_order_of_inputs_can_be_given() -> None:
    a, b = T("a", (5, 7)), T("b", (7, 5))
    out = lw.einsum("ij,jk->ik", a, b)
    made = lw.workload(out, inputs=[b, a])
    assert [x.name for x in made.inputs] == ["b", "a"]
    assert made.key != workload(out).key
    assert lw.workload(out, inputs=[a, b]).key == workload(out).key
    again = Workload.from_json(json.loads(json.dumps(made.to_json())))
    assert [x.name for x in again.inputs] == ["b", "a"]
    assert again.key == made.key
    rng = np.random.default_rng(0)
    values = random_inputs(made, rng)
    np.testing.assert_allclose(evaluate(made, values)[0], values[1] @ values[0], rtol=1e-5)


def test_a_wrong_list_of_inputs_is_refused() -> None:
    a, b, other = T("a", (5, 5)), T("b", (5, 5)), T("other", (5, 5))
    out = lw.einsum("ij,jk->ik", a, b)
    with pytest.raises(
        NotationError, match=r"other.* is no input of the outputs, which need a, b"
    ):
        workload(out, inputs=[a, b, other])
    with pytest.raises(NotationError, match="is no input"):
        workload(out, inputs=[a, b, out])
    with pytest.raises(NotationError, match="inputs: b missing"):
        workload(out, inputs=[a])
    with pytest.raises(NotationError, match="a is named twice"):
        workload(out, inputs=[a, a, b])


def test_stages_come_after_what_they_read() -> None:
    made = workload(ops.attention(T("q", (3, 5)), T("k", (7, 5)), T("v", (7, 2))))
    known = set(made.inputs)
    for stage in made.stages:
        assert {read.tensor for read in reads(defined(stage).body)} <= known
        known.add(stage)
    assert made.outputs == made.stages[-1:]


def test_equal_names_get_numbers() -> None:
    x = T("x", (5,))
    out = ops.add(ops.add(ops.add(x, T("x", (5,))), T("x_1", (5,))), 1)
    made = workload(out)
    names = [t.name for t in (*made.inputs, *made.stages)]
    assert len(set(names)) == len(names) == 6
    assert [t.name for t in made.stages] == ["add", "add_1", "add_2"]


def test_a_workload_is_a_copy() -> None:
    x, t = T("x", (5,)), T("t")
    t[i] = x[i] * 2
    made = workload(t)
    assert made.inputs[0] is not x
    x.name = "renamed"
    assert made.inputs[0].name == "x"


def test_chains_of_thousands_of_stages_are_gathered() -> None:
    t = T("x", (2,))
    for _ in range(3000):
        t = ops.add(t, 1)
    made = workload(t)
    assert len(made.stages) == 3000
    assert Workload.from_json(made.to_json()).key == made.key
    np.testing.assert_array_equal(evaluate(made, [np.zeros(2, np.float32)])[0], [3000, 3000])


def test_constants_are_the_inputs_known_ahead() -> None:
    made = matmul(constant=True)
    assert [t.name for t in made.constants] == ["B"]
    assert [t.name for t in made.inputs] == ["A", "B"]


def test_a_workload_prints_as_a_program() -> None:
    x = T("x", (5, 7))
    assert str(workload(normalized(x))) == (
        "x: float32[5, 7]\n"
        "peak[i] = max(x[i, k])    i < 5, k < 7\n"
        "out[i, k] = x[i, k] - peak[i]    i < 5, k < 7\n"
        "return out"
    )


FLOPS: list[tuple[Tensor, int]] = [
    (ops.matmul(T("a", (5, 7)), T("b", (7, 3))), 2 * 5 * 7 * 3),
    (ops.dense(T("x", (5, 7)), T("w", (3, 7)), T("b", (3,))), 2 * 5 * 7 * 3 + 5 * 3),
    (ops.conv2d(T("x", (2, 3, 9, 9)), T("w", (5, 3, 3, 3))), 2 * 2 * 5 * 7 * 7 * 3 * 9),
    (ops.conv2d(T("x", (1, 4, 9, 9)), T("w", (6, 2, 3, 3)), groups=2), 2 * 6 * 49 * 2 * 9),
    (ops.conv2d(T("x", (1, 3, 7, 7)), T("w", (5, 3, 3, 3)), padding=1), 2 * 5 * 49 * 27),
    (ops.max_pool2d(T("x", (1, 3, 8, 8)), 2), 3 * 16 * 4),
    (ops.avg_pool2d(T("x", (1, 1, 4, 4)), 2, padding=1, count_include_pad=False), 9 * 4 + 9),
    (ops.relu(T("x", (5, 7))), 35),
    (ops.softmax(T("x", (5, 7))), 35 + 2 * 35 + 35 + 5 + 35),
    (lw.einsum("ij->ji", T("x", (5, 7))), 0),
]


@pytest.mark.parametrize(("out", "flops"), FLOPS)
def test_operations_on_elements_are_counted(out: Tensor, flops: int) -> None:
    assert workload(out).flops == flops


def test_the_least_traffic_is_every_input_and_output_once() -> None:
    assert matmul().min_bytes == 4 * (5 * 7 + 7 * 3 + 5 * 3)
    half = workload(ops.matmul(T("a", (5, 7), "int8"), T("b", (7, 3), "int8"), accumulate="int32"))
    assert half.min_bytes == 5 * 7 + 7 * 3 + 4 * 5 * 3
    x = T("x", (5, 7))
    assert workload(normalized(x)).min_bytes == 4 * 2 * 5 * 7


@pytest.mark.parametrize("fill", [-math.inf, math.inf, math.nan, 0.1, -3])
def test_json_keeps_every_constant(fill: float) -> None:
    out = T("out")
    out[i] = lw.pad(T("x", (3,)), [(1, 2)], fill)[i]
    made = workload(out)
    text = json.dumps(made.to_json(), allow_nan=False)
    again = Workload.from_json(json.loads(text))
    assert again == made
    assert json.dumps(again.to_json()) == text
    inputs = random_inputs(made, np.random.default_rng(0))
    np.testing.assert_array_equal(evaluate(again, inputs)[0], evaluate(made, inputs)[0])


@pytest.mark.parametrize(("out", "flops"), FLOPS)
def test_json_gives_back_an_equal_workload(out: Tensor, flops: int) -> None:
    made = workload(out)
    again = Workload.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert str(again) == str(made)
    assert again.flops == flops


def test_json_keeps_outputs_index_arithmetic_and_names() -> None:
    x, t, u = T("x", (35,), "int32", constant=True), T("t"), T("u")
    names, n = lw.indices(names=5, n=7)
    odd = lw.equal((names + n) % 2, 1)
    t[names, n] = lw.where(odd, x[names * 7 + n], n - names // 2 * 3)
    u[i] = lw.prod(lw.cast(t[i, j], "float64"))
    made = workload(u, t)
    again = Workload.from_json(json.loads(json.dumps(made.to_json())))
    assert str(again) == str(made)
    assert again == made
    assert [t.name for t in again.outputs] == ["u", "t"]


def change(path: list[Any], value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(data: Any) -> None:
        for step in path[:-1]:
            data = data[step]
        data[path[-1]] = value

    return apply


def remove(*path: Any) -> Callable[[dict[str, Any]], None]:
    def apply(data: Any) -> None:
        for step in path[:-1]:
            data = data[step]
        del data[path[-1]]

    return apply


# A max pooling: x, x_pad (a where over comparisons), max_pool2d.
DAMAGE = [
    change(["schema"], 99),
    remove("tensors"),
    remove("outputs"),
    change(["outputs"], ["nothing"]),
    change(["outputs"], []),
    change(["tensors"], 5),
    change(["tensors", 0], "x"),
    change(["tensors", 0, "name"], 7),
    change(["tensors", 0, "name"], "2x"),
    change(["tensors", 0, "name"], "y"),
    change(["tensors", 0, "shape"], [1, 1, 5]),
    change(["tensors", 0, "shape"], [1, 1, 5, -5]),
    change(["tensors", 0, "shape"], [1, 1, 5, 5.0]),
    change(["tensors", 0, "dtype"], "float33"),
    change(["tensors", 1, "name"], "x"),
    change(["tensors", 1, "dtype"], "int8"),
    change(["tensors", 1, "body", 0], "mystery"),
    change(["tensors", 1, "body", 3], ["const", "many", "float32"]),
    change(["tensors", 1, "body", 3], ["const", [], "float32"]),
    change(["tensors", 1, "body", 3], ["const", 1.5, "int32"]),
    change(["tensors", 1, "body", 3], ["const", 1.5]),
    change(["tensors", 1, "body", 3], ["exp"]),
    change(["tensors", 1, "body", 3], ["read", "max_pool2d", []]),
    change(["tensors", 1, "body", 3], ["cast", ["const", 1, "int32"], "text"]),
    change(["tensors", 1, "body"], []),
    change(["tensors", 2, "reducer"], "median"),
    change(["tensors", 2, "reducer"], None),
    change(["tensors", 2, "reduce", 0], ["r", 0]),
    change(["tensors", 2, "reduce", 0], ["r", "3"]),
    change(["tensors", 2, "reduce", 0], ["q", 3]),
    change(["tensors", 2, "axes", 0], ["n", 2]),
    change(["tensors", 2, "axes", 0], ["c", 1]),
    change(["tensors", 2, "body", 2, 2], [[["y", 1.5], ["r", 1]], 0]),
    change(["tensors", 2, "body", 2, 2], [[["y", 1], ["r", 1]], 0.5]),
    change(["tensors", 2, "body", 2, 2], [[["y", 1], ["r", 1]], 100]),
    change(["tensors", 2, "body", 2, 2], [[[[[[["y", 1]], 0], "/", 2], 1]], 0]),
    change(["tensors", 2, "body", 2, 2], [[[[[[["y", 1]], 0], "//", 0], 1]], 0]),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_json_is_a_notation_error(damage: Callable[[dict[str, Any]], None]) -> None:
    made = workload(ops.max_pool2d(T("x", (1, 1, 5, 5)), 3, padding=1))
    data = copy.deepcopy(made.to_json())
    assert Workload.from_json(data) == made
    damage(data)
    with pytest.raises(NotationError):
        Workload.from_json(data)


@pytest.mark.parametrize("wrong", [None, 5, [], "text", {}])
def test_other_data_is_not_a_workload(wrong: Any) -> None:
    with pytest.raises(NotationError, match="not a workload of schema 1"):
        Workload.from_json(wrong)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: workload(), "at least one output"),
        (lambda: workload(T("x", (3,))), r"Tensor\(x: float32\[3\]\) is not defined"),
        (lambda: workload(T("x")), "is not defined"),
        (lambda: workload("x"), "str 'x' is no output: give a defined tensor"),
    ],
)
def test_outputs_must_be_defined(attempt: Callable[[], Any], message: str) -> None:
    with pytest.raises(NotationError, match=message):
        attempt()
