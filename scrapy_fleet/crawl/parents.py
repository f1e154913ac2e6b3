"""Which request another one comes from: needed where a crash must neither lose nor repeat it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from scrapy import Request, Spider
from scrapy.http import Response

from scrapy_fleet.crawl.seam import scheduler_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class Parents:
    """The requests whose callbacks gave requests that are on their way to the scheduler."""

    def __init__(self) -> None:
        self._parents: WeakKeyDictionary[Request, Request] = WeakKeyDictionary()

    def note(self, child: Request, parent: Request) -> None:
        self._parents[child] = parent

    def take(self, child: Request) -> Request | None:
        return self._parents.pop(child, None)


class ItemParents:
    """The requests whose callbacks gave items, for a pipeline that must know it before Scrapy tells.

    Told by the very object: a pipeline before it that makes another one of it hides where it comes from.
    """

    def __init__(self) -> None:
        self._parents: WeakValueDictionary[int, Request] = WeakValueDictionary()
        # While an item is kept here, nothing else has its id; it goes with the request.
        self._items: WeakKeyDictionary[Request, list[object]] = WeakKeyDictionary()

    def note(self, item: object, parent: Request) -> None:
        self._parents[id(item)] = parent
        self._items.setdefault(parent, []).append(item)

    def of(self, item: object) -> Request | None:
        return self._parents.get(id(item))


ITEM_PARENTS: WeakKeyDictionary[Crawler, ItemParents] = WeakKeyDictionary()
"""Of crawlers that have a pipeline that needs it."""


class ParentsMiddleware:
    """Spider middleware, next to the engine: it sees the very objects that reach the scheduler."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> ParentsMiddleware:
        return cls(crawler)

    def process_spider_output(
        self, response: Response, result: Iterable[Any], spider: Spider | None = None
    ) -> Iterator[Any]:
        for each in result:
            self._note(each, response)
            yield each

    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[Any], spider: Spider | None = None
    ) -> AsyncIterator[Any]:
        async for each in result:
            self._note(each, response)
            yield each

    def _note(self, each: Any, response: Response) -> None:
        if response.request is None:
            return
        if isinstance(each, Request):
            scheduler = scheduler_of(self.crawler)
            if scheduler is not None:
                scheduler.parents.note(each, response.request)
        elif (items := ITEM_PARENTS.get(self.crawler)) is not None:
            items.note(each, response.request)
