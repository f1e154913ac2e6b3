"""A spider for sites that ask to be treated well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import TextResponse
from scrapy.robotstxt import RobotParser


class Links(Spider):
    """Begins with ``urls``, and follows every link. Those with ``#free`` need not heed robots.txt."""

    name = "links"
    urls: list[str] = []
    gate = ""
    """It begins when this file exists."""

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Links:
        spider = super().from_crawler(crawler, *args, **kwargs)
        if hasattr(signals, "robots_parsed"):
            crawler.signals.connect(spider.hear, signals.robots_parsed)
        return spider

    def hear(self, robotparser: RobotParser, request: Request) -> None:
        assert self.crawler.stats is not None
        self.crawler.stats.inc_value("robots_heard_of")

    async def start(self) -> AsyncIterator[Any]:
        while not Path(self.gate).exists():
            await asyncio.sleep(0.02)
        for url in self.urls:
            yield Request(url, meta={"dont_obey_robotstxt": True} if "#free" in url else {})

    def parse(self, response: TextResponse) -> Iterator[Any]:  # type: ignore[override]
        yield from response.follow_all(css="a")
