"""Reads marshalled data, written by any Python 3, as far as it is plain.

Python's own reader is not made for damaged data: it may crash the process.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from scrapy_fleet.errors import Unreadable
from scrapy_fleet.ops.jobdir.unpickling import MAX_DEPTH, check_plain

FLAG_REF = 0x80
MOST_DIGITS = 10_000
_END = object()
_SINGLE: dict[str, Any] = {"N": None, "T": True, "F": False, "0": _END}
_SHORT_TEXTS, _TEXTS = "zZ", "uaAt"


def unmarshal(data: bytes) -> object:
    """What was marshalled; raises Unreadable if it is damaged, or not plain data."""
    try:
        value = _Reader(data).value(0)
    except Unreadable:
        raise
    except Exception as error:  # whatever damaged bytes lead to
        raise Unreadable(f"its data is damaged: {type(error).__name__}: {error}"[:160]) from None
    check_plain(value)
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._refs: list[Any] = []

    def _take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if size < 0 or len(part) < size:
            raise Unreadable("its data ends too early")
        self._at += size
        return part

    def _size(self) -> int:
        (size,) = struct.unpack("<i", self._take(4))
        # Every value takes a byte at least: what is larger is damaged.
        if not 0 <= size <= len(self._data):
            raise Unreadable("its data is damaged: a size makes no sense")
        return int(size)

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Unreadable(f"it is nested more than {MAX_DEPTH} levels deep")
        code = self._take(1)[0]
        kind = chr(code & ~FLAG_REF)
        if kind in _SINGLE:
            return _SINGLE[kind]
        if kind == "r":
            (number,) = struct.unpack("<I", self._take(4))
            return self._refs[number]
        place = None
        if code & FLAG_REF:
            # Numbered by where they begin: what holds them comes first.
            place = len(self._refs)
            self._refs.append(None)
        return self._keep(place, self._read(kind, depth, place))

    def _keep(self, place: int | None, value: Any) -> Any:
        if place is not None:
            self._refs[place] = value
        return value

    def _read(self, kind: str, depth: int, place: int | None) -> Any:
        if kind == "i":
            return struct.unpack("<i", self._take(4))[0]
        if kind == "l":
            return self._long()
        if kind in "gy":
            parts = [struct.unpack("<d", self._take(8))[0] for _ in range(1 if kind == "g" else 2)]
            return parts[0] if kind == "g" else complex(*parts)
        if kind in "fx":
            parts = [float(self._take(self._take(1)[0])) for _ in range(1 if kind == "f" else 2)]
            return parts[0] if kind == "f" else complex(*parts)
        if kind == "s":
            return self._take(self._size())
        if kind in _TEXTS:
            return self._take(self._size()).decode("utf-8", "surrogatepass")
        if kind in _SHORT_TEXTS:
            return self._take(self._take(1)[0]).decode("latin-1")
        return self._container(kind, depth, place)

    def _long(self) -> int:
        (size,) = struct.unpack("<i", self._take(4))
        if abs(size) > MOST_DIGITS:
            raise Unreadable("it holds a number that is too large")
        digits = struct.unpack(f"<{abs(size)}H", self._take(2 * abs(size)))
        value: int = sum(digit << (15 * place) for place, digit in enumerate(digits))
        return -value if size < 0 else value

    def _container(self, kind: str, depth: int, place: int | None) -> Any:
        if kind == "{":
            found: dict[Any, Any] = self._keep(place, {})
            while (key := self.value(depth + 1)) is not _END:
                found[key] = self._inner(depth)
            return found
        if kind == "[":
            listed: list[Any] = self._keep(place, [])
            listed.extend(self._inner(depth) for _ in range(self._size()))
            return listed
        made: Callable[[Any], Any] | None = {"(": tuple, ")": tuple, "<": set, ">": frozenset}.get(kind)
        if made is None:
            raise Unreadable(f"it holds a value of kind {kind!r}, which is not plain data")
        size = self._take(1)[0] if kind == ")" else self._size()
        return made([self._inner(depth) for _ in range(size)])

    def _inner(self, depth: int) -> Any:
        value = self.value(depth + 1)
        if value is _END:
            raise Unreadable("its data is damaged: it ends in the middle")
        return value
