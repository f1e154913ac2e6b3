"""Checks of what people set: each takes a value and returns it as it is meant, or says what it must be."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from typing import Any

from scrapy_fleet.errors import SettingError

Parse = Callable[[Any], Any]


def number(
    kind: type[int] | type[float], least: float, *, finite: bool = False, most: float = math.inf
) -> Parse:
    def parse(value: Any) -> Any:
        try:
            number = kind(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"it must be a {'whole ' * (kind is int)}number") from None
        if number != number or number < least:
            raise ValueError(f"it must be {least:g} or more")
        if number > most:
            raise ValueError(f"it must be {most:g} or less")
        if finite and math.isinf(number):
            raise ValueError("it must be a number that ends")
        return number

    return parse


seconds = number(float, 0, finite=True)


def above_zero(value: Any) -> float:
    found = seconds(value)
    if not found:
        raise ValueError("it must be more than 0")
    return float(found)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def duration(value: Any) -> float:
    """Seconds, or a text as ``90s``, ``15m``, ``12h``, ``7d`` or ``2w``."""
    what, unit = value, 1
    if isinstance(value, str) and value.strip()[-1:].lower() in _UNITS:
        what, unit = value.strip()[:-1], _UNITS[value.strip()[-1].lower()]
    try:
        return above_zero(what) * unit
    except ValueError:
        raise ValueError("it must be a time above 0: seconds, or as 90s, 15m, 12h, 7d or 2w") from None


def share(value: Any) -> float:
    found = above_zero(value)
    if found > 0.5:
        raise ValueError("it must be 0.5 at most")
    return found


def choice(*choices: str) -> Parse:
    def parse(value: Any) -> Any:
        if value not in choices:
            raise ValueError(f"it must be one of {', '.join(choices)}")
        return value

    return parse


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("it must be a text that is not empty")
    return value


def checked(name: str, value: Any, parse: Parse) -> Any:
    """The value of a setting; a wrong one is refused by the setting's name."""
    try:
        return parse(value)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{name} = {value!r} cannot be used: {error}.") from None


def shown(url: str) -> str:
    """A store's address without its password, however badly it is written."""
    url = re.sub(r"^([^:]*:(?://)?[^:@]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&]\w*password=)[^&]*", r"\1***", url)


def unknown(name: str, known: list[str]) -> SettingError:
    """There is no such setting; which one was meant."""
    # Without the beginning, which all have in common.
    near = difflib.get_close_matches(name[6:], [each[6:] for each in known], n=1)
    hint = f"Did you mean FLEET_{near[0]}?" if near else f"There are: {', '.join(known)}."
    return SettingError(f"There is no setting {name}. {hint}")
