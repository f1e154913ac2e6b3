"""How crawls end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.http import Response

from tests.spiders.base import DEPTH, SiteSpider, show

REASON = frozenset({"reason"})


class Endless(SiteSpider):
    """Never ends by itself; how far it gets before it is closed depends on time."""

    start_paths = ["/endless/0"]
    compare = REASON

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class ItemCount(Endless):
    name = "close_item_count"
    custom_settings = {"CLOSESPIDER_ITEMCOUNT": 5}


class PageCount(Endless):
    name = "close_page_count"
    custom_settings = {"CLOSESPIDER_PAGECOUNT": 5}


class NoItems(Endless):
    name = "close_no_items"
    custom_settings = {"CLOSESPIDER_PAGECOUNT_NO_ITEM": 5}
    start_paths = ["/endless/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield from self.follow(response)


class Timeout(Endless):
    name = "close_timeout"
    custom_settings = {"CLOSESPIDER_TIMEOUT": 1, "DOWNLOAD_DELAY": 0.05}


class ErrorCount(Endless):
    name = "close_error_count"
    custom_settings = {"CLOSESPIDER_ERRORCOUNT": 3}

    def parse(self, response: Response) -> Iterator[Any]:
        yield from self.follow(response)
        raise ValueError("again")


class InCallback(Endless):
    name = "close_in_callback"

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        if response.url.endswith("/0"):
            yield from self.follow(response)
        else:
            raise CloseSpider("enough")


class InAsyncCallback(Endless):
    name = "close_in_async_callback"

    async def parse(self, response: Response) -> AsyncIterator[Any]:  # type: ignore[override]
        yield show(response)
        for request in self.follow(response):
            yield request
        if not response.url.endswith("/0"):
            raise CloseSpider("enough, async")


class Idle(SiteSpider):
    """Keeps itself open once, and brings a request in past the spider's callbacks."""

    name = "idle"
    start_paths = ["/leaf/0"]
    times: ClassVar[int] = 1
    idle_count: int

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Any:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.on_idle, signals.spider_idle)
        spider.idle_count = 0
        return spider

    def on_idle(self) -> None:
        self.idle_count += 1
        if self.idle_count <= self.times:
            engine = self.crawler.engine
            assert engine is not None
            engine.crawl(self.get(f"/leaf/idle-{self.idle_count}", self.parse))
            raise DontCloseSpider

    def parse(self, response: Response) -> Any:
        return show(response)


class IdleBatches(Idle):
    """Feeds itself a batch each time it is idle."""

    name = "idle_batches"
    vague = DEPTH
    times = 4

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from (self.get(f"/leaf/{n}", self.parse) for n in range(self.idle_count * 2))


class IdleClose(Idle):
    name = "idle_close"

    def on_idle(self) -> None:
        raise CloseSpider("idle")


class IdleOnce(Idle):
    """Only keeps itself open; nothing new comes, and the next time it closes."""

    name = "idle_once"

    def on_idle(self) -> None:
        self.idle_count += 1
        if self.idle_count == 1:
            raise DontCloseSpider


class EngineCrawl(Idle):
    """Requests given to the engine by a signal handler in the middle of the crawl."""

    name = "engine_crawl"

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Any:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.on_item, signals.item_scraped)
        return spider

    def on_idle(self) -> None:
        pass

    def on_item(self, item: Any) -> None:
        engine = self.crawler.engine
        assert engine is not None
        self.idle_count += 1
        if self.idle_count <= 5:
            engine.crawl(self.get(f"/leaf/{self.idle_count}", self.parse))
            engine.crawl(self.get("/leaf/1", self.parse))


class Closed(SiteSpider):
    """``closed`` is told the reason."""

    name = "closed"
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Any:
        return show(response)

    def closed(self, reason: str) -> None:
        assert self.crawler.stats is not None
        self.crawler.stats.set_value("told", reason)


SPIDERS: list[type[SiteSpider]] = [
    ItemCount,
    PageCount,
    NoItems,
    Timeout,
    ErrorCount,
    InCallback,
    InAsyncCallback,
    Idle,
    IdleBatches,
    IdleClose,
    IdleOnce,
    EngineCrawl,
    Closed,
]
