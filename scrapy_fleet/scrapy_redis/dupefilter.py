"""A duplicate filter on a Redis server, to be used alone or with Scrapy's own scheduler.

The fleet's scheduler keeps what was seen in the crawl's store. Of a filter that it is given, it only asks
``request_fingerprint``, if a project has its own.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from typing import TYPE_CHECKING, Any, Self

from scrapy.dupefilters import BaseDupeFilter
from w3lib.url import canonicalize_url

from scrapy_fleet.scrapy_redis import defaults
from scrapy_fleet.scrapy_redis.connection import get_redis_from_settings

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)


class RFPDupeFilter(BaseDupeFilter):
    """Fingerprints of requests in a set."""

    logger = logger

    def __init__(self, server: Any, key: str, debug: bool = False) -> None:
        self.server = server
        self.key = key
        self.debug = debug
        self.logdupes = True

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        """One with a key of its own, ``dupefilter:<time>``."""
        key = defaults.DUPEFILTER_KEY % {"timestamp": int(time.time())}
        return cls(get_redis_from_settings(settings), key=key, debug=settings.getbool("DUPEFILTER_DEBUG"))

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls.from_settings(crawler.settings)

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        """One with the spider's key, ``SCHEDULER_DUPEFILTER_KEY``."""
        settings = spider.settings
        key = settings.get("SCHEDULER_DUPEFILTER_KEY", defaults.SCHEDULER_DUPEFILTER_KEY)
        server = get_redis_from_settings(settings)
        return cls(server, key=key % {"spider": spider.name}, debug=settings.getbool("DUPEFILTER_DEBUG"))

    def request_seen(self, request: Request) -> bool:
        return not self.server.sadd(self.key, self.request_fingerprint(request))

    def request_fingerprint(self, request: Request) -> str:
        """The same one that scrapy-redis makes."""
        parts = {
            "method": str(request.method),
            "url": canonicalize_url(request.url),
            "body": (request.body or b"").hex(),
        }
        return hashlib.sha1(json.dumps(parts, sort_keys=True).encode(), usedforsecurity=False).hexdigest()

    def close(self, reason: str = "") -> None:
        self.clear()

    def clear(self) -> None:
        self.server.delete(self.key)

    def log(self, request: Request, spider: Spider) -> None:
        if self.debug:
            self.logger.debug(
                "Filtered duplicate request: %(request)s", {"request": request}, extra={"spider": spider}
            )
        elif self.logdupes:
            self.logdupes = False
            self.logger.debug(
                "Filtered duplicate request: %(request)s - no more duplicates will be shown "
                "(see DUPEFILTER_DEBUG to show all duplicates)",
                {"request": request},
                extra={"spider": spider},
            )
