"""Code of a user, by value: functions and classes of modules that other machines lack.

This is the only pickling of the package. What is read was written a moment ago by the same user,
who started the workers; nothing is read from a disk.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import cloudpickle

_OURS = "loopwright"
_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")


def to_bytes(value: Any) -> bytes:
    """A value, or a mapping or sequence of values, with the code that they are made of as far as
    that is the user's own. Installed modules, such as this package or NumPy, are named."""
    with contextlib.ExitStack() as stack:
        for module in {m.__name__: m for m in _own_modules(value)}.values():
            if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.register_pickle_by_value(module)
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
        return bytes(cloudpickle.dumps(value))


def from_bytes(data: bytes) -> Any:
    """The value that `to_bytes` wrote, in a worker of the same user's."""
    return cloudpickle.loads(data)


def _own_modules(value: Any) -> Iterator[ModuleType]:
    """The modules that define values, where they are the user's: files outside of the folders of
    what is installed. `__main__` goes by value anyway."""
    values: Iterable[Any] = ()
    if isinstance(value, Mapping):
        values = value.values()
    elif isinstance(value, (list, tuple)):
        values = value
    for one in values:
        yield from _own_modules(one)
    name = getattr(value, "__module__", None) or type(value).__module__
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    folders = tuple(sysconfig.get_path(word) for word in _INSTALLED)
    ours = name.partition(".")[0] == _OURS
    if module is not None and path and not ours and not path.startswith(folders):
        yield module
