"""Spiders that meet the same links again and again, in every way."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.http import JsonRequest, Response
from scrapy.utils.request import RequestFingerprinter, fingerprint
from scrapy.utils.trackref import live_refs
from w3lib.url import url_query_cleaner

from tests.spiders.base import SiteSpider


class Counting(SiteSpider):
    """Counts, in its stats, the requests that reach Scrapy's engine. One page at a time."""

    name = "known"
    custom_settings: ClassVar[dict[str, Any]] = {"CONCURRENT_REQUESTS": 1}

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Counting:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.count_scheduled, signals.request_scheduled)
        return spider

    def count_scheduled(self) -> None:
        self.count("scheduled")

    def count(self, what: str) -> None:
        assert self.crawler.stats is not None
        self.crawler.stats.inc_value(f"count/{what}")


class Graph(Counting):
    """Pages full of links to where it has been."""

    async def start(self) -> AsyncIterator[Any]:
        yield self.get("/graph/0")

    def parse(self, response: Response) -> Iterator[Any]:
        yield from self.follow(response)


class Uncollected(Graph):
    """Runs without the garbage collector, and counts the pages that are in memory."""

    async def start(self) -> AsyncIterator[Any]:
        gc.disable()
        yield self.get("/graph/0")

    def parse(self, response: Response) -> Iterator[Any]:
        assert self.crawler.stats is not None
        self.crawler.stats.max_value("count/pages_in_memory", len(live_refs[type(response)]))
        yield from self.follow(response)


class Listening(Graph):
    """Somebody wants to hear of every request that is dropped."""

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Listening:
        spider = super().from_crawler(crawler, *args, **kwargs)
        assert isinstance(spider, Listening)
        crawler.signals.connect(spider.count_dropped, signals.request_dropped)
        return spider

    def count_dropped(self, request: Request) -> None:
        self.count("dropped")


class Unwritable(Graph):
    """No store can hold its requests."""

    async def start(self) -> AsyncIterator[Any]:
        yield self.get("/graph/0", meta={"open": object()})

    def parse(self, response: Response) -> Iterator[Any]:
        for request in self.follow(response):
            request.meta["open"] = object()
            yield request


class Planned(Counting):
    """Follows links of its own making: ``links`` names the paths that a path leads to.

    Start paths come one after the other, each when the path in ``after`` (the one before, if there is
    none) has been followed.
    """

    links: ClassVar[dict[str, list[str]]] = {}
    after: ClassVar[dict[str, str]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.followed: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def start(self) -> AsyncIterator[Any]:
        for before, path in zip([None, *self.start_paths], self.start_paths, strict=False):
            if before is not None:
                await self.followed[self.after.get(path, before)].wait()
            yield self.get(path)

    def parse(self, response: Response) -> Iterator[Any]:
        path = response.url.removeprefix(self.base)
        yield from self.found_on(path)
        self.followed[path].set()

    def found_on(self, path: str) -> Iterator[Request]:
        for target in self.links.get(path, ()):
            yield self.link(target, path)

    def link(self, path: str, source: str) -> Request:
        return self.get(path)


class TooDeep(Planned):
    """The page is met first too deep, and later less deep."""

    start_paths = ["/leaf/a", "/leaf/z"]
    links = {
        "/leaf/a": ["/leaf/b"],
        "/leaf/b": ["/leaf/c"],
        "/leaf/c": ["/leaf/target"],
        "/leaf/z": ["/leaf/target", "/leaf/target"],
    }
    after = {"/leaf/z": "/leaf/c"}
    custom_settings = {"CONCURRENT_REQUESTS": 1, "DEPTH_LIMIT": 2}


class Offsite(Planned):
    """A page of another site is dropped, dropped again, and then asked for all the same."""

    allowed_domains = ["127.0.0.1"]
    start_paths = ["/leaf/a", "/leaf/b", "/leaf/c"]
    links = {"/leaf/a": ["/leaf/there"], "/leaf/b": ["/leaf/there"], "/leaf/c": ["/leaf/there"]}

    def link(self, path: str, source: str) -> Request:
        return Request(self.other + path, meta={"allow_offsite": True} if source == "/leaf/c" else {})


class Unfiltered(Planned):
    """Known pages that are asked for again on purpose, before and after they are known."""

    start_paths = ["/leaf/a", "/leaf/b", "/leaf/c"]
    links = {
        "/leaf/a": ["/leaf/x", "/leaf/again"],
        "/leaf/b": ["/leaf/x", "/leaf/again", "/leaf/x", "/leaf/a"],
        "/leaf/c": ["/leaf/x", "/leaf/again"],
    }

    def link(self, path: str, source: str) -> Request:
        return self.get(path, dont_filter=source != "/leaf/c")


class OneUrl(Planned):
    """One URL, and all that can be asked of it."""

    start_paths = ["/leaf/a", "/leaf/b"]

    def found_on(self, path: str) -> Iterator[Request]:
        if path not in self.start_paths:
            return
        url = self.base + "/echo/it?b=1&a=2"
        yield Request(url)
        yield Request(url, method="POST")
        yield Request(url, method="POST", body="one")
        yield Request(url, method="POST", body="two")
        yield Request(url, method="PUT")
        yield Request(url, body="text in a GET")
        yield JsonRequest(url, data={"a": 1})
        yield Request(url, meta={"verbatim_url": True})
        yield Request(url, headers={"X-Extra": "ignored"})
        yield Request(url + "#part")
        yield self.get("/echo/it?a=2&b=1")


class SessionBlind(RequestFingerprinter):
    """Pages are the same whatever their session."""

    def fingerprint(self, request: Request) -> bytes:
        return fingerprint(request.replace(url=url_query_cleaner(request.url, ["session"], remove=True)))


class BySomeHeader(RequestFingerprinter):
    """What is asked for depends on a header."""

    def fingerprint(self, request: Request) -> bytes:
        return fingerprint(request, include_headers=["X-Extra"])


class Sessions(Planned):
    start_paths = ["/leaf/a?session=1", "/leaf/b?session=1"]
    custom_settings = {"CONCURRENT_REQUESTS": 1, "REQUEST_FINGERPRINTER_CLASS": SessionBlind}
    links = {
        "/leaf/a?session=1": ["/leaf/x?session=1", "/leaf/x?session=2"],
        "/leaf/b?session=1": ["/leaf/x?session=3", "/leaf/x?session=1", "/leaf/x?page=2"],
    }


class Languages(Planned):
    start_paths = ["/leaf/a", "/leaf/b"]
    custom_settings = {"CONCURRENT_REQUESTS": 1, "REQUEST_FINGERPRINTER_CLASS": BySomeHeader}

    def found_on(self, path: str) -> Iterator[Request]:
        if path in self.start_paths:
            for language in ("de", "fr", "de"):
                yield self.get("/echo/it", headers={"X-Extra": language})
