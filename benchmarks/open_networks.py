"""Networks with open axes, as one library each, beside onnxruntime on the same file.

    python benchmarks/open_networks.py net.onnx --dim seq=1:512
    python benchmarks/open_networks.py text.onnx --dim w=32:960 --shape x=1,3,48,w

Sizes are drawn evenly in the logarithm. Calls of both take turns, on as many threads; the least of
each counts. Results are compared at every size. Programs are default ones unless `--records` has
others.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from pathlib import Path

import click
import numpy as np

import loopwright as lw
from loopwright.cli.common.network import bounds_of, shapes_of
from loopwright.graph.open.source import sizes_of

ROUNDS = 9


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--dim", "dims", multiple=True, required=True, help="NAME=1:512")
@click.option("--shape", "shapes", multiple=True, help="NAME=1,3,48,w")
@click.option("--count", default=24, show_default=True, help="Sizes that are drawn.")
@click.option("--threads", default=2, show_default=True)
@click.option("--records", type=click.Path(exists=True), help="A record store.")
def main(path, dims, shapes, count, threads, records):
    """Measure a network at random sizes."""
    sizes = sizes_of(dict(map(bounds_of, dims)))
    inputs = shapes_of(shapes, sizes)
    began = time.monotonic()
    model = lw.build_model(path, inputs, dims=sizes, threads=threads, records=records)
    spent = time.monotonic() - began
    for note in model.notes:
        click.echo(f"note: {note}")
    session, rng = onnxruntime_of(path, threads), np.random.default_rng(0)
    ratios, errors = [], []
    for _ in range(count):
        chosen = {d.name: drawn(d, rng) for d in model.library.dims}
        given = {p.name: values(p.at(chosen), rng) for p in model.library.open_signature.inputs}
        wanted, got = session.run(None, given), model(**given)
        got = got if isinstance(got, tuple) else (got,)
        errors.append(max(map(error_of, got, wanted)))
        calls = functools.partial(model, **given), functools.partial(session.run, None, given)
        ours, theirs = least(*calls)
        ratios.append(theirs / ours)
        shown = ", ".join(f"{name}={value}" for name, value in chosen.items())
        click.echo(f"{shown:16} {ours * 1e3:9.3f} ms  {theirs * 1e3:9.3f} ms  {ratios[-1]:5.2f}")
    mean = statistics.geometric_mean(ratios)
    click.echo(f"geometric mean {mean:.2f}, least {min(ratios):.2f}, error {max(errors):.1e}")
    click.echo(f"built in {spent:.0f} s")


def onnxruntime_of(path, threads):
    """A session that does not spin while others compute."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])


def drawn(known, rng):
    """A value of a dim, evenly in the logarithm."""
    value = known.low * (known.high / known.low) ** rng.random()
    return known.low + round((value - known.low) / known.multiple) * known.multiple


def values(parameter, rng):
    """Normal numbers, or ones, which are right for words and for masks."""
    if "float" in parameter.dtype:
        return rng.standard_normal(parameter.shape).astype(parameter.dtype)
    return np.ones(parameter.shape, parameter.dtype)


def error_of(got, wanted):
    """The largest difference, as a share of the largest value."""
    return float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-30))


def least(*calls):
    """The least seconds of each call, in turns."""
    found = [math.inf] * len(calls)
    for _ in range(ROUNDS):
        for n, call in enumerate(calls):
            began = time.perf_counter()
            call()
            found[n] = min(found[n], time.perf_counter() - began)
    return found


if __name__ == "__main__":
    main()
