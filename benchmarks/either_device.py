"""Choice of a device over a sweep of sizes, with arrays on either side.

    python benchmarks/either_device.py [--target opencl] [--sizes 8,32,128,512,2048] [--rounds 15]
        [--open]

A row-wise sum of products and a matrix product at each size, with the second operand given at
every call or bound, so that it lies on the device. Each size: seconds of both devices and of
`lw.either`, in turns, medians; the sum over sizes is compared with the better choice in hindsight
at each size, and with the better single device.

With `--open`, the rows' sums and a dense layer over n rows of 256 elements, n open: one library of
the processor and those of the GPU for the sizes and the greatest one, called at sizes drawn evenly
in the logarithm. What counts as the better choice is among the processor and the GPU's library
that is predicted to be fastest.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import loopwright as lw


def workload(kind: str, n: int):
    """A computation of n × n elements."""
    A, B = lw.tensor("A", (n, n)), lw.tensor("B", (n, n), constant=True)
    return lw.workload(lw.einsum("ij,ij->i" if kind == "rows" else "ij,jk->ik", A, B))


def seconds(calls, rounds):
    """Median seconds of each call; they take turns in random order, for a call finds the caches
    as the one before left them."""
    rng = np.random.default_rng(0)
    samples = [[] for _ in calls]
    for number in range(rounds + 1):
        for place in rng.permutation(len(calls)):
            start = time.perf_counter()
            calls[place]()
            if number:  # the first one warms up
                samples[place].append(time.perf_counter() - start)
    return [statistics.median(found) for found in samples]


def decision(lib, arrays):
    """Seconds of the choice itself, in Python."""
    times = 10000
    start = time.perf_counter()
    for _ in range(times):
        lib._choose(arrays)
    return (time.perf_counter() - start) / times


def open_calls(kind: str, sizes: list[int], target: str, rng):
    """The joined library of open sizes, and arrays for calls at sizes between."""
    n = lw.dim("n", 1, max(sizes))
    A = lw.tensor("A", (n, 256))
    B = lw.tensor("B", (n, 256) if kind == "rows" else (256, 256), constant=kind == "product")
    made = lw.workload(lw.einsum("ij,ij->i" if kind == "rows" else "ij,jk->ik", A, B))
    gpus = [lw.build(made.at(n=size), target=target) for size in sizes]
    lib = lw.either(cpu=lw.build(made), gpu=gpus)
    drawn = np.exp(rng.uniform(0, np.log(max(sizes)), 2 * len(sizes))).astype(int)
    for rows in sorted({*sizes, *map(int, drawn)}):
        a = rng.random((rows, 256), np.float32)
        yield lib, rows, (a, a if kind == "rows" else rng.random((256, 256), np.float32)), "host"


def fixed_calls(kind: str, sizes: list[int], target: str, rng):
    """The joined library of each size, its second operand on the host or bound, with arrays."""
    for n in sizes:
        a, b = rng.random((2, n, n), np.float32)
        made = workload(kind, n)
        whole = lw.either(cpu=lw.build(made), gpu=lw.build(made, target=target))
        yield whole, n, (a, b), "host"
        yield whole.bind(B=b), n, (a,), "bound"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--sizes", default="8,32,128,512")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--open", action="store_true")
    given = parser.parse_args()
    rng, totals = np.random.default_rng(0), np.zeros(4)
    head = ("computation", "n", "second operand", "cpu µs", "gpu µs", "either µs", "predicted µs")
    print(f"| {' | '.join(head)} | chosen |\n{'|---' * (len(head) + 1)}|")
    made, sizes = open_calls if given.open else fixed_calls, given.sizes.split(",")
    for kind in ("rows", "product"):
        for lib, n, arrays, where in made(kind, [*map(int, sizes)], given.target, rng):
            on_gpu = lib.on_gpu(*arrays) if given.open else lib.gpu
            calls = [lambda f=f, x=arrays: f(*x) for f in (lib.cpu, on_gpu, lib)]
            cpu, gpu, either = seconds(calls, given.rounds)
            totals += cpu, gpu, either, min(cpu, gpu)
            choice = lib.explain(*arrays)
            told = ", ".join(f"{s.total * 1e6:.0f}" for s in choice.sums.values())
            times = " | ".join(f"{s * 1e6:.1f}" for s in (cpu, gpu, either))
            print(f"| {kind} | {n} | {where} | {times} | {told} | {choice.device} |", flush=True)
    cpu, gpu, either, best = totals
    print(f"\nTotal over the better choice at each size: {either / best:.3f}; over the better")
    print(f"single device: {either / min(cpu, gpu):.3f}.")
    print(f"A decision takes {decision(lib, arrays) * 1e6:.2f} µs in Python.")


if __name__ == "__main__":
    main()
