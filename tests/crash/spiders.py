"""The spiders that the workers run."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response


class SiteSpider(Spider):
    """Follows every link; one item a page."""

    name = "site"
    start_url = ""

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.start_url)

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        yield {"page": int(response.css("#number::text").get(""))}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


class TroubleSpider(SiteSpider):
    """Something happens at one page, before or after its links are found."""

    trouble_at = ""

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        trouble = response.url.endswith(self.trouble_at)
        if trouble:
            await self.before()
        async for each in super().parse(response):
            yield each
        if trouble:
            await self.after()

    async def before(self) -> None: ...
    async def after(self) -> None: ...


class RaisingSpider(TroubleSpider):
    async def after(self) -> None:
        raise ValueError("as this spider does")


class EndlessSpider(TroubleSpider):
    async def after(self) -> None:
        await asyncio.Event().wait()


class BlockingSpider(TroubleSpider):
    seconds = 10.0

    async def before(self) -> None:
        time.sleep(self.seconds)  # it is the point


class DeadlySpider(TroubleSpider):
    """One page takes its worker along, every time, once the file ``gate`` exists."""

    gate = ""

    async def before(self) -> None:
        while not Path(self.gate).exists():
            await asyncio.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)


class SeedsSpider(SiteSpider):
    """Many seeds, slowly; every second one is not filtered. It ends when ``gate`` exists.

    The seeds stop half-way, until the file is there: whoever kills the worker then, kills it in the middle.
    """

    seeds: list[str] = []
    gate = ""

    async def start(self) -> AsyncIterator[Any]:
        for position, url in enumerate(self.seeds):
            if position == len(self.seeds) // 2:
                while not Path(self.gate).exists():
                    await asyncio.sleep(0.02)
            yield Request(url, dont_filter=position % 2 == 0)

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        yield {"page": int(response.css("#number::text").get(""))}


class UnfilteredStartSpider(SiteSpider):
    """Starts as Scrapy's spiders do: the first page is always fetched."""

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.start_url, dont_filter=True)


class StateSpider(SiteSpider):
    """Counts its pages in ``spider.state``, and shows that in its stats."""

    state: dict[str, Any]

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        self.state["pages"] = self.state.get("pages", 0) + 1
        self.state.setdefault("began", {"pid": os.getpid(), "at": (1, b"two")})
        async for each in super().parse(response):
            yield each

    def closed(self, reason: str) -> None:
        self.crawler.stats.set_value("state", self.state)


class GatedSpider(SiteSpider):
    """Its n-th callback in a process goes on when the file ``gates/n`` exists, and raises if that says so."""

    gates = ""
    calls = 0

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        self.calls += 1
        gate = Path(self.gates, str(self.calls))
        while not gate.exists():
            await asyncio.sleep(0.02)
        if gate.read_text() == "raise":
            raise ValueError("as this spider does")
        async for each in super().parse(response):
            yield each


class LingeringSpider(SiteSpider):
    """Its callbacks end when the file ``gate`` exists; their links are found before."""

    gate = ""

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        async for each in super().parse(response):
            yield each
        while not Path(self.gate).exists():
            await asyncio.sleep(0.02)


class ListSpider(SiteSpider):
    """All its pages are seeds: requests wait for every host until the end."""

    urls: list[str] = []

    async def start(self) -> AsyncIterator[Any]:
        for url in self.urls:
            yield Request(url)

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        yield {"page": int(response.css("#number::text").get(""))}
