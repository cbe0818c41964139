"""What a user wrote, by value: functions and classes of modules that other machines lack.

This is the only pickling of the package. What is read was written a moment ago by the same user,
who started the workers; nothing is read from a disk.
"""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle

_OURS = "loopwright"


def to_bytes(value: Any) -> bytes:
    """A value with the code that it is made of, as far as that is the user's own: modules that
    are installed, such as this package or NumPy, are named."""
    module = _own_module(value)
    if module is None:
        return bytes(cloudpickle.dumps(value))
    known = module.__name__ in cloudpickle.list_registry_pickle_by_value()
    cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(value))
    finally:
        if not known:
            cloudpickle.unregister_pickle_by_value(module)


def from_bytes(data: bytes) -> Any:
    """What `to_bytes` wrote, in a worker of the same user's."""
    return cloudpickle.loads(data)


def _own_module(value: Any) -> Any:
    """The module that defines a value, if it is the user's: a file outside of Python's folders."""
    name = getattr(value, "__module__", None) or type(value).__module__
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    if path is None or name.partition(".")[0] == _OURS or "site-packages" in path:
        return None
    return None if path.startswith(sys.base_prefix) or name == "__main__" else module
