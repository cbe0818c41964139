"""The examples of the notation's page are doctests."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/concepts/notation.md"


def test_every_example_of_the_notation_gives_what_the_page_says():
    text = PAGE.read_text().replace("```pycon\n", "\n").replace("```\n", "\n")
    found = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    said = []
    results = doctest.DocTestRunner(verbose=False).run(found, out=said.append)
    assert results.failed == 0, "".join(said)
    assert text.count("value(") >= 30
