"""Many tuners on one store, and a server that is killed under them: nothing is lost or doubled."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from loopwright.transfer.records.store import RecordStore
from tests import interpreter

ROOT = Path(__file__).parents[2]

TUNER = """
import json, sys
import loopwright.explore.session
from tests.explore.synthetic import MadeUp
from tests.explore.test_tune import run

loopwright.explore.session._STORE_EVERY = 0.0
place, number, trials = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

class Own(MadeUp):
    def fingerprint(self):
        return {"processor": f"made up {number}"}

device = Own()
input()
tuned = run(device, records=place, seed=number, trials=trials, strategy="random")
measured = [json.dumps(config.to_json()) for config in device.measured]
print(json.dumps({
    "session": tuned.record.session.partition("/")[0],
    "measured": measured,
    "notes": [*tuned.notes],
    "best": [tuned.record.id, tuned.config.to_json()],
}))
"""


def start(place, number, trials):
    return subprocess.Popen(
        [sys.executable, "-c", TUNER, str(place), str(number), str(trials)],
        cwd=ROOT,
        env=interpreter.environment(OPENBLAS_NUM_THREADS="1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def tuned_at_once(place, tuners, trials, meanwhile=lambda store: None):
    """What each of several tuners, which begin together, says in the end."""
    running = [start(place, number, trials) for number in range(tuners)]
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    with RecordStore(place) as store:
        meanwhile(store)
    ends = [process.communicate(timeout=500)[0] for process in running]
    assert [process.returncode for process in running] == [0] * tuners
    return [json.loads(end.splitlines()[-1]) for end in ends]


def check(place, found, trials):
    with RecordStore(place, create=False) as store:
        stored = list(store)
        assert [r.id for r in stored] == list(range(1, len(stored) + 1))
        for number, tuner in enumerate(found):
            assert not [n for n in tuner["notes"] if "lock" in n or "stored" in n]
            here = {"processor": f"made up {number}"}
            own = [r for r in stored if r.machine == here]
            search = [json.dumps(r.config.to_json()) for r in own if r.session == tuner["session"]]
            assert search == tuner["measured"][: len(search)], "lost, doubled or out of order"
            assert {r.config for r in own if r.session != tuner["session"]} <= {
                r.config for r in own if r.session == tuner["session"]
            }
            assert len(search) == trials
            number_of_best, config = tuner["best"]
            assert store.get(number_of_best).config.to_json() == config
        again = Counter(
            (r.session, str(r.config), r.created, r.seconds, str(r.machine)) for r in stored
        )
        assert max(again.values()) == 1


@pytest.mark.slow
def test_four_tuners_share_a_file(tmp_path):
    found = tuned_at_once(tmp_path / "r.db", 4, 300)
    check(tmp_path / "r.db", found, 300)


@pytest.mark.slow
@pytest.mark.postgresql
def test_eight_tuners_share_a_server_that_is_killed_under_them(cluster):
    def kill_thrice(store):
        for share in (0.2, 0.4, 0.6):
            while len(store) < share * 8 * 300:
                pass
            cluster.kill()
            cluster.start()

    found = tuned_at_once(cluster.url(), 8, 300, kill_thrice)
    check(cluster.url(), found, 300)
