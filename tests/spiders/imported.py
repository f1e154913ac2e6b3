"""Spiders of a project that comes from scrapy-redis."""

from __future__ import annotations

from typing import Any

from scrapy import FormRequest, Request, Spider

from scrapy_fleet.scrapy_redis.spiders import RedisSpider


class OwnRequest(Request):
    """A project's own kind of request."""


class Fed(RedisSpider):
    name = "fed"

    def parse(self, response: Any) -> None: ...
    def parse_page(self, response: Any) -> None: ...
    def failed(self, failure: Any) -> None: ...


class Plain(Spider):
    name = "plain"

    def __init__(self) -> None:
        raise AssertionError("it is not to be made for an import")

    def parse(self, response: Any) -> None: ...


def requests(spider: Fed) -> list[Request]:
    """Of every kind."""
    url = "http://a.example/{}".format
    return [
        Request(url(1)),
        Request(url(2), spider.parse_page, errback=spider.failed, priority=5, meta={"depth": 3}),
        Request(url(3), headers={"X": "y"}, cookies={"a": "b"}, cb_kwargs={"n": (1, 2)}, priority=-1),
        FormRequest("http://b.example/form", formdata={"q": "größe"}, callback=spider.parse_page),
        OwnRequest(url(4), meta={"download_slot": "own"}),
        Request(url(5), dont_filter=True),
        Request(url(5), dont_filter=True, priority=1),
    ]
