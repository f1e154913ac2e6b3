"""Scrapy's other parts at work: pipelines, feeds, cache, throttling, state, signals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem
from scrapy.http import Request, Response
from scrapy.pipelines.files import FilesPipeline

from tests.spiders.base import DEPTH, SiteSpider, show


class NamedFiles(FilesPipeline):
    """Keeps files under their own names: those of Scrapy hold the run's name, hashed."""

    def file_path(self, request: Request, response: Any = None, info: Any = None, *, item: Any = None) -> str:
        return request.url.rpartition("/")[2]


class Files(SiteSpider):
    name = "files"
    custom_settings = {
        "ITEM_PIPELINES": {NamedFiles: 1},
        "FILES_STORE": "files",
        "MEDIA_ALLOW_REDIRECTS": True,
    }
    start_paths = ["/files/index"]

    def parse(self, response: Response) -> Iterator[Any]:
        links = [response.urljoin(link) for link in response.css("a::attr(href)").getall()]
        yield {"file_urls": links}
        yield {"file_urls": links[:1], "second": True}
        yield self.get("/leaf/1", self.leaf)

    def leaf(self, response: Response) -> Any:
        return {"file_urls": [self.base + "/files/three.txt"]}


class Judge:
    """An item pipeline that waits, drops and fails."""

    async def process_item(self, item: Any) -> Any:
        await asyncio.sleep(0.001)
        title = item["title"]
        if title.endswith("3"):
            raise DropItem("threes are dropped")
        if title.endswith("5"):
            raise ValueError("fives fail")
        item["judged"] = True
        return item


class OldJudge(Judge):
    """The same for versions that still pass the spider along."""

    async def process_item(self, item: Any, spider: Any) -> Any:  # type: ignore[override]
        return await super().process_item(item)


