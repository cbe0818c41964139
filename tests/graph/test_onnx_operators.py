"""ONNX's own tests of its operators: what onnxruntime passes we pass, and no result is another."""

import contextlib
import functools
import io

import numpy as np
import pytest

from loopwright.dsl.dtypes import epsilon
from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.onnx

STRIDE = 47
"""Every so many cases are in the fast suite, all of them in the slow one."""
OPEN = ("nonmaxsuppression", "nonzero", "unique")
"""Operators that may be refused: the shapes of their results depend on data."""
OTHERWISE = (
    "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_align_corners",
)
"""Cases of which onnxruntime and torch say something else."""


@functools.cache
def cases():
    from onnx.backend.test.case.node import collect_testcases

    with contextlib.redirect_stdout(io.StringIO()):
        return {case.name: case for case in collect_testcases(None)}


def names():
    try:
        return sorted(cases())
    except ImportError:
        return []


def check(name):
    """Compare a case with what it wants; skip what onnxruntime does not pass, if it is refused."""
    case = cases()[name]
    inputs, wanted = case.data_sets[0]
    values = [*case.model.graph.input, *case.model.graph.output]
    if not all(v.type.HasField("tensor_type") for v in values):
        pytest.skip("it takes sequences or optionals")
    inputs, wanted = [as_array(x) for x in inputs], [as_array(y) for y in wanted]
    if any(x.dtype.kind not in "biufV" for x in inputs) or name.startswith("test_ai_onnx_ml"):
        pytest.skip("it is of another domain, or of strings")
    others = not passes(case, inputs, wanted)
    given = dict(zip((v.name for v in case.model.graph.input), inputs))
    try:
        made = build_model(case.model, given, threads=1, check=False)
    except ModelError as reason:
        if others:
            pytest.skip(f"onnxruntime does not pass it, and it is refused: {reason}")
        if not any(word in name for word in OPEN):
            raise
        return
    found = made(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    assert same(case, found, wanted) or name in OTHERWISE


def as_array(x):
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(x) if isinstance(x, TensorProto) else np.asarray(x)


def passes(case, inputs, wanted):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            case.model.SerializeToString(), options, ["CPUExecutionProvider"]
        )
        given = dict(zip((x.name for x in session.get_inputs()), inputs))
        return same(case, session.run(None, given), wanted)
    except Exception:  # noqa: BLE001 - of many kinds: it does not know the operator, or the type
        return False


def same(case, found, wanted):
    """Return whether results are near those wanted; halves may be two units of the last place off,
    since the steps in between are rounded, too."""
    for a, b in zip(found, wanted, strict=True):
        if np.shape(a) != b.shape or np.asarray(a).dtype != b.dtype:
            return False
        rtol = max(case.rtol or 0, 1e-3, 2 * epsilon(str(b.dtype)))
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if not np.allclose(a, b, rtol, max(case.atol or 0, 1e-5), equal_nan=True):
            return False
    return True


@pytest.mark.parametrize("name", names()[::STRIDE])
def test_an_operator_computes_what_onnx_says(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for k, n in enumerate(names()) if k % STRIDE])
def test_every_other_operator_computes_what_onnx_says(name):
    check(name)
