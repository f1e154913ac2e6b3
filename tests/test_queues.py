"""The queues for Scrapy's own scheduler: queuelib's contract, requests in them, and trouble below them."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from queuelib.queue import BaseQueue
from queuelib.tests import QueuelibTestCase
from queuelib.tests import test_queue as contract
from scrapy import Request, Spider

from scrapy_fleet import SerializationError, TransientError
from scrapy_fleet.crawl.queues import RedisFifoQueue, RedisLifoQueue, SqliteFifoQueue, SqliteLifoQueue
from scrapy_fleet.errors import FleetError, SettingError, StoreAway, StoreError, Unreadable
from scrapy_fleet.store.redis import queue as redis_queue
from scrapy_fleet.store.redis.queue import PREFIX, RedisQueue, line_to
from scrapy_fleet.store.sqlite.queue import SqliteQueue
from tests.commands import a_crawler
from tests.proxy import Moment, Proxy
from tests.servers import RedisServer, free_port, required, shared, shared_server, valkey_binary

# queuelib's own tests


class _Persistent(contract.PersistentTestMixin, contract.QueueTestMixin, QueuelibTestCase):
    fifo: bool
    __test__ = False

    def test_non_bytes_raises_typeerror(self) -> None:
        """With queuelib it may fail, for the sake of Scrapy's queues."""
        queue = self.queue()
        for value in (0, "", None, len):
            with pytest.raises(TypeError):
                queue.push(value)
        assert len(queue) == 0
        queue.close()


class _Sqlite(_Persistent):
    def queue(self) -> Any:
        return SqliteQueue(self.qpath, fifo=self.fifo)


class _Redis(_Persistent):
    def queue(self) -> Any:
        self.server = shared_server(required(valkey_binary()))
        return RedisQueue(line_to(self.server.url, "the server"), str(self.qpath), fifo=self.fifo)

    def test_cleanup(self) -> None:
        """There are no files: nothing may be left on the server."""
        queue = self.queue()
        for _ in range(5):
            queue.push(b"0")
        for _ in range(5):
            queue.pop()
        queue.close()
        with self.server.client() as client:
            assert not [name for name in client.keys(f"{PREFIX}*") if queue.key.encode() in name]


class TestSqliteFifo(contract.FifoTestMixin, _Sqlite):
    fifo, __test__ = True, True


class TestSqliteLifo(contract.LifoTestMixin, _Sqlite):
    fifo, __test__ = False, True


class TestRedisFifo(contract.FifoTestMixin, _Redis):
    fifo, __test__ = True, True


class TestRedisLifo(contract.LifoTestMixin, _Redis):
    fifo, __test__ = False, True


# Requests

KINDS = [SqliteFifoQueue, SqliteLifoQueue, RedisFifoQueue, RedisLifoQueue]
each_kind = pytest.mark.parametrize("kind", KINDS)


class Shop(Spider):
    name = "shop"

    def parse_item(self, response: Any) -> None: ...


def crawler_of(**settings: Any) -> Any:
    crawler = a_crawler(Shop, **settings)
    crawler.spider = Shop.from_crawler(crawler)
    return crawler


@pytest.fixture
def crawler() -> Any:
    return crawler_of(FLEET_URL=shared_server(required(valkey_binary())).url)


@pytest.fixture
def key(tmp_path: Path) -> str:
    return str(tmp_path / "requests.queue" / "a.example-0cc175b9c0f1b6a831c399e269772661" / "-7s")


@each_kind
def test_requests_come_back_as_they_were(kind: Any, crawler: Any, key: str) -> None:
    queue = kind.from_crawler(crawler, key)
    assert isinstance(queue, BaseQueue)
    sent = [
        Request(f"http://a.example/{n}", crawler.spider.parse_item, meta={"n": (n, b"x")}, priority=n)
        for n in range(3)
    ]
    for request in sent:
        queue.push(request)
    queue.close()
    queue = kind.from_crawler(crawler, key)
    assert len(queue) == 3
    wanted = sent if kind.fifo else sent[::-1]
    assert queue.peek().url == wanted[0].url
    got = [queue.pop() for _ in range(4)]
    assert got.pop() is None
    assert [request.to_dict(spider=crawler.spider) for request in got] == [
        request.to_dict(spider=crawler.spider) for request in wanted
    ]
    queue.close()


