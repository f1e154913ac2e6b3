"""The kinds of store that the contract is held against. A new kind is one more line in ``KINDS``."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Protocol

from scrapy_fleet.store.base import Store
from scrapy_fleet.store.memory import MemoryStore
from scrapy_fleet.store.redis import RedisStore
from scrapy_fleet.store.redis.server import RIGHTS, connect
from scrapy_fleet.store.sqlite import SqliteStore
from tests.server_sets import Cluster, TlsServer, Watched
from tests.servers import (
    old_redis_binary,
    redis_binary,
    required,
    required_old,
    shared,
    shared_server,
    valkey_binary,
)


class Open(Protocol):
    """Opens a crawl by its name; the same name again gives a second handle on the same crawl."""

    def __call__(self, crawl: str, clock: Callable[[], float], random: Random) -> Store: ...


def memory_kind(folder: Path) -> Open:
    crawls: dict[str, Store] = {}

    def open_store(crawl: str, clock: Callable[[], float], random: Random) -> Store:
        # What lives in one process has one handle: itself.
        if crawl not in crawls:
            crawls[crawl] = MemoryStore(crawl, clock=clock, random=random)
        return crawls[crawl]

    return open_store


def sqlite_kind(folder: Path) -> Open:
    def open_store(crawl: str, clock: Callable[[], float], random: Random) -> Store:
        return SqliteStore(folder / f"{crawl}.sqlite", crawl, clock=clock, random=random, durability="normal")

    return open_store


def server_kind(find: Callable[[], str]) -> Callable[[Path], Open]:
    """``find`` starts what is needed, once for all tests of a process, and gives its address."""

    def kind(folder: Path) -> Open:
        url = find()
        run = uuid.uuid4().hex

        def open_store(crawl: str, clock: Callable[[], float], random: Random) -> Store:
            return Named(url, f"{crawl}/{run}", crawl, clock, random)

        return open_store

    return kind


def valkey() -> str:
    return shared_server(required(valkey_binary())).url


def redis() -> str:
    return shared_server(required(redis_binary())).url


def old_redis() -> str:
    return shared_server(required_old(old_redis_binary())).url


def cluster() -> str:
    binary = required(redis_binary())
    return shared("cluster", lambda folder: Cluster(binary, folder).start()).url


def sentinel() -> str:
    binary = required(redis_binary())
    return shared("sentinel", lambda folder: Watched(binary, folder).start()).url


def tls() -> str:
    """TLS with an authority of its own, and a user who is allowed what the docs say, and no more."""
    binary = required(redis_binary())
    return shared("tls", lambda folder: TlsServer(binary, folder, RIGHTS).start()).url


_clients: dict[str, Any] = {}


class Named(RedisStore):
    """A crawl under a name of its own on a server that tests share, shown under the name it was given.

    The way to the server is shared, too: to make one anew, over TLS or to a cluster, takes longer than most
    tests do. That each way can be made is seen in test_redis_ways.py and test_redis_tls.py.
    """

    def __init__(self, url: str, crawl: str, shown: str, clock: Callable[[], float], random: Random) -> None:
        super().__init__(url, crawl, clock=clock, random=random)
        self._crawl = shown
        # Once for a server, not for each test, it is asked what might be wrong with it.
        self._told = url in _clients
        if url not in _clients:
            _clients[url] = connect(url, url)
        self._server._client = _clients[url]

    def close(self) -> None:
        self._server._client = None


KINDS: dict[str, Callable[[Path], Open]] = {
    "memory": memory_kind,
    "sqlite": sqlite_kind,
    "valkey": server_kind(valkey),
    "redis": server_kind(redis),
    "redis6": server_kind(old_redis),
    "cluster": server_kind(cluster),
    "sentinel": server_kind(sentinel),
    "tls": server_kind(tls),
}

EXAMPLES = {"redis6": 30, "cluster": 10, "sentinel": 15, "tls": 10}
"""How long the state machine runs, where it is not for long. The scripts are the same on every server, and
all other tests run on every kind; what these kinds differ in (the way there, and what is allowed)
few examples show as well as many. Those of ``valkey`` and ``redis`` look for rare errors of the scripts."""
MANY_EXAMPLES = 150
