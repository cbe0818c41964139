"""What goes wrong with whole models."""

from __future__ import annotations

from loopwright.dsl.errors import LoopwrightError


class ModelError(LoopwrightError):
    """A model that cannot be imported, built or called as asked."""


class NotSayable(ModelError):  # noqa: N818 - it says what is the matter
    """A function of TVM's that the notation cannot say; the message is the reason."""
