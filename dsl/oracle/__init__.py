"""The oracle: what every program is compared with, on which inputs, and how closely."""

from loopwright.dsl.oracle.evaluation import evaluate, random_inputs
from loopwright.dsl.oracle.tolerances import slack, tolerance

__all__ = ["evaluate", "random_inputs", "slack", "tolerance"]
