"""Every test of this folder runs once per kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from scrapy_fleet.store.base import Store
from scrapy_fleet.store.memory import MemoryStore
from scrapy_fleet.store.sqlite import SqliteStore

from .driver import Clock

Open = Callable[..., Store]
"""Opens a crawl by its name and a clock; the same name again gives a second handle on the same crawl."""


def memory_kind(folder: Path) -> Open:
    crawls: dict[str, Store] = {}

    def open_store(crawl: str, clock: Callable[[], float]) -> Store:
        # What lives in one process has one handle: itself.
        if crawl not in crawls:
            crawls[crawl] = MemoryStore(crawl, clock=clock, random=Random(crawl))
        return crawls[crawl]

    return open_store


def sqlite_kind(folder: Path) -> Open:
    def open_store(crawl: str, clock: Callable[[], float]) -> Store:
        path = folder / f"{crawl}.sqlite"
        return SqliteStore(path, crawl, clock=clock, random=Random(crawl), durability="normal")

    return open_store


KINDS: dict[str, Callable[[Path], Open]] = {"memory": memory_kind, "sqlite": sqlite_kind}


@pytest.fixture(params=list(KINDS))
def store_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_store(store_kind: str, tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Store]]:
    open_store = KINDS[store_kind](tmp_path)
    opened: list[Store] = []

    def make(crawl: str = "c", clock: Callable[[], float] = clock) -> Store:
        opened.append(open_store(crawl, clock))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    return make_store()