@each_kind
def test_a_request_that_cannot_be_stored(kind: Any, crawler: Any, key: str) -> None:
    queue = kind.from_crawler(crawler, key)
    for request in (
        Request("http://a.example", lambda response: None),
        Request("http://a.example", meta={"socket": object()}),
    ):
        with pytest.raises(SerializationError) as raised:
            queue.push(request)
        assert isinstance(raised.value, ValueError)  # the only one that Scrapy's scheduler catches
    assert len(queue) == 0
    queue.close()


@each_kind
def test_one_that_cannot_be_read_stays(kind: Any, crawler: Any, key: str) -> None:
    """A callback was renamed: the crawl stops, and goes on when there is one of that name again."""
    queue = kind.from_crawler(crawler, key)
    queue.push(Request("http://a.example/1", crawler.spider.parse_item))
    queue.close()

    class Renamed(Spider):
        name = "shop"

    other = crawler_of(FLEET_URL=crawler.settings["FLEET_URL"])
    other.spider = Renamed()
    queue = kind.from_crawler(other, key)
    for _ in range(2):
        with pytest.raises(Unreadable, match="parse_item"):
            queue.pop()
        assert len(queue) == 1
    queue.close()
    queue = kind.from_crawler(crawler, key)
    assert queue.pop().url == "http://a.example/1"
    queue.close()


@each_kind
def test_no_key(kind: Any, crawler: Any) -> None:
    with pytest.raises(SettingError, match="key"):
        kind.from_crawler(crawler, "/")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (None, "needs a server"),
        ("sqlite:///here", "names no Redis server"),
        ("redis://here:none", "cannot be used"),
    ],
)
def test_no_server(url: str | None, told: str, key: str) -> None:
    with pytest.raises(FleetError, match=told):
        RedisFifoQueue.from_crawler(crawler_of(FLEET_URL=url), key)


def test_two_crawls_on_a_server_have_queues_of_their_own(crawler: Any, key: str) -> None:
    here = RedisFifoQueue.from_crawler(crawler, key)
    here.push(Request("http://a.example"))
    url = crawler.settings["FLEET_URL"]
    there = RedisFifoQueue.from_crawler(crawler_of(FLEET_URL=url, FLEET_CRAWL="another"), key)
    assert len(there) == 0
    here.clear()
    here.close()


def test_a_file_of_another_program(tmp_path: Path, crawler: Any) -> None:
    path = tmp_path / "0"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE queue (id, item)")
    connection.close()
    with pytest.raises(StoreError, match="of another program"):
        SqliteFifoQueue.from_crawler(crawler, str(path))
    path.write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match="is not a database"):
        SqliteFifoQueue.from_crawler(crawler, str(path))


# Trouble


def test_a_disk_that_is_full_for_a_while(crawler: Any, key: str) -> None:
    queue = SqliteFifoQueue.from_crawler(crawler, key)
    queue.push(Request("http://a.example/0"))
    below = queue._queue._connection  # type: ignore[attr-defined]
    below.execute("PRAGMA max_page_count = 1")
    fill = b"x" * 10_000
    with pytest.raises(TransientError, match="full"):
        queue.push(Request("http://a.example/1", body=fill))
    assert len(queue) == 1
    below.execute("PRAGMA max_page_count = 1000000")
    queue.push(Request("http://a.example/1", body=fill))
    assert [queue.pop().url for _ in range(2)] == ["http://a.example/0", "http://a.example/1"]
    queue.close()


