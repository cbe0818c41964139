"""The numbers of the README are those of the page that has the commands."""

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
