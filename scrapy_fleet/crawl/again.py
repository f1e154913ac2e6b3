"""Requests that were handed out too early: they go back to the store, and nobody hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Request

if TYPE_CHECKING:
    from scrapy_fleet.crawl.scheduler import Scheduler


def again(scheduler: Scheduler, request: Request) -> Request:
    """What a downloader middleware returns to have a leased request handed out once more.

    It is not a retry: nothing counts it. The new one is stored together with the end of the old one, so
    that a crash neither loses nor doubles it.
    """
    copy = request.replace(dont_filter=True)
    scheduler.parents.note(copy, request)
    return copy
