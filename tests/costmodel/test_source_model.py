"""Models of sources: symbols, decisions, files."""

import gzip
import json

import numpy as np
import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.cli.model import model
from loopwright.costmodel.model import ModelError
from loopwright.costmodel.source.tokens import SYMBOLS, Vocabulary, symbols

COPY = "__kernel void {f}(__global float* {a}) {{ {a}[get_global_id(0)] = {n}; }}"


def corpus(count, seed=0):
    """Kernels with a loop, label "loop", and without one; names and numbers are random."""
    rng = np.random.default_rng(seed)
    sources, labels = [], []
    for at in range(count):
        text = COPY.format(f=f"kernel_{at}", a=f"buffer{rng.integers(99)}", n=rng.integers(1000))
        if at % 2:
            text = text.replace("{ ", f"{{ for (int i = 0; i < {rng.integers(99)}; ++i) ")
        sources.append(text)
        labels.append("loop" if at % 2 else "straight")
    return sources, labels


def test_names_do_not_matter_to_symbols():
    ours = symbols(COPY.format(f="saxpy", a="x", n=1), "opencl")
    theirs = symbols(COPY.format(f="other", a="long_name", n=1), "opencl")
    assert ours == theirs
    assert "".join(ours) == "__kernel void A(__global float* a) { a[get_global_id(0)] = 1; }"


def test_reserved_words_are_one_symbol_and_numbers_are_digits():
    assert symbols("float x = 128.5f;", "c") == ["float", " ", "a", " ", "=", " ", *"128.5f", ";"]


def test_comments_preprocessor_lines_and_white_space_do_not_matter():
    noisy = "#define N 3\nint  x; /* a\n comment */ // more\nx = 1;"
    assert "".join(symbols(noisy, "c")).split() == ["int", "a;", "a", "=", "1;"]
    assert symbols("a /* b */  c", "c") == ["a", " ", "b"]


def test_fields_of_vectors_keep_their_names():
    assert "".join(symbols("float4 v; v.xyz = v.w;", "opencl")) == "float4 a; a.xyz = a.w;"


def test_the_twenty_seventh_name_has_two_letters():
    text = " ".join(f"v{i}" for i in range(28))
    assert "".join(symbols(text, "c")).split()[-2:] == ["aa", "ab"]


def test_languages_reserve_their_own_words():
    assert symbols("threadIdx", "cuda") == ["threadIdx"]
    assert symbols("threadIdx", "opencl") == ["a"]
    with pytest.raises(ModelError, match="choose one of opencl, c, cuda"):
        symbols("", "fortran")


def test_a_vocabulary_has_at_most_128_symbols_and_the_rest_is_unknown():
    text = " ".join(chr(0x100 + i) for i in range(300))
    vocabulary = Vocabulary.of([text], "c")
    assert len(vocabulary.symbols) == SYMBOLS - 1
    encoded = vocabulary.encode(text)
    assert (encoded == 0).sum() > 100
    assert encoded.max() < SYMBOLS
    assert vocabulary.count([text, ""]).sum(axis=1).tolist() == [len(encoded), 0]


def test_symbols_run_as_often_as_the_loops_around_them():
    inner = "for (j = 0; j < n; j++) { c * d; } e - f;"
    text = f"a + b; for (int i = 0; i < 4; ++i) {{ {inner} }} g / h;"
    vocabulary = Vocabulary.whole("c")
    found = dict(zip(("?", *vocabulary.symbols), vocabulary.runs(text)))
    # The length of the inner loop is not known: ten.
    assert [found[s] for s in "+-*/"] == [1 + 2 + 2 * 4, 4, 40, 1]


def test_a_stray_brace_ends_nothing():
    vocabulary = Vocabulary.whole("c")
    assert vocabulary.runs("} } a + b;").sum() == len("} } a + b;")


