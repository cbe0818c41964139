"""The page's table of ONNX operators."""

from pathlib import Path

import pytest

from loopwright.graph.importers.onnx.call import LIMITS, OPERATORS
from loopwright.graph.importers.onnx.table import main, table

pytestmark = pytest.mark.onnx
PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_page_has_the_table_that_the_rules_give():
    assert table() in PAGE.read_text(), (
        "python -m loopwright.graph.importers.onnx.table docs/models.md"
    )


def test_every_rule_is_in_the_table():
    rows = [row for row in table().splitlines() if row.startswith("|")]
    named = {name.strip() for row in rows for name in row.split("|")[2].split(",")}
    assert set(OPERATORS) <= named


def test_limits_are_of_rules():
    assert set(LIMITS) <= set(OPERATORS)


def test_a_page_is_written_anew_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text().replace(table(), "old"))
    main(str(page))
    assert page.read_text() == PAGE.read_text()
