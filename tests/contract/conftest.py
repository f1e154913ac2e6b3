"""Every test of this folder runs once per kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from scrapy_fleet.store.base import Store

from .driver import Clock
from .kinds import KINDS

NO_FOLDER = Path("/dev/null")


@pytest.fixture(params=list(KINDS))
def store_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_store(
    request: pytest.FixtureRequest, store_kind: str, clock: Clock
) -> Iterator[Callable[..., Store]]:
    """Opens a crawl; called again with the same name, gives another handle on the same crawl."""
    # A folder takes longer to make than many a test does.
    folder: Path = request.getfixturevalue("tmp_path") if store_kind == "sqlite" else NO_FOLDER
    open_store = KINDS[store_kind](folder)
    random = Random(1)
    opened: list[Store] = []

    def make(crawl: str = "c", clock: Callable[[], float] = clock) -> Store:
        opened.append(open_store(crawl, clock, random))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    return make_store()
