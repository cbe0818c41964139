"""The errors that Loopwright raises; every message says what was found and what to do."""


class LoopwrightError(Exception):
    """The root of every error that Loopwright raises on purpose."""


class NotationError(LoopwrightError):
    """A definition that the notation does not allow."""


class NoAttributeError(NotationError, AttributeError):
    """An attribute that arrays have, and the notation's values have not."""


class RangeError(NotationError):
    """Ranges of indices that disagree, are unknown, or leave a tensor."""


class UndecidedError(RangeError):
    """A comparison of sizes that holds for some values of dims and not for others."""


class ShapeError(LoopwrightError):
    """An argument of a call has the wrong count, shape, dtype or layout."""


class ConfigError(LoopwrightError):
    """A config, a sketch or a loop tree that is not legal."""


class TargetError(LoopwrightError):
    """A target that is unknown or not supported."""


class BuildError(LoopwrightError):
    """The toolchain is missing or could not compile a program."""


class LibraryError(LoopwrightError):
    """A library file is damaged, foreign, or made for another machine."""


class DeviceLostError(LibraryError):
    """A kernel broke its GPU's context, as by an illegal address: nothing works in this process
    any more; start another one."""
