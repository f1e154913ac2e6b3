"""The order of a crawl, one request at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy.http import Request, Response

from tests.spiders.base import SiteSpider, show

ONE_BY_ONE: dict[str, Any] = {"CONCURRENT_REQUESTS": 1}

HOLD_UP = "/slow/200"
"""Yielded first, with the highest priority: the others are all there before the next one goes out."""

FIFO: dict[str, Any] = {
    "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
}


class Lifo(SiteSpider):
    """The newest first, Scrapy's default."""

    name = "order_lifo"
    ordered = True
    custom_settings = ONE_BY_ONE
    start_paths = ["/leaf/start"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield self.get(HOLD_UP, self.leaf, priority=1000)
        for number in range(10):
            yield self.get(f"/leaf/{number}", self.leaf)

    def leaf(self, response: Response) -> Any:
        return show(response)


class DepthFirst(SiteSpider):
    """The exact order depends on whether a page's links are there before the next request goes out."""

    name = "order_depth_first"
    custom_settings = ONE_BY_ONE
    start_paths = ["/tree/r"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class Fifo(DepthFirst):
    name = "order_fifo"
    ordered = True
    custom_settings = {**ONE_BY_ONE, **FIFO}


class BreadthFirst(DepthFirst):
    """As the documentation says to do it."""

    name = "order_breadth_first"
    ordered = True
    custom_settings = {**ONE_BY_ONE, **FIFO, "DEPTH_PRIORITY": 1}


class Priorities(SiteSpider):
    name = "order_priorities"
    ordered = True
    custom_settings = ONE_BY_ONE
    start_paths = ["/leaf/start"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield self.get(HOLD_UP, self.leaf, priority=1000)
        for number, priority in enumerate([0, 5, -3, 5, 100, 0, -3, 7]):
            yield self.get(f"/leaf/{number}", self.leaf, priority=priority)

    def leaf(self, response: Response) -> Any:
        assert response.request is not None
        return show(response, priority=response.request.priority)


class Seeds(SiteSpider):
    """Start requests in their own order."""

    name = "order_seeds"
    ordered = True
    custom_settings = ONE_BY_ONE
    start_paths = ["/leaf/a", "/leaf/b", "/leaf/c", "/leaf/d", "/leaf/e"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class PrioritySeeds(Seeds):
    """The first goes out before the others are there; so it has the highest priority here."""

    name = "order_priority_seeds"

    async def start(self) -> AsyncIterator[Any]:
        for priority, path in zip((30, 0, 10, 20, 5), self.start_paths, strict=True):
            yield self.get(path, priority=priority)


class SeedsAfterOthers(Seeds):
    """What the first seeds lead to comes before the last seeds."""

    name = "order_seeds_after_others"
    ordered = False
    start_paths = ["/tree/a.1.1", "/tree/b.1.1", "/tree/c.1.1", "/tree/d.1.1", "/tree/e.1.1"]


class TwoHosts(SiteSpider):
    """Hosts take turns; in older versions of Scrapy they do not."""

    name = "order_two_hosts"
    ordered = True
    since = (2, 16)
    custom_settings = ONE_BY_ONE
    start_paths = ["/leaf/start"]

    def parse(self, response: Response) -> Iterator[Any]:
        for number in range(4):
            yield self.get(f"/leaf/{number}", self.leaf)
        for number in range(4):
            yield Request(f"{self.other}/leaf/{number}", self.leaf)

    def leaf(self, response: Response) -> Any:
        return show(response)


class RedirectsAndRetries(SiteSpider):
    """Scrapy's middlewares put redirects before other requests, and retries after them."""

    name = "order_redirects_and_retries"
    custom_settings = {"CONCURRENT_REQUESTS": 1, "RETRY_TIMES": 1}
    start_paths = ["/leaf/start"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield self.get(HOLD_UP, self.leaf, priority=1000)
        for number in range(4):
            yield self.get(f"/redirect/302?to=/leaf/{number}", self.leaf)
            yield self.get(f"/heal/1/{number}", self.leaf)
            yield self.get(f"/leaf/plain-{number}", self.leaf)

    def leaf(self, response: Response) -> Any:
        return show(response)


SPIDERS: list[type[SiteSpider]] = [
    Lifo,
    DepthFirst,
    Fifo,
    BreadthFirst,
    Priorities,
    Seeds,
    PrioritySeeds,
    SeedsAfterOthers,
    TwoHosts,
    RedirectsAndRetries,
]
