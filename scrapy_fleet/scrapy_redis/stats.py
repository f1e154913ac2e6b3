"""Scrapy's stats, kept in a Redis hash for those who read it."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from scrapy.statscollectors import StatsCollector

from scrapy_fleet.crawl.seam import EventLoop
from scrapy_fleet.crawl.stats import Quick
from scrapy_fleet.model import Beside
from scrapy_fleet.scrapy_redis import defaults
from scrapy_fleet.scrapy_redis.beside import Courier, attempt, with_commits
from scrapy_fleet.scrapy_redis.connection import from_settings as redis_from_settings

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two writings, where commits do not do it."""

LAST_WAIT = 5.0

Kind = Literal["add", "put", "most", "least"]


class RedisStatsCollector(Quick, StatsCollector):
    """``STATS_CLASS = "scrapy_fleet.scrapy_redis.stats.RedisStatsCollector"``

    Counts in memory, as Scrapy's own does: nothing is sent per counter. The hash ``STATS_KEY``
    (``<spider>:stats``) has the sums of all workers: each adds what its counters have grown, about every
    second, with its commits where the hash is on the crawl's server.
    """

    def __init__(self, crawler: Crawler, spider: Spider | None = None) -> None:
        super().__init__(crawler)
        settings = crawler.settings
        self.crawler = crawler
        self.spider = spider
        self.spider_name = spider.name if spider else getattr(crawler.spidercls, "name", None)
        self.stats_key = settings.get("STATS_KEY") or defaults.STATS_KEY
        self.persist = settings.getbool("SCHEDULER_PERSIST")
        self._kinds: dict[str, Kind] = {}
        self._sent: dict[str, Any] = {}
        self._server: Any = None
        self._courier: Courier | None = None
        self._with_commits = False
        self._open = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        return cls(spider.crawler)

    @property
    def server(self) -> Any:
        if self._server is None:
            self._server = redis_from_settings(self.crawler.settings)
        return self._server

    def _get_key(self, spider: Spider | None = None) -> str:
        """The name of the hash."""
        named = spider or self.spider
        return str(self.stats_key % {"spider": named.name if named else self.spider_name or "scrapy"})

    # What is counted. Counters need no notice: what they have grown is seen.

    def set_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        self._kinds[key] = "put"
        super().set_value(key, value)

    def set_stats(self, stats: dict[str, Any], spider: Spider | None = None) -> None:
        self._kinds.update(dict.fromkeys(stats, "put"))
        super().set_stats(stats)

    def max_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        self._kinds[key] = "most"
        super().max_value(key, value)

    def min_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        self._kinds[key] = "least"
        super().min_value(key, value)

    def clear_stats(self, spider: Spider | None = None) -> None:
        """Of this worker, and the hash of all."""
        super().clear_stats()
        self._kinds.clear()
        self._sent.clear()
        self.server.delete(self._get_key(spider))

    # The hash

    def changes_beside(self) -> list[Beside]:
        """What is to be written with the next commit."""
        return self._changes() if self._with_commits else []

    def _changes(self) -> list[Beside]:
        name = self._get_key()
        changes: list[Beside] = []
        for key, value in self.get_stats().items():
            if key in self._sent and self._sent[key] == value:
                continue
            kind = self._kinds.get(key, "add")
            if kind != "put" and not _is_number(value):
                kind = "put"
            old = self._sent.get(key, 0)
            told = value - old if kind == "add" and _is_number(old) else value
            self._sent[key] = value
            changes.append(Beside(name, _text(told).encode(errors="surrogatepass"), kind, key))
        return changes

    def open_spider(self, spider: Spider | None = None) -> None:
        self.spider = spider or self.crawler.spider
        self._open = True
        self._with_commits = with_commits(self.crawler) is not None
        if not self._with_commits:
            self._courier = Courier(self.server)
            self._loop = EventLoop()
            self._loop.later(EVERY, self._tick)

    def _tick(self) -> None:
        if self._open and self._courier is not None:
            for change in self._changes():
                self._courier.send(change, _tell)
            self._loop.later(EVERY, self._tick)

    def close_spider(self, spider: Spider | None = None, reason: str | None = None) -> None:
        """The crawl is over for this worker. A crawl that is finished takes its hash along, unless
        ``SCHEDULER_PERSIST`` is set; one that is not goes on later, with the numbers it had."""
        self._open = False
        if self._courier is not None:
            self._courier.close(wait=LAST_WAIT)
        ended = spider or self.spider or self.crawler.spider
        super().close_spider(ended, reason)
        try:
            if reason == "finished" and not self.persist:
                self.server.delete(self._get_key())
            else:
                for error in filter(None, attempt(self.server, self._changes())):
                    raise error
        except Exception as error:
            logger.warning("The last stats are not in %r: %s", self._get_key(), error)
        self.spider = None


def _tell(error: Exception | None) -> None:
    if error is not None:
        logger.warning("A stat cannot be written: %s", error)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        value = value.timestamp()
    return repr(value) if isinstance(value, float) else str(value)
