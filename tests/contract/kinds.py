"""The kinds of store that the contract is held against. A new kind is one more line in ``KINDS``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Protocol

from scrapy_fleet.store.base import Store
from scrapy_fleet.store.memory import MemoryStore
from scrapy_fleet.store.sqlite import SqliteStore


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


KINDS: dict[str, Callable[[Path], Open]] = {"memory": memory_kind, "sqlite": sqlite_kind}
