"""Python's operators where the notation has none: errors that say what to write instead."""

from __future__ import annotations

from typing import Any

from loopwright.dsl.errors import NotationError


class NoArithmetic:
    """Base of values that operators and NumPy's functions refuse, with `_refusal` as the error."""

    def _refusal(self) -> str:
        raise NotImplementedError

    def _refuse(self, *others: object, **options: object) -> Any:
        raise NotationError(self._refusal())

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __neg__ = __abs__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __array_ufunc__ = _refuse
