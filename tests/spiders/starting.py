"""How crawls begin: start URLs, ``start()``, and Scrapy's generic spiders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from scrapy.http import Request, Response
from scrapy.linkextractors import LinkExtractor
from scrapy.selector import Selector
from scrapy.spiders import CrawlSpider, CSVFeedSpider, Rule, SitemapSpider, XMLFeedSpider

from tests.spiders.base import DEPTH, SiteSpider, show


class Plain(SiteSpider):
    name = "plain"
    vague = DEPTH
    start_paths = ["/graph/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, self.parse)


class RepeatedStartUrls(SiteSpider):
    """Start URLs are not filtered, what they lead to is."""

    name = "repeated_start_urls"
    start_paths = ["/leaf/1", "/leaf/1", "/tree/r.1.1", "/tree/r.1.1", "/leaf/1#part"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class AsyncStart(SiteSpider):
    name = "async_start"

    async def start(self) -> AsyncIterator[Any]:
        yield {"from": "start"}
        for path in ("/leaf/1", "/leaf/2", "/leaf/1", "/tree/r.2"):
            yield self.get(path)
        await asyncio.sleep(0.01)
        yield {"from": "start, later"}
        yield self.get("/leaf/3", self.parse_other, priority=5)

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)

    def parse_other(self, response: Response) -> Any:
        return show(response, other=True)


class SlowStart(SiteSpider):
    """Nothing is waiting between two start requests; the crawl must not end there."""

    name = "slow_start"

    async def start(self) -> AsyncIterator[Any]:
        for number in range(4):
            yield self.get(f"/leaf/{number}")
            await asyncio.sleep(0.15)

    def parse(self, response: Response) -> Any:
        return show(response)


class ManyStarts(SiteSpider):
    name = "many_starts"

    async def start(self) -> AsyncIterator[Any]:
        for number in range(150):
            yield self.get(f"/leaf/{number % 120}")

    def parse(self, response: Response) -> Any:
        return show(response)


class OnlyItems(SiteSpider):
    name = "only_items"

    async def start(self) -> AsyncIterator[Any]:
        for number in range(3):
            yield {"number": number}


class NoStart(SiteSpider):
    name = "no_start"


class FailingStart(SiteSpider):
    """What was yielded before the error is crawled."""

    name = "failing_start"

    async def start(self) -> AsyncIterator[Any]:
        yield self.get("/leaf/1")
        yield self.get("/tree/r.1")
        await asyncio.sleep(0.2)
        raise RuntimeError("start broke")

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class OldStyle(SiteSpider):
    """``start_requests`` beside ``start``, as spiders for many versions have it."""

    name = "old_style"

    def start_requests(self) -> Iterator[Request]:
        yield self.get("/leaf/1", cb_kwargs={"way": "start"})
        yield self.get("/leaf/2", cb_kwargs={"way": "start"}, dont_filter=True)

    async def start(self) -> AsyncIterator[Any]:
        for request in self.start_requests():
            yield request

    def parse(self, response: Response, way: str) -> Any:
        return show(response, way=way)


class OnlyOldStyle(SiteSpider):
    name = "only_old_style"
    until = (2, 16)

    def start_requests(self) -> Iterator[Request]:
        for number in range(3):
            yield self.get(f"/leaf/{number}")

    def parse(self, response: Response) -> Any:
        return show(response)


class StartMiddleware:
    """A spider middleware that changes what ``start()`` gives."""

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for each in start:
            if not (isinstance(each, Request) and each.url.endswith("/leaf/1")):
                yield each
        yield {"from": "middleware"}


class FilteredStart(AsyncStart):
    name = "filtered_start"
    custom_settings = {"SPIDER_MIDDLEWARES": {StartMiddleware: 500}}


class Rules(SiteSpider, CrawlSpider):
    name = "rules"
    vague = DEPTH
    start_paths = ["/graph/0"]
    rules = (
        Rule(
            LinkExtractor(allow=r"/graph/(1|3|5|7|9)$"),
            callback="odd",
            follow=True,
            cb_kwargs={"kind": "odd"},
        ),
        Rule(LinkExtractor(allow=r"/graph/\d$"), callback="even", process_links="halve", follow=True),
        Rule(LinkExtractor(allow=r"/graph/1\d$"), callback="tagged", process_request="tag", errback="failed"),
        Rule(LinkExtractor(allow=r"/graph/[23]\d$")),
    )

    def parse_start_url(self, response: Response, **kwargs: Any) -> Any:
        return [show(response, kind="start")]

    def odd(self, response: Response, kind: str) -> Iterator[Any]:
        yield show(response, kind=kind)

    def even(self, response: Response) -> Iterator[Any]:
        yield show(response, kind="even")

    def tagged(self, response: Response) -> Iterator[Any]:
        yield show(response, kind=response.meta["tag"])

    def halve(self, links: list[Any]) -> list[Any]:
        return [link for link in links if not link.url.endswith("/graph/8")]

    def tag(self, request: Request, response: Response) -> Request:
        request.meta["tag"] = request.url[-2:]
        return request

    def failed(self, failure: Any) -> Iterator[Any]:
        yield {"failed": repr(failure.value)}


class Sitemap(SiteSpider, SitemapSpider):
    name = "sitemap"
    sitemap_rules = [(r"/leaf/", "parse_leaf"), (r"/graph/[12]", "parse_graph")]
    sitemap_alternate_links = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sitemap_urls = [self.base + "/robots.txt"]

    def sitemap_filter(self, entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for entry in entries:
            if entry.get("lastmod") != "2024-01-03":
                yield entry

    def parse_leaf(self, response: Response) -> Any:
        return show(response, kind="leaf")

    def parse_graph(self, response: Response) -> Any:
        return show(response, kind="graph")


class XmlFeed(SiteSpider, XMLFeedSpider):
    name = "xml_feed"
    start_paths = ["/feed/items.xml"]
    itertag = "item"

    def parse_node(self, response: Response, selector: Selector) -> Any:
        yield {"id": selector.xpath("id/text()").get()}
        yield response.follow(selector.xpath("link/text()").get() or "", self.leaf)

    def leaf(self, response: Response) -> Any:
        return show(response)


class CsvFeed(SiteSpider, CSVFeedSpider):
    name = "csv_feed"
    start_paths = ["/feed/items.csv"]

    def parse_row(self, response: Response, row: dict[str, str]) -> Any:
        return dict(row)


SPIDERS: list[type[SiteSpider]] = [
    Plain,
    RepeatedStartUrls,
    AsyncStart,
    SlowStart,
    ManyStarts,
    OnlyItems,
    NoStart,
    FailingStart,
    OldStyle,
    OnlyOldStyle,
    FilteredStart,
    Rules,
    Sitemap,
    XmlFeed,
    CsvFeed,
]
