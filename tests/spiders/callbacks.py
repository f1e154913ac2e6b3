"""Callbacks and errbacks of every kind, and what travels to them."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import scrapy
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Request, Response, TextResponse
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.python.failure import Failure

from tests.spiders.base import DEPTH, SiteSpider, show


class Returns(SiteSpider):
    """What a callback may return: nothing, an item, a list, a generator, and rubbish."""

    name = "returns"

    async def start(self) -> AsyncIterator[Any]:
        for number, callback in enumerate([self.nothing, self.one, self.several, self.rubbish, self.request]):
            yield self.get(f"/leaf/{number}", callback)

    def nothing(self, response: Response) -> None:
        return None

    def one(self, response: Response) -> Any:
        return show(response)

    def several(self, response: Response) -> Any:
        return [show(response), None, self.get("/leaf/9", self.one)]

    def rubbish(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield 42
        yield self.get("/leaf/8", self.one)

    def request(self, response: Response) -> Any:
        return self.get("/leaf/7", self.one)


class Coroutines(SiteSpider):
    name = "coroutines"
    vague = DEPTH
    start_paths = ["/graph/0"]

    async def parse(self, response: Response) -> Any:
        await asyncio.sleep(0.001)
        links = response.css("a::attr(href)").getall()
        return [show(response), *(response.follow(link, self.generate) for link in links)]

    async def generate(self, response: Response) -> AsyncIterator[Any]:
        yield show(response, way="generator")
        for link in response.css("a::attr(href)").getall():
            await asyncio.sleep(0)
            yield response.follow(link, self.generate)


class InlineDownloads(SiteSpider):
    """Downloads in the middle of a callback, one of them of the page itself."""

    name = "inline_downloads"
    start_paths = ["/tree/r.1.1"]

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        assert response.request is not None
        inner = await self.fetch(self.get("/leaf/5"))
        yield show(inner, seen_from=response.url)
        for request in self.follow(response):
            yield request
        again = await self.fetch(response.request)
        yield show(again, again=True)
        moved = await self.fetch(self.get("/redirect/302?to=/leaf/6"))
        yield show(moved)


class Arguments(SiteSpider):
    """Values of many types reach the callback as they were."""

    name = "arguments"
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        values: dict[str, Any] = {
            "none": None,
            "truth": True,
            "big": 2**80,
            "float": 0.1,
            "text": "gr\u00fc\u00df \ud83d\ude00",
            "bytes": b"\x00\xff",
            "tuple": (1, (2, "x")),
            "set": {1, 2},
            "frozen": frozenset({"a"}),
            "nested": {"list": [1, {"deep": (b"x",)}], 3: "int key"},
            "decimal": decimal.Decimal("1.10"),
            "date": datetime.date(2024, 2, 29),
            "time": datetime.datetime(2024, 2, 29, 12, 30, 1, 500, tzinfo=datetime.UTC),
            "naive": datetime.datetime(2024, 2, 29, 12, 30),
            "duration": datetime.timedelta(days=1, microseconds=5),
        }
        yield self.get("/leaf/1", self.kwargs, cb_kwargs=values)
        yield self.get("/leaf/2", self.meta, meta={"values": values, "depth_like": 3})
        yield self.get("/leaf/3", self.flagged, flags=["a", "b"], encoding="latin-1", priority=3)

    def kwargs(self, response: Response, **kwargs: Any) -> Any:
        return show(response, values={name: repr(value) for name, value in sorted(kwargs.items())})

    def meta(self, response: Response) -> Any:
        values = {name: repr(value) for name, value in response.meta["values"].items()}
        return show(response, values=values, depth=response.meta["depth"], keys=sorted(response.meta))

    def flagged(self, response: Response) -> Any:
        request = response.request
        assert request is not None
        return show(response, flags=request.flags, encoding=request.encoding, priority=request.priority)


class Chain(SiteSpider):
    """An item filled over several pages."""

    name = "chain"
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        for number in range(1, 6):
            yield self.get(f"/leaf/{number}", self.second, meta={"item": {"pages": [response.url]}})

    def second(self, response: Response) -> Any:
        item = response.meta["item"]
        item["pages"].append(response.url)
        return response.follow(response.url + "?more", self.third, cb_kwargs={"item": item})

    def third(self, response: Response, item: dict[str, Any]) -> Any:
        item["pages"].append(response.url)
        return item


class Product(scrapy.Item):
    name = scrapy.Field()
    pages = scrapy.Field()


@dataclass
class Price:
    amount: float
    pages: list[str]


class ItemObjects(SiteSpider):
    """Item objects carried from page to page."""

    name = "item_objects"
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        product = Product(name="thing", pages=[response.url])
        yield self.get("/leaf/1", self.product, meta={"item": product})
        yield self.get("/leaf/2", self.price, cb_kwargs={"price": Price(1.5, [response.url])})

    def product(self, response: Response) -> Any:
        item = response.meta["item"]
        item["pages"].append(response.url)
        return item

    def price(self, response: Response, price: Price) -> Any:
        price.pages.append(response.url)
        return price


class Helper:
    """A callback that is no method of the spider."""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        return show(response, by="helper", **kwargs)


def parse_outside(response: Response) -> Any:
    return show(response, by="function")


class Unwritable(SiteSpider):
    """Callbacks and values that no store can write down."""

    name = "unwritable"
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        number = 17

        def nested(response: Response) -> Any:
            return show(response, by="nested", number=number)

        yield self.get("/leaf/1", lambda response: [show(response, by="lambda")])
        yield self.get("/leaf/2", nested)
        yield self.get("/leaf/3", functools.partial(self.partial, extra="partial"))
        yield self.get("/leaf/4", Helper().parse, cb_kwargs={"extra": 4})
        yield self.get("/leaf/5", parse_outside)
        yield self.get("/leaf/6", self.locked, meta={"lock": threading.Lock()})
        yield self.get("/leaf/7", self.__private)
        yield self.get("/tree/r.1.1", lambda response: self.children(response), cb_kwargs={})
        yield self.get("/leaf/1", lambda response: [show(response, by="never: known")])
        yield self.get("/status/404", self.locked, errback=lambda failure: {"errback": repr(failure.value)})
        yield self.get("/redirect/302?to=/leaf/8", self.locked, meta={"lock": threading.Lock()})
        yield self.get("/heal/1/x", self.locked, meta={"lock": threading.Lock()})

    def partial(self, response: Response, extra: str) -> Any:
        return show(response, by=extra)

    def locked(self, response: Response) -> Any:
        return show(response, lock=type(response.meta["lock"]).__name__)

    def __private(self, response: Response) -> Any:
        return show(response, by="private")

    def children(self, response: Response) -> Iterator[Any]:
        yield show(response)
        for number in (1, 2, 3):
            yield self.get(f"/tree/r.1.1.{number}", lambda page: [show(page, by="lambda of a child")])


class UnwritableStart(SiteSpider):
    name = "unwritable_start"

    async def start(self) -> AsyncIterator[Any]:
        for number in range(20):
            yield self.get(
                f"/leaf/{number}", lambda response: [show(response)], meta={"lock": threading.Lock()}
            )


class Raising(SiteSpider):
    """Errors in callbacks cost what comes after them, no more."""

    name = "raising"

    async def start(self) -> AsyncIterator[Any]:
        kinds = [self.at_once, self.midway, self.midway_async, self.in_coroutine, self.ignoring]
        for number, callback in enumerate(kinds):
            yield self.get(f"/leaf/{number}", callback, errback=self.not_called)

    def at_once(self, response: Response) -> Any:
        raise ValueError("at once")

    def midway(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield self.get("/leaf/10", self.fine)
        raise KeyError("midway")

    async def midway_async(self, response: Response) -> AsyncIterator[Any]:
        yield show(response)
        yield self.get("/leaf/11", self.fine)
        await asyncio.sleep(0)
        raise RuntimeError("midway, async")

    async def in_coroutine(self, response: Response) -> Any:
        raise TypeError("in coroutine")

    def ignoring(self, response: Response) -> Iterator[Any]:
        yield self.get("/leaf/12", self.fine)
        raise IgnoreRequest("from a callback")

    def fine(self, response: Response) -> Any:
        return show(response)

    def not_called(self, failure: Failure) -> Any:
        return {"errback": repr(failure.value)}


class Errbacks(SiteSpider):
    name = "errbacks"
    custom_settings = {"RETRY_TIMES": 1}

    async def start(self) -> AsyncIterator[Any]:
        yield self.get("/status/404", self.parse, errback=self.http_error, cb_kwargs={"tag": "first"})
        yield self.get("/status/503", self.parse, errback=self.http_error)
        yield self.get("/status/403", self.parse, meta={"handle_httpstatus_list": [403]})
        yield self.get("/status/410", self.parse)
        yield self.get("/leaf/1", self.parse, errback=self.http_error)
        yield self.get("/dropped/9/x", self.parse, errback=self.other_error)
        yield self.refused("/a", callback=self.parse, errback=self.other_error)
        yield self.refused("/b", callback=self.parse, errback=self.broken)
        yield self.refused("/c", callback=self.parse)
        yield self.refused("/d", callback=self.parse, errback=self.async_errback)

    def parse(self, response: Response, tag: str = "") -> Any:
        return show(response, tag=tag)

    def http_error(self, failure: Failure) -> Iterator[Any]:
        assert isinstance(failure.value, HttpError)
        response = failure.value.response
        yield {"status": response.status, "tag": failure.request.cb_kwargs.get("tag")}  # type: ignore[attr-defined]
        yield self.get(f"/leaf/{response.status}", self.parse)

    def other_error(self, failure: Failure) -> Iterator[Any]:
        path = failure.request.url.rpartition("/")[2]  # type: ignore[attr-defined]
        yield {"failed": path}
        yield self.get(f"/leaf/after-{path}", self.parse)
        yield self.get("/tree/r.1.1.1", self.parse)

    def broken(self, failure: Failure) -> Any:
        raise ValueError("errback broke")

    async def async_errback(self, failure: Failure) -> AsyncIterator[Any]:
        await asyncio.sleep(0.01)
        yield {"failed": "async"}
        yield self.get("/leaf/after-async", self.parse)


class AllStatuses(SiteSpider):
    name = "all_statuses"
    custom_settings = {"HTTPERROR_ALLOW_ALL": True, "RETRY_ENABLED": False}
    start_paths = ["/status/404", "/status/500", "/status/418", "/status/204", "/leaf/1"]

    def parse(self, response: Response) -> Any:
        return show(response)


class DownloaderHelp:
    """A downloader middleware that answers, refuses and replaces."""

    def process_request(self, request: Request) -> Any:
        if request.url.endswith("/leaf/1"):
            raise IgnoreRequest("not this one")
        if request.url.endswith("/leaf/2"):
            return TextResponse(request.url, body=b"made up", request=request)
        if request.url.endswith("/leaf/3"):
            return request.replace(url=request.url + "0")
        return None

    def process_response(self, request: Request, response: Response) -> Any:
        if request.url.endswith("/leaf/4"):
            return request.replace(url=request.url + "0", dont_filter=True)
        if request.url.endswith("/leaf/5"):
            raise IgnoreRequest("not this response")
        return response

    def process_exception(self, request: Request, exception: Exception) -> Any:
        if request.url.endswith("/rescued"):
            return TextResponse(request.url, body=b"rescued", request=request)
        return None


class OldDownloaderHelp(DownloaderHelp):
    """The same for versions that still pass the spider along."""

    def process_request(self, request: Request, spider: Any) -> Any:  # type: ignore[override]
        return super().process_request(request)

    def process_response(self, request: Request, response: Response, spider: Any) -> Any:  # type: ignore[override]
        return super().process_response(request, response)

    def process_exception(self, request: Request, exception: Exception, spider: Any) -> Any:  # type: ignore[override]
        return super().process_exception(request, exception)


HELP = DownloaderHelp if scrapy.version_info >= (2, 14) else OldDownloaderHelp


class Middlewares(SiteSpider):
    name = "middlewares"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {HELP: 601}}
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        for number in range(1, 7):
            yield self.get(f"/leaf/{number}", self.leaf, errback=self.failed)
        yield self.refused("/rescued", callback=self.leaf, errback=self.failed)

    def leaf(self, response: Response) -> Any:
        return show(response, body=response.text[:20])

    def failed(self, failure: Failure) -> Any:
        return [{"failed": repr(failure.value)}]


class SpiderHelp:
    """A spider middleware that adds, removes and catches."""

    async def process_spider_output(self, response: Response, result: Any) -> AsyncIterator[Any]:
        async for each in result:
            if isinstance(each, Request) and each.url.endswith(".2"):
                continue
            if isinstance(each, Request):
                each.meta["helped"] = True
            yield each
        yield {"helped": response.url}

    def process_spider_exception(self, response: Response, exception: Exception) -> Any:
        return [{"caught": repr(exception)}]


class OldSpiderHelp:
    """The same for versions that still pass the spider along."""

    async def process_spider_output(self, response: Response, result: Any, spider: Any) -> AsyncIterator[Any]:
        async for each in SpiderHelp().process_spider_output(response, result):
            yield each

    def process_spider_exception(self, response: Response, exception: Exception, spider: Any) -> Any:
        return SpiderHelp().process_spider_exception(response, exception)


class SpiderMiddlewares(SiteSpider):
    name = "spider_middlewares"
    custom_settings = {
        "SPIDER_MIDDLEWARES": {SpiderHelp if scrapy.version_info >= (2, 14) else OldSpiderHelp: 850}
    }
    start_paths = ["/tree/r.1"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response, helped=response.meta.get("helped"))
        yield from self.follow(response)
        if response.url.endswith(".3"):
            raise ValueError(response.url[-5:])


SPIDERS: list[type[SiteSpider]] = [
    Returns,
    Coroutines,
    InlineDownloads,
    Arguments,
    Chain,
    ItemObjects,
    Unwritable,
    UnwritableStart,
    Raising,
    Errbacks,
    AllStatuses,
    Middlewares,
    SpiderMiddlewares,
]
