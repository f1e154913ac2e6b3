"""What scrapy-redis keeps on its server, read without changing it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_fleet.errors import FleetError
from scrapy_fleet.scrapy_redis.connection import fleet_url, get_redis, parameters
from scrapy_fleet.settings import shown
from scrapy_fleet.store.redis.server import ours

if TYPE_CHECKING:
    from scrapy_fleet.ops.import_redis_project import Project

AT_ONCE = 1000
NONE = "none"


class Found(NamedTuple):
    key: str
    kind: str
    size: int

    def as_data(self) -> dict[str, Any]:
        return self._asdict()

    def __str__(self) -> str:
        return f"{self.key}, a {self.kind}" if self.kind != NONE else f"{self.key}: there is none"


class Source:
    """The keys of one spider on a server."""

    def __init__(self, client: Any, url: str, keys: tuple[str, str, str]) -> None:
        self.url = url
        self.shown = shown(url)
        self._client = client
        self._keys = keys

    @classmethod
    def of(cls, project: Project, opts: argparse.Namespace) -> Source:
        settings = project.settings
        if opts.url is not None:
            url = opts.url
            client = get_redis(url=_checked(url), socket_timeout=30, socket_connect_timeout=10)
        else:
            url = fleet_url(settings)
            client = get_redis(**{**parameters(settings), "decode_responses": False})
        return cls(client, url, project.keys(opts.queue, opts.dupefilter, opts.start))

    def close(self) -> None:
        self._client.close()

    def _call(self, name: str, *args: Any) -> Any:
        try:
            return self._client.execute_command(name, *args)
        except Exception as error:
            raise FleetError(str(ours(error, self.shown)).replace("FLEET_URL", "--url")) from error

    def look(self) -> tuple[Found, Found, Found]:
        """The queue, the duplicate set and the start URLs."""
        queue, seen, start = (self._look(key) for key in self._keys)
        for found, kinds in (
            (queue, ("zset", "list")),
            (seen, ("set", "zset")),
            (start, ("list", "set", "zset")),
        ):
            if found.kind not in (*kinds, NONE):
                raise FleetError(
                    f"{found.key} at {self.shown} is a {found.kind}; scrapy-redis has a {' or '.join(kinds)} "
                    "there. Name another (--queue, --dupefilter, --start), or 'none'. Nothing was changed."
                )
        return queue, seen, start

    def _look(self, key: str) -> Found:
        if key == NONE:
            return Found(key, NONE, 0)
        kind = self._call("TYPE", key)
        kind = kind.decode() if isinstance(kind, bytes) else str(kind)
        return Found(key, kind, self.size(Found(key, kind, 0)))

    def size(self, found: Found) -> int:
        command = {"zset": "ZCARD", "list": "LLEN", "set": "SCARD"}.get(found.kind)
        return int(self._call(command, found.key)) if command else 0

    def requests(self, queue: Found) -> Iterator[tuple[bytes, int | None]]:
        """Those that wait, with their priorities where the queue knows them; of a list, the oldest first."""
        if queue.kind == "zset":
            for member, score in self._pairs(queue.key):
                yield member, -int(score)
        elif queue.kind == "list":
            # New ones come at the left: counted from the right, the others keep their places.
            last = -1
            while some := self._call("LRANGE", queue.key, last - AT_ONCE + 1, last):
                yield from ((member, None) for member in reversed(some))
                last -= len(some)

    def start_urls(self, start: Found) -> Iterator[bytes]:
        """As scrapy-redis takes them: of a list from the left, of a sorted set the highest score first."""
        if start.kind == "list":
            first = 0
            while some := self._call("LRANGE", start.key, first, first + AT_ONCE - 1):
                yield from some
                first += len(some)
        elif start.kind == "zset":
            first = 0
            while some := self._call("ZREVRANGE", start.key, first, first + AT_ONCE - 1):
                yield from some
                first += len(some)
        else:
            yield from self.members(start)

    def members(self, found: Found) -> Iterator[bytes]:
        """Of a set or sorted set; what changes meanwhile may be met twice, or not."""
        if found.kind == "zset":
            yield from (member for member, _ in self._pairs(found.key))
        elif found.kind == "set":
            cursor: Any = 0
            while True:
                cursor, some = self._call("SSCAN", found.key, cursor, "COUNT", AT_ONCE)
                yield from some
                if int(cursor) == 0:
                    return

    def _pairs(self, key: str) -> Iterator[tuple[bytes, float]]:
        cursor: Any = 0
        while True:
            cursor, some = self._call("ZSCAN", key, cursor, "COUNT", AT_ONCE)
            # The client may have made pairs of them already.
            paired = bool(some) and isinstance(some[0], tuple | list)
            pairs = some if paired else zip(some[::2], some[1::2], strict=True)
            yield from ((member, float(score)) for member, score in pairs)
            if int(cursor) == 0:
                return

    def has_seen(self, prints: list[str]) -> list[bool]:
        found = self._look(self._keys[1])
        if found.kind == "set":
            return [bool(self._call("SISMEMBER", found.key, text)) for text in prints]
        if found.kind == "zset":
            return [self._call("ZSCORE", found.key, text) is not None for text in prints]
        return []


def _checked(url: str) -> str:
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise FleetError(f"--url {shown(url)!r} is no address of a Redis server: redis://host:6379/0")
    return url
