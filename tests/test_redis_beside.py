"""What a commit writes beside the crawl, for other programs: all of it with the commit, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from scrapy_fleet.errors import StoreError
from scrapy_fleet.model import Beside, Outcome
from scrapy_fleet.store.memory import MemoryStore
from scrapy_fleet.store.redis import RedisStore
from scrapy_fleet.store.sqlite import SqliteStore
from tests.contract.driver import Hand, pages
from tests.servers import old_redis_binary, redis_binary, required, required_old, shared_server, valkey_binary

BINARIES = {
    "valkey": lambda: required(valkey_binary()),
    "redis": lambda: required(redis_binary()),
    "redis6": lambda: required_old(old_redis_binary()),
}


class Place:
    """A crawl on a server, and a client of another program."""

    def __init__(self, binary: str) -> None:
        server = shared_server(binary)
        self.name = f"beside-{uuid4().hex}"
        self.store = RedisStore(server.url, self.name)
        self.worker = Hand(self.store)
        self.client: Any = server.client()
        self.list, self.hash = f"{self.name}:items", f"{self.name}:stats"

    def items(self) -> list[bytes]:
        found: list[bytes] = self.client.lrange(self.list, 0, -1)
        return found

    def numbers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.client.hgetall(self.hash).items()}

    def push(self, *values: bytes) -> tuple[Beside, ...]:
        return tuple(Beside(self.list, value) for value in values)


@pytest.fixture(params=list(BINARIES))
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(BINARIES[request.param]())
    yield made
    made.store.close()
    made.client.close()


def test_lists_get_what_outcomes_and_batches_bring(place: Place) -> None:
    worker = place.worker
    worker.add(*pages("1", "2"))
    one, two = worker.lease()
    everything = bytes(range(256))
    worker.commit(
        outcomes=(
            Outcome(one.token, items=(b"i",), beside=place.push(b"a", everything)),
            Outcome(two.token, "dead", beside=place.push(b"")),
        ),
        beside=place.push(b"d"),
    )
    assert place.items() == [b"a", everything, b"", b"d"]
    assert [item for _, item in place.store.items()] == [b"i"]
    worker.again()
    assert len(place.items()) == 4


def test_outcomes_that_are_not_held_bring_nothing(place: Place) -> None:
    worker = place.worker
    worker.add(*pages("1"))
    [one] = worker.lease()
    worker.settle(one)
    worker.commit(outcomes=(Outcome(one.token, beside=place.push(b"late")),))
    assert place.items() == []


def test_fields_of_hashes_are_added_to_put_and_compared(place: Place) -> None:
    def write(do: Any, field: str, value: str) -> Beside:
        return Beside(place.hash, value.encode(), do, field)

    place.client.hset(place.hash, "text", "x")
    place.worker.commit(
        beside=(
            write("add", "pages", "2"),
            write("add", "pages", "3"),
            write("add", "seconds", "0.5"),
            write("add", "text", "1"),
            write("put", "größe", "now"),
            write("most", "depth", "3"),
            write("most", "depth", "2"),
            write("least", "least", "3"),
            write("least", "least", "-2.5"),
            write("most", "text", "7"),
        )
    )
    assert place.numbers() == {
        "pages": "5", "seconds": "0.5", "größe": "now", "depth": "3", "least": "-2.5", "text": "7"
    }  # fmt: skip


def test_what_cannot_be_written_changes_nothing_at_all(place: Place) -> None:
    """A script that breaks half-way would leave what it had done."""
    place.client.set(place.list, "not a list")
    worker = place.worker
    worker.add(*pages("1"))
    [one] = worker.lease()
    before = place.store.snapshot().counts
    with pytest.raises(StoreError, match=r":items is a string, not a list\. Remove or rename that key"):
        worker.commit(adds=pages("2"), outcomes=(Outcome(one.token, beside=place.push(b"a")),), items=(b"i",))
    assert place.store.snapshot().counts == before
    assert place.store.items() == []
    place.client.delete(place.list)
    worker.again()
    assert place.items() == [b"a"]
    assert place.store.snapshot().counts.done == 1


def test_one_key_cannot_be_both(place: Place) -> None:
    both = (*place.push(b"a"), Beside(place.list, b"1", "add", "pages"))
    with pytest.raises(StoreError, match="cannot be a list and a hash"):
        place.worker.commit(beside=both)


def test_stores_that_are_no_servers_refuse(tmp_path: Any) -> None:
    for store in (MemoryStore("c"), SqliteStore(tmp_path / "c.db", "c")):
        worker = Hand(store)
        with pytest.raises(StoreError, match="no server"):
            worker.commit(beside=(Beside("k", b"v"),), items=(b"i",))
        with pytest.raises(StoreError, match="no server"):
            worker.commit(outcomes=(Outcome(1, beside=(Beside("k", b"v"),)),))
        assert store.items() == []
