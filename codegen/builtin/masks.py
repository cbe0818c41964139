"""Truth values of lanes: vectors of all bits or none by AVX2, masks by AVX-512."""

from __future__ import annotations

from loopwright.codegen.builtin.vectors import Value, Vectors

_PREDICATES = {"lt": 0x11, "le": 0x12, "gt": 0x1E, "ge": 0x1D, "eq": 0x00, "ne": 0x04}
_INTEGER = {  # the instruction, whether its operands and its result are turned round
    "gt": ("vpcmpgtd", False, False),
    "lt": ("vpcmpgtd", True, False),
    "le": ("vpcmpgtd", False, True),
    "ge": ("vpcmpgtd", True, True),
    "eq": ("vpcmpeqd", False, False),
    "ne": ("vpcmpeqd", False, True),
}
_INTEGER_PREDICATES = {"eq": 0, "lt": 1, "le": 2, "ne": 4, "ge": 5, "gt": 6}
_UNORDERED = 0x03
WORDS = frozenset(_PREDICATES)
"""Comparisons, in the words of the notation."""


class Masks:
    """The operations of a function that make truth values."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors, self._extended = vectors, vectors.set.extended

    def compared(self, word: str, lanes: int, one: Value, other: Value) -> Value:
        """A comparison of float32."""
        return self._floats(_PREDICATES[word], lanes, one, other)

    def unordered(self, lanes: int, value: Value) -> Value:
        """Whether a value is NaN."""
        return self._floats(_UNORDERED, lanes, value, value)

    def _floats(self, predicate: int, lanes: int, one: Value, other: Value) -> Value:
        name = "vcmpps_mask" if self._extended else "vcmpps"
        return self.vectors.apply(name, lanes, one, other, predicate)

    def compared_integers(self, word: str, lanes: int, one: Value, other: Value) -> Value:
        """A comparison of int32."""
        if self._extended:
            predicate = _INTEGER_PREDICATES[word]
            return self.vectors.apply("vpcmpd_mask", lanes, one, other, predicate)
        name, turned, negated = _INTEGER[word]
        one, other = (other, one) if turned else (one, other)
        mask = self.vectors.apply(name, lanes, one, other)
        return self.negated(lanes, mask) if negated else mask

    def both(self, lanes: int, one: Value, other: Value) -> Value:
        """One and the other."""
        return self.vectors.apply("kandw" if self._extended else "vandps", lanes, one, other)

    def either(self, lanes: int, one: Value, other: Value) -> Value:
        """One or the other."""
        return self.vectors.apply("korw" if self._extended else "vorps", lanes, one, other)

    def negated(self, lanes: int, mask: Value) -> Value:
        """What is not true."""
        if self._extended:
            return self.vectors.apply("knotw", lanes, mask)
        ones = self.vectors.constant(0xFFFFFFFF, lanes)
        return self.vectors.apply("vxorps", lanes, mask, ones)
