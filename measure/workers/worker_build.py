"""Operations of a worker of mode "build". TVM is imported once, before the first message."""

from __future__ import annotations

import functools
import json
from typing import Any

from loopwright.codegen.build import program
from loopwright.codegen.compile import by_passes, compile_by, signature
from loopwright.codegen.facts.facts import facts_of
from loopwright.codegen.library.linker import link
from loopwright.codegen.library.mapped import is_builtin
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.errors import ConfigError, LoopwrightError
from loopwright.dsl.oracle import evaluate, slack
from loopwright.dsl.workload import Workload
from loopwright.measure.checking import to_bytes
from loopwright.measure.workers.hard_data import drawn
from loopwright.measure.workers.messages import CandidateError, Message, Operation
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Allocate, Tree, statements
from loopwright.temporary import TemporaryFolder


def operations() -> dict[str, Operation]:
    """Operations that can be asked for, by name."""
    return {"build": _build, "evaluate": _evaluate}


def _build(message: Message) -> Message:
    """From "workload", "target", "config" and "passes" to "signature", "error_growth", "codegen",
    bytes of "workspace", "facts" of the code, and one blob: a shared object, an object file of
    built-in code, or a GPU's code with what is known of it in "resources".

    With "complete" a shared object depends on nothing but libc and libm, at the price of a slower
    link.
    """
    asked = message.header
    workload, target = _workload(asked["workload"]), _target(asked["target"])
    try:
        made = program(workload, Config.from_json(asked["config"]), target)
    except ConfigError as error:
        raise CandidateError("illegal", str(error)) from error
    try:
        if asked["passes"]:
            made = by_passes(made, asked["passes"])
        compiled = compile_by(made, draft=True)
        code = compiled.objects
        answer: dict[str, Any] = {
            "signature": signature(made, "kernel").to_json(),
            "workspace": _heap(made.tree),
            "error_growth": made.error_growth,
            "codegen": compiled.codegen,
        }
        if is_builtin(code[0]):  # made in milliseconds, of which facts would take a good part
            return Message(answer, code)
        answer["facts"] = facts_of(code[0])
        if target.gpu is not None:
            from loopwright.codegen.devices.code import resources

            return Message(answer | {"resources": resources(code[0])}, code)
        with TemporaryFolder() as folder:
            path = folder / "kernel.so"
            link(code, path, triple=target.triple, complete=asked["complete"])
            return Message(answer, (path.read_bytes(),))
    except LoopwrightError as error:
        raise CandidateError("build", str(error)) from error


def _evaluate(message: Message) -> Message:
    """The oracle's outputs of "workload", for the inputs of "seed", and their slack."""
    workload = _workload(message.header["workload"])
    inputs = drawn(workload, message.header["seed"], message.header["scaled"])
    outputs = evaluate(workload, inputs)
    return Message({}, to_bytes((*outputs, *slack(workload, inputs, outputs))))


def _heap(tree: Tree) -> int:
    """Bytes that one call allocates, what each of its threads has for itself counted once."""
    buffers = (s.buffer for s in statements(tree.body) if isinstance(s, Allocate))
    return sum(int(b.size) * item_bytes(b.dtype) for b in buffers if b.scope == "heap")


@functools.lru_cache(maxsize=64)
def _workload(text: str) -> Workload:
    # One object per text: it keeps its key, by which its space is found again.
    return Workload.from_json(json.loads(text))


@functools.lru_cache(maxsize=16)
def _target(text: str) -> Target:
    return Target.from_json(json.loads(text))
