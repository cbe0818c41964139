"""NN+C: seconds of one program from the sizes of a call, by a network of at most 75 parameters.

The idea is that of Srivastava et al. 2020: a tiny network predicts times if it is also told the
number of operations c. Theirs predicts seconds from sizes. Here both are logarithms, in which
products are sums and errors are relative, and a linear term stands beside the ReLU units:

`log t = a + w·z + Σ_u v_u · max(0, b_u + U_u·z)`,  z = (log x - mean) / deviation
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from loopwright.c_names import as_identifier, why_no_function
from loopwright.costmodel.model import Floats, ModelError, check_seed
from loopwright.costmodel.models.file import read_model, write_model
from loopwright.dsl.words import brief
from loopwright.dsl.workload import Workload

PARAMETERS = 75
"""The most parameters of a model, as in the paper."""

_KIND = "time"
_STARTS = 4  # random starts, of which the least loss is kept
_DECAY = 0.05  # weight of the squares of the units' weights beside the squares of errors
_ROUGH = 0.05  # error in log seconds from which on errors count linearly: noise has long tails
_EVALUATIONS = 60  # of all errors, for one start
_Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


def inputs_of_call(workload: Workload, sizes: Mapping[str, int]) -> list[float]:
    """Inputs of a model of a workload with dims: their values, and c, the number of operations."""
    return [*map(float, sizes.values()), float(max(1, workload.at(**sizes).flops))]


class TimeModel:
    """Predicts the seconds of one program on one machine.

    Parameters
    ----------
    names: what the inputs are, such as `("m", "n", "k", "threads", "c")`. One of them should be
        the number of operations.
    seed: of the random starts.
    units: ReLU units, by default as many as 75 parameters allow. A model without any is a line in
        logarithms, for times so noisy that more does not hold for other sizes.

    A model of more than 36 inputs has no unit within 75 parameters and is refused.
    """

    def __init__(self, names: Sequence[str], seed: int = 0, units: int | None = None) -> None:
        listed = isinstance(names, Iterable) and not isinstance(names, str)
        listed = listed and getattr(names, "shape", None) != ()  # an array of one number
        self.names = tuple(names) if listed else ()
        texts = listed and all(isinstance(name, str) for name in self.names)
        count = len(self.names)
        if not texts or len(set(self.names)) < count:
            raise ModelError(f"names = {brief(names)}: give a list of different texts")
        most = (PARAMETERS - count - 1) // (count + 2)
        if not count or most < 1:
            raise ModelError(f"{count} inputs: name between 1 and 36")
        self.units = most if units is None else units
        whole = isinstance(self.units, int) and not isinstance(self.units, bool)
        if not whole or self.units not in range(most + 1):
            raise ModelError(f"{brief(units)} units with {count} inputs: use 0 to {most}")
        check_seed(seed)
        self.seed = seed
        self._mean = self._deviation = np.zeros(0)
        self._weights: _Array = np.zeros(0)

    @property
    def parameters(self) -> int:
        """Number of learned parameters."""
        return len(self.names) + 1 + self.units * (len(self.names) + 2)

    @property
    def ready(self) -> bool:
        """Return whether it has learned."""
        return len(self._weights) > 0

    def fit(self, inputs: ArrayLike, seconds: ArrayLike) -> TimeModel:
        """Learn from measurements, forget what was learned before, and return the model.

        Parameters
        ----------
        inputs: positive numbers of shape (calls, inputs), in the order of `names`.
        seconds: positive numbers of shape (calls,).

        Raises `ModelError` for other shapes or numbers, and for fewer than two calls.
        """
        logs, times = self._logs(inputs), _array("seconds", seconds)
        if times.shape != (len(logs),) or len(logs) < 2:
            raise ModelError(
                f"{len(logs)} calls and times of shape {times.shape}: give one time for each of "
                "two or more calls"
            )
        self._mean, deviation = logs.mean(axis=0), logs.std(axis=0)
        self._deviation = np.where(deviation > 1e-9, deviation, 1.0)
        z, target = self._standard(logs), _positive("seconds", times)
        import scipy.optimize  # noqa: F401 - limits hold for libraries that are there already
        from threadpoolctl import threadpool_limits

        rng = np.random.default_rng(self.seed)
        with threadpool_limits(1):  # threads of such small products wait for each other
            found = [self._descend(z, target, rng) for _ in range(_STARTS)]
        self._weights = min(found, key=lambda pair: pair[0])[1]
        return self

    def predict(self, inputs: ArrayLike) -> Floats:
        """Seconds of shape (calls,), for `inputs` as in `fit`."""
        if not self.ready:
            raise ModelError("this model has not learned anything yet: fit it first")
        return np.exp(self._forward(self._weights, self._standard(self._logs(inputs)))[0])

    def to_json(self) -> dict[str, Any]:
        """A value that `json` can write, and `from_json` reads."""
        if not self.ready:
            raise ModelError("this model has not learned anything yet: fit it before saving it")
        numbers = {"mean": self._mean, "deviation": self._deviation, "weights": self._weights}
        content = {name: value.tolist() for name, value in numbers.items()}
        return {"names": list(self.names), "seed": self.seed, "units": self.units, **content}

    @staticmethod
    def from_json(content: Any) -> TimeModel:
        """The inverse of `to_json`. Raises `ModelError` for anything else."""
        try:
            model = TimeModel(content["names"], content["seed"], content.get("units"))
            count = len(model.names)
            model._mean = _numbers(content["mean"], count)
            model._deviation = _numbers(content["deviation"], count)
            model._weights = _numbers(content["weights"], model.parameters)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"no time model: {brief(error)}") from error
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file of JSON."""
        write_model(path, _KIND, self.to_json())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> TimeModel:
        """Read what `save` wrote; `ModelError` for anything else."""
        _, content = read_model(path, _KIND)
        try:
            return TimeModel.from_json(content)
        except ModelError as error:
            raise ModelError(f"{path} is damaged ({error}); save it again") from error

    def to_c(self, function: str = "predicted_seconds") -> str:
        """C source of `double function(const double *inputs)`, seconds for positive inputs in the
        order of `names`. It needs `log` and `exp` of the C library's libm.

        Raises `ModelError` before it has learned, and for a name that no function of C may have.
        """
        if not self.ready:
            raise ModelError("this model has not learned anything yet: fit it first")
        reason = why_no_function(function)
        if reason:
            raise ModelError(
                f"function = {brief(function)} would name a C function, and {reason}; try "
                f"{as_identifier(function)!r}"
            )
        bias, linear, out, offsets, inner = self._parts(self._weights)
        # Standardization goes into the weights: one logarithm an input is all that is left.
        scale = 1 / self._deviation
        offsets = offsets - inner @ (self._mean * scale)
        bias = bias - linear @ (self._mean * scale)
        count = len(self.names)
        rows = ",\n    ".join(_braced(row) for row in inner * scale)
        units = f"""
  static const double out[{self.units}] = {_braced(out)};
  static const double offset[{self.units}] = {_braced(offsets)};
  static const double inner[{self.units}][{count}] = {{
    {rows}}};
  for (int u = 0; u < {self.units}; ++u) {{
    double sum = offset[u];
    for (int i = 0; i < {count}; ++i) sum += inner[u][i] * logs[i];
    if (sum > 0) total += out[u] * sum;
  }}"""
        return f"""#include <math.h>

/* Seconds of a call; inputs: {", ".join(map(_commented, self.names))}. */
double {function}(const double *inputs) {{
  static const double linear[{count}] = {_braced(linear * scale)};
  double logs[{count}], total = {float(bias)!r};
  for (int i = 0; i < {count}; ++i) {{
    logs[i] = log(inputs[i]);
    total += linear[i] * logs[i];
  }}{units if self.units else ""}
  return exp(total);
}}
"""

    def _logs(self, inputs: ArrayLike) -> _Array:
        numbers = _array("inputs", inputs)
        if numbers.ndim != 2 or numbers.shape[1] != len(self.names):
            raise ModelError(
                f"inputs of shape {numbers.shape}: give (calls, {len(self.names)}), with columns "
                f"{', '.join(self.names)}"
            )
        return _positive("inputs", numbers)

    def _standard(self, logs: _Array) -> _Array:
        return (logs - self._mean) / self._deviation

    def _parts(self, weights: _Array) -> tuple[_Array, ...]:
        """Bias, linear weights (f,), outer weights (u,), offsets (u,), inner weights (u, f)."""
        count, units = len(self.names), self.units
        at = np.cumsum([1, count, units, units])
        bias, linear, out, offsets, inner = np.split(weights, at)
        return bias[0], linear, out, offsets, inner.reshape(units, count)

    def _forward(self, weights: _Array, z: _Array) -> tuple[_Array, _Array]:
        """Log seconds (n,), and what the units give (n, u)."""
        bias, linear, out, offsets, inner = self._parts(weights)
        active = np.maximum(z @ inner.T + offsets, 0.0)
        return bias + z @ linear + active @ out, active

    def _descend(
        self, z: _Array, target: _Array, rng: np.random.Generator
    ) -> tuple[float, _Array]:
        """Least loss from one random start, and the weights there."""
        from scipy.optimize import least_squares

        count, units = len(self.names), self.units
        start = np.zeros(self.parameters)
        start[0] = target.mean()
        start[1 + count :] = rng.normal(0, 0.5, self.parameters - 1 - count)
        decay = np.full(self.parameters, np.sqrt(_DECAY) * _ROUGH)
        decay[0] = 0.0  # the mean of the times is free

        def errors(weights: _Array) -> _Array:
            return np.concatenate([self._forward(weights, z)[0] - target, decay * weights])

        def slopes(weights: _Array) -> _Array:
            _, active = self._forward(weights, z)
            _, _, out, _, _ = self._parts(weights)
            on = (active > 0) * out
            inner = (on[:, :, None] * z[:, None, :]).reshape(len(z), units * count)
            data = np.concatenate([np.ones((len(z), 1)), z, active, on, inner], axis=1)
            return np.concatenate([data, np.diag(decay)])

        found = least_squares(
            errors, start, slopes, loss="soft_l1", f_scale=_ROUGH, max_nfev=_EVALUATIONS
        )
        return float(found.cost), found.x


def _array(what: str, given: ArrayLike) -> _Array:
    try:
        if not np.iscomplexobj(given):  # NumPy would drop the imaginary part with a warning alone
            return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        pass
    raise ModelError(f"{what} are {brief(given)}: give real numbers, rows of one length")


def _positive(what: str, numbers: _Array) -> _Array:
    """Logarithms of numbers that must be positive and finite."""
    if not (np.isfinite(numbers) & (numbers > 0)).all():
        raise ModelError(f"{what} of {numbers.min()} to {numbers.max()}: all must be positive")
    return np.log(numbers)


def _numbers(data: Any, count: int) -> _Array:
    numbers = np.asarray(data, np.float64)
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise ValueError(f"{count} numbers are expected")
    return numbers


def _commented(name: str) -> str:
    """A name that neither ends a comment of C nor breaks its line."""
    return " ".join(name.split()).replace("*/", "* /")


def _braced(numbers: _Array) -> str:
    return "{" + ", ".join(repr(float(x)) for x in numbers) + "}"
