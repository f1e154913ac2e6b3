"""Pickles and marshalled data that hold nothing but plain data.

What a pickle may call is in ``_ADMITTED``, and nothing else is ever looked up or imported. Python's own
unpickler, not the one in C: that one can be made to take gigabytes by a few damaged bytes.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID
from zoneinfo import ZoneInfo

from scrapy_fleet.errors import Unreadable

MOST_VALUES = 1_000_000
"""A single record that has more is refused: a few bytes can stand for more values than fit anywhere."""
MAX_DEPTH = 100


def _zone(key: object, cached: object = True) -> ZoneInfo:
    if not isinstance(key, str):
        raise Unreadable("it has a time zone without a name")
    return ZoneInfo(key)


def _getattr(owner: object, name: object) -> Callable[..., ZoneInfo]:
    """Time zones are pickled as a call of this one method."""
    if owner is ZoneInfo and name == "_unpickle":
        return _zone
    raise Unreadable("it calls getattr, which is not admitted")


_ADMITTED: dict[tuple[str, str], Any] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "getattr"): _getattr,
    ("datetime", "date"): date,
    ("datetime", "datetime"): datetime,
    ("datetime", "time"): time,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
    ("decimal", "Decimal"): Decimal,
    ("uuid", "UUID"): UUID,
    ("zoneinfo", "ZoneInfo"): ZoneInfo,
    ("zoneinfo", "ZoneInfo._unpickle"): _zone,
    # Text that lxml read from a page, as the text of a link: see crawl/plain.py.
    ("lxml.etree", "_ElementUnicodeResult"): str,
    ("lxml.etree", "_ElementStringResult"): str,
}


class _PlainUnpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        found = _ADMITTED.get((module, name))
        if found is None:
            raise Unreadable(f"it holds {module!s:.60}.{name!s:.60}, which is not plain data")
        return found

    def load_build(self) -> None:
        state, value = self.stack.pop(), self.stack[-1]
        whole = type(state) is dict and state.keys() == {"int"} and type(state["int"]) is int
        if type(value) is not UUID or not whole or not 0 <= state["int"] < 1 << 128:
            raise Unreadable(f"it sets the inside of a {type(value).__name__}, which is not plain data")
        value.__setstate__(dict(state))  # type: ignore[attr-defined]

    dispatch[pickle.BUILD[0]] = load_build


def unpickle(data: bytes) -> object:
    """What was pickled, if it is plain data; raises Unreadable if it is not."""
    try:
        # The one unpickler that S301 cannot mean: it admits what is listed above.
        value = _PlainUnpickler(io.BytesIO(data)).load()
    except Unreadable:
        raise
    except Exception as error:  # whatever damaged bytes lead to
        raise Unreadable(f"its pickle is damaged: {_short(error)}") from None
    check_plain(value)
    return value


def check_plain(value: object) -> None:
    """Refuse what has too many values, or lies too deep: it would take for ever to be written."""
    left = MOST_VALUES
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.keys()
                inner += each.values()
            elif isinstance(each, list | tuple | set | frozenset):
                inner += each
            if len(inner) > left:
                raise Unreadable(f"it holds more than {MOST_VALUES:,} values")
        if not inner:
            return
        left -= len(inner)
        level = inner
    raise Unreadable(f"it is nested more than {MAX_DEPTH} levels deep, or holds itself")


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:120] if str(error) else type(error).__name__
