"""Plain data as bytes, and back, with every type exactly as it was.

The basis is msgpack. It has no tuples, sets, dates or large numbers, so these are written as its
extension types. Subclasses (namedtuple, OrderedDict, IntEnum, ...) are refused rather than changed:
one that returns as its base breaks a spider long after the cause is gone.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from lxml import etree  # type: ignore[import-untyped]
from msgspec.msgpack import Decoder, Encoder, Ext

from scrapy_fleet.errors import Unreadable, Unstorable

VERSION = b"\x01"
"""The first byte of all that is stored; another one will mean another format."""
MAX_DEPTH = 100
"""Nesting beyond this is refused: most likely a container that holds itself."""

encode = Encoder().encode

# Types msgpack keeps as they are. It cannot take every str (lone surrogates) or int (above 64 bits):
# these are so rare that they are looked for only after an encoding has failed.
ATOMS = frozenset({NoneType, bool, int, float, str, bytes})
SURE_ATOMS = ATOMS - {int, str}

# Text that lxml reads from a page, such as the text of a link: a str that holds on to the page.
# The text is all that is meant, so this one subclass is stored as the str it stands for.
_PageText: type = type(etree.XPath("string()")(etree.Element("a")))


class _Refused(Exception):
    """Why a value cannot be stored; the path to it is gathered on the way up."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[str] = []


def _take_zone(zone: tzinfo | None) -> object:
    if zone is None:
        return None
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    if type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        return [offset] if name == timezone(offset).tzname(None) else [offset, name]
    raise _Refused(
        f"has a time zone of type {_name(type(zone))}, which cannot be stored: use zoneinfo.ZoneInfo"
    )


def _give_zone(parts: Any) -> tzinfo | None:
    if parts is None:
        return None
    return ZoneInfo(parts) if type(parts) is str else timezone(*parts)


def _take_time(value: Any) -> list[object]:
    clock = [value.hour, value.minute, value.second, value.microsecond]
    return [*clock, value.fold, _take_zone(value.tzinfo)]


def _give_time(parts: list[Any]) -> time:
    hour, minute, second, microsecond, fold, zone = parts
    return time(hour, minute, second, microsecond, _give_zone(zone), fold=fold)


def _give_datetime(parts: list[Any]) -> datetime:
    year, month, day, *clock = parts
    return datetime.combine(date(year, month, day), _give_time(clock))


def _give_dict(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


# How what msgpack does not know is taken apart. The numbers are part of the format.
_TAKE: dict[type, tuple[int, Callable[[Any], object]]] = {
    int: (1, lambda value: value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)),
    str: (2, lambda value: value.encode("utf-8", "surrogatepass")),
    dict: (3, lambda value: [part for pair in value.items() for part in pair]),
    tuple: (4, list),
    set: (5, list),
    frozenset: (6, list),
    Decimal: (7, str),
    date: (8, lambda value: [value.year, value.month, value.day]),
    datetime: (9, lambda value: [value.year, value.month, value.day, *_take_time(value)]),
    time: (10, _take_time),
    timedelta: (11, lambda value: [value.days, value.seconds, value.microseconds]),
    complex: (12, lambda value: [value.real, value.imag]),
    UUID: (13, lambda value: value.bytes),
}
_GIVE: dict[int, tuple[type, Callable[[Any], object]]] = {
    1: (bytes, lambda parts: int.from_bytes(parts, "big", signed=True)),
    2: (bytes, lambda parts: parts.decode("utf-8", "surrogatepass")),
    3: (list, _give_dict),
    4: (list, tuple),
    5: (list, set),
    6: (list, frozenset),
    7: (str, Decimal),
    8: (list, lambda parts: date(*parts)),
    9: (list, _give_datetime),
    10: (list, _give_time),
    11: (list, lambda parts: timedelta(*parts)),
    12: (list, lambda parts: complex(*parts)),
    13: (bytes, lambda parts: UUID(bytes=parts)),
}


