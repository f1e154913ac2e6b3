"""The scheduler, under the name that scrapy-redis has for it: the fleet's own, with its settings."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider, signals
from scrapy.core import scheduler as stock
from scrapy.exceptions import DontCloseSpider

from scrapy_fleet import addon as fleet_addon
from scrapy_fleet.crawl import scheduler as fleet
from scrapy_fleet.crawl.seam_late import wire_late
from scrapy_fleet.crawl.spiders import Idle
from scrapy_fleet.errors import CrawlInUse, FleetError
from scrapy_fleet.scrapy_redis import queue
from scrapy_fleet.scrapy_redis.bridge import bridge_start
from scrapy_fleet.scrapy_redis.dupefilter import RFPDupeFilter
from scrapy_fleet.scrapy_redis.wiring import Addon, filter_of, queue_class
from scrapy_fleet.settings import is_known

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

    from scrapy_fleet.settings import Options
    from scrapy_fleet.store.base import Store

logger = logging.getLogger(__name__)


class Scheduler(fleet.Scheduler):
    """``SCHEDULER = "scrapy_fleet.scrapy_redis.scheduler.Scheduler"``

    Settings: ``SCHEDULER_PERSIST``, ``SCHEDULER_FLUSH_ON_START``, ``SCHEDULER_IDLE_BEFORE_CLOSE``,
    ``SCHEDULER_QUEUE_KEY``, ``SCHEDULER_QUEUE_CLASS``, ``DUPEFILTER_CLASS``, and ``REDIS_*`` for the server.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        if fleet_addon.is_tool():
            return stock.Scheduler.from_crawler(crawler)
        if not is_known(crawler):
            wire_late(crawler, Addon(crawler))
        if crawler.spider is not None:
            bridge_start(crawler.spider)
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        settings = crawler.settings
        self.persist = settings.getbool("SCHEDULER_PERSIST")
        self.flush_on_start = settings.getbool("SCHEDULER_FLUSH_ON_START")
        self.idle_before_close = settings.getfloat("SCHEDULER_IDLE_BEFORE_CLOSE")
        with contextlib.suppress(FleetError):  # the add-on has seen it, and it is told when the spider opens
            self.flat = not issubclass(queue_class(settings), queue.PriorityQueue)
        self._idle = Idle(crawler)
        self._filter = filter_fingerprinter(crawler)
        if self.idle_before_close > 0:
            crawler.signals.connect(self._stay, signals.spider_idle)

    def open(self, spider: Spider) -> Deferred[None]:
        opened = super().open(spider)
        # All requests are alike: start requests have no line of their own.
        self._seed_lane = False
        if self._filter is not None:
            self._fingerprint = self._filter.fingerprint
            if self._filter.is_own:
                self.known_urls.limit(0)  # an equal URL may be another request
        return opened

    def _open_store(self, options: Options) -> Store:
        store = super()._open_store(options)
        if self.flush_on_start:
            try:
                store.clear()
            except CrawlInUse:
                logger.warning(
                    "Crawl %r is not cleared (SCHEDULER_FLUSH_ON_START): other workers are in it.",
                    options.crawl,
                )
        return store

    def _stay(self) -> None:
        if self._idle.seconds() < self.idle_before_close:
            raise DontCloseSpider


class FilterFingerprinter:
    """What a duplicate filter says of which requests are the same, as fingerprints of the fleet."""

    def __init__(self, cls: type[RFPDupeFilter]) -> None:
        self._filter = cls(None, key="")
        self.is_own = cls.request_fingerprint is not RFPDupeFilter.request_fingerprint

    def text(self, request: Request) -> str:
        """As it is in a duplicate set."""
        return str(self._filter.request_fingerprint(request))

    def fingerprint(self, request: Request) -> bytes:
        return self.of_text(self.text(request).encode())

    @staticmethod
    def of_text(text: bytes) -> bytes:
        return hashlib.sha1(text, usedforsecurity=False).digest()


def filter_fingerprinter(crawler: Crawler) -> FilterFingerprinter | None:
    """By the project's duplicate filter, if it is one of scrapy-redis."""
    cls = filter_of(crawler)
    return None if cls is None else FilterFingerprinter(cls)