class Pipelines(SiteSpider):
    name = "pipelines"
    vague = DEPTH
    start_paths = ["/graph/0"]

    @classmethod
    def update_settings(cls, settings: Any) -> None:
        super().update_settings(settings)
        judge = Judge if scrapy.version_info >= (2, 14) else OldJudge
        settings.set("ITEM_PIPELINES", {judge: 100}, priority="spider")

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class Feeds(SiteSpider):
    name = "feeds"
    custom_settings = {
        "FEEDS": {
            "feeds.jsonl": {"format": "jsonlines", "overwrite": True},
            "feeds.csv": {"format": "csv", "fields": ["url", "title"], "overwrite": True},
        }
    }
    outputs = ("feeds.jsonl", "feeds.csv")
    vague = DEPTH
    start_paths = ["/graph/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class Cached(SiteSpider):
    """The second run is served from the cache."""

    name = "cached"
    runs = 2
    custom_settings = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": "cache"}
    vague = DEPTH
    start_paths = ["/graph/0", "/redirect/302?to=/leaf/1", "/status/404"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response, flags=response.flags)
        yield from self.follow(response)


class Again(SiteSpider):
    """A crawl that has finished begins anew when it is run again."""

    name = "again"
    runs = 2
    vague = DEPTH
    start_paths = ["/graph/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class Delayed(SiteSpider):
    name = "delayed"
    custom_settings = {"DOWNLOAD_DELAY": 0.02, "CONCURRENT_REQUESTS_PER_DOMAIN": 2}
    start_paths = ["/tree/r.1"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)
        if response.url.endswith("/tree/r.1"):
            yield Request(f"{self.other}/tree/r.1")


class Throttled(SiteSpider):
    name = "throttled"
    custom_settings = {
        "AUTOTHROTTLE_ENABLED": True,
        "AUTOTHROTTLE_START_DELAY": 0.02,
        "AUTOTHROTTLE_MAX_DELAY": 0.05,
    }
    start_paths = ["/tree/r.1"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class SlotSettings(SiteSpider):
    name = "slot_settings"
    custom_settings = {
        "DOWNLOAD_SLOTS": {
            "127.0.0.1": {"concurrency": 1, "delay": 0.01},
            "mine": {"concurrency": 2, "delay": 0},
        }
    }
    start_paths = ["/tree/r.1"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        for number, request in enumerate(self.follow(response)):
            if number == 1:
                request.meta["download_slot"] = "mine"
            yield request


class State(SiteSpider):
    """``spider.state``, which stock Scrapy has with a JOBDIR only."""

    name = "state"
    custom_settings = {"JOBDIR": "job"}
    own_place = True
    start_paths = ["/tree/r.1"]

    state: dict[str, Any]

    def parse(self, response: Response) -> Iterator[Any]:
        self.state["pages"] = self.state.get("pages", 0) + 1
        yield show(response)
        yield from self.follow(response)

    def closed(self, reason: str) -> None:
        assert self.crawler.stats is not None
        self.crawler.stats.set_value("mine/pages", self.state["pages"])


class JobDir(SiteSpider):
    name = "job_dir"
    custom_settings = {"JOBDIR": "job-2"}
    own_place = True
    vague = DEPTH
    start_paths = ["/graph/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class Signals(SiteSpider):
    """How often signals are sent: what extensions of others rely on."""

    name = "signals"
    watched = (
        "spider_opened",
        "spider_idle",
        "request_reached_downloader",
        "request_left_downloader",
        "response_received",
        "response_downloaded",
        "item_scraped",
        "spider_error",
        "request_scheduled",
        "request_dropped",
    )
    start_paths = ["/tree/r.1", "/heal/1/x", "/redirect/302?to=/leaf/1", "/leaf/error"]

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Any:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.handlers = []
        for name in cls.watched:
            spider.watch(name)
        return spider

    handlers: list[Any]

    def watch(self, name: str) -> None:
        def count() -> None:
            assert self.crawler.stats is not None
            self.crawler.stats.inc_value(f"signals/{name}")

        self.handlers.append(count)  # signals hold their receivers weakly
        self.crawler.signals.connect(count, getattr(signals, name))

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)
        if response.url.endswith("error"):
            raise ValueError("error")
        yield self.get("/leaf/seen", self.leaf)

    def leaf(self, response: Response) -> Any:
        return show(response)


class OwnStats(SiteSpider):
    """The spider's own stats, of several types."""

    name = "own_stats"
    start_paths = ["/tree/r.1"]

    def parse(self, response: Response) -> Iterator[Any]:
        stats = self.crawler.stats
        assert stats is not None
        stats.inc_value("mine/pages")
        stats.max_value("mine/longest", len(response.url.rpartition("/")[2]))
        stats.set_value("mine/text", "kept")
        yield show(response)
        yield from self.follow(response)


class Slow(SiteSpider):
    """Pages that take their time, some beside each other, and callbacks that do."""

    name = "slow"
    start_paths = ["/slow/200", "/slow/1", "/leaf/0"]

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        yield show(response)
        await asyncio.sleep(0.1)
        if response.url.endswith("/slow/200"):
            yield self.get("/slow/300", self.parse)
            await asyncio.sleep(0.5)
            yield self.get("/leaf/last", self.parse)


class Concurrent(SiteSpider):
    """As many requests at the same time as it allows, in all and for each host."""

    name = "concurrent"
    custom_settings = {"CONCURRENT_REQUESTS": 6, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}

    async def start(self) -> AsyncIterator[Any]:
        for number in range(12):
            yield self.get(f"/slow/50?{number}")
            yield Request(f"{self.other}/slow/50?{number}")

    def parse(self, response: Response) -> Any:
        return show(response)


SPIDERS: list[type[SiteSpider]] = [
    Files,
    Pipelines,
    Feeds,
    Cached,
    Again,
    Delayed,
    Throttled,
    SlotSettings,
    State,
    JobDir,
    Signals,
    OwnStats,
    Slow,
    Concurrent,
]
