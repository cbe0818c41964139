"""Acquisition functions: how a search weighs a predicted score against its uncertainty.

All take mean and standard deviation of scores, as `CostModel.uncertainty` gives them: in log₂ of
the speed relative to the best of what was measured, which therefore has score 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from loopwright.costmodel.model import CostModel, Floats, ModelError

KAPPA = 1.0  # standard deviations of optimism in UCB
_LEAST = 1e-6  # deviation
_FAR = 100.0  # standard deviations beyond which the tail is a power


def expected_improvement(scores: Floats, deviation: Floats) -> Floats:
    """EI: E[max(s - best, 0)] for a normal s, where best = 0; with z = score / deviation, it is
    deviation · (z Φ(z) + φ(z)) (Jones et al. 1998, Eq. 15).

    Its logarithm is returned: annealing compares differences, and far from the best they vanish.
    """
    deviation = np.maximum(deviation, _LEAST)
    result: Floats = np.log(deviation) + _log_h(np.asarray(scores, np.float64) / deviation)
    return result


def _log_h(z: Floats) -> Floats:
    """log(z Φ(z) + φ(z)), exact to rounding where both parts nearly cancel too."""
    from scipy.special import erfcx, ndtr

    low, high = np.clip(z, -_FAR, 0.0), np.maximum(z, 0.0)
    density = -0.5 * np.log(2 * np.pi) - 0.5 * np.minimum(z, 0.0) ** 2
    below = density + np.log1p(low * np.sqrt(np.pi / 2) * erfcx(-low / np.sqrt(2)))
    below -= 2 * np.log(np.minimum(z, -_FAR) / -_FAR)  # far out, 1 - ... is 1 / z²
    above = np.log(high * ndtr(high) + np.exp(-0.5 * high**2) / np.sqrt(2 * np.pi))
    result: Floats = np.where(z < 0.0, below, above)
    return result


ACQUISITIONS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "mean": lambda scores, _: scores,  # as well as the others in the paper (section 3.3)
    "ei": expected_improvement,
    "ucb": lambda scores, deviation: scores + KAPPA * deviation,
}
"""Acquisition functions by the names that a search takes."""


def check_acquisition(name: str, model: CostModel) -> None:
    """Raise `ModelError` for an unknown acquisition function, or one that needs to know how
    uncertain the model is, where it cannot tell."""
    if name not in ACQUISITIONS:
        raise ModelError(f"acquisition = {name!r}: use one of {', '.join(ACQUISITIONS)}")
    if name != "mean" and not model.uncertain:
        raise ModelError(
            f"acquisition = {name!r} asks how uncertain the model is, and {type(model).__name__} "
            'cannot tell: take model="gbt-ensemble" or "treegru-ensemble", or acquisition="mean"'
        )


def acquired(model: CostModel, features: Floats, name: str) -> Floats:
    """Acquisition of each row, which a search maximizes; shape (n,)."""
    if name == "mean" or not model.ready:
        return model.predict(features)
    return ACQUISITIONS[name](*model.uncertainty(features))