@pytest.mark.parametrize("kind", ["trees", pytest.param("lstm", marks=pytest.mark.torch)])
def test_a_model_learns_from_text_and_its_file_predicts_the_same(kind, tmp_path, monkeypatch):
    if kind == "lstm":
        pytest.importorskip("torch")
        from loopwright.costmodel.source.lstm import LSTMClassifier

        monkeypatch.setattr(LSTMClassifier, "epochs", 7)
    sources, labels = corpus(130)
    auxiliary = np.arange(130.0)[:, None] % 7
    learned = lw.SourceModel(kind).fit(sources, labels, auxiliary, groups=np.arange(130) // 5)
    new, truth = corpus(20, seed=1)
    beside = np.zeros((20, 1))
    assert learned.predict(new, beside) == truth
    learned.save(tmp_path / "model.json")
    loaded = lw.SourceModel.load(tmp_path / "model.json")
    assert loaded.labels == ("loop", "straight")
    np.testing.assert_allclose(
        loaded.scores(new, beside), learned.scores(new, beside), rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(learned.scores(new, beside).sum(axis=1), 1, rtol=1e-5)


def test_labels_that_differ_in_a_last_zero_byte_are_two():
    learned = lw.SourceModel().fit(["int a;", "float x;"] * 9, ["a", "a\0"] * 9)
    assert learned.labels == ("a", "a\0")
    assert learned.predict(["int b;", "float y;"]) == ["a", "a\0"]


def test_weights_decide_between_labels_of_one_source():
    sources, labels = ["int a;"] * 40, [0, 1] * 20
    for heavy in (0, 1):
        weights = np.where(np.array(labels) == heavy, 3.0, 1.0)
        learned = lw.SourceModel().fit(sources, labels, weights=weights)
        assert learned.predict(["int b;"]) == [heavy]


@pytest.mark.parametrize("scale", [1e-320, 1e-6, 1e6, 1.7e308])
def test_only_the_ratios_of_weights_count(scale):
    sources, labels = ["int a;"] * 9 + ["float x;"] * 9, [0] * 9 + [1] * 9
    plain = lw.SourceModel().fit(sources, labels).scores(sources)
    scaled = lw.SourceModel().fit(sources, labels, weights=np.full(18, scale)).scores(sources)
    np.testing.assert_allclose(scaled, plain, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [1]}, "4 sources, 1 labels: give one for each"),
        ({"labels": [1] * 4}, "two or more kinds"),
        ({"labels": [0.5, 1.5] * 2}, r"labels\[0\] is float 0.5: give strings, integers"),
        ({"labels": ["a", None] * 2}, r"labels\[1\] is None: give strings, integers"),
        ({"labels": ["a", 1] * 2}, "labels of types int, str: give one of these"),
        ({"labels": [("a",), ("a", "b")] * 2}, r"labels\[0\] is tuple"),
        ({"labels": np.array(4)}, "labels are .*: give a list"),
        ({"sources": "abcd"}, "one text: give a list of texts"),
        ({"auxiliary": [1.0] * 4}, r"shape \(4, columns\)"),
        ({"auxiliary": [[np.nan]] * 4}, "finite"),
        ({"auxiliary": [[1e20]] * 4}, r"of at most 1e\+18"),
        ({"weights": [0.0] * 4}, "positive"),
        ({"weights": ["heavy"] * 4}, "weights are .*: give numbers"),
        ({"sources": None}, "sources are None: give a list of texts"),
        ({"sources": iter("abcd")}, "sources are .*: give a list of texts"),
        ({"sources": {"a", "b", "c", "d"}}, "sources are .*: give a list of texts"),
        ({"groups": [1]}, "4 sources, 1 groups: give one for each"),
        ({"groups": ["a", None] * 2}, r"groups\[1\] is None: give strings, integers"),
    ],
)
def test_data_that_do_not_fit_together_are_refused(change, message):
    data = {"sources": ["a"] * 4, "labels": [0, 1, 0, 1]}
    with pytest.raises(ModelError, match=message):
        lw.SourceModel().fit(**{**data, **change})


