"""Manifests that were changed: no library is called by another signature than its own."""

import hashlib
import json

import numpy as np
import pytest

from loopwright.codegen.load import load
from loopwright.dsl.errors import LibraryError
from tests.codegen import kernels
from tests.mutations import SHORT_AND_LONG, changed, damaged


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    extra = {"note": ['"??=\\', 1.5, None], "numerics": "standard"}
    lib = kernels.matmul(packed=True, extra=extra, target="a test")
    return lib.export(tmp_path_factory.mktemp("manifest") / "matmul.so")


@pytest.fixture
def manifest(exported):
    where = exported.with_suffix(".json")
    text = where.read_bytes()
    yield json.loads(text)
    where.write_bytes(text)


def write(exported, manifest):
    exported.with_suffix(".json").write_text(json.dumps(manifest))


def test_an_output_smaller_than_what_the_kernel_writes_is_refused(exported, manifest):
    manifest["signature"]["outputs"][0]["shape"][0] = 1
    write(exported, manifest)
    said = r"matmul\.json .*signature\.outputs\[0\]\.shape\[0\] is 1, .* was made with 24; export"
    with pytest.raises(LibraryError, match=said):
        load(exported)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m["signature"].pop("threads"), "the field signature.threads is missing"),
        (lambda m: m["signature"].update(threads=True), "signature.threads is true"),
        (lambda m: m["target"].update(triple=[]), r"target.triple is \[\]"),
        (lambda m: m["target"].update(cpu_features=7), r"target.cpu_features is 7"),
        (lambda m: m.update(extra=None), "extra is null"),
        (lambda m: m.update(gpu={"arch": 1}), 'has the unknown field "gpu"'),
        (lambda m: m.update(sha256=[1]), "the field sha256"),
        (lambda m: m.update(format=2), "the field format must be 'loopwright-library'"),
        (lambda m: m.update(schema=2.0), "has schema 2.0, this version of Loopwright reads 2"),
    ],
)
def test_a_field_that_was_changed_is_named(exported, manifest, change, said):
    change(manifest)
    write(exported, manifest)
    with pytest.raises(LibraryError, match=said):
        load(exported)


def test_a_manifest_that_is_nested_too_deeply_is_refused(exported, manifest):
    for depth in (900, 1000, 100_000):
        text = json.dumps(manifest)[:-1] + ', "deep": ' + "[" * depth + "]" * depth + "}"
        exported.with_suffix(".json").write_text(text)
        with pytest.raises(LibraryError, match="damaged"):
            load(exported)


def test_a_manifest_inside_that_was_damaged_is_refused(exported, manifest, tmp_path):
    """Though the hash beside it was made to agree."""
    code = exported.read_bytes().replace(b"loopwright-manifest:{", b"loopwright-manifest:[")
    path = tmp_path / "matmul.so"
    path.write_bytes(code)
    write(path, manifest | {"sha256": hashlib.sha256(code).hexdigest()})
    with pytest.raises(LibraryError, match="the manifest inside is"):
        load(path)


def test_spaces_and_the_order_of_fields_do_not_matter(exported, manifest):
    text = json.dumps(dict(reversed(manifest.items())), indent=7)
    exported.with_suffix(".json").write_text(text)
    assert load(exported).origin.extra["note"] == ['"??=\\', 1.5, None]


@pytest.mark.parametrize("count", SHORT_AND_LONG)
def test_a_manifest_changed_at_random_is_refused_or_means_the_same(exported, manifest, count):
    rng = np.random.default_rng(1)
    signature = load(exported).signature
    refused = 0
    for number in range(count):
        text = damaged(manifest, rng)
        exported.with_suffix(".json").write_bytes(text)
        try:
            assert load(exported).signature == signature, (number, text)
        except LibraryError:
            refused += 1
    assert refused > count / 2


def test_changes_of_the_fuzzer_are_changes():
    rng, value = np.random.default_rng(0), {"a": [1, {"b": "c"}], "d": None}
    texts = {json.dumps(changed(value, rng)) for _ in range(200)}
    assert len(texts) > 50
    assert value == {"a": [1, {"b": "c"}], "d": None}
