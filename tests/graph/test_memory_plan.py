from hypothesis import given
from hypothesis import strategies as st

from loopwright.codegen.library.plan import ALIGNMENT
from loopwright.graph.compile.memory_plan import Lifetime, place

_LIVES = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 9), st.integers(0, 9)), max_size=12
)


@given(_LIVES)
def test_arrays_that_live_together_never_share_a_byte(drawn):
    lives = [Lifetime(k, n, min(a, b), max(a, b)) for k, (n, a, b) in enumerate(drawn)]
    offsets, size = place(lives)
    for one in lives:
        assert offsets[one.key] % ALIGNMENT == 0
        assert offsets[one.key] + one.nbytes <= size
        for other in lives[: one.key]:
            together = one.first <= other.last and other.first <= one.last
            low, high = sorted((one, other), key=lambda x: offsets[x.key])
            if together:
                assert offsets[low.key] + low.nbytes <= offsets[high.key]


def test_arrays_that_never_meet_share_one_place():
    offsets, size = place([Lifetime(0, 100, 0, 1), Lifetime(1, 100, 2, 3)])
    assert offsets == {0: 0, 1: 0}
    assert size == 128


def test_arrays_that_share_memory_have_their_middles_in_one_place():
    """A core then writes where no other one has written."""
    sizes = (4096, 1024, 2048, 512)
    offsets, size = place([Lifetime(k, n, k, k + 1) for k, n in enumerate(sizes)])
    middles = [offsets[k] + n // 2 for k, n in enumerate(sizes)]
    assert middles[0] == middles[2]
    assert middles[1] == middles[3]
    assert size == 4096 + 1024


def test_memory_is_not_spent_for_that():
    """Two arrays that live together fit where a large one was."""
    lives = [Lifetime(0, 4096, 0, 1), Lifetime(1, 2048, 2, 3), Lifetime(2, 2048, 2, 3)]
    offsets, size = place(lives)
    assert size == 4096
    assert sorted(offsets.values()) == [0, 0, 2048]
