"""Damage to what is read from disk, for fuzzers: changed values, flipped bits, cut texts."""

import copy
import json

import pytest

SHORT_AND_LONG = [400, pytest.param(20_000, marks=pytest.mark.slow)]
"""Numbers of mutations, of the suite and of --slow."""

_STRANGE = [
    None,
    True,
    0,
    -1,
    1,
    2**31,
    10**40,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "x" * 300,
    "../\0",
    "\ud800",
    [],
    {},
    [[[]]],
    {"a": None},
]


def _places(value):
    """Every container with every key, all the way down."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def changed(value, rng):
    """A copy of a JSON value with one place changed, taken away, or added."""
    made = copy.deepcopy(value)
    places = list(_places(made))
    where, key = places[rng.integers(len(places))]
    strange = copy.deepcopy(_STRANGE[rng.integers(len(_STRANGE))])
    kind = rng.integers(5)
    if kind == 0:
        del where[key]
    elif kind == 1 and isinstance(where, dict):
        where["another"] = strange
    elif kind == 2 and isinstance(where[key], int):
        where[key] = where[key] + int(rng.integers(-3, 4))
    elif kind == 3 and isinstance(where[key], list):
        where[key] *= 2
    else:
        where[key] = strange
    return made


def flipped(text, rng):
    """Bytes with one to four bits flipped."""
    made = bytearray(text)
    for _ in range(rng.integers(1, 5)):
        made[rng.integers(len(made))] ^= 1 << rng.integers(8)
    return bytes(made)


def damaged(value, rng):
    """The text of a JSON value that was changed, has flipped bits, or was cut short."""
    text = json.dumps(value if rng.integers(2) else changed(value, rng)).encode()
    kind = rng.integers(3)
    return (
        flipped(text, rng)
        if kind == 0
        else text[: rng.integers(len(text) + 1)]
        if kind == 1
        else text
    )
