"""Cases for the fast suite, and the rest for the slow one."""

import pytest


def thinned(cases, keep=2):
    """Every so many of the cases as they are, the others marked slow."""
    return [
        case if number % keep == 0 else pytest.param(*_parts(case), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def _parts(case):
    return case if isinstance(case, tuple) else (case,)
