"""Spiders that ask for what the test tells them, and show what came of it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.http import Request, Response
from scrapy.pipelines.files import FilesPipeline
from scrapy.resolver import CachingThreadedResolver
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from scrapy_fleet.crawl.debug_lines import DebugLines
from scrapy_fleet.crawl.seam import EventLoop
from scrapy_fleet.model import Auto, Lease, Plan, Rule, Sample
from tests.spiders.base import SiteSpider, show


class Asks(SiteSpider):
    name = "asks"

    def __init__(self, paths: str = "", meta: str = "{}", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.paths, self.meta = paths.split(), json.loads(meta)

    async def start(self) -> AsyncIterator[Any]:
        for path in self.paths:
            yield self.get(path, errback=self.failed, meta=dict(self.meta))

    def parse(self, response: Response) -> Any:
        marks = [key for key in response.meta if key.startswith("_fleet")]
        return show(response, times=response.meta.get("retry_times"), marks=marks)

    def failed(self, failure: Failure) -> Any:
        return [{"failed": type(failure.value).__name__}]


class Sees429(Asks):
    name = "sees_429"
    handle_httpstatus_list = [429]


class Dawdle:
    """A middleware that takes its time with some requests, the first time it sees them."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    async def process_request(self, request: Request, spider: Any = None) -> None:
        if "late" in request.url and request.url not in self.seen:
            self.seen.add(request.url)
            await asyncio.sleep(0.3)


class Dawdles(Asks):
    name = "dawdles"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Dawdle: 500}}


class Stagger:
    """A middleware that lets requests come one after the other: a downloader counts those that come together
    only when it has begun all of them."""

    count = 0

    async def process_request(self, request: Request, spider: Any = None) -> None:
        self.count += 1
        await asyncio.sleep(0.03 * (self.count % 6))


class Staggers(Asks):
    name = "staggers"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Stagger: 500}}


class Meander:
    """A middleware: most requests take their time on their way, some none."""

    async def process_request(self, request: Request, spider: Any = None) -> None:
        if "quick" not in request.url:
            await maybe_deferred_to_future(EventLoop().pause(0.15))


class Meanders(Asks):
    """Each path begins with its slot."""

    name = "meanders"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Meander: 500}}

    async def start(self) -> AsyncIterator[Any]:
        for path in self.paths:
            yield self.get(path, meta={"download_slot": path.split("/")[2]})


class Inline(Asks):
    """Each page brings another one, which is downloaded inside the callback."""

    name = "inline"

    async def parse(self, response: Response) -> Any:  # type: ignore[override]
        inner = await self.fetch(self.get(f"/leaf/inner-{response.url.rpartition('/')[2]}"))
        return [show(response), show(inner)]


class RefusedInline(Asks):
    """The first page brings another one, which is downloaded inside the callback; then there are more."""

    name = "refused_inline"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.aside = self.paths.pop()

    async def parse(self, response: Response) -> Any:  # type: ignore[override]
        if "first" not in response.url:
            return None
        inner = await self.fetch(self.get(self.aside, meta={"dont_retry": True}))
        return [show(inner), *(self.get(f"/leaf/{number}") for number in range(3))]


class RefusedFile(RefusedInline):
    """The same, with a file of an item; more comes when the item is there."""

    name = "refused_file"
    custom_settings = {
        "ITEM_PIPELINES": {FilesPipeline: 1},
        "FILES_STORE": "files",
        "RETRY_ENABLED": False,
        "LOG_LEVEL": "CRITICAL",
    }

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> RefusedFile:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.scraped, signals.item_scraped)
        return spider

    async def parse(self, response: Response) -> Any:  # type: ignore[override]
        return {"file_urls": [self.base + self.aside]} if "first" in response.url else None

    def scraped(self) -> None:
        assert self.crawler.engine is not None
        for number in range(3):
            self.crawler.engine.crawl(self.get(f"/leaf/{number}"))


class Beside:
    """An extension of stock Scrapy: the fleet's debug lines beside those of its own AutoThrottle."""

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        auto = Auto(
            settings.getfloat("AUTOTHROTTLE_START_DELAY"),
            settings.getfloat("AUTOTHROTTLE_MAX_DELAY"),
            settings.getfloat("AUTOTHROTTLE_TARGET_CONCURRENCY"),
        )
        plan = Plan(rule=Rule(settings.getfloat("DOWNLOAD_DELAY")), auto=auto)
        self.crawler = crawler
        self.ours = DebugLines(settings, plan)
        self.pace = max(auto.start, plan.rule.delay)
        self.lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("scrapy.extensions.throttle").addHandler(handler)
        crawler.signals.connect(self._downloaded, signals.response_downloaded)
        crawler.signals.connect(self._closed, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Beside:
        return cls(crawler)

    def _downloaded(self, response: Any, request: Request, spider: Any) -> None:
        slot = request.meta["download_slot"]
        assert self.crawler.engine is not None
        conc = len(self.crawler.engine.downloader.slots[slot].transferring)
        lease = Lease(1, slot, b"", 0, False, 0, 0.0, pace=self.pace)
        sample = Sample(1, request.meta.get("download_latency"), response.status)
        self.ours.log(lease, sample, response, conc, spider)

    def _closed(self) -> None:
        assert self.crawler.stats is not None
        self.crawler.stats.set_value("throttle_lines", self.lines)


class StockThrottled(Asks):
    name = "stock_throttled"
    custom_settings = {"EXTENSIONS": {Beside: 1}}


class SlowResolver(CachingThreadedResolver):
    """Finds the addresses of hosts, but not at once."""

    def getHostByName(self, name: str, timeout: Any = ()) -> Deferred[str]:
        found = super().getHostByName(name, timeout)
        pause: Deferred[None] = deferLater(self.reactor, 0 if found.called else 0.3)
        return pause.addCallback(lambda _: found)


class Toil:
    """A middleware: while some requests are being sent, the loop has much to do, in every turn."""

    def process_request(self, request: Request, spider: Any = None) -> None:
        if "busy" in request.url:
            self.toil(5)

    def toil(self, turns: int) -> None:
        from twisted.internet import reactor

        if turns:
            # The one is called before sockets are looked at, the other one after.
            asyncio.get_running_loop().call_soon(time.sleep, 0.1)
            reactor.callLater(0, self.toil, turns - 1)  # type: ignore[attr-defined]


class Toils(Asks):
    name = "toils"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Toil: 500}}
