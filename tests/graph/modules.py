"""Networks that several tests are about."""

import pytest

torch = pytest.importorskip("torch")


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)
