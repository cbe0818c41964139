"""What is said of a machine that is to leave."""

import re
from types import SimpleNamespace

import pytest

from loopwright.measure.fleet import nodes


@pytest.mark.parametrize(
    ("asked", "words"), [(1, "has left"), (2, "has left"), (3, "Ray keeps its node.*`ray stop`")]
)
def test_a_node_has_left_when_ray_has_it_no_more(monkeypatch, asked, words):
    """Ray lets it leave when it is asked for the `asked` time."""
    asks, removed = [], []
    node = {"NodeID": "1", "Resources": {}}
    context = SimpleNamespace(gcs_address="head:1")
    ray = SimpleNamespace(nodes=lambda: [node], get_runtime_context=lambda: context)
    monkeypatch.setattr(nodes, "ray_package", lambda: ray)
    monkeypatch.setattr(nodes, "_LEAVES", (0.0, 0.0))
    monkeypatch.setattr(nodes, "leave", lambda *_: asks.append(1) or True)
    fleet = SimpleNamespace(
        ask_all=lambda calls: {"": {"for": ""}},
        control=lambda actor, do: None,
        nodes=lambda: {} if len(asks) >= asked else {"vm": "1"},
        remove=removed.append,
    )
    monkeypatch.setattr(nodes, "cluster", fleet)
    assert re.search(words, nodes.drained("vm", None, 0.0))
    assert removed == ["vm"]
    assert len(asks) == min(asked, 2)
