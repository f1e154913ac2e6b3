"""Pickles of plain data, read without running anything.

A pickle may name any function of any module, to be called with any arguments. This reader admits only the
types below; whatever else is named, the whole pickle is refused before anything of it is called.
"""

from __future__ import annotations

import datetime
import decimal
import io
import pickle
import uuid
from typing import Any

from scrapy_fleet.errors import Unreadable


def _latin(text: Any, encoding: Any) -> bytes:
    """How pickles of protocol 2 and older write bytes: as a call of ``_codecs.encode``."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "iso-8859-1"):
        raise Unreadable("it calls an encoder")
    return text.encode("latin-1")


def _bytes(*parts: Any) -> bytes:
    """... and empty bytes: as a call of ``bytes``. With a number it would reserve memory."""
    if parts:
        raise Unreadable("it calls bytes()")
    return b""


_ADMITTED: dict[tuple[str, str], Any] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "bytes"): _bytes,
    ("__builtin__", "bytes"): _bytes,
    ("__builtin__", "complex"): complex,
    ("__builtin__", "set"): set,
    ("__builtin__", "frozenset"): frozenset,
    ("_codecs", "encode"): _latin,
    ("datetime", "datetime"): datetime.datetime,
    ("datetime", "date"): datetime.date,
    ("datetime", "time"): datetime.time,
    ("datetime", "timedelta"): datetime.timedelta,
    ("datetime", "timezone"): datetime.timezone,
    ("decimal", "Decimal"): decimal.Decimal,
    ("uuid", "UUID"): uuid.UUID,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise Unreadable(f"it names {module}.{name}, which is no plain data") from None

    def persistent_load(self, pid: Any) -> Any:
        raise Unreadable("it refers to something outside of it")


def loads(data: bytes) -> Any:
    """What the pickle holds; :class:`Unreadable`, if it is damaged or holds more than plain data."""
    try:
        return _Reader(io.BytesIO(data)).load()
    except Unreadable as error:
        raise Unreadable(f"the pickle is refused: {error}") from None
    except Exception as error:  # damaged data leads to anything
        raise Unreadable(f"the pickle is damaged: {type(error).__name__}") from None


def is_pickle(data: bytes) -> bool:
    """As protocols from 2 on begin; JSON never does."""
    return data[:1] == b"\x80"
