"""Queues of requests on a Redis server, to be used alone. (The scheduler's requests are in the crawl.)

The order is exact: of equal priority, the first in is the first out. Requests that are equal are kept apart.
"""

from __future__ import annotations

from typing import Any

from scrapy import Request, Spider

from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.scrapy_redis.requests import request_of

# A member begins with when it came, in microseconds of the server's clock, and after the last of its score.
_ADD = """
local time = redis.call('TIME')
local at = time[1] * 1000000 + time[2]
local last = redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[1], 'LIMIT', 0, 1)[1]
local before = last and tonumber(string.sub(last, 1, 16))
if before and before >= at then at = before + 1 end
return redis.call('ZADD', KEYS[1], ARGV[1], string.format('%016.0f', at) .. ARGV[2])
"""
_STAMP = 16


class Base:
    """A queue of one spider's requests.

    Requests are written in the fleet's own format, which cannot run code. A ``serializer`` (with ``dumps``
    and ``loads``) gets and gives what ``Request.to_dict`` makes; what it reads may name only callbacks of
    the spider.
    """

    def __init__(self, server: Any, spider: Spider, key: str, serializer: Any = None) -> None:
        if serializer is not None:
            for name in ("loads", "dumps"):
                if not hasattr(serializer, name):
                    raise TypeError(f"serializer does not implement '{name}' function: {serializer}")
        self.server = server
        self.spider = spider
        self.key = key % {"spider": spider.name}
        self.serializer = serializer
        self._codec = Codec(spider)

    def _encode_request(self, request: Request) -> Any:
        if self.serializer is None:
            return self._codec.encode(request)
        return self.serializer.dumps(request.to_dict(spider=self.spider))

    def _decode_request(self, encoded_request: Any) -> Request:
        if self.serializer is None:
            return self._codec.decode(encoded_request)
        return request_of(self.serializer.loads(encoded_request), self.spider)

    def __len__(self) -> int:
        raise NotImplementedError

    def push(self, request: Request) -> None:
        raise NotImplementedError

    def pop(self, timeout: float = 0) -> Request | None:
        """The next request, if there is one within so many seconds."""
        raise NotImplementedError

    def clear(self) -> None:
        self.server.delete(self.key)


class FifoQueue(Base):
    """First in, first out; priorities do not count."""

    def __len__(self) -> int:
        return int(self.server.llen(self.key))

    def push(self, request: Request) -> None:
        self.server.lpush(self.key, self._encode_request(request))

    def pop(self, timeout: float = 0) -> Request | None:
        found = self.server.brpop(self.key, timeout) if timeout > 0 else self.server.rpop(self.key)
        data = found[1] if isinstance(found, tuple | list) else found
        return self._decode_request(data) if data else None


class PriorityQueue(Base):
    """Highest priority first; of equal priority, first in, first out."""

    def __len__(self) -> int:
        return int(self.server.zcard(self.key))

    def push(self, request: Request) -> None:
        self.server.eval(_ADD, 1, self.key, -request.priority, self._encode_request(request))

    def pop(self, timeout: float = 0) -> Request | None:
        if timeout > 0:
            found = self.server.bzpopmin(self.key, timeout)
            data = found[1] if found else None
        else:
            found = self.server.zpopmin(self.key)
            data = found[0][0] if found else None
        return self._decode_request(data[_STAMP:]) if data else None


class LifoQueue(Base):
    """Last in, first out; priorities do not count."""

    def __len__(self) -> int:
        return int(self.server.llen(self.key))

    def push(self, request: Request) -> None:
        self.server.lpush(self.key, self._encode_request(request))

    def pop(self, timeout: float = 0) -> Request | None:
        found = self.server.blpop(self.key, timeout) if timeout > 0 else self.server.lpop(self.key)
        data = found[1] if isinstance(found, tuple | list) else found
        return self._decode_request(data) if data else None


SpiderQueue = FifoQueue
SpiderStack = LifoQueue
SpiderPriorityQueue = PriorityQueue