def test_a_model_refuses_to_predict_before_it_learned_and_with_other_columns(tmp_path):
    with pytest.raises(ModelError, match="fit it first"):
        lw.SourceModel().predict(["a"])
    with pytest.raises(ModelError, match="before saving"):
        lw.SourceModel().save(tmp_path / "model.json")
    with pytest.raises(ModelError, match="a source is 5: give the text of a kernel"):
        lw.SourceModel().fit(["float x;", 5], ["a", "b"])
    for kind in ("oak", ["trees"]):
        with pytest.raises(ModelError, match="choose one of trees, lstm"):
            lw.SourceModel(kind)
    with pytest.raises(ModelError, match="language 'fortran': choose one of opencl, c, cuda"):
        lw.SourceModel(language="fortran")
    with pytest.raises(ModelError, match="seed = 'x': give an integer of at least 0"):
        lw.SourceModel(seed="x")
    learned = lw.SourceModel().fit(["a", "b+"], [0, 1])
    with pytest.raises(
        ModelError, match=r"auxiliary numbers are .*'x'.*: give numbers, rows of one length"
    ):
        learned.predict(["a"], [["x"]])
    with pytest.raises(ModelError, match="1 auxiliary columns, but 0"):
        learned.predict(["a"], [[1.0]])
    assert learned.predict([]) == []
    with pytest.raises(ModelError, match="one text"):
        learned.predict("ab")
    assert learned.scores([]).shape == (0, 2)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "model.json"
    lw.SourceModel().fit(["a", "b+"], [0, 1]).save(path)
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "content": data["content"].replace("opencl", "cuda")}))
    with pytest.raises(ModelError, match="checksum"):
        lw.SourceModel.load(path)


@pytest.fixture
def table(tmp_path):
    """Path of a table whose sources are half in cells and half in files."""
    sources, labels = corpus(40)
    rows = ["src,oracle,program,bytes"]
    for at, (source, label) in enumerate(zip(sources, labels)):
        if at % 4 < 2:
            (tmp_path / f"{at}.cl").write_text(source)
            source = f"{at}.cl"
        rows.append(f'"{source}",{label},p{at // 4},{at}')
    path = tmp_path / "kernels.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def train(table, *options):
    output = table.parent / "model.json"
    command = ["train", "--table", str(table), "-o", str(output), *options]
    return CliRunner().invoke(model, command), output


def test_the_command_trains_from_a_table_and_says_how_right_it_is_for_new_groups(table):
    result, output = train(
        table, "--target", "oracle", "--group", "program", "--auxiliary", "bytes"
    )
    assert result.exit_code == 0, result.output
    assert "40 sources" in result.output
    assert "100.0 % of the labels are right where whole groups are held out" in result.output
    loaded = lw.SourceModel.load(output)
    sources, labels = corpus(8, seed=3)
    assert loaded.predict(sources, np.zeros((8, 1))) == labels


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "label"], "no column label; there are src, oracle, program, bytes"),
        (
            ["--target", "oracle", "--auxiliary", "program"],
            "column program is no finite number",
        ),
        ([], "--target"),
    ],
)
def test_the_command_says_what_is_wrong_with_a_table(table, options, message):
    result, _ = train(table, *options)
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("src,best\n", "has no row below its first line"),
        ("src,best\nint f(int a, int b),1\n", "row 2 has more cells than the first line: write"),
        ("src,best\na,1\nb\n", "row 3 has fewer cells"),
        ("src,best\na,1\nb,\n", "row 3 has no best"),
        ("src,src,best\na,b,1\n", "several columns src: rename"),
        ("src,best,n\na,1,3\nb,2,nan\n", "row 3: 'nan' in column n is no finite number"),
        ("src,best\na,1\nnone.cl,2\n", "row 3 names none.cl, which cannot be read"),
        (f"src,best\n{'x' * 200_000},1\n", "a long text may be a file beside it"),
        (gzip.compress(b"src,best\na,1\n" * 99, mtime=0)[:40], "cannot read the table"),
    ],
)
def test_a_broken_table_is_refused(text, message, tmp_path):
    table = tmp_path / ("t.csv" if isinstance(text, str) else "t.csv.gz")
    table.write_bytes(text.encode() if isinstance(text, str) else text)
    more = ["--auxiliary", "n"] if "nan" in str(text) else []
    result, output = train(table, "--target", "best", *more)
    assert isinstance(result.exception, SystemExit)
    assert message in " ".join(result.output.split())
    assert not output.exists()


def test_a_table_may_begin_with_the_mark_that_spreadsheets_write(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("src,best\nint a;,1\nfloat b;,2\n", encoding="utf-8-sig")
    result, _ = train(table, "--target", "best")
    assert "learned from 2 sources" in result.output


def test_options_of_tables_need_a_table():
    result = CliRunner().invoke(model, ["train", "--target", "oracle"])
    assert result.exit_code == 2
    assert "--table" in result.output


def test_options_of_records_are_refused_beside_a_table(table):
    result, output = train(table, "--target", "oracle", "--model", "mlp", "--targets", "all")
    assert result.exit_code == 2
    assert "--targets, --model" in " ".join(result.output.split())
    assert not output.exists()
