"""The order of a crawl, one request at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

from scrapy.http import Request, Response

from tests.spiders.base import SiteSpider, show

FIFO = {
    "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
}


class Lifo(SiteSpider):
    """Depth first, Scrapy's default."""

    name = "order_lifo"
    ordered = True
    custom_settings: ClassVar[dict[Any, Any]] = {"CONCURRENT_REQUESTS": 1}
    start_paths = ["/tree/r"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class Fifo(Lifo):
    name = "order_fifo"
    custom_settings = {**Lifo.custom_settings, **FIFO}


class BreadthFirst(Lifo):
    """As the documentation says to do it."""

    name = "order_breadth_first"
    custom_settings = {**Lifo.custom_settings, **FIFO, "DEPTH_PRIORITY": 1}


class Priorities(SiteSpider):
    name = "order_priorities"
    ordered = True
    custom_settings = {"CONCURRENT_REQUESTS": 1}
    start_paths = ["/leaf/start"]

    def parse(self, response: Response) -> Iterator[Any]:
        for number, priority in enumerate([0, 5, -3, 5, 100, 0, -3, 7]):
            yield self.get(f"/leaf/{number}", self.leaf, priority=priority, cb_kwargs={"priority": priority})

    def leaf(self, response: Response, priority: int) -> Iterator[Any]:
        yield show(response, priority=priority)
        if priority == 5:
            yield response.follow(response.url + "-child", self.leaf, cb_kwargs={"priority": 1}, priority=1)


class Seeds(SiteSpider):
    """Start requests in their order, each followed by what it leads to."""

    name = "order_seeds"
    ordered = True
    custom_settings = {"CONCURRENT_REQUESTS": 1}
    start_paths = ["/tree/a.1.1", "/tree/b.1.1", "/tree/c.1.1", "/tree/d.1.1"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)


class PrioritySeeds(Seeds):
    name = "order_priority_seeds"

    async def start(self) -> AsyncIterator[Any]:
        for number, path in enumerate(self.start_paths):
            yield self.get(path, priority=number * 10)


class TwoHosts(SiteSpider):
    """Hosts take turns."""

    name = "order_two_hosts"
    ordered = True
    custom_settings: ClassVar[dict[Any, Any]] = {"CONCURRENT_REQUESTS": 1}
    start_paths = ["/leaf/start"]

    def parse(self, response: Response) -> Iterator[Any]:
        for number in range(4):
            yield self.get(f"/leaf/{number}", self.leaf)
        for number in range(4):
            yield Request(f"{self.other}/leaf/{number}", self.leaf)

    def leaf(self, response: Response) -> Any:
        return show(response)


class ParentAndRedirect(SiteSpider):
    """Redirects and retries keep or change their priority as Scrapy's middlewares say."""

    name = "order_redirects"
    ordered = True
    custom_settings = {"CONCURRENT_REQUESTS": 1, "RETRY_TIMES": 1}
    start_paths = ["/leaf/start"]

    def parse(self, response: Response) -> Iterator[Any]:
        for number in range(3):
            yield self.get(f"/redirect/302?to=/leaf/{number}", self.leaf)
            yield self.get(f"/heal/1/{number}", self.leaf)
            yield self.get(f"/leaf/plain-{number}", self.leaf)

    def leaf(self, response: Response) -> Any:
        return show(response)


SPIDERS: list[type[SiteSpider]] = [
    Lifo,
    Fifo,
    BreadthFirst,
    Priorities,
    Seeds,
    PrioritySeeds,
    TwoHosts,
    ParentAndRedirect,
]
