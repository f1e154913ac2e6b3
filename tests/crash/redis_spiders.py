"""Spiders as projects for scrapy-redis have them, with only the name changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import Rule

from scrapy_fleet.scrapy_redis.spiders import RedisCrawlSpider, RedisSpider


class PageSpider(RedisSpider):
    name = "fed"
    max_idle_time = 1
    site = ""

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"page": int(response.css("#number::text").get(""))}


class OwnDataSpider(PageSpider):
    """Its producers push data of their own kind; its start URLs are for one worker."""

    @property
    def start_urls(self) -> list[str]:  # type: ignore[override]
        return [f"{self.site}/p/0"]

    def make_request_from_data(self, data: bytes) -> Any:
        numbers = json.loads(data)
        if len(numbers) == 1:
            return Request(f"{self.site}/p/{numbers[0]}", dont_filter=True)
        return (Request(f"{self.site}/p/{number}", dont_filter=True) for number in numbers)


class OwnFetchSpider(PageSpider):
    """Takes its tasks in its own way, and begins with requests of its own."""

    def start_requests(self) -> Iterator[Request]:
        yield Request(f"{self.site}/p/0")

    def fetch_data(self, redis_key: str, batch_size: int) -> Any:
        return self.server.lpop(redis_key, 30)


class OwnRequestsSpider(PageSpider):
    def next_requests(self) -> Iterator[Request]:
        while data := self.server.lpop(self.redis_key):
            yield Request(data.decode(), dont_filter=True)


class FollowingSpider(RedisCrawlSpider):
    name = "following"
    redis_key = "%(name)s:urls"
    max_idle_time = 1
    rules = (Rule(LinkExtractor(), callback="parse_page", follow=True),)

    def parse_page(self, response: Response) -> Iterator[Any]:
        yield {"page": int(response.css("#number::text").get(""))}

    parse_start_url = parse_page


class OrderSpider(Spider):
    """One page at a time, in the order of the queue."""

    name = "order"
    site = ""

    def start_requests(self) -> Iterator[Request]:
        yield Request(f"{self.site}/p/0")

    def parse(self, response: Response) -> Iterator[Any]:
        if response.url.endswith("/p/0"):
            # Two are equal; none is filtered, so all are stored together.
            for number, priority in ((7, 0), (3, 1), (5, 0), (1, -1), (9, 1), (2, 0), (4, 0), (4, 0)):
                yield Request(f"{self.site}/p/{number}", priority=priority, dont_filter=True)


def one_of(method: Any) -> Any:
    return method[0] if isinstance(method, tuple) else method


class PlainSpider(Spider):
    """Not fed at all; it only uses the scheduler, and was written for an old Scrapy."""

    name = "plain"
    start_url = ""

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> PlainSpider:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.tell_order, signals.spider_opened)
        return spider

    def tell_order(self) -> None:
        """Which middleware comes before which, in every way that goes through them."""
        engine: Any = self.crawler.engine
        for manager in (engine.scraper.spidermw, engine.downloader.middleware):
            for name, methods in sorted(manager.methods.items()):
                kinds = [type(getattr(one_of(method), "__self__", None)).__name__ for method in methods]
                self.logger.info("order of %s: %s", name, " ".join(kinds))

    def start_requests(self) -> Iterator[Request]:
        yield Request(self.start_url)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"page": int(response.css("#number::text").get(""))}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