def test_a_file_that_another_process_has_open(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    first = SqliteQueue(path, fifo=True)
    with pytest.raises(StoreAway, match="locked"):
        SqliteQueue(path, fifo=True, patience=0.01)
    first.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """One of its own, that keeps what it has."""
    monkeypatch.setattr(redis_queue, "PAUSE", 0.0)
    binary = required(valkey_binary())
    made = shared(
        f"{binary} for queues",
        lambda folder: RedisServer(
            binary, folder, "--appendonly", "yes", "--appendfsync", "always", port=free_port()
        ).start(),
    )
    yield made
    if made.process is None:
        made.start()


@pytest.mark.parametrize("kind", [RedisFifoQueue, RedisLifoQueue])
def test_a_server_that_goes_away_and_comes_back(kind: Any, server: RedisServer, key: str) -> None:
    crawler = crawler_of(FLEET_URL=server.url)
    queue, empty = kind.from_crawler(crawler, key), kind.from_crawler(crawler, key + "/empty")
    for n in range(3):
        queue.push(Request(f"http://a.example/{n}"))
    server.kill()
    for _ in range(2):
        assert queue.pop() is None
        assert queue.peek() is None
        with pytest.raises(TransientError):
            queue.push(Request("http://a.example/away"))
        assert len(queue) == 3
    with pytest.raises(TransientError):
        empty.push(Request("http://a.example/away"))
    assert len(empty) == 1, "it may be there"
    with pytest.raises(TransientError):
        kind.from_crawler(crawler, key + "/new")
    server.start()
    assert len(empty) == 0
    assert len(queue) == 3
    queue.push(Request("http://a.example/3"))
    got = [queue.pop().url[-1] for _ in range(4)]
    assert got == (list("0123") if kind.fifo else list("3210"))
    assert queue.pop() is None
    queue.close()
    empty.close()


@pytest.mark.parametrize("fifo", [True, False])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_connections_that_break(moment: Moment, fifo: bool, server: RedisServer, key: str) -> None:
    """Whatever was on its way: what the queue has taken comes out once, what it has refused never."""
    with Proxy(server.port) as proxy:
        queue = RedisQueue(line_to(proxy.url, "the server"), key, fifo=fifo)
        calls = itertools.count(1)
        # The client tries a call twice: two broken connections in a row are an error, one is not.
        proxy.cut(moment, lambda request: b"EVALSHA" in request and next(calls) % 7 in (2, 4, 5))
        taken, refused, popped = [], 0, []
        for n in range(40):
            item = b"%d" % n
            try:
                queue.push(item)
                taken.append(item)
            except StoreAway:
                refused += 1
            if n % 3 == 0:
                try:
                    popped.append(queue.pop())
                except StoreAway:
                    assert len(queue) >= 1
        proxy.cut("before", lambda request: False)
        while (left := queue.pop()) is not None:
            popped.append(left)
        assert refused
        assert proxy.cuts > 20
        assert sorted(filter(None, popped)) == sorted(taken)
        queue.close()
    with server.client() as client:
        assert not [name for name in client.keys(f"{PREFIX}*") if queue.key.encode() in name]


def test_an_item_whose_answer_was_lost_is_still_there(server: RedisServer, key: str) -> None:
    with Proxy(server.port) as proxy:
        queue = RedisQueue(line_to(proxy.url, "the server"), key, fifo=True)
        queue.push(b"the only one")
        proxy.cut("after", lambda request: b"EVALSHA" in request)
        with pytest.raises(StoreAway):
            queue.pop()
        assert len(queue) == 1
        proxy.cut("after", lambda request: False)
        assert len(queue) == 1, "Scrapy would close the queue"
        assert queue.pop() == b"the only one"
        assert len(queue) == 0
        queue.close()


def test_a_killed_process_gets_the_last_of_its_file_again(tmp_path: Path) -> None:
    first = SqliteQueue(tmp_path / "queue", fifo=True)
    for n in range(3):
        first.push(b"%d" % n)
    assert [first.pop(), first.pop()] == [b"0", b"1"]
    assert len(first) == 1
    first._connection.close()  # as when the process is killed
    second = SqliteQueue(tmp_path / "queue", fifo=True)
    assert [second.pop() for _ in range(3)] == [b"1", b"2", None]
    second.close()


def test_a_killed_process_gets_its_last_request_again(server: RedisServer, key: str) -> None:
    first = RedisQueue(line_to(server.url, "the server"), key, fifo=True)
    for n in range(3):
        first.push(b"%d" % n)
    assert first.pop() == b"0"
    # It is not closed: another takes its place.
    second = RedisQueue(line_to(server.url, "the server"), key, fifo=True)
    assert [second.pop() for _ in range(4)] == [b"0", b"1", b"2", None]
    second.close()


def test_a_server_that_was_emptied_is_told(
    server: RedisServer, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = RedisQueue(line_to(server.url, "the server"), key, fifo=True)
    queue.push(b"a")
    with server.client() as client:
        client.flushall()
    assert queue.pop() is None
    assert "the server has lost them" in caplog.text
    assert len(queue) == 0
    queue.close()


def test_a_server_that_does_not_answer_is_left_alone_for_a_moment(
    server: RedisServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every try may hold Scrapy's loop up."""
    monkeypatch.setattr(redis_queue, "PAUSE", 3600.0)
    with Proxy(server.port) as proxy:
        queue = RedisQueue(line_to(proxy.url, "the server"), key, fifo=True)
        proxy.cut("before", lambda request: True)
        with pytest.raises(StoreAway):
            queue.push(b"a")
        tries = proxy.cuts
        assert tries
        with pytest.raises(StoreAway):
            queue.push(b"b")
        assert len(queue) == 1
        assert proxy.cuts == tries
