"""The kinds of store that the contract is held against. A new kind is one more line in ``KINDS``."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from scrapy_fleet.store.base import Store
from scrapy_fleet.store.memory import MemoryStore
from scrapy_fleet.store.redis import RedisStore
from scrapy_fleet.store.sqlite import SqliteStore
from tests.servers import redis_binary, shared_server, valkey_binary


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


def server_kind(find: Callable[[], str | None]) -> Callable[[Path], Open]:
    def kind(folder: Path) -> Open:
        binary = find()
        if binary is None:
            if os.environ.get("CI"):
                pytest.fail("a server that the tests need is not installed")
            pytest.skip("its server is not installed")
        server = shared_server(binary)
        run = uuid.uuid4().hex

        def open_store(crawl: str, clock: Callable[[], float], random: Random) -> Store:
            return Named(server.url, f"{crawl}/{run}", crawl, clock, random)

        return open_store

    return kind


class Named(RedisStore):
    """A crawl under a name of its own on a server that tests share, shown under the name it was given."""

    def __init__(self, url: str, crawl: str, shown: str, clock: Callable[[], float], random: Random) -> None:
        super().__init__(url, crawl, clock=clock, random=random)
        self._crawl = shown


KINDS: dict[str, Callable[[Path], Open]] = {
    "memory": memory_kind,
    "sqlite": sqlite_kind,
    "valkey": server_kind(valkey_binary),
    "redis": server_kind(redis_binary),
}
