"""Cost models: features of loop trees, and the models that learn from them."""

from loopwright.costmodel.models.time_model import TimeModel

__all__ = ["TimeModel"]
