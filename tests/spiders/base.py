"""What all the spiders share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import scrapy
from scrapy.http import Request, Response, TextResponse
from scrapy.utils.defer import maybe_deferred_to_future

DEPTH = frozenset({"request_depth_max"})
"""Scrapy counts the depth of repeated links too, and it depends on time which link is the repeated one."""

UNUSED_PORT = 1
"""Nobody listens there: connections are refused."""


class SiteSpider(scrapy.Spider):
    """Gets the address of the site; ``start_paths`` are paths on it."""

    start_paths: ClassVar[list[str]] = []

    # How the spider is run and compared; read by the runner and the test, never by Scrapy.
    compare: ClassVar[frozenset[str]] = frozenset({"items", "visits", "reason", "stats"})
    vague: ClassVar[frozenset[str]] = frozenset()
    """Stats that depend on which of two responses comes first."""
    ordered: ClassVar[bool] = False
    """The site must see the same requests in the same order."""
    runs: ClassVar[int] = 1
    """How often the spider is run, one run after the other."""
    outputs: ClassVar[tuple[str, ...]] = ()
    """Files of lines that the crawl writes."""
    since: ClassVar[tuple[int, ...]] = (2, 13)
    until: ClassVar[tuple[int, ...]] = (99,)
    """The first Scrapy that can no longer run it."""
    own_place: ClassVar[bool] = False
    """Without FLEET_URL: the spider's own settings say where the crawl lives."""

    def __init__(self, base: str = "", other: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.base = base
        self.other = other
        self.start_urls = [base + path for path in self.start_paths]

    def get(self, path: str, callback: Callable[..., Any] | None = None, **kwargs: Any) -> Request:
        return Request(self.base + path, callback, **kwargs)

    def refused(self, path: str = "/", **kwargs: Any) -> Request:
        return Request(f"http://127.0.0.1:{UNUSED_PORT}{path}", **kwargs)

    def follow(self, response: Response, **kwargs: Any) -> Iterator[Request]:
        assert isinstance(response, TextResponse)
        yield from response.follow_all(css="a", **kwargs)

    async def fetch(self, request: Request) -> Response:
        """Download inside a callback, past the scheduler."""
        engine = self.crawler.engine
        assert engine is not None
        if hasattr(engine, "download_async"):
            return await engine.download_async(request)
        return await maybe_deferred_to_future(engine.download(request))


def show(response: Response, **more: Any) -> dict[str, Any]:
    """An item that tells about a response."""
    title = (
        response.xpath("//title/text()").get()
        if "html" in str(response.headers.get("Content-Type"))
        else None
    )
    return {"url": response.url, "status": response.status, "title": title, **more}
