"""Minutes that were given beside those that passed, at every door that takes minutes.

python benchmarks/budgets.py FILE.jsonl [--seconds 30] [--minutes 30] [--row "a network"]

Each row is a process of its own, so that imports are in it. "inside" is what the call took, or the
command; "process" has the start of Python, too, and where the network is made. Networks are a
perceptron with 16 layers and a convolutional one with 12, as ONNX files.

FILE keeps what was measured: the same command goes on, and prints the table of what there is.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

import click
from kept import Kept
from rich.console import Console
from rich.table import Table

PRODUCT = """
i, j, k = lw.indices("i j k")
A, B, C = lw.tensor("A", ({n}, 256)), lw.tensor("B", (256, 256), constant=True), lw.tensor("C")
C[i, j] += A[i, k] * B[k, j]
"""
NETWORK = """
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
rng, nodes, weights, shape = np.random.default_rng(0), [], [], {shape}
for n in range({layers}):
    w = rng.standard_normal({weight}).astype("float32") / 30
    weights.append(numpy_helper.from_array(w, f"w{{n}}"))
    nodes.append(helper.make_node("{op}", [f"x{{n}}", f"w{{n}}"], [f"h{{n}}"], **{options}))
    nodes.append(helper.make_node("Relu", [f"h{{n}}"], [f"x{{n + 1}}"]))
ends = [helper.make_tensor_value_info(f"x{{n}}", TensorProto.FLOAT, shape) for n in (0, {layers})]
graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
opset = [helper.make_opsetid("", 17)]
save(helper.make_model(graph, opset_imports=opset, ir_version=10), "n.onnx")
"""
PERCEPTRON = {
    "op": "MatMul",
    "layers": 16,
    "weight": "(256, 256)",
    "options": "{}",
    "shape": "[{}, 256]",
}
CONVOLUTIONS = {
    "op": "Conv",
    "layers": 12,
    "weight": "(32, 32, 3, 3)",
    "options": '{"pads": [1, 1, 1, 1]}',
    "shape": "[1, 32, 56, 56]",
}


def network(form: dict[str, object], size: str = "16") -> str:
    """Code that saves a network."""
    shape = str(form["shape"]).replace("{}", size)
    return NETWORK.format(**{**form, "shape": shape})


FIXED, OPEN = PRODUCT.format(n=256), 'n = lw.dim("n", 1, 1024)' + PRODUCT.format(n="n")
POLICY = """
from loopwright.codegen.target import resolve
from loopwright.explore.scheduling.evaluators import Measured
from loopwright.explore.scheduling.learn import train_policies
from loopwright.explore.scheduling.loops import Problem
target = resolve("cpu", 1)
problems, measured = [Problem.of(lw.workload(C), target)], Measured(target)
"""
ROWS = {
    "a workload": (FIXED, "lw.tune(C, minutes=M)"),
    "all sizes of a workload": (OPEN, "lw.tune(C, minutes=M)"),
    "a network": (network(PERCEPTRON), 'lw.tune_model("n.onnx", minutes=M)'),
    "a convolutional network": (network(CONVOLUTIONS), 'lw.tune_model("n.onnx", minutes=M)'),
    "all sizes of a network": (
        network(PERCEPTRON, '"n"'),
        'lw.tune_model("n.onnx", minutes=M, dims={"n": (1, 64)})',
    ),
    "pass lists": (FIXED, "lw.tune_passes(C, minutes=M)"),
    "a schedule policy": (FIXED + POLICY, "train_policies(problems, measured, M)"),
    "tune": ("", 'tune "ij,jk->ik" i=256 j=256 k=256'),
    "tune-model": (network(PERCEPTRON), "tune-model n.onnx"),
    "passes": ("", 'passes "ij,jk->ik" i=256 j=256 k=256'),
}
"""Of each row what is not timed, and the call or the command that is."""


def measured(name: str, seconds: float) -> tuple[float, float]:
    """Seconds of the call, and of the process."""
    before, call = ROWS[name]
    if call.startswith(("lw.", "train_")):
        timed = f"M = {seconds / 60}\nbegan = monotonic()\n{call}"
    else:
        command = f"['-m', 'loopwright', *shlex.split('''{call} --minutes {seconds / 60}''')]"
        timed = f"began = monotonic()\nsubprocess.run([sys.executable, *{command}], check=True)"
    program = (
        "import shlex, subprocess, sys\nfrom time import monotonic\nimport loopwright as lw\n"
        f"{before}\n{timed}\nprint('took', monotonic() - began)"
    )
    with tempfile.TemporaryDirectory() as folder:
        began = monotonic()
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return float(done.stdout.split("took")[-1]), monotonic() - began


@click.command(help=__doc__)
@click.argument("file", type=Path)
@click.option("--seconds", default=30.0, show_default=True, help="Of each budget.")
@click.option("--minutes", default=30.0, show_default=True, help="No row begins later.")
@click.option("--row", "only", multiple=True, help="Only this one; may be given again.")
def main(file: Path, seconds: float, minutes: float, only: tuple[str, ...]) -> None:
    """Measure and print, as far as the time goes."""
    rows, end = Kept(file), monotonic() + 60 * minutes
    for name in only or ROWS:
        key = f"{name}, {seconds:g} s"
        if key not in rows and monotonic() < end:
            rows[key] = measured(name, seconds)
    table = Table("what, budget", "inside, s", "process, s")
    for key, (inside, process) in rows.items():
        table.add_row(key, f"{inside:.1f}", f"{process:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
