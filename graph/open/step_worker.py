"""Compilation of steps in a worker process."""

from __future__ import annotations

import functools
import pickle

from loopwright.dsl.errors import BuildError
from loopwright.graph.open.steps import StepCompiler, StepJob
from loopwright.measure.workers.messages import Bytes, CandidateError, Message, Operation


def operations() -> dict[str, Operation]:
    """Operations that can be asked for, by name."""
    return {"kernel": _kernel}


def _kernel(message: Message) -> Message:
    """From the pickles of a `StepCompiler` and of a `StepJob` to that of a `StepKernel`. Both ends
    are one program on one machine, and nothing but that program has run in either."""
    shared, asked = message.blobs
    job: StepJob = pickle.loads(asked)  # noqa: S301 - see above
    try:
        return Message({}, (pickle.dumps(_compiler(bytes(shared)).kernel(job)),))
    except BuildError as error:
        raise CandidateError("build", str(error)) from error


@functools.lru_cache(maxsize=1)
def _compiler(shared: Bytes) -> StepCompiler:
    compiler: StepCompiler = pickle.loads(shared)  # noqa: S301 - see above
    return compiler
