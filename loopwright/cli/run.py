"""`loopwright run` and `loopwright bench`: a call of an exported library, and its time."""

from __future__ import annotations

import statistics
from pathlib import Path

import click

from loopwright.cli.common.command import Command, NewFile
from loopwright.cli.common.options import EXISTING, SEED, THREADS
from loopwright.dsl.words import counted
from loopwright.dsl.workload import Workload


@click.command(cls=Command)
@click.argument("library", type=EXISTING)
@click.option("--input", "inputs", multiple=True, type=EXISTING, help="NAME.npy, in order.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=NewFile(),
    help="Where results go: NAME.npy, in order.",
)
def run(library: Path, inputs: tuple[Path, ...], outputs: tuple[Path, ...]) -> None:
    """Call an exported library on arrays in .npy files."""
    import numpy as np

    from loopwright.codegen.load import load
    from loopwright.dsl.dtypes import numpy_dtype

    for path in outputs:
        if path.suffix != ".npy":
            raise click.UsageError(f"--output {path}: the name of a saved array ends in .npy")
    loaded = load(library)
    results = loaded.signature.outputs
    if len(outputs) > len(results):
        raise click.UsageError(
            f"{len(outputs)} times --output, for {counted(len(results), 'output')} of {library}: "
            f"{', '.join(map(str, results))}; give one for each at most"
        )
    wanted = loaded.inputs
    if len(inputs) != len(wanted):
        raise click.UsageError(
            f"{len(inputs)} times --input, for {counted(len(wanted), 'input')} of {library}: "
            f"{', '.join(map(str, wanted))}; give one for each, in this order"
        )
    arrays = []
    for path in inputs:
        try:
            with path.open("rb") as file:
                arrays.append(np.lib.format.read_array(file, allow_pickle=False))
        except (OSError, EOFError, ValueError) as error:
            raise click.ClickException(
                f"{path}: cannot read it as a .npy file: {error}"
            ) from error
    for n, (array, parameter) in enumerate(zip(arrays, wanted)):
        if parameter.dtype == "bfloat16" and array.dtype == np.dtype("V2"):
            arrays[n] = array.view(numpy_dtype(parameter.dtype))  # .npy has no name for it
    result = loaded(*arrays)
    made = result if isinstance(result, tuple) else (result,)
    for number, (array, parameter) in enumerate(zip(made, results)):
        shown = f"{parameter.name}: {parameter.dtype}{list(array.shape)}, without elements"
        if array.size:
            ends = f"from {float(array.min()):.6g} to {float(array.max()):.6g}"
            shown = f"{parameter.name}: {parameter.dtype}{list(array.shape)}, {ends}"
        if number < len(outputs):
            np.save(outputs[number], array)
            shown += f", saved to {outputs[number]}"
        click.echo(shown)


@click.command(cls=Command)
@click.argument("file", type=EXISTING)
@SEED
@THREADS
def bench(file: Path, seed: int, threads: int | None) -> None:
    """Time the exported library of an operator, FILE.so, on random data."""
    import numpy as np

    from loopwright.codegen.load import load
    from loopwright.dsl.oracle import random_inputs
    from loopwright.explore.result import speed
    from loopwright.measure.timing import Timer, Timing

    library = load(file)
    if threads is not None:
        library.threads = threads
    data = library.origin.extra.get("workload")
    if data is None:
        raise click.ClickException(
            f"{file}: its manifest names no workload to make data for, as that of a network: time "
            "that by `loopwright profile NET.onnx`"
        )
    workload = Workload.from_json(data)
    inputs = random_inputs(workload, np.random.default_rng(seed))
    samples = Timer(library.prepare_call(*inputs), Timing(relative=0.01, cap=1.0)).run()
    click.echo(str(workload))
    click.echo(f"{library.signature}, {counted(library.threads, 'thread')}")
    median = statistics.median(samples)
    click.echo(
        f"{speed(workload.flops, median, None)}; {len(samples)} samples from "
        f"{min(samples) * 1e3:.4g} to {max(samples) * 1e3:.4g} ms, constants prepared ahead"
    )
