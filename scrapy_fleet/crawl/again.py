"""Requests that were handed out too early: they go back to the store, and nobody hears of it.

What these functions give is what a downloader middleware returns. Neither is a retry: nothing counts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Request

if TYPE_CHECKING:
    from scrapy_fleet.crawl.scheduler import Scheduler


def back(scheduler: Scheduler, request: Request) -> Request:
    """A leased request that was not sent: its lease is released, and its entry is as if it had never left.

    Nothing can have come of it yet, so nothing needs to be stored before.
    """
    copy = request.replace(dont_filter=True)
    scheduler.running.give_back(request, copy)
    return copy


def again(scheduler: Scheduler, request: Request) -> Request:
    """A leased request that was sent in vain: a new entry takes its place, which may be changed.

    It is stored together with the end of the old one, so that a crash neither loses nor doubles it.
    """
    copy = request.replace(dont_filter=True)
    scheduler.parents.note(copy, request)
    return copy
