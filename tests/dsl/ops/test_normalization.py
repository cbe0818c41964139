"""Softmax and normalizations, and attention, against the textbook's formulas."""

import math

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.workload import workload
from tests.dsl.compute import Array, check, compute, draw

ops = lw.ops
T = lw.tensor


def slow_softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
def test_softmax_sums_to_one_along_its_axis(axis: int) -> None:
    x = T("x", (3, 5, 7))
    values = {x: draw(x) * 500}  # far beyond what exp can hold
    expected = slow_softmax(values[x], axis)
    check(ops.softmax(x, axis), expected, given=values)
    small = {x: draw(x)}
    check(ops.log_softmax(x, axis), np.log(slow_softmax(small[x], axis)), given=small)
    assert np.isfinite(compute(ops.log_softmax(x, axis), values)).all()


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm_has_mean_zero_and_variance_one(axis: int, affine: bool) -> None:
    x = T("x", (3, 5, 7))
    shape = x.shape[axis:]
    scale, shift = T("scale", shape), T("shift", shape)
    over = tuple(range(axis % 3, 3))
    a = draw(x).astype(np.float64)
    unit = (a - a.mean(over, keepdims=True)) / np.sqrt(a.var(over, keepdims=True) + 1e-5)
    if affine:
        out = ops.layer_norm(x, scale, shift, axis)
        check(out, unit * draw(scale) + draw(shift), x, scale, shift)
    else:
        check(ops.layer_norm(x, axis=axis), unit, x)


@pytest.mark.parametrize("axis", [1, -1, 0])
def test_batch_norm_uses_the_statistics_of_training(axis: int) -> None:
    x = T("x", (5, 3, 2, 7))
    c = x.shape[axis]
    mean, variance, scale, shift = (T(n, (c,)) for n in ("mean", "variance", "scale", "shift"))
    values = {t: draw(t) for t in (x, mean, variance, scale, shift)}
    values[variance] = np.abs(values[variance])
    spread = [c if d == axis % 4 else 1 for d in range(4)]
    a, m, v, g, b = (values[t].astype(np.float64) for t in values)
    unit = (a - m.reshape(spread)) / np.sqrt(v.reshape(spread) + 1e-3)
    full = unit * g.reshape(spread) + b.reshape(spread)
    check(ops.batch_norm(x, mean, variance, scale, shift, axis, 1e-3), full, given=values)
    del values[scale], values[shift]
    check(ops.batch_norm(x, mean, variance, axis=axis, epsilon=1e-3), unit, given=values)


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@pytest.mark.parametrize("kind", ["plain", "causal", "bool", "added", "both"])
def test_attention_is_a_softmax_of_scaled_scores(lead: tuple[int, ...], kind: str) -> None:
    q, k, v = T("q", (*lead, 5, 3)), T("k", (*lead, 7, 3)), T("v", (*lead, 7, 2))
    mask = T("mask", (5, 7), "bool" if kind in ("bool", "both") else "float32")
    values = {t: draw(t) for t in (q, k, v)}
    a, b, c = (values[t].astype(np.float64) for t in values)
    scores = a @ b.swapaxes(-1, -2) / math.sqrt(3)
    if kind in ("bool", "both"):
        values[mask] = draw(mask)
        values[mask][:, 0] = True
        scores = np.where(values[mask], scores, -np.inf)
    if kind == "added":
        values[mask] = draw(mask)
        scores = scores + values[mask]
    causal = kind in ("causal", "both")
    if causal:
        scores = np.where(np.tri(5, 7, dtype=bool), scores, -np.inf)
    out = ops.attention(q, k, v, mask if mask in values else None, causal)
    check(out, slow_softmax(scores, -1) @ c, given=values)
    order = ["q", "k", "v", *(["mask"] if mask in values else [])]
    assert [t.name for t in workload(out).inputs] == order


def test_attention_takes_a_scale_and_shares_keys_between_heads() -> None:
    q, k, v = T("q", (2, 3, 5, 4)), T("k", (2, 1, 7, 4)), T("v", (1, 7, 2))
    scores = draw(q) @ draw(k).swapaxes(-1, -2) * 0.5
    check(ops.attention(q, k, v, scale=0.5), slow_softmax(scores, -1) @ draw(v), q, k, v)
