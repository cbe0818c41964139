"""Networks that several tests are about."""

import copy

import pytest

from loopwright.graph.build import build_model

torch = pytest.importorskip("torch")


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def drawn_again(module):
    """A copy with weights that the test draws: those that were drawn while tests were collected
    depend on the files that a run has."""
    module = copy.deepcopy(module)
    for part in module.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    return module


def check(function, *inputs, **close):
    """A function of torch gives the same as a network: as near as its type allows, or `rtol` and
    `atol`."""
    built = build_model(Function(function), inputs, threads=1, check=False)
    close = close or {"rtol": None, "atol": None}
    torch.testing.assert_close(built(*inputs), function(*inputs), equal_nan=True, **close)