def _lower(value: Any, atoms: frozenset[type], depth: int) -> Any:
    """The value in terms of msgpack, exactly. The input itself if msgpack can take it as it is."""
    kind = type(value)
    if kind in atoms:
        return value
    if depth > MAX_DEPTH:
        raise _Refused(f"lies more than {MAX_DEPTH} levels deep or holds itself, and cannot be stored")
    if kind is dict:
        if atoms.issuperset(map(type, value)):
            if atoms.issuperset(map(type, value.values())):
                return value
            return {key: _step(item, atoms, depth, key) for key, item in value.items()}
        parts: list[object] = []
        for position, (key, item) in enumerate(value.items()):
            parts.append(_step(key, atoms, depth, position, ".keys()"))
            parts.append(_step(item, atoms, depth, key))
        return Ext(3, encode(parts))
    if kind is list:
        if atoms.issuperset(map(type, value)):
            return value
        return [_step(item, atoms, depth, position) for position, item in enumerate(value)]
    if kind is int and -(2**63) <= value < 2**64:
        return value
    if kind is str and not any("\ud800" <= char <= "\udfff" for char in value):
        return value
    if kind is _PageText:
        return _lower(str(value), atoms, depth)
    if kind in _TAKE:
        code, take = _TAKE[kind]
        return Ext(code, encode(_lower(take(value), atoms, depth)))
    raise _Refused(_refusal(value))


def _step(value: Any, atoms: frozenset[type], depth: int, key: object, into: str = "") -> Any:
    if type(value) in atoms:
        return value
    try:
        return _lower(value, atoms, depth + 1)
    except _Refused as refused:
        refused.path.append(f"{into}[{reprlib.repr(key)}]")
        raise


def _refusal(value: object) -> str:
    kind = type(value)
    text = f"is {a_kind(kind)}, which cannot be stored"
    plain = next((base for base in kind.__mro__ if base in _TAKE or base in ATOMS or base is list), None)
    return f"{text}: it would come back as a plain {plain.__name__}" if plain else text


def a_kind(kind: type) -> str:
    return f"{'an' if kind.__name__[:1] in 'AEIOUaeiou' else 'a'} {_name(kind)}"


def _name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__name__} ({kind.__module__})"


def _give(code: int, data: memoryview) -> object:
    if code not in _GIVE:
        raise ValueError(f"kind {code} of value is unknown")
    needed, give = _GIVE[code]
    parts = _decode(data)
    if type(parts) is not needed:
        raise ValueError(f"a value of kind {code} is damaged")
    return give(parts)


_decode: Callable[[bytes | memoryview], Any] = Decoder(ext_hook=_give).decode


def lower(value: object, atoms: frozenset[type], where: str) -> Any:
    """The value as ``encode`` takes it; ``where`` is what an error calls it."""
    if type(value) in atoms:
        return value
    try:
        return _lower(value, atoms, 0)
    except _Refused as refused:
        steps = refused.path[::-1]
        path = "".join(steps) if len(steps) <= 10 else "".join(steps[:5]) + "..."
        raise Unstorable(f"{where}{path} {refused}") from None
    except RecursionError:
        raise Unstorable(f"{where} is nested too deeply, and cannot be stored") from None


def read(payload: bytes) -> Any:
    """What follows the version byte, decoded. Raises whatever damaged data leads to."""
    if payload[:1] == VERSION:
        return _decode(payload[1:])
    found = f"has format {payload[0]}" if payload else "is empty"
    raise Unreadable(f"what is stored {found}; this version of scrapy-fleet reads format {VERSION[0]}")


def pack(value: object, where: str) -> bytes:
    """Plain data as bytes; ``where`` is what an error calls it."""
    try:
        return VERSION + encode(lower(value, ATOMS, where))
    except (OverflowError, UnicodeEncodeError):  # rare, see ATOMS
        return VERSION + encode(lower(value, SURE_ATOMS, where))


def unpack(data: bytes) -> object:
    """What was packed, with every type as it was."""
    try:
        return read(data)
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"what is stored is damaged: {error}") from error
