"""Items in a Redis list, where other programs take them from."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

from scrapy.utils.misc import load_object
from scrapy.utils.serialize import ScrapyJSONEncoder
from twisted.internet.defer import Deferred

from scrapy_fleet.crawl.items import keep
from scrapy_fleet.crawl.parents import ITEM_PARENTS, ItemParents
from scrapy_fleet.crawl.seam import EventLoop
from scrapy_fleet.model import Beside
from scrapy_fleet.scrapy_redis import connection, defaults
from scrapy_fleet.scrapy_redis.beside import Courier, with_commits

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from scrapy_fleet.crawl.scheduler import Scheduler

default_serialize = ScrapyJSONEncoder().encode


class RedisPipeline:
    """``ITEM_PIPELINES = {"scrapy_fleet.scrapy_redis.pipelines.RedisPipeline": 300}``

    Items go to the end of the list ``REDIS_ITEMS_KEY`` (``<spider>:items``), as ``REDIS_ITEMS_SERIALIZER``
    (JSON) writes them.

    Where the list is on the crawl's server, they are written in the commit that settles the request they
    came from: a crash neither loses nor repeats them. Elsewhere (another server, or a cluster) they are
    written by a thread, and the request is not settled before: a crash loses none, but may repeat some.
    """

    crawler: Crawler | None = None
    _scheduler: Scheduler | None = None
    _courier: Courier | None = None
    _threads: ThreadPoolExecutor | None = None
    _decided = False

    def __init__(
        self,
        server: Any,
        key: str = defaults.PIPELINE_KEY,
        serialize_func: Callable[[Any], Any] = default_serialize,
    ) -> None:
        self.server = server
        self.key = key
        self.serialize = serialize_func

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        params: dict[str, Any] = {"server": connection.from_settings(settings)}
        if settings.get("REDIS_ITEMS_KEY"):
            params["key"] = settings["REDIS_ITEMS_KEY"]
        if settings.get("REDIS_ITEMS_SERIALIZER"):
            params["serialize_func"] = load_object(settings["REDIS_ITEMS_SERIALIZER"])
        return cls(**params)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        pipeline = cls.from_settings(crawler.settings)
        pipeline.crawler = crawler
        ITEM_PARENTS[crawler] = ItemParents()
        return pipeline

    def process_item(self, item: Any, spider: Any = None) -> Any:
        spider = spider if spider is not None or self.crawler is None else self.crawler.spider
        if type(self)._process_item is not RedisPipeline._process_item:
            return self._in_thread(item, spider)
        beside = Beside(self.item_key(item, spider), as_bytes(self.serialize(item)))
        if not self._decided:
            self._decided = True
            self._scheduler = None if self.crawler is None else with_commits(self.crawler)
        if self._scheduler is not None and self.crawler is not None:
            keep(self._scheduler, beside, ITEM_PARENTS[self.crawler].of(item))
            return item
        return self._send(item, beside, spider)

    def item_key(self, item: Any, spider: Any) -> str:
        """The key of the list for an item; to be overridden."""
        return self.key % {"spider": spider.name}

    def _process_item(self, item: Any, spider: Any) -> Any:
        """Write an item, and wait for it. Where a project has its own, that is called, in a thread."""
        self.server.rpush(self.item_key(item, spider), self.serialize(item))
        return item

    def _send(self, item: Any, beside: Beside, spider: Any) -> Any:
        try:
            loop = EventLoop()
        except RuntimeError:  # nobody runs a crawl: somebody calls it by hand
            return self._process_item(item, spider)
        if self._courier is None:
            self._courier = Courier(self.server)
        written: Deferred[Any] = Deferred()

        def told(error: Exception | None) -> None:
            loop.post(lambda: written.callback(item) if error is None else written.errback(error))

        self._courier.send(beside, told)
        return written

    def _in_thread(self, item: Any, spider: Any) -> Any:
        try:
            loop = EventLoop()
        except RuntimeError:
            return self._process_item(item, spider)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(4, "scrapy-fleet-items")
        done: Deferred[Any] = Deferred()

        def work() -> None:
            try:
                made = self._process_item(item, spider)
            except Exception as error:
                failure = error
                loop.post(lambda: done.errback(failure))
            else:
                loop.post(lambda: done.callback(made))

        self._threads.submit(work)
        return done

    def close_spider(self, spider: Any = None) -> None:
        if self._courier is not None:
            self._courier.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)


def as_bytes(data: Any) -> bytes:
    return data if isinstance(data, bytes) else str(data).encode(errors="surrogatepass")
