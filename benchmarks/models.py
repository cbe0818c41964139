"""Whole networks: Loopwright beside the runtimes that a user would otherwise take.

    python benchmarks/models.py --threads 2 --minutes 30 --records tuning.db

Every contender works in a process of its own, rounds interleaved, on as many threads. Networks
are tuned first where --minutes is given; the same command without it only measures.
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import click
import numpy as np
import options
from model_peers import network_of, networks
from peers import Peer, Processes, Result

from loopwright.codegen.target import resolve
from loopwright.measure.roofline import peak_flops
from loopwright.schedule.target import Target

CONTENDERS = (
    "eager", "channels_last", "inductor", "inductor_last", "onnxruntime", "openvino",
)  # fmt: skip
"""Those that are to be beaten."""
OTHERS = ("tvm_default",)
READING = "reading"
"""Takes its turns among them: the weights are read once, in float32."""


def compare(
    network: str, threads: int, own: dict[str, Any], names: tuple[str, ...], rounds: int
) -> dict[str, Result]:
    """One network by everybody; `own` are options of our build."""
    given = {"network": network, "threads": threads}
    peers = [Peer("loopwright", "model_peers:ours", {**given, **own}, threads)]
    peers += [Peer(name, f"model_peers:{name}", given, threads) for name in names]
    size = {"size": weight_bytes(network), "threads": threads}
    peers.append(Peer(READING, f"model_peers:{READING}", size, threads))
    with Processes() as processes:
        return processes.compare(peers, rounds)


def row(network: str, results: dict[str, Result], target: Target) -> dict[str, Any]:
    """What is kept of a comparison; `ratio` is as in `outcomes.Outcome`. No program that computes
    what the model says takes less than the `limits`: that of multiply-adds, which Winograd's and
    Strassen's algorithms do fewer of, and that of reading the weights once, from wherever arrays
    of their size are in the same rounds, which smaller weights do sooner."""
    own, read = results["loopwright"], results.pop(READING)
    able = {n: r for n, r in results.items() if n in CONTENDERS and r.samples and own.samples}
    ratios = {n: float(np.median(np.divide(r.samples, own.samples))) for n, r in able.items()}
    best = min(ratios, key=ratios.__getitem__, default="")
    return {
        "network": network,
        "seconds": {n: r.median for n, r in results.items() if r.samples},
        "best": best,
        "ratio": ratios.get(best, math.nan),
        "limits": {"multiply-adds": _flops(network) / peak_flops(target), "weights": read.median},
        "facts": own.facts,
        "notes": {n: r.note for n, r in results.items() if r.note},
    }


@click.command()
@click.option("--network", "chosen", multiple=True, help="All six if not given.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--minutes", type=float, help="Tune each network for so long first.")
@options.numerics
@click.option("--sparse", is_flag=True, help="Also programs that leave zeros of the data out.")
@click.option(
    "--zeros",
    type=click.FloatRange(0, 1),
    help="What ReLUs make of batch norms; half if not given.",
)
@click.option("--records", type=click.Path(path_type=Path), default=Path("tuning.db"))
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True)
@click.option("--peer", "names", multiple=True, help="All if not given.")
@click.option("--json", "output", type=click.Path(path_type=Path), help="Where results go.")
def main(
    chosen: tuple[str, ...],
    threads: int,
    minutes: float | None,
    numerics: str,
    sparse: bool,
    zeros: float | None,
    records: Path,
    rounds: int,
    names: tuple[str, ...],
    output: Path | None,
) -> None:
    """Tune if asked to, measure, and print one line for each network."""
    target = resolve("cpu", threads)
    rows = []
    for name in chosen or networks().NAMES:
        network = name if zeros is None else f"{name} zeros={zeros:g}"
        if minutes is not None:
            import loopwright as lw

            net, inputs = network_of(network)
            lw.tune_model(
                net,
                inputs,
                threads=threads,
                minutes=minutes,
                records=records,
                numerics=numerics,
                sparse=sparse,
                tell=click.echo,
            )
        store = str(records) if records.exists() else None
        own = {"records": store, "numerics": numerics, "sparse": sparse}
        results = compare(network, threads, own, names or (*CONTENDERS, *OTHERS), rounds)
        rows.append(row(network, results, target))
        times = ", ".join(f"{n} {s * 1e3:.3g}" for n, s in rows[-1]["seconds"].items())
        click.echo(f"{network}: {rows[-1]['ratio']:.2f} of {rows[-1]['best']}; ms: {times}")
        click.echo(f"  {_tuned(rows[-1]['facts'])}")
        limits = (f"{seconds * 1e3:.3g} by {what}" for what, seconds in rows[-1]["limits"].items())
        click.echo(f"  limits in ms: {', '.join(limits)}")
        for name, note in rows[-1]["notes"].items():
            click.echo(f"  {name}: {note.splitlines()[-1]}")
        if output is not None:
            output.write_text(json.dumps(rows, indent=1) + "\n")
    ratios = [r["ratio"] for r in rows if math.isfinite(r["ratio"])]
    if ratios:
        mean = statistics.geometric_mean(ratios)
        click.echo(f"geometric mean of {len(ratios)}: {mean:.2f}, least {min(ratios):.2f}")
    if failed := [r["network"] for r in rows if "loopwright" in r["notes"]]:
        raise click.ClickException(f"ours failed: {', '.join(failed)}")


def weight_bytes(network: str) -> int:
    """Of its parameters, as the model has them."""
    net, _ = network_of(network)
    return sum(p.numel() * p.element_size() for p in net.parameters())


def _flops(network: str) -> float:
    """Of the sums of products that the model says."""
    from torch.utils.flop_counter import FlopCounterMode

    net, inputs = network_of(network)
    with FlopCounterMode(display=False) as counted:
        net(*inputs)
    return float(counted.get_total_flops())


def _tuned(facts: dict[str, Any]) -> str:
    """How much of a network had records, and what these say that it takes."""
    said = f"{facts.get('tuned', 0)} of {facts.get('tasks', 0)} tasks tuned"
    estimate = facts.get("estimate")
    return said if estimate is None else f"{said}, {estimate * 1e3:.3g} ms by their records"


if __name__ == "__main__":
    main()
