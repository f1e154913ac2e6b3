"""Queues on Redis and SQLite for those who keep Scrapy's own scheduler: names for SCHEDULER_DISK_QUEUE.

Scrapy makes one for each host and priority, and calls them from its loop: every call waits for its answer.
Trouble that passes shows as TransientError from ``push``, None from ``pop``, and a length of at least 1.
Trouble that stays is raised, and stops the crawl.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

from scrapy import Request, Spider

from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.crawl.seam import stop_soon
from scrapy_fleet.errors import FleetError, SerializationError, SettingError, StoreAway, TransientError

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Bytes(Protocol):
    """Where requests are kept, as bytes. StoreAway is raised for what passes; never by ``len``."""

    def push(self, data: bytes) -> None: ...
    def take(self, read: Callable[[bytes], T]) -> T | None: ...
    def peek(self) -> bytes | None: ...
    def clear(self) -> None: ...
    def close(self) -> None: ...
    def __len__(self) -> int: ...


_codecs: WeakKeyDictionary[Spider, Codec] = WeakKeyDictionary()


def _codec_of(spider: Spider) -> Codec:
    codec = _codecs.get(spider)
    if codec is None:
        codec = _codecs[spider] = Codec(spider)
    return codec


class _RequestQueue:
    """Requests in a queue of bytes, as text that cannot run code."""

    fifo: ClassVar[bool]

    @classmethod
    def from_crawler(cls, crawler: Crawler, key: str, *args: Any, **kwargs: Any) -> Self:
        return cls(crawler, key)

    def __init__(self, crawler: Crawler, key: str) -> None:
        if not str(key).strip("/"):
            raise SettingError(f"{type(self).__name__} needs a key that names the queue, not {key!r}.")
        self._crawler = crawler
        assert crawler.spider is not None
        self._codec = _codec_of(crawler.spider)
        try:
            self._queue = self._open(crawler, key)
        except StoreAway as error:
            raise TransientError(str(error)) from error

    def _open(self, crawler: Crawler, key: str) -> Bytes:
        raise NotImplementedError

    def push(self, request: Request) -> None:
        try:
            payload = self._codec.encode(request)
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(f"{request} cannot be stored: {error}") from error
        try:
            self._queue.push(payload)
        except StoreAway as error:
            raise TransientError(str(error)) from error
        except FleetError as error:
            self._give_up(error)
            raise

    def pop(self) -> Request | None:
        return self._next(lambda: self._queue.take(self._codec.decode))

    def peek(self) -> Request | None:
        def look() -> Request | None:
            payload = self._queue.peek()
            return None if payload is None else self._codec.decode(payload)

        return self._next(look)

    def _next(self, ask: Callable[[], Request | None]) -> Request | None:
        try:
            return ask()
        except StoreAway:
            return None
        except FleetError as error:
            self._give_up(error)
            raise

    def _give_up(self, error: FleetError) -> None:
        """Scrapy's own scheduler does not stop for what a queue raises; it would hang, or lose requests."""
        logger.error("A queue cannot go on, so the crawl stops. Nothing in it is lost. %s", error)
        stop_soon(self._crawler, "fleet_error")

    def clear(self) -> None:
        self._queue.clear()

    def close(self) -> None:
        try:
            self._queue.close()
        except FleetError as error:
            logger.warning("A queue is left as it is, its last request may be repeated: %s", error)

    def __len__(self) -> int:
        return len(self._queue)


class _SqliteQueue(_RequestQueue):
    """In a file of its own, whose path is the key: a file under JOBDIR."""

    def _open(self, crawler: Crawler, key: str) -> Bytes:
        from scrapy_fleet.store.sqlite.queue import SqliteQueue

        durability = fleet_settings.get(crawler.settings, "FLEET_DURABILITY")
        return SqliteQueue(Path(key), fifo=self.fifo, durability=durability)


class SqliteFifoQueue(_SqliteQueue):
    fifo = True


class SqliteLifoQueue(_SqliteQueue):
    fifo = False


class _RedisQueue(_RequestQueue):
    """On the server that FLEET_URL names."""

    def _open(self, crawler: Crawler, key: str) -> Bytes:
        url = fleet_settings.get(crawler.settings, "FLEET_URL")
        name = type(self).__name__
        if url is None:
            raise SettingError(f"{name} needs a server: set FLEET_URL = 'redis://host:6379/0'.")
        shown = fleet_settings.shown(url)
        try:
            from scrapy_fleet.store.redis import SCHEMES
            from scrapy_fleet.store.redis.queue import RedisQueue, line_to
        except ModuleNotFoundError as error:
            if error.name != "redis":
                raise
            raise SettingError(f"{name} needs the package redis: pip install scrapy-fleet[redis]") from None
        if url.partition(":")[0] not in SCHEMES:
            raise SettingError(f"FLEET_URL = {shown!r} names no Redis server, which {name} needs.")
        crawl = fleet_settings.get(crawler.settings, "FLEET_CRAWL") or crawler.spidercls.name
        return RedisQueue(line_to(url, shown), f"{crawl}:{key}", fifo=self.fifo)


class RedisFifoQueue(_RedisQueue):
    fifo = True


class RedisLifoQueue(_RedisQueue):
    fifo = False
