"""`loopwright model`."""

import pytest
from click.testing import CliRunner

from loopwright.cli.model import model
from loopwright.costmodel import TimeModel
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.file import load_model
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.source.model import SourceModel
from tests.costmodel.records import data


@pytest.fixture
def run(tmp_path):
    """Runs a command over a saved model; its exit code and output."""
    saved = GBTModel(reads="config")
    saved.fit(*data(60))
    saved.about |= {"machine": "a typewriter", "targets": {"cpu": 2}, "probe": [1.0, 2.5] * 5}
    saved.save(tmp_path / "model.json")
    (tmp_path / "broken.json").write_text((tmp_path / "model.json").read_text()[:-9])

    def invoke(*args):
        result = CliRunner().invoke(model, [args[0], str(tmp_path / args[1]), *args[2:]])
        return result.exit_code, result.output

    return invoke


def test_a_card_says_what_a_model_is_and_what_it_learned_from(run):
    code, output = run("show", "model.json")
    assert code == 0
    lines = dict(line.split(":", 1) for line in output.splitlines() if ":" in line[:14])
    assert lines["model"].strip() == "120 boosted trees, rank objective"
    assert lines["reads"].strip() == "config"
    assert [lines[n].strip() for n in ("records", "failures", "groups")] == ["60", "0", "2"]
    assert lines["machine"].strip() == "a typewriter"
    assert lines["targets"].strip() == "cpu: 2"
    assert lines["probe"].strip() == "10 entries"


def test_a_card_lists_the_features_that_matter_most_first(run):
    _, output = run("show", "model.json", "--features", "3")
    shares = [float(word[:-1]) for word in output.split() if word.endswith("%")]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)
    assert "feature 0" in output
    assert "importance" not in run("show", "model.json", "--features", "0")[1]


def test_a_damaged_file_is_an_error_with_a_remedy(run):
    code, output = run("show", "broken.json")
    assert code == 1
    assert "broken.json is no model file, or cut short" in output
    assert "get or save it again" in output


def test_a_source_model_has_a_card(tmp_path):
    file = tmp_path / "source.json"
    SourceModel("trees").fit(["int a;", "float b;"], ["CPU", "GPU"]).save(file)
    result = CliRunner().invoke(model, ["show", str(file)])
    assert result.exit_code == 0
    assert "source model of trees, for texts in opencl" in result.output
    assert "CPU, GPU" in result.output


def test_a_file_of_another_kind_says_what_reads_it(tmp_path):
    file = tmp_path / "time.json"
    TimeModel(["m"]).fit([[1], [2]], [1.0, 2.0]).save(file)
    with pytest.raises(ModelError, match=r"a time model, .*TimeModel\.load reads it"):
        load_model(file)
    SourceModel("trees").fit(["int a;", "float b;"], ["CPU", "GPU"]).save(file)
    with pytest.raises(ModelError, match=r"a source model, .*SourceModel\.load reads it"):
        load_model(file)


@pytest.mark.parametrize("words", [["show"], ["eval"], ["train", "--base"], ["train", "--beside"]])
def test_every_option_for_a_model_takes_the_name_of_a_shipped_one(words):
    result = CliRunner().invoke(model, [*words, "x86-avx"])
    assert result.exit_code == 2
    assert "x86-avx2, x86-avx512, x86-sequence" in " ".join(result.output.split())


def test_a_shipped_model_goes_by_its_name():
    result = CliRunner().invoke(model, ["show", "x86-avx2", "--features", "2"])
    assert result.exit_code == 0
    assert "x86-avx2.json" in result.output
    assert result.output.count("%") == 2
