"""Workers whose GPU context a candidate broke are retired, and the innocent measured again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from loopwright.measure.builder import Built, Task
from loopwright.measure.device import Failure
from loopwright.measure.runner import Data, Runner
from loopwright.measure.timing import Timing
from loopwright.measure.workers.messages import Message
from loopwright.measure.workers.process import Reply
from loopwright.schedule.target import Gpu, Target
from tests.measure import faults

LOST = Failure("crash", "CUDA_ERROR_ILLEGAL_ADDRESS (700)")

LEAST = {b"slow": 7e-3}
"""Seconds of a call, where that is not a millisecond."""


@dataclass
class Worker:
    """Lives on after a fault, but its context does not."""

    answers: int = 0
    lost: bool = False
    spoilt: bool = False
    loaded: dict[int, bytes] = field(default_factory=dict)

    def answer(self, message: Message) -> Reply:
        self.answers += 1
        asked = message.header
        code = bytes(message.blobs[0]) if asked["do"] in ("run", "load") else b""
        if asked["do"] == "load":
            self.loaded[asked["slot"]] = code
        if asked["do"] == "sample":
            code = self.loaded[asked["slot"]]
        failed = self.lost or code == b"faulty" or (self.spoilt and code == b"good")
        self.spoilt |= code == b"spoils others"
        self.lost = failed or code == b"harmful"  # found out by the next one
        if failed:
            return Reply(Message({"failure": LOST.to_json()}), LOST, 0.0)
        seconds = (1e-3,) if asked["do"] == "run" else 1e-3
        told = {"seconds": seconds, "spent": 1e-3, "least": LEAST.get(code, 1e-3)}
        return Reply(Message(told), None, 0.0)


class Workers:
    """Stands for a pool of one."""

    def __init__(self):
        self.workers, self.hired, self.sampled, self.lengths = [], 0, [], set()
        self.most = math.inf  # answers of one worker

    def start(self):
        if not self.workers:
            self.workers.append(Worker())
            self.hired += 1

    def map(self, jobs):
        asked = [job.message.header for job in jobs]
        self.sampled += [a["slot"] for a in asked if a["do"] == "sample"]
        self.lengths |= {a["length"] for a in asked if a["do"] == "sample"}
        replies = [self.workers[0].answer(job.message) for job in jobs]
        if self.workers[0].answers >= self.most:
            self.dismiss()
            self.start()
        return replies

    def dismiss(self):
        self.workers.clear()


@pytest.fixture
def workers():
    return Workers()


@pytest.fixture
def data():
    target = Target("cuda", gpu=Gpu(arch="sm_80"))
    return Data(Task(faults.workload(), target), 0, (), (0.0, 0.0), 1.0)


def run(workers, data, *codes):
    runner = Runner(workers)
    return [runner.run(data, Built(code, {}, None, 0.0), Timing()).failure for code in codes]


def test_a_faulty_kernel_fails_alone(workers, data):
    assert run(workers, data, b"good", b"faulty", b"good") == [None, LOST, None]
    assert workers.hired == 3  # faulty had its second try in a fresh worker


def test_a_kernel_that_suffers_from_the_one_before_is_measured_again(workers, data):
    assert run(workers, data, b"harmful", b"good", b"good") == [None, None, None]
    assert workers.hired == 2


def test_a_faulty_finalist_takes_none_of_the_others_with_it(workers, data):
    codes = (b"good", b"faulty", b"good", b"harmful", b"good")
    candidates = [Built(code, faults.SIGNATURE.to_json(), None, 0.0) for code in codes]
    samples = Runner(workers).compare(data, candidates, Timing(), 4).samples
    good, failed = (1e-3,) * 4, (math.inf,) * 4
    assert samples == (good, failed, good, failed, good)


def test_workers_that_are_lost_again_and_again_end_the_sampling(workers, data):
    codes = (b"good", b"spoils others", b"good")
    candidates = [Built(code, faults.SIGNATURE.to_json(), None, 0.0) for code in codes]
    taken = list(Runner(workers).measure(data, candidates, Timing(relative=-1.0)))
    assert [one.failure for one in taken] == [None, None, None]
    assert all(one.times for one in taken)
    assert workers.hired < 30


@pytest.mark.parametrize("most", [4, 5, 7])
def test_workers_that_are_worn_are_replaced_at_any_moment(workers, data, most):
    workers.most = most
    candidates = [Built(b"one", faults.SIGNATURE.to_json(), None, 0.0)] * 3
    samples = Runner(workers).compare(data, candidates, Timing(), 5).samples
    assert samples == ((1e-3,) * 5,) * 3


def test_samples_are_taken_in_turns_back_and_forth(workers, data):
    candidates = [
        Built(code, faults.SIGNATURE.to_json(), None, 0.0) for code in (b"one", b"faulty", b"two")
    ]
    Runner(workers).compare(data, candidates, Timing(), 3)
    assert workers.sampled[-6:] == [2, 0, 0, 2, 2, 0]


def test_candidates_of_a_comparison_take_samples_as_long_as_a_call_of_the_slowest(workers, data):
    codes = (b"one", b"slow", b"faulty")
    candidates = [Built(code, faults.SIGNATURE.to_json(), None, 0.0) for code in codes]
    Runner(workers).compare(data, candidates, Timing(), 3)
    assert workers.lengths == {7e-3}
