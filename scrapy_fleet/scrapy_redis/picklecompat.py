"""Pickle with the newest protocol, as a serialiser; but what is read can only be plain data.

Whoever can write to the server could otherwise run code in every worker. Nothing here is used unless a
project asks for it, for a queue of its own: the default is a format that cannot run code.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

PLAIN = frozenset(
    {
        ("builtins", "bytearray"),
        ("builtins", "complex"),
        ("builtins", "frozenset"),
        ("builtins", "set"),
        ("collections", "OrderedDict"),
        ("datetime", "date"),
        ("datetime", "datetime"),
        ("datetime", "time"),
        ("datetime", "timedelta"),
        ("datetime", "timezone"),
        ("decimal", "Decimal"),
        ("uuid", "UUID"),
    }
)
"""Types that a pickle may name. None of them does anything but hold data."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in PLAIN:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is not plain data, and is not loaded")


def loads(s: bytes) -> Any:
    """Plain data from a pickle; one that names anything else raises ``pickle.UnpicklingError``."""
    return _PlainUnpickler(io.BytesIO(s)).load()


def dumps(obj: Any) -> bytes:
    return pickle.dumps(obj, protocol=-1)
