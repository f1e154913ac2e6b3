"""For how long a site asks to be left alone."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from scrapy.http import Response

from scrapy_fleet.politeness import REFUSALS

LONGEST = 366 * 86400.0
"""No site can have itself forgotten by a number without end."""


def retry_after(response: Response) -> float | None:
    """The seconds that the ``Retry-After`` of a refusal says; None if it says nothing that can be read."""
    if response.status not in REFUSALS:
        return None
    said = (response.headers.get("Retry-After") or b"").decode("latin-1").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", said):
        return min(LONGEST, float(said))
    until = _timestamp(said)
    if until is None:
        return None
    # By the site's own clock, if it tells: ours may be wrong, or its.
    now = _timestamp((response.headers.get("Date") or b"").decode("latin-1"))
    return min(LONGEST, max(0.0, until - (time.time() if now is None else now)))


def _timestamp(date: str) -> float | None:
    try:
        moment: datetime = parsedate_to_datetime(date)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
