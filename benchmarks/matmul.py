"""Matrix products by a config chosen by hand, and by the default one, against NumPy's BLAS.

python benchmarks/matmul.py
"""

from __future__ import annotations

import click
import numpy as np
from peers import Peer, Timer, compare, repeated
from rich.console import Console
from rich.table import Table

import loopwright as lw


def workload(n: int) -> lw.Workload:
    return lw.workload(lw.ops.matmul(lw.tensor("A", (n, n)), lw.tensor("B", (n, n))))


def by_hand(space, n: int, threads: int):
    """A register tile that fills the registers; a thread packs a panel of B and runs all rows of
    A over it; shares of a few panels."""
    rows, width = (14, 32) if space.target.vector_bytes == 64 else (6, 16)
    sketch = next(s for s in space.sketches if s.name.structure.endswith("pack=1local"))
    knobs = {k.name: [c[0] for c in k.choices] for k in sketch.knobs}
    panels = -(-n // width)
    share = max(q for q in knobs["block1_0"] if q <= -(-panels // (4 * threads)))
    return sketch.config(tile0=(rows, width), block0_0=max(knobs["block0_0"]), block1_0=share)


def ours(n: int, threads: int, hand: bool) -> Timer:
    space = lw.space(workload(n), threads=threads)
    config = by_hand(space, n, threads) if hand else space.default
    library = lw.build(workload(n), config, threads=threads)
    a, b = matrices(n)
    np.testing.assert_allclose(library(a, b), a @ b, rtol=1e-3, atol=1e-3)
    call = library.prepare_call(a, b)
    return lambda count: call.repeat(count)[0]


def numpy(n: int) -> Timer:
    a, b = matrices(n)
    c = np.empty((n, n), np.float32)
    return repeated(lambda: np.matmul(a, b, out=c))


def matrices(n: int):
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, (n, n)).astype(np.float32) for _ in range(2)]


@click.command(help=__doc__)
@click.option("--sizes", default="500,512", help="Sizes n of n×n×n.")
@click.option("--rounds", default=21)
def main(sizes: str, rounds: int) -> None:
    table = Table("n", "threads", "NumPy GFLOP/s", "by hand", "ratio", "default", "ratio")
    for n in map(int, sizes.split(",")):
        for threads in (1, 2):
            peers = [Peer("numpy", "matmul:numpy", {"n": n}, threads)]
            for name in ("hand", "default"):
                arguments = {"n": n, "threads": threads, "hand": name == "hand"}
                peers.append(Peer(name, "matmul:ours", arguments, threads))
            speed = {k: 2 * n**3 / s / 1e9 for k, s in compare(peers, rounds).items()}
            cells = [f"{speed['numpy']:.0f}"]
            for name in ("hand", "default"):
                cells += [f"{speed[name]:.0f}", f"{speed[name] / speed['numpy']:.2f}"]
            table.add_row(str(n), str(threads), *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
