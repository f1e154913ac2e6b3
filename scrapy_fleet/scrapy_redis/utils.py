"""Small helpers, under the names that scrapy-redis has for them."""

from __future__ import annotations

import json
from typing import Any


class TextColor:
    """Colours of a terminal."""

    HEADER = "\033[95m"
    OKBLUE = "\033[94m"
    OKCYAN = "\033[96m"
    OKGREEN = "\033[92m"
    WARNING = "\033[93m"
    FAIL = "\033[91m"
    ENDC = "\033[0m"
    BOLD = "\033[1m"
    UNDERLINE = "\033[4m"


def bytes_to_str(s: Any, encoding: str = "utf-8") -> Any:
    """Bytes as text; anything else as it is."""
    return s.decode(encoding) if isinstance(s, bytes) else s


def is_dict(string_content: str | bytes) -> bool:
    """Whether this is JSON (of whatever kind, despite the name)."""
    try:
        json.loads(string_content)
    except ValueError:
        return False
    return True


def convert_bytes_to_str(data: Any, encoding: str = "utf-8") -> Any:
    """Bytes as text, also as keys and values of dicts and in tuples."""
    if isinstance(data, dict):
        return {
            convert_bytes_to_str(key, encoding): convert_bytes_to_str(value, encoding)
            for key, value in data.items()
        }
    if isinstance(data, tuple):
        return tuple(convert_bytes_to_str(each, encoding) for each in data)
    return bytes_to_str(data, encoding)
