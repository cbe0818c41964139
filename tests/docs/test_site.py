"""The pages of the site that are made of the code."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import loopwright as lw
from loopwright.schedule.registry import REWRITES

EXTENSIONS = Path(__file__).parents[2] / "docs/extensions"


def extension(name):
    spec = importlib.util.spec_from_file_location(name, EXTENSIONS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "module"),
    [
        ("loopwright", lw),
        ("loopwright.ops", lw.ops),
        ("loopwright.costmodel", lw.costmodel),
        ("loopwright.graph", lw.graph),
    ],
)
def test_the_reference_has_every_public_name(page, module):
    lines = extension("pages").namespace_page(page).splitlines()
    shown = {line.rsplit(" ", 1)[1] for line in lines if line.startswith(".. auto")}
    assert shown == set(module.__all__) - {"__version__", "costmodel", "graph", "ops"}


def test_every_rewrite_has_a_page_and_old_pages_go(tmp_path):
    (tmp_path / "rewrite-gone.md").write_text("# gone\n")
    extension("pages").written(tmp_path)
    pages = {path.stem for path in tmp_path.glob("rewrite-*.md")}
    assert pages == {f"rewrite-{rewrite.name}" for rewrite in REWRITES}
    assert "Chellapilla" in (tmp_path / "rewrite-im2col.md").read_text()


TUTORIALS = sorted((EXTENSIONS.parent / "tutorials").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_is_a_notebook_with_every_block_and_links_into_the_site(page):
    made = extension("notebooks").notebook(page)
    cells = json.loads(made)["cells"]
    found = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    blocks = re.findall(r"^```(python|sh)\n(.*?)\n```$", page.read_text(), re.M | re.S)
    shells = ["%%sh\n" if language == "sh" else "" for language, _ in blocks]
    assert found == [shell + code for shell, (_, code) in zip(shells, blocks, strict=True)]
    for place in re.findall(r"\]\(([^)]+)\)", "".join(str(c["source"]) for c in cells)):
        path = place.removeprefix("../").partition("#")[0]
        source = Path(path).with_suffix(".md") if path.endswith(".html") else Path(path).name
        assert (EXTENSIONS.parent / source).exists(), place
    assert made == extension("notebooks").notebook(page)
    assert f"notebooks/{page.stem}.ipynb" in (EXTENSIONS.parent / "index.md").read_text()


def test_docstrings_become_restructured_text():
    lines = extension("docstrings").rest(
        [
            "A sum of `x`s.",
            "",
            "    C += A * B",
            "",
            "Attributes",
            "----------",
            "n: 2*k",
            "",
            "End",
        ]
    )
    assert lines == [
        "A sum of \\ ``x``\\ s.",
        "",
        "",
        "::",
        "",
        "    C += A * B",
        "",
        "",
        ".. rubric:: Attributes",
        "",
        "",
        "- ``n``: 2\\*k",
        "",
        "End",
        "",
    ]
