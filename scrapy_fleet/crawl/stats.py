"""Scrapy's counters of all workers together: they stay in memory and go out as differences."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from scrapy.statscollectors import MemoryStatsCollector

from scrapy_fleet.model import Beside
from scrapy_fleet.outbox import Outbox

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

EVERY = 1.0
"""Seconds between two looks at the stats."""


class Quick:
    """To stand before a collector of Scrapy's, which wraps each call to warn of an argument that is not used
    any more: that takes twenty times as long as counting, and there are about 25 calls a page."""

    __getattribute__ = object.__getattribute__


class QuickStatsCollector(Quick, MemoryStatsCollector):
    """Scrapy's default, but quick."""


class Numbers:
    """What has been added to the worker's counters since it was last asked."""

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        # A collector that keeps its numbers beside the crawl too says what is to be written there.
        self._beside: Callable[[], list[Beside]] = getattr(crawler.stats, "changes_beside", list)
        self._sent: dict[str, float] = {}
        self._next = 0.0

    def hurry(self) -> None:
        """The next answer is the last."""
        self._next = 0.0

    def tell(self, outbox: Outbox) -> None:
        """Have what has changed committed; no more often than every second."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY
            outbox.keep(stats=self.changed(), beside=self._beside())

    def changed(self) -> dict[str, float]:
        changes: dict[str, float] = {}
        for name, value in self._stats.get_stats().items():
            if _adds_up(name, value) and value != self._sent.get(name, 0):
                changes[name] = value - self._sent.get(name, 0)
                self._sent[name] = value
        return changes


def _adds_up(name: str, value: object) -> bool:
    """Counters are whole numbers; a maximum, a size or a time makes no sense as a sum."""
    return type(value) is int and not name.endswith(("_max", "_min")) and not name.startswith("memusage/")
