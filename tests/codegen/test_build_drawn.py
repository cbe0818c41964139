"""Drawn einsums, compiled by drawn configs, equal NumPy."""

import string

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw


@st.composite
def einsums(draw):
    """A spec of one to three operands over up to five letters, with sizes and a seed."""
    letters = string.ascii_lowercase[: draw(st.integers(1, 5))]
    sizes = {c: draw(st.sampled_from([1, 2, 3, 5, 7, 8, 11, 13, 16, 17, 19])) for c in letters}
    operands = draw(st.lists(st.text(letters, min_size=1, max_size=3), min_size=1, max_size=3))
    used = sorted(set("".join(operands)))
    output = draw(st.lists(st.sampled_from(used), unique=True, max_size=4))
    spec = f"{','.join(operands)}->{''.join(output)}"
    return spec, [tuple(sizes[c] for c in word) for word in operands], draw(st.integers(0, 999))


@given(einsums())
@settings(max_examples=40, deadline=None)
def test_a_drawn_einsum_by_a_drawn_config_equals_numpy(drawn):
    spec, shapes, seed = drawn
    rng = np.random.default_rng(seed)
    tensors = [lw.tensor(f"T{n}", shape) for n, shape in enumerate(shapes)]
    workload = lw.workload(lw.einsum(spec, *tensors))
    arrays = {t.name: rng.uniform(-1, 1, t.shape).astype(np.float32) for t in workload.inputs}
    library = lw.build(workload, lw.space(workload).sample(rng))
    result = library(*arrays.values())
    expected = np.einsum(spec, *(arrays[t.name].astype(np.float64) for t in tensors))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-3)
