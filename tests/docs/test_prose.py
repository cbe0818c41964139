"""The check of the documents' prose."""

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools/prose.py"
spec = importlib.util.spec_from_file_location("prose", TOOL)
prose = importlib.util.module_from_spec(spec)
spec.loader.exec_module(prose)


def test_a_sentence_of_more_than_forty_words_is_a_fault_and_one_of_forty_is_none():
    assert list(prose.faults("word " * 39 + "end.")) == []
    (fault,) = prose.faults("First one. " + "word " * 40 + "end.")
    assert fault.startswith("41 words")


def test_lists_tables_and_code_are_no_part_of_a_sentence():
    words = "word " * 30
    assert list(prose.faults(f"{words}\n- {words}\n- {words}\n\n```\n{words * 2}\n```\n")) == []
    assert list(prose.faults(f"| {words * 2} |\n  | {words * 2} |\n")) == []


def test_a_word_that_the_glossary_replaced_is_a_fault():
    assert list(prose.faults("The champion wins.")) == ["'champion': say 'incumbent'"]


def test_the_documents_have_no_faults():
    assert [f for page in prose.pages() for f in prose.faults(page.read_text())] == []
