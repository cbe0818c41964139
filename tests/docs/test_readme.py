"""The numbers of the README are those of the page that has the commands."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def rows(path):
    return [line for line in (ROOT / path).read_text().splitlines() if line.startswith("|")]


def test_the_table_of_the_readme_is_one_of_the_benchmarks():
    shown, known = rows("README.md"), "\n".join(rows("docs/benchmarks.md"))
    assert len(shown) == 3
    assert "\n".join(shown) in known


def test_the_readme_is_shorter_than_a_hundred_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) < 100


def test_the_changelog_of_the_first_version_is_short():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert 0 < len([line for line in text.splitlines() if line.startswith("- ")]) <= 15


def test_no_page_links_to_the_lab():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        if not {"lab", "generated"} & set(page.relative_to(ROOT).parts):
            assert not re.search(r"\]\([^)]*lab/", page.read_text()), page
