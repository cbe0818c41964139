"""Networks on two devices: predicted and measured times of three placements.

    python benchmarks/placed_networks.py [--target opencl] [--widths 8,32] [--minutes 5]

A network of residual blocks and one of dense layers, at several widths, each with all steps on the
processor, all that can on the GPU, and by the shortest path. Seconds are medians of calls that
take turns. A row is printed when it is there; no further network begins after the minutes.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import loopwright as lw
from benchmarks.either_device import seconds


def residual(width: int):
    """Three convolutions of 28 × 28 images, two of them with a shortcut."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Conv2d(3, width, 3, padding=1)
            self.a = torch.nn.Conv2d(width, width, 3, padding=1)
            self.b = torch.nn.Conv2d(width, width, 3, padding=1)
            self.head = torch.nn.Linear(width, 10)

        def forward(self, x):
            x = torch.relu(self.first(x))
            x = torch.relu(self.a(x)) + x
            x = torch.relu(self.b(x)) + x
            return self.head(x.mean((2, 3)))

    return Net().eval(), torch.randn(1, 3, 28, 28)


def dense(width: int):
    """Four layers over a batch of 64."""
    layers = [torch.nn.Linear(16 * width, 16 * width) for _ in range(4)]
    return torch.nn.Sequential(*layers).eval(), torch.randn(64, 16 * width)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--widths", default="8,32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--minutes", type=float, default=5.0)
    given = parser.parse_args()
    start = time.monotonic()
    torch.manual_seed(0)
    print("| network | width | placement | steps on the GPU | predicted µs | measured µs |")
    print("|---|---|---|---|---|---|")
    for width in map(int, given.widths.split(",")):
        for make in (residual, dense):
            if time.monotonic() - start > 60 * given.minutes:
                return
            net, x = make(width)
            model = lw.build_model(net, (x,), targets=["cpu", given.target])
            choice = model.explain()
            paths = {**choice.others, "shortest path": choice.path}
            models = [model.at(path.devices) for path in paths.values()]
            arrays = x.numpy()
            calls = [lambda f=f, x=arrays: f(x) for f in models]
            for (name, path), found in zip(
                paths.items(), seconds(calls, given.rounds), strict=True
            ):
                on_gpu = f"{path.devices.count('gpu')} of {len(path.devices)}"
                times = f"{path.total * 1e6:.0f} | {found * 1e6:.0f}"
                print(f"| {make.__name__} | {width} | {name} | {on_gpu} | {times} |", flush=True)
            wanted = net(x).detach().numpy()
            assert all(np.allclose(f(arrays), wanted, rtol=1e-3, atol=1e-4) for f in models)


if __name__ == "__main__":
    main()
