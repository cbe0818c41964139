"""Scaling of a fleet: replayed machines on a local Ray cluster, so that cores do not matter.

    python benchmarks/fleet.py --minutes 10

A replayed machine takes `--delay` seconds for a candidate, and knows its cost by a formula. The
first table has candidates a second on 1, 2, 4 and 8 machines; the second the time in which a
network of three layers is tuned on one and on two, choosing and learning included. Each run is a
line of --state, so that the same command goes on where it ended.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import kept
import numpy as np
from rich.console import Console
from rich.table import Table

import loopwright as lw
from loopwright.dsl.workload import Workload
from loopwright.explore.budget import Budget
from loopwright.graph.compile.build import import_model
from loopwright.graph.tuning.search import SearchOptions, search
from loopwright.measure.builder import Builder
from loopwright.measure.device import Comparison, Device, Failure, Measurement, Stop, never
from loopwright.measure.fleet import cluster
from loopwright.measure.fleet.device import FleetDevice
from loopwright.measure.fleet.values import to_bytes
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import space
from loopwright.schedule.target import Target

TARGET = Target(features=("+avx2", "+fma"))
MACHINES = (1, 2, 4, 8)
LAYERS = ((256, 512), (512, 512), (512, 128))


def cost(config: Config) -> float:
    """Seconds of a call: lower for fewer remainders of a checksum, so that there are few good
    ones."""
    return 1e-3 * (1 + (zlib.crc32(str(config).encode()) % 9973 / 9973) ** 0.5)


@dataclass(frozen=True)
class Replayed:
    """Makes a replayed device in the process of its machine."""

    delay: float

    def __call__(self, builder: Builder) -> Device:
        return ReplayedDevice(self.delay)


class ReplayedDevice(Device):
    """Takes its time, and looks costs up."""

    target, name = TARGET, "replayed"

    def __init__(self, delay: float) -> None:
        self._delay = delay

    def fingerprint(self) -> dict[str, str]:
        return {"processor": "replayed by benchmarks/fleet.py"}

    def check(self) -> None:
        pass

    def measure(
        self, workload: Workload, configs: Sequence[Config], stop: Stop = never
    ) -> Iterator[Measurement]:
        for config in configs:
            time.sleep(self._delay)
            seconds = (cost(config),)
            yield Measurement(config, seconds, None, 0.0, self._delay, "warm", 1, time.time())

    def verify(self, workload: Workload, config: Config) -> Failure | None:
        time.sleep(self._delay)
        return None

    def compare(self, workload: Workload, configs: Sequence[Config], rounds: int) -> Comparison:
        return Comparison(tuple((cost(c),) * rounds for c in configs), (0,) * len(configs))


def staff(count: int, delay: float) -> None:
    """Let so many of the nodes measure."""
    for name in cluster.actors():
        cluster.remove(name)
    while cluster.actors():
        time.sleep(0.05)
    made = {"device": to_bytes(Replayed(delay))}
    nodes = dict(sorted(cluster.nodes().items())[:count])
    cluster.nodes = lambda: nodes  # the others measure nothing
    actors = [cluster.on_node(name, node, made) for name, node in nodes.items()]
    cluster.ask_all({str(n): cluster.control(a, "status") for n, a in enumerate(actors)}, 120.0)


def throughput(count: int, trials: int) -> float:
    """Candidates a second, of batches of 64 as a search has them."""
    product = lw.workload(lw.ops.matmul(lw.tensor("A", (64, 36)), lw.tensor("B", (36, 48))))
    points, rng = space(product, TARGET), np.random.default_rng(0)
    configs = [points.sample(rng) for _ in range(trials)]
    with FleetDevice() as device:
        assert len(device.machines) == count, device.notes
        list(device.measure(product, configs[:3]))  # the machines are compared
        began = time.perf_counter()
        found = sum(1 for _ in device.measure(product, configs))
        return found / (time.perf_counter() - began)


def tuned(trials: int, seed: int, folder: Path) -> tuple[float, float]:
    """Seconds that a network's tuning took, and those of a call of its layers as found."""
    from onnx import TensorProto, helper, numpy_helper, save

    nodes, weights, name = [], [], "x"
    for n, (inner, outer) in enumerate(LAYERS):
        weights.append(numpy_helper.from_array(np.ones((inner, outer), np.float32), f"w{n}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{n}"], [f"p{n}"]))
        nodes.append(helper.make_node("Relu", [f"p{n}"], [f"y{n}"]))
        name = f"y{n}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, LAYERS[0][0]])
    y = helper.make_tensor_value_info(name, TensorProto.FLOAT, [32, LAYERS[-1][1]])
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    path = folder / "net.onnx"
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    work = import_model(path, None, TARGET)
    began = time.perf_counter()
    with FleetDevice() as device:
        options = SearchOptions(seed=seed, transfer=None, device=device)
        found = search(work, TARGET, Budget(trials), folder / f"{time.time_ns()}.db", options)
    return time.perf_counter() - began, sum(state.total for state in found.states)


