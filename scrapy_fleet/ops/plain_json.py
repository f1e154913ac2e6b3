"""Plain data as JSON, for people and programs: what JSON lacks is written in its usual form."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from typing import Any


def dumps(value: Any) -> str:
    """One line. Text stays as it is, but for what no file could hold."""
    ready = jsonable(value)
    line = json.dumps(ready, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as bad pages have them
        return json.dumps(ready)
    return line


def jsonable(value: Any) -> Any:
    """The value in terms of JSON."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {_name(key): jsonable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    if isinstance(value, set | frozenset):
        # In an order that is always the same.
        return sorted((jsonable(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)  # Decimal, UUID, complex: in full


def text_of(value: bytes) -> Any:
    """Bytes that are text as text, others in base64."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _name(key: Any) -> str:
    if isinstance(key, str):
        return key
    ready = jsonable(key)
    return ready if isinstance(ready, str) else json.dumps(ready)
