"""Downloads that do not come from the store: media files, downloads inside callbacks, robots.txt.

A site that refuses one of them is left alone by the whole fleet, as if it had refused a leased request.
"""

from __future__ import annotations

from weakref import WeakSet

from scrapy import Request
from scrapy.http import Response

from scrapy_fleet.crawl.retry_after import retry_after
from scrapy_fleet.model import Notice
from scrapy_fleet.politeness import REFUSALS

SPOKEN_FOR: WeakSet[Request] = WeakSet()
"""Who sent these tells the store how they were answered."""


def refusal(slot: str, response: Response, failed: str = "") -> Notice | None:
    """What the store is to know of an answer; None if it is no refusal."""
    if response.status not in REFUSALS:
        return None
    return Notice(slot, failed=failed, status=response.status, retry_after=retry_after(response))
