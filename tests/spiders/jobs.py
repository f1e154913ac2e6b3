"""Spiders with something to remember, or something that cannot be written down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.http import Response

from tests.crash.spiders import SiteSpider


class Remembering(SiteSpider):
    """Keeps things in ``spider.state``, one of which cannot be kept. Shows in its stats what it had."""

    state: dict[str, Any]

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Remembering:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.opened, signals.spider_opened)
        return spider

    def opened(self) -> None:
        self.show("state when opened")

    def show(self, name: str) -> None:
        assert self.crawler.stats is not None
        kept = {key: value for key, value in self.state.items() if key != "driver"}
        self.crawler.stats.set_value(name, kept)

    async def start(self) -> AsyncIterator[Any]:
        assert self.crawler.stats is not None
        self.crawler.stats.inc_value("starts")
        self.state["first page"] = "to come"
        self.state["began"] = (date(2024, 2, 29), {"set", b"bytes"}, 1 << 80)
        async for each in super().start():
            yield each

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        self.state["pages"] = self.state.get("pages", 0) + 1
        self.state["driver"] = self.crawler
        self.state.pop("first page", None)
        async for each in super().parse(response):
            yield each

    def closed(self, reason: str) -> None:
        self.show("state when closed")


class Unstorable(SiteSpider):
    """Two links of the first page lead to requests that no store can keep.

    Their callbacks go on when the file ``gate`` exists.
    """

    gate = ""

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        yield {"page": 0}
        first, second = response.css("a::attr(href)").getall()
        yield response.follow(first, callback=lambda response: self.parse_gated(response))
        yield response.follow(second, callback=self.parse_gated, meta={"driver": self.crawler})

    async def parse_gated(self, response: Response) -> AsyncIterator[Any]:
        while not Path(self.gate).exists():
            await asyncio.sleep(0.02)
        yield {"page": int(response.css("#number::text").get(""))}
        yield Request(response.urljoin(f"/gone/{response.css('#number::text').get()}"))