@click.command()
@click.option("--delay", default=0.1, show_default=True, help="Seconds of a candidate.")
@click.option("--trials", default=192, show_default=True, help="Candidates of a run.")
@click.option("--seeds", default=5, show_default=True, help="Runs of each kind.")
@click.option("--minutes", default=10.0, show_default=True, help="No run begins after that.")
@click.option("--state", type=click.Path(path_type=Path), default="fleet.jsonl", show_default=True)
def main(delay: float, trials: int, seeds: int, minutes: float, state: Path) -> None:
    begin, runs = time.monotonic(), kept.lines(state)
    done = {(r["what"], r["machines"], r["seed"]) for r in runs}
    wanted = [("throughput", n, 0) for n in MACHINES]
    wanted += [("network", n, seed) for seed in range(seeds) for n in (1, 2)]
    left = [run for run in wanted if run not in done]
    if left:
        with tempfile.TemporaryDirectory() as folder:
            made, nodes = started()
            try:
                for what, machines, seed in left:
                    if time.monotonic() - begin > 60 * minutes:
                        break
                    cluster.nodes = nodes
                    staff(machines, delay)
                    line = {"what": what, "machines": machines, "seed": seed, "delay": delay}
                    if what == "throughput":
                        line["rate"] = throughput(machines, trials)
                    else:
                        line["seconds"], line["call"] = tuned(trials, seed, Path(folder))
                    runs.append(line)
                    kept.add(state, line)
            finally:
                import ray

                ray.shutdown()
                made.shutdown()
    show(runs)


def started() -> tuple[object, object]:
    """A cluster of as many nodes as machines are wanted at most."""
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(max(MACHINES)):
        made.add_node(num_cpus=0, resources={cluster.RESOURCE: 1}, wait=False)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    return made, cluster.nodes


def show(runs: Sequence[dict[str, float]]) -> None:
    console = Console(width=100)
    rates = {r["machines"]: r for r in runs if r["what"] == "throughput"}
    table = Table("machines", "candidates a second", "of linear", "ms beside a candidate")
    for machines, run in sorted(rates.items()):
        share = run["rate"] / (machines * rates[1]["rate"]) if 1 in rates else float("nan")
        beside = (machines / run["rate"] - run["delay"]) * 1e3
        table.add_row(f"{machines}", f"{run['rate']:.2f}", f"{share:.3f}", f"{beside:.1f}")
    console.print(table)
    of = {(r["machines"], r["seed"]): r for r in runs if r["what"] == "network"}
    pairs = [(of[1, s], of[2, s]) for n, s in of if n == 2 and (1, s) in of]
    if pairs:
        table = Table("seed", "s, one machine", "s, two", "share", "call ms, one", "call ms, two")
        for one, two in pairs:
            cells = (one["seconds"], two["seconds"], two["seconds"] / one["seconds"])
            calls = (one["call"] * 1e3, two["call"] * 1e3)
            shown = (f"{one['seed']}", *(f"{c:.2f}" for c in cells), *(f"{c:.4f}" for c in calls))
            table.add_row(*shown)
        median = statistics.median(two["seconds"] / one["seconds"] for one, two in pairs)
        table.add_row("median", "", "", f"{median:.2f}", "", "")
        console.print(table)


if __name__ == "__main__":
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a cluster of this process alone
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")
    main()
