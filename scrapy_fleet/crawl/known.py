"""The early memory: links that this worker has queued already are dropped next to the spider.

Most links of a page lead to where the crawl has been. Scrapy builds, signals, and fingerprints each
of them before it drops it; dropping them first is what makes a crawl of a real site twice as fast.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from pydispatch.dispatcher import getAllReceivers  # type: ignore[import-untyped]
from scrapy import Request, Spider, signals
from scrapy.http import Response
from scrapy.utils.request import RequestFingerprinter

from scrapy_fleet.crawl.seam import let_go_of_page, scheduler_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class KnownUrls:
    """URLs that were queued lately, exactly as they are written; bounded, the older half goes first.

    It is fed by the scheduler alone: a link that depth or offsite rules dropped may come again. Where the
    store forgets by age, nothing is remembered here for longer than ``max_age`` seconds: the store must hear
    now and then that a link is still met, and decides when it is fetched again.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._recent: set[str] = set()
        self._older: set[str] = set()
        self._half = 0
        self._max_age = math.inf
        self._since = monotonic()

    def limit(self, urls: int, max_age: float = math.inf) -> None:
        """Set the bounds; what counts as the same request must be decided by its URL."""
        fingerprinter = self._crawler.request_fingerprinter
        self._half = urls // 2 if type(fingerprinter) is RequestFingerprinter else 0
        self._max_age = max_age

    def add(self, request: Request) -> None:
        if self._half and _is_plain(request):
            self._recent.add(request.url)
            if len(self._recent) >= self._half:
                self._turn()

    def _turn(self) -> None:
        self._recent, self._older = set(), self._recent
        self._since = monotonic()

    def clear(self) -> None:
        self._recent, self._older = set(), set()

    def _age(self) -> None:
        if (age := monotonic() - self._since) >= self._max_age:
            self.clear()
        if 2 * age >= self._max_age:
            self._turn()

    def __contains__(self, request: Request) -> bool:
        url = request.url
        return (url in self._recent or url in self._older) and not request.dont_filter and _is_plain(request)

    @property
    def usable(self) -> bool:
        """Not while somebody listens to dropped requests: they would not hear of these."""
        self._age()
        return self._half > 0 and not self.somebody_listens

    @property
    def somebody_listens(self) -> bool:
        receivers = getAllReceivers(self._crawler.signals.sender, signals.request_dropped)
        return any(True for _ in receivers)


def _is_plain(request: Request) -> bool:
    return request.method == "GET" and not request.body and not request.meta.get("verbatim_url")


class KnownUrlsMiddleware:
    """Spider middleware, next to the spider: drops known links, counts items, and lets go of the page."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self._most_items = -1

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> KnownUrlsMiddleware:
        return cls(crawler)

    def process_spider_output(
        self, response: Response, result: Iterable[Any], spider: Spider | None = None
    ) -> Iterator[Any]:
        known, dropped, items = self._usable(), 0, 0
        repeat: Request | None = None
        try:
            for each in result:
                if not isinstance(each, Request):
                    items += 1
                elif each in known:
                    dropped, repeat = dropped + 1, each
                    continue
                yield each
        finally:
            let_go_of_page(response)
            self._count(repeat, dropped, items)

    # Twice the same, since nearly all links of a crawl come through here: a call for each would be dear.
    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[Any], spider: Spider | None = None
    ) -> AsyncIterator[Any]:
        known, dropped, items = self._usable(), 0, 0
        repeat: Request | None = None
        try:
            async for each in result:
                if not isinstance(each, Request):
                    items += 1
                elif each in known:
                    dropped, repeat = dropped + 1, each
                    continue
                yield each
        finally:
            let_go_of_page(response)
            self._count(repeat, dropped, items)

    def _usable(self) -> KnownUrls | tuple[()]:
        scheduler = scheduler_of(self.crawler)
        return scheduler.known_urls if scheduler is not None and scheduler.known_urls.usable else ()

    def _count(self, repeat: Request | None, dropped: int, items: int) -> None:
        if repeat is not None and (scheduler := scheduler_of(self.crawler)) is not None:
            scheduler.repeats.early(repeat, dropped)
        if items > self._most_items and (scheduler := scheduler_of(self.crawler)) is not None:
            self._most_items = items
            scheduler.seam.expect_items(items)
