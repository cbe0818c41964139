"""The light models of the onnx package: their answers are known."""

from pathlib import Path

import numpy as np
import pytest

from loopwright.graph.build import build_model

pytestmark = [pytest.mark.onnx, pytest.mark.slow]

NAMES = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip


def read(name):
    """A model of the collection, the input that onnx's own runner gives it, and the answer."""
    import onnx
    import onnx.backend.test
    from onnx import numpy_helper

    folder = Path(onnx.backend.test.__file__).parent / "data" / "light"
    model = onnx.load(folder / f"light_{name}.onnx")
    known = {tensor.name for tensor in model.graph.initializer}
    (value,) = (v for v in model.graph.input if v.name not in known)
    shape = tuple(d.dim_value or 1 for d in value.type.tensor_type.shape.dim)
    size = int(np.prod(shape))
    x = (np.arange(size).reshape(shape) / size).astype(np.float32)
    answer = onnx.TensorProto()
    answer.ParseFromString((folder / f"light_{name}_output_0.pb").read_bytes())
    return model, x, numpy_helper.to_array(answer)


@pytest.mark.parametrize("name", NAMES)
def test_a_light_model_gives_its_reference_output(name):
    model, x, wanted = read(name)
    shape = {v.name: x.shape for v in model.graph.input if v.name not in _known(model)}
    np.testing.assert_allclose(build_model(model, shape)(x), wanted, rtol=1e-3, atol=1e-6)


def _known(model):
    return {tensor.name for tensor in model.graph.initializer}
