"""ONNX's own tests of its operators: what onnxruntime passes we pass, and no result is another."""

import contextlib
import functools
import importlib
import io
from pathlib import Path

import numpy as np
import pytest

from loopwright.dsl.dtypes import epsilon
from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.onnx

OPEN = ("nonmaxsuppression", "nonzero", "unique")
"""Operators that may be refused: the shapes of their results depend on data."""
OTHERWISE = (
    "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_align_corners",
)
"""Cases of which onnxruntime and torch say something else."""


def modules():
    """Modules of ONNX's test cases, about one an operator; importing one computes its cases."""
    if importlib.util.find_spec("onnx") is None:
        return []
    folder = Path(importlib.util.find_spec("onnx").origin).parent / "backend/test/case/node"
    return sorted(p.stem for p in folder.glob("*.py") if p.stem[0] != "_")


@functools.cache
def cases(module):
    """Test cases of a module."""
    from onnx.backend.test.case import node

    before = len(node._NodeTestCases)
    with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        importlib.import_module(f"{node.__name__}.{module}")
    return tuple(node._NodeTestCases[before:])


def is_right(case):
    """Return whether a case gives what it wants, or is refused for a reason: it is of another
    domain, or onnxruntime does not pass it either."""
    inputs, wanted = case.data_sets[0]
    values = [*case.model.graph.input, *case.model.graph.output]
    if not all(v.type.HasField("tensor_type") for v in values):
        return True  # sequences or optionals
    inputs, wanted = [as_array(x) for x in inputs], [as_array(y) for y in wanted]
    if any(x.dtype.kind not in "biufV" for x in inputs):
        return True  # strings
    given = dict(zip((v.name for v in case.model.graph.input), inputs))
    try:
        made = build_model(case.model, given, threads=1, check=False)
    except ModelError:
        return any(word in case.name for word in OPEN) or not passes(case, inputs, wanted)
    found = made(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    return same(case, found, wanted) or case.name in OTHERWISE


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


@pytest.mark.sampled(0.2, every_value=False)
@pytest.mark.parametrize("module", modules())
def test_an_operator_computes_what_onnx_says(module):
    found = cases(module)
    if found:
        assert is_right(found[len(found) // 2])


@pytest.mark.slow
@pytest.mark.parametrize("module", modules())
def test_operators_compute_what_onnx_says_in_every_case(module):
    assert [case.name for case in cases(module) if not is_right(case)] == []
