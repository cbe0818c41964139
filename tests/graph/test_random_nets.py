"""Random small networks against onnxruntime: views in chains, outputs that are inputs, twice."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import loopwright as lw

pytest.importorskip("onnx")
from tests.graph.random_nets import drawn_net

pytestmark = pytest.mark.onnx
CLOSE = {2: 2e-2, 4: 2e-4, 8: 1e-9}
"""The largest error beside the largest result, by the bytes of a floating element."""


def check_near(got, wanted):
    """Check results against wanted ones, dtypes and shapes too."""
    got = got if isinstance(got, (tuple, list)) else [got]
    for a, b in zip(got, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        close = CLOSE[b.itemsize]
        most = max(1, np.abs(b).max(initial=0).astype(np.float64))
        np.testing.assert_allclose(a / most, b / most, rtol=close, atol=close)


def check_net(seed, path, most=14):
    """Check a network that is called, called again, by two threads, exported and loaded."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model, net = drawn_net(seed, most)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    first = list(net.inputs.values())
    second = [net.array(x.shape, x.dtype) for x in first]
    wanted = [session.run(None, dict(zip(net.inputs, x))) for x in (first, second)]
    layout = ("auto", "given")[seed // 2 % 2]
    compiled = lw.build_model(model, threads=1 + seed % 2, layout=layout, check=False)
    given = [x.copy() for x in first]
    results = compiled(*given)
    check_near(compiled(*second), wanted[1])
    check_near(results, wanted[0])  # after another call, which must not write into them
    for a, b in zip(given, first, strict=True):
        np.testing.assert_array_equal(a, b)
    if seed % 5:
        return
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(compiled, *x) for x in (first, second) * 5]
    for n, call in enumerate(calls):
        check_near(call.result(), wanted[n % 2])
    compiled.export(path / "net.so")
    check_near(lw.load(path / "net.so")(*second), wanted[1])


@pytest.mark.parametrize("seed", range(12))
def test_a_random_network_computes_what_onnxruntime_says(seed, tmp_path):
    check_net(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_a_longer_random_network_computes_what_onnxruntime_says(seed, tmp_path):
    check_net(seed, tmp_path, most=40)
