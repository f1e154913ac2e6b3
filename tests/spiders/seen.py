"""Spiders whose links come again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy.http import Response

from tests.spiders.base import SiteSpider


class Twice(SiteSpider):
    """Every link comes twice on a page, and on two pages."""

    name = "twice"

    async def start(self) -> AsyncIterator[Any]:
        for page in ("a", "b"):
            yield self.get(f"/leaf/{page}")

    def parse(self, response: Response) -> Iterator[Any]:
        for _ in range(2):
            yield self.get("/leaf/again", callback=self.ignore)

    def ignore(self, response: Response) -> None:
        pass


class Returning(SiteSpider):
    """Looks for the same link every now and then, until it was fetched three times."""

    name = "returning"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fetched = 0

    async def start(self) -> AsyncIterator[Any]:
        yield self.get("/leaf/list")

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        while self.fetched < 3:
            yield self.get("/leaf/news", callback=self.news)
            await asyncio.sleep(0.02)

    def news(self, response: Response) -> None:
        self.fetched += 1
