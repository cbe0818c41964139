"""Which cases of large families run in the fast suite."""

from types import SimpleNamespace

import pytest

from tests.sampling import sampled


class Item(SimpleNamespace):
    """As much of a test as sampling looks at."""

    __hash__ = object.__hash__

    def get_closest_marker(self, name):
        return self.marks.get(name)


def family(function, *parameters, share=0.25, **options):
    """A test function with all combinations of parameters, each a name and its values."""
    cases = [{}]
    for name, values in parameters:
        cases = [{**case, name: value} for case in cases for value in values]
    marker = pytest.mark.sampled(share, **options).mark
    return [
        Item(
            nodeid=f"{function}[{'-'.join(map(str, case.values()))}]",
            path="test_file.py",
            originalname=function,
            marks={"sampled": marker},
            callspec=SimpleNamespace(params=case),
        )
        for case in cases
    ]


def names(items):
    return {item.nodeid for item in items}


SEVEN = ("a", range(7))
FIVE = ("b", "vwxyz")


def test_a_share_runs_in_which_every_value_occurs():
    kept = sampled(family("f", SEVEN, FIVE))
    assert len(kept) == 9
    assert {k.callspec.params["a"] for k in kept} == set(range(7))
    assert {k.callspec.params["b"] for k in kept} == set("vwxyz")


def test_it_is_the_same_share_in_whatever_order_tests_are_collected():
    once, again = family("f", SEVEN, FIVE), family("f", SEVEN, FIVE)[::-1]
    assert names(sampled(once)) == names(sampled(again))


def test_functions_of_a_file_share_the_values_of_a_parameter():
    items = [*family("f", SEVEN), *family("g", SEVEN), *family("h", SEVEN), *family("i", SEVEN)]
    kept = sampled(items)
    assert {k.callspec.params["a"] for k in kept} == set(range(7))
    assert len(kept) == 8
    assert {k.originalname for k in kept} == set("fghi")


def test_values_without_a_name_occur_once_each():
    objects = ("c", [[], [], {}])
    kept = sampled(family("f", SEVEN, objects, share=0.01))
    assert len(kept) == 8
    assert len({id(k.callspec.params["c"]) for k in kept}) == 3


def test_a_single_parameter_is_covered_unless_that_is_not_wanted():
    assert len(sampled(family("f", SEVEN))) == 7
    assert len(sampled(family("f", SEVEN, every_value=False))) == 2
    assert len(sampled(family("f", SEVEN, share=0.01, every_value=False))) == 1


def test_what_is_slow_does_not_run_and_stands_for_no_value():
    items = family("f", SEVEN)
    for item in items[:3]:
        item.marks["slow"] = pytest.mark.slow.mark
    assert {k.callspec.params["a"] for k in sampled(items)} == set(range(3, 7))


def test_what_is_not_marked_or_has_no_parameters_runs():
    plain = Item(nodeid="f", path="test_file.py", marks={})
    alone = Item(nodeid="g", path="test_file.py", marks={"sampled": pytest.mark.sampled(0.1).mark})
    assert sampled([plain, alone]) == {plain, alone}
