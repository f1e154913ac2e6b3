"""What stays of filters in a file and on a server: room that is given back, copies that were interrupted."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
import redis

from scrapy_fleet.errors import StoreError
from scrapy_fleet.model import Batch, Plan, Rule, SeenPlan, Worker
from scrapy_fleet.seen import BLOCK_BYTES, GENERATIONS, layers
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.redis import RedisStore, packing
from scrapy_fleet.store.sqlite import SqliteStore
from tests.contract.driver import Clock
from tests.servers import required, shared_server, valkey_binary

ROLLING = SeenPlan("rolling", window=60.0)
BLOOM = SeenPlan("bloom", capacity=10_000)


def keys(count: int, seed: int = 0) -> tuple[int, ...]:
    chance = Random(seed)
    return tuple(chance.getrandbits(64) - (1 << 63) for _ in range(count))


def roll(store: Store, clock: Clock, size: Callable[[], int], windows: int = 20) -> list[int]:
    """New keys all the time; what they took, after each part of a window."""
    store.join(Worker("w"), Plan(rule=Rule(), seen=ROLLING), 1e9)
    found = []
    for step in range(windows * GENERATIONS):
        clock.advance(ROLLING.window / GENERATIONS)
        store.commit(Batch(worker="w", seq=step, marks=keys(600, seed=step)))
        store.beat("w")
        found.append(size())
    return found


def test_a_file_does_not_grow_with_rolling_keys(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "c.db"
    store = SqliteStore(path, "c", clock=clock, durability="normal")
    pages = roll(store, clock, lambda: store._db.value("PRAGMA page_count"))
    steady = pages[2 * GENERATIONS :]
    assert max(steady) <= 1.3 * min(steady)
    store.close()
    with closing(sqlite3.connect(path)) as database:
        # Those of the window, of the part that is past it, and what the last call left to be deleted.
        assert database.execute("SELECT count(*) FROM rolling").fetchone()[0] <= 600 * (GENERATIONS + 3)
        assert database.execute("SELECT count(*) FROM generation").fetchone()[0] <= GENERATIONS + 3


@pytest.fixture
def place() -> Iterator[tuple[str, str, redis.Redis]]:
    """A server's address, a crawl of its own there, and a client."""
    server = shared_server(required(valkey_binary()))
    with redis.Redis.from_url(server.url) as client:
        yield server.url, uuid.uuid4().hex, client


def test_a_server_does_not_fill_with_rolling_keys(place: tuple[str, str, redis.Redis]) -> None:
    url, crawl, client = place
    clock = Clock()
    store = RedisStore(url, crawl, clock=clock)
    pattern = f"fleet:{{{crawl}}}:seen:*"
    sizes = roll(store, clock, lambda: sum(client.memory_usage(key) for key in client.scan_iter(pattern)))
    steady = sizes[2 * GENERATIONS :]
    assert max(steady) <= 1.3 * min(steady)
    assert sum(client.scard(key) for key in client.scan_iter(pattern)) == store.seen_info().count
    assert store.seen_info().bytes == pytest.approx(sizes[-1], rel=0.2)


def test_blocks_on_a_server_are_as_long_as_they_must_be(place: tuple[str, str, redis.Redis]) -> None:
    url, crawl, client = place
    store = RedisStore(url, crawl)
    store.use_seen(BLOOM)
    store.mark(keys(10_000))
    blocks = list(client.scan_iter(f"fleet:{{{crawl}}}:seen:*"))
    assert len(blocks) == layers(BLOOM)[0].blocks
    assert {client.strlen(block) for block in blocks} == {BLOCK_BYTES}
    # A string that had grown bit by bit would have room for twice as much.
    assert all(client.memory_usage(block) < 1.1 * BLOCK_BYTES for block in blocks)
    assert store.seen_info().bytes == pytest.approx(sum(map(client.memory_usage, blocks)), rel=0.01)


def test_a_copy_that_was_interrupted_does_no_harm(place: tuple[str, str, redis.Redis]) -> None:
    url, crawl, client = place
    store, met = RedisStore(url, crawl), keys(3000)
    store.mark(met)
    whole = packing.seen_plan(BLOOM)

    def interrupt() -> None:
        assert store._run("convert", "begin", whole) == [1]
        store._run("convert", "copy", whole, packing.marks(met[:1000]))

    interrupt()
    assert store.seen_info().plan == SeenPlan()
    assert all(store.seen(met))
    # Whoever comes meanwhile is welcome; but then the copy is not whole.
    interrupt()
    store.mark((1, 2, 3))
    with pytest.raises(StoreError, match="used while its filter was converted"):
        store._run("convert", "end", whole)
    interrupt()
    assert store.convert(BLOOM) == 3003
    assert all(store.seen((*met, 1, 2, 3)))
    # What was there before, and what was left of the copies, is deleted.
    prefix = f"fleet:{{{crawl}}}:seen:"
    left = list(client.scan_iter(f"{prefix}*"))
    assert {client.type(name) for name in left} == {b"string"}
    assert len(left) <= layers(BLOOM)[0].blocks
    interrupted = RedisStore(url, crawl)
    interrupted.convert(SeenPlan("off"))
    interrupted.clear()
    assert list(client.scan_iter(f"{prefix}*")) == []
