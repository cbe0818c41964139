"""Architectures of public packages with random weights; the packages are used where installed."""

import importlib.util
import sys
from pathlib import Path

import pytest

from loopwright.graph.build import build_model
from loopwright.graph.compile.model import TunedModel

torch = pytest.importorskip("torch")
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from suites.architectures import TIMM, TRANSFORMERS, make  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]
NAMES = [*(f"timm:{n}" for n in TIMM), *(f"transformers:{n}" for n in TRANSFORMERS)]


def tensors(result):
    leaves = torch.utils._pytree.tree_leaves(result)
    return [x for x in leaves if isinstance(x, torch.Tensor)]


def called(model, inputs):
    with torch.no_grad():
        return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


@pytest.mark.parametrize("door", ["torch", "ONNX"])
@pytest.mark.parametrize("name", NAMES)
def test_an_architecture_computes_what_torch_does(name, door, tmp_path):
    if importlib.util.find_spec(name.partition(":")[0]) is None:
        pytest.skip(f"{name.partition(':')[0]} is not installed")
    network, inputs = make(name)
    wanted = tensors(called(network, inputs))
    if door == "torch":
        made = build_model(network, inputs, threads=2)
        assert isinstance(made, TunedModel)  # not on TVM's virtual machine
        found = tensors(called(made, inputs))
    else:
        path = tmp_path / "net.onnx"
        words = {"kwargs": inputs} if isinstance(inputs, dict) else {"args": inputs}
        try:
            torch.onnx.export(network, f=path, dynamo=True, **{"args": (), **words})
        except torch.onnx.OnnxExporterError as error:
            pytest.skip(f"torch's exporter fails: {str(error).splitlines()[0]}")
        values = list(inputs.values()) if isinstance(inputs, dict) else inputs
        made = build_model(path, tuple(values), threads=2)
        assert isinstance(made, TunedModel)
        found = tensors(made(*values))
    assert not made.work.fallback
    for ours, theirs in zip(found, wanted, strict=True):
        scale = float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * max(scale, 1e-3))
