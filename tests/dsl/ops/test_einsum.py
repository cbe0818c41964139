"""einsum against NumPy's, over drawn strings, shapes and dtypes; and its errors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.dsl.errors import NotationError, RangeError
from loopwright.dsl.ops.einsum import parse
from loopwright.dsl.oracle import evaluate
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import workload
from tests.dsl.compute import compute, draw


def check(spec: str, tensors: list[Tensor]) -> None:
    """The same shape, dtype and elements as NumPy gives."""
    values = {t: draw(t, seed) for seed, t in enumerate(tensors)}
    expected = np.asarray(np.einsum(spec, *values.values()))
    result = compute(lw.einsum(spec, *tensors), values)
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(result, expected)


def inputs(*shapes: tuple[int, ...], dtype: str = "float32") -> list[Tensor]:
    return [lw.tensor(f"A{n}", shape, dtype) for n, shape in enumerate(shapes)]


@dataclass(frozen=True)
class Case:
    spec: str
    shapes: tuple[tuple[int, ...], ...]


SIZES = {"a": 2, "b": 3, "c": 5, "Z": 4, "e": 1}
HIDDEN = (3, 1, 2)  # what an ellipsis stands for: its last axes


@st.composite
def operands(draw: Any) -> tuple[str, tuple[int, ...], bool]:
    """Subscripts, a shape, and whether there is an ellipsis."""
    letters = draw(st.lists(st.sampled_from(sorted(SIZES)), max_size=4))
    flat = draw(st.sets(st.sampled_from(sorted(SIZES)), max_size=2))  # broadcast here
    extents = [1 if c in flat else SIZES[c] for c in letters]
    if not draw(st.booleans()):
        return "".join(letters), tuple(extents), False
    at = draw(st.integers(0, len(letters)))
    rank = draw(st.integers(0, len(HIDDEN)))
    dots = [1 if draw(st.booleans()) else n for n in HIDDEN[len(HIDDEN) - rank :]]
    text = "".join(letters[:at]) + "..." + "".join(letters[at:])
    return text, (*extents[:at], *dots, *extents[at:]), True


@st.composite
def cases(draw: Any) -> Case:
    parts = draw(st.lists(operands(), min_size=1, max_size=4))
    spec = ",".join(part[0] for part in parts)
    if draw(st.booleans()):
        known = sorted({c for part in parts for c in part[0] if c != "."})
        chosen = draw(st.permutations(known))[: draw(st.integers(0, len(known)))]
        at = draw(st.integers(0, len(chosen)))
        dots = "..." if any(part[2] for part in parts) else ""
        result = "".join(chosen[:at]) + dots + "".join(chosen[at:])
        spec = draw(st.sampled_from([f"{spec}->{result}", f" {spec} -> {result} "]))
    return Case(spec, tuple(part[1] for part in parts))


@given(
    case=cases(),
    dtypes=st.lists(
        st.sampled_from(["float64", "float32", "int64", "int32", "bool"]), min_size=4, max_size=4
    ),
    uniform=st.booleans(),
)
def test_einsum_means_what_numpy_means(case: Case, dtypes: list[str], uniform: bool) -> None:
    kinds = dtypes[:1] * 4 if uniform else dtypes
    tensors = [lw.tensor(f"A{n}", shape, kinds[n]) for n, shape in enumerate(case.shapes)]
    check(case.spec, tensors)


@pytest.mark.parametrize(
    ("spec", "shapes"),
    [
        ("ij->ji", [(3, 5)]),
        ("ba", [(3, 5)]),
        ("Ba", [(3, 5)]),
        ("ii", [(5, 5)]),
        ("ii->i", [(5, 5)]),
        ("iji->j", [(3, 5, 3)]),
        ("ij->", [(3, 5)]),
        ("", [()]),
        ("->", [()]),
        (",i->i", [(), (5,)]),
        ("ij,jk", [(3, 5), (5, 7)]),
        ("bij,bjk->bik", [(2, 3, 5), (2, 5, 7)]),
        ("i,j->ij", [(3,), (5,)]),
        ("ij,k->i", [(3, 5), (7,)]),
        ("ij,jk", [(3, 1), (5, 7)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 5), (4, 5, 7)]),
        ("...", [(3, 5)]),
        ("i...->...i", [(3, 5, 2)]),
        ("...,...", [(3, 1), (5,)]),
        ("i,j->...ij", [(3,), (5,)]),
        ("i...,...j", [(2, 3), (3, 4)]),
        ("i j , j k -> k i", [(3, 5), (5, 7)]),
        ("ij,jk,kl,lm->im", [(3, 5), (5, 2), (2, 7), (7, 3)]),
        ("ab,cd,ef->fdb", [(2, 3), (5, 2), (3, 7)]),
        ("i,i,i,i,i,i,i->i", [(3,)] * 7),
    ],
)
def test_strings_of_the_manual(spec: str, shapes: list[tuple[int, ...]]) -> None:
    check(spec, inputs(*shapes))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("int8", "int8"),
        ("uint8", "uint8"),
        ("int8", "int32"),
        ("int8", "uint8"),
        ("int16", "int8"),
        ("uint8", "int32"),
        ("int8", "float32"),
        ("int32", "float32"),
        ("float16", "float32"),
        ("float16", "int8"),
        ("bool", "bool"),
        ("bool", "uint8"),
        ("bool", "float16"),
        ("bfloat16", "float32"),
        ("bfloat16", "int8"),
    ],
)
def test_dtypes_meet_where_numpy_says(one: str, two: str) -> None:
    a, b = lw.tensor("a", (3, 5), one), lw.tensor("b", (5, 2), two)
    result = lw.einsum("ij,jk", a, b)
    assert result.dtype == np.result_type(draw(a), draw(b)).name
    x, y = (draw(t).astype(np.float64) for t in (a, b))
    exact = (x @ y != 0) if result.dtype == "bool" else x @ y
    got = compute(result, {a: draw(a), b: draw(b)}).astype(np.float64)
    np.testing.assert_allclose(got, exact, rtol=0.02, atol=0.01)


def test_truth_values_are_joined_by_and_and_or() -> None:
    a, b = inputs((3, 5), (5, 2), dtype="bool")
    assert str(workload(lw.einsum("ij,jk", a, b))).splitlines()[2:4] == [
        "einsum_or[i, k] = max(uint8(A0[i, j] & A1[j, k]))    i < 3, k < 2, j < 5",
        "einsum[i, k] = einsum_or[i, k] != 0    i < 3, k < 2",
    ]


def test_two_operands_make_one_definition() -> None:
    made = workload(lw.einsum("ij,jk", *inputs((3, 5), (5, 7))))
    assert str(made.stages[0].name) == "einsum"
    assert len(made.stages) == 1
    assert made.flops == 2 * 3 * 5 * 7


def test_many_operands_are_multiplied_in_the_cheapest_order() -> None:
    made = workload(lw.einsum("ij,jk,kl->il", *inputs((2, 50), (50, 50), (50, 50))))
    assert made.flops == 2 * (2 * 50 * 50) * 2
    assert [t.name for t in made.inputs] == ["A0", "A1", "A2"]
    other = workload(lw.einsum("ij,jk,kl->il", *inputs((50, 50), (50, 50), (50, 2))))
    assert other.flops == made.flops


def test_many_operands_follow_the_greedy_order() -> None:
    count = 12
    letters = "abcdefghijklm"
    spec = ",".join(letters[n : n + 2] for n in range(count)) + "->am"
    made = workload(lw.einsum(spec, *inputs(*[(3, 3)] * count)))
    assert made.flops == (count - 1) * 2 * 27


def test_an_index_of_one_operand_alone_is_summed_first() -> None:
    made = workload(lw.einsum("ij,kl->ik", *inputs((3, 50), (5, 70))))
    assert made.flops == 3 * 50 + 5 * 70 + 3 * 5


@st.composite
def chains(draw: Any) -> str:
    """Three to seven operands over few letters, all of one extent, so that shapes tell nothing."""
    subscripts = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)
    parts = draw(st.lists(subscripts.map("".join), min_size=3, max_size=7))
    kept = draw(st.sets(st.sampled_from(sorted(set("".join(parts))))))
    return f"{','.join(parts)}->{''.join(draw(st.permutations(sorted(kept))))}"


@given(chains())
def test_inputs_come_in_the_order_of_the_operands(spec: str) -> None:
    count = spec.count(",") + 1
    tensors = inputs(*((3,) * len(part) for part in spec.split("->")[0].split(",")))
    made = workload(lw.einsum(spec, *tensors))
    assert [t.name for t in made.inputs] == [f"A{n}" for n in range(count)]
    assert [t.name for t in type(made).from_json(made.to_json()).inputs] == [
        f"A{n}" for n in range(count)
    ]
    values = [draw(t, seed) for seed, t in enumerate(tensors)]
    (result,) = evaluate(made, values)
    np.testing.assert_allclose(result, np.einsum(spec, *values), rtol=1e-4, atol=1e-4)


def test_the_same_tensor_twice_is_one_input() -> None:
    (a,) = inputs((4, 4))
    made = workload(lw.einsum("ij,kj,kl->il", a, a, a))
    assert [t.name for t in made.inputs] == ["A0"]
    value = draw(a, 0)
    (result,) = evaluate(made, [value])
    np.testing.assert_allclose(result, value @ value.T @ value, rtol=1e-4, atol=1e-4)


def test_the_parse_is_kept() -> None:
    assert parse("ij,jk") is parse("ij,jk")


RAISED: list[tuple[Callable[[], Any], type[NotationError], str]] = [
    (lambda: lw.einsum("i1", *inputs((3, 5))), NotationError, "'1' in operand 0 'i1'.*letters"),
    (lambda: lw.einsum("ij,jé", *inputs((3, 5))), NotationError, "'é' in operand 1"),
    (lambda: lw.einsum("i..", *inputs((3, 5))), NotationError, "'.' in operand 0"),
    (lambda: lw.einsum("i......", *inputs((3, 5))), NotationError, "at most one '...'"),
    (lambda: lw.einsum("i. ..", *inputs((3, 5))), NotationError, "'.' in operand 0"),
    (lambda: lw.einsum("ij->j->i", *inputs((3, 5))), NotationError, "one '->'"),
    (lambda: lw.einsum("ij-ji", *inputs((3, 5))), NotationError, "'-' in operand 0"),
    (lambda: lw.einsum("ij->j,i", *inputs((3, 5))), NotationError, "',' in the output"),
    (lambda: lw.einsum("ij->k", *inputs((3, 5))), NotationError, "'k' of the output.*i, j"),
    (lambda: lw.einsum("ij->ii", *inputs((3, 5))), NotationError, "'i' stands twice"),
    (lambda: lw.einsum("ij,jk", *inputs((3, 5))), NotationError, "2 operands but is given 1"),
    (lambda: lw.einsum("ij", *inputs((3, 5), (5,))), NotationError, "1 operands but is given 2"),
    (lambda: lw.einsum("i", *inputs((3, 5))), NotationError, r"A0. has 2 axes.*'...' for the"),
    (lambda: lw.einsum("ijk...", *inputs((3, 5))), NotationError, "has 2 axes.*but 3 indices"),
    (lambda: lw.einsum("i...->i", *inputs((3, 5))), NotationError, "stands for 1 axes"),
    (lambda: lw.einsum("i", lw.tensor("U")), NotationError, "operand 0 is Tensor.*has a shape"),
    (lambda: lw.einsum("i", 3), NotationError, "operand 0 is int 3"),
    (lambda: lw.einsum(*inputs((3,)), "i"), NotationError, "give a string"),
    (
        lambda: lw.einsum("ij,jk", *inputs((3, 5), (7, 2))),
        RangeError,
        r"index 'j' has extent 5 by axis 1 of operand 0 \(A0\) but 7 by axis 0 of operand 1 \(A1",
    ),
    (
        lambda: lw.einsum("...,...", *inputs((3, 5), (7,))),
        RangeError,
        "an axis of '...' has extent 5 .* but 7 .*equal, or one of them 1",
    ),
    (lambda: lw.einsum("ii", *inputs((1, 5))), RangeError, "'i' has extent 1 .* but 5 .* equal$"),
    (lambda: lw.einsum("i,ii", *inputs((5,), (1, 5))), RangeError, "operand 1 .* equal$"),
    (lambda: lw.einsum("i,i,i", *inputs((3,), (1,), (5,))), RangeError, "operand 0 .* operand 2"),
    (
        lambda: lw.einsum(
            "i,i", lw.tensor("a", (3,), "float16"), lw.tensor("b", (3,), "bfloat16")
        ),
        NotationError,
        "no common type; lw.cast",
    ),
]


@pytest.mark.parametrize(("attempt", "kind", "message"), RAISED)
def test_errors_say_what_was_found_and_what_is_allowed(
    attempt: Callable[[], Any], kind: type[NotationError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        attempt()


@pytest.mark.parametrize(
    ("spec", "shapes"),
    [
        ("i1", [(3, 5)]),
        ("ij->j->i", [(3, 5)]),
        ("ij->k", [(3, 5)]),
        ("ij->ii", [(3, 5)]),
        ("i", [(3, 5)]),
        ("ijk", [(3, 5)]),
        ("i...->i", [(3, 5)]),
        ("ij,jk", [(3, 5), (7, 2)]),
        ("i,ii", [(5,), (1, 5)]),
    ],
)
def test_numpy_refuses_the_same(spec: str, shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"."):
        np.einsum(spec, *(np.ones(shape) for shape in shapes))
    with pytest.raises(NotationError):
        lw.einsum(spec, *inputs(*shapes))
