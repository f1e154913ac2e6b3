"""Items and stats for programs that were written for scrapy-redis, in lists and hashes."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from scrapy.crawler import Crawler
from scrapy.settings import Settings

from scrapy_fleet.model import Beside
from scrapy_fleet.ops.site import Shape, running
from scrapy_fleet.scrapy_redis.beside import Courier, attempt, is_same_server
from scrapy_fleet.scrapy_redis.pipelines import RedisPipeline
from scrapy_fleet.scrapy_redis.stats import RedisStatsCollector
from tests.command_line import Run as CommandLine
from tests.crash.fleet import Fleet
from tests.crash.result_spiders import SpiderWithStats
from tests.crash.spiders import LingeringSpider, SiteSpider
from tests.servers import RedisServer

pytestmark = pytest.mark.crash

SHAPE = Shape("tree", pages=150, seed=1)
PIPELINE = {"ITEM_PIPELINES": {"scrapy_fleet.scrapy_redis.pipelines.RedisPipeline": 300}}
STATS = {"STATS_CLASS": "scrapy_fleet.scrapy_redis.stats.RedisStatsCollector", "LOGSTATS_INTERVAL": 0.1}


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as client:
        yield client


def pages(client: Any, key: str = "site:items") -> Counter[int]:
    return Counter(json.loads(item)["page"] for item in client.lrange(key, 0, -1))


ALL = Counter(range(SHAPE.pages))


def test_kills_neither_lose_nor_repeat_items_in_a_list(
    tmp_path: Path, server: RedisServer, client: Any
) -> None:
    settings = {**PIPELINE, "REDIS_URL": server.url}
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, SiteSpider, url=server.url, start_url=site.start_url, settings=settings) as fleet,
    ):
        fleet.start()
        with fleet.held_open():
            doomed = fleet.start()
            for number in (30, 70, 110):
                site.wait(pages=number)
                doomed.kill()
                doomed = fleet.start()
        fleet.finish()
        assert fleet.snapshot().items == 0
        assert pages(client) == ALL


def test_items_are_written_when_their_page_has_ended_and_not_before(
    tmp_path: Path, server: RedisServer, client: Any
) -> None:
    """Else a crash would bring them again with the page."""
    gate = tmp_path / "gate"
    settings = {**PIPELINE, "REDIS_URL": server.url}
    with (
        running(SHAPE) as site,
        Fleet(
            tmp_path,
            LingeringSpider,
            url=server.url,
            start_url=site.start_url,
            settings=settings,
            gate=str(gate),
        ) as fleet,
    ):
        doomed = fleet.start()
        site.wait(pages=20)  # links of pages whose callbacks have not ended are committed
        doomed.kill()
        assert not client.exists("site:items")
        gate.touch()
        fleet.start()
        fleet.finish()
        assert pages(client) == ALL


def test_a_page_is_not_settled_before_its_items_are_in_a_list_elsewhere(
    tmp_path: Path, server: RedisServer, client: Any
) -> None:
    settings = {**PIPELINE, "REDIS_URL": server.url}
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, SiteSpider, start_url=site.start_url, settings=settings) as fleet,
    ):
        server.signal(signal.SIGSTOP)
        doomed = fleet.start()
        site.wait(pages=8)
        doomed.kill()
        assert fleet.snapshot().counts.done == 0
        server.signal(signal.SIGCONT)
        fleet.start()
        fleet.finish()
        assert set(pages(client)) == set(ALL)


def test_a_project_chooses_list_serializer_and_writing(
    tmp_path: Path, server: RedisServer, client: Any
) -> None:
    paths = [f"tests.crash.result_spiders.{name}" for name in ("OwnPipeline", "OwnWriting")]
    settings = {
        "ITEM_PIPELINES": {path: 300 + n for n, path in enumerate(paths)},
        "REDIS_URL": server.url,
        "REDIS_ITEMS_SERIALIZER": "json.dumps",
    }
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, SiteSpider, start_url=site.start_url, settings=settings) as fleet,
    ):
        fleet.start()
        fleet.finish()
        assert "ERROR" not in fleet.workers[0].text()
    assert pages(client, "site:even") + pages(client, "site:odd") == ALL
    assert all(number % 2 == 0 for number in pages(client, "site:even"))
    assert client.scard("own") == SHAPE.pages


def test_items_are_written_without_a_reactor(tmp_path: Path, server: RedisServer, client: Any) -> None:
    paths = ("scrapy_fleet.scrapy_redis.pipelines.RedisPipeline", "tests.crash.result_spiders.OwnWriting")
    settings = {
        "ITEM_PIPELINES": json.dumps({path: 300 + n for n, path in enumerate(paths)}),
        "REDIS_URL": server.url,
        "TWISTED_REACTOR_ENABLED": False,
    }
    with running(SHAPE) as site, CommandLine(site, tmp_path, settings) as run:
        run.ended()
        assert run.errors == []
    assert sum(pages(client).values()) == SHAPE.pages
    assert client.scard("own") == SHAPE.pages


def test_a_list_that_is_none_stops_the_crawl_and_loses_nothing(
    tmp_path: Path, server: RedisServer, client: Any
) -> None:
    client.set("site:items", "other")
    settings = {**PIPELINE, "REDIS_URL": server.url}
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, SiteSpider, url=server.url, start_url=site.start_url, settings=settings) as fleet,
    ):
        stats = fleet.start().ended()
        assert stats["finish_reason"] == "fleet_error"
        assert "site:items is a string, not a list" in fleet.workers[0].text()
        client.delete("site:items")
        fleet.start()
        fleet.finish()
    assert pages(client) == ALL


def test_an_item_can_be_written_by_hand(client: Any, server: RedisServer) -> None:
    """Without a crawl, as tests of a project do it."""
    settings = Settings({"REDIS_URL": server.url, "REDIS_ITEMS_KEY": "%(spider)s/found"})
    pipeline = RedisPipeline.from_settings(settings)
    item = {"page": 1}
    assert pipeline.process_item(item, SiteSpider()) is item
    assert client.lrange("site/found", 0, -1) == [b'{"page": 1}']


def test_a_server_that_is_away_is_waited_for(server: RedisServer, client: Any) -> None:
    courier = Courier(redis.Redis.from_url(server.url, socket_timeout=1))
    told: list[Exception | None] = []
    client.set("text", "x")
    server.kill()
    for number in range(10):
        courier.send(Beside("list", b"%d" % number), told.append)
    courier.send(Beside("text", b"no list"), told.append)
    server.start()
    courier.close(wait=60)
    assert told[:10] == [None] * 10
    assert isinstance(told[10], redis.ResponseError)
    with redis.Redis.from_url(server.url) as again:
        assert again.lrange("list", 0, -1) == [b"%d" % number for number in range(10)]


def test_what_is_written_elsewhere_is_what_commits_write(client: Any) -> None:
    writings = [
        Beside("hash", b"2", "add", "pages"),
        Beside("hash", b"0.5", "add", "pages"),
        Beside("hash", b"text", "put", "what"),
    ]
    assert attempt(client, writings) == [None] * 3
    assert (
        attempt(client, [Beside("hash", b"3", "most", "a"), Beside("hash", b"3", "least", "b")]) == [None] * 2
    )
    assert (
        attempt(client, [Beside("hash", b"2", "most", "a"), Beside("hash", b"2", "least", "b")]) == [None] * 2
    )
    assert client.hgetall("hash") == {b"pages": b"2.5", b"what": b"text", b"a": b"3", b"b": b"2"}


def test_which_server_is_the_same() -> None:
    def same(url: str, **settings: Any) -> bool:
        return is_same_server(url, Settings(settings))

    assert same("redis://127.0.0.1:6379", REDIS_URL="redis://localhost:6379/0")
    assert same("redis://localhost", REDIS_HOST="localhost", REDIS_PORT=6379)
    assert same("redis://:secret@far:7/3", REDIS_URL="redis://far:7/3")
    assert not same("redis://localhost/1", REDIS_URL="redis://localhost/0")
    assert not same("sqlite:///crawls", REDIS_URL="redis://localhost/0")
    assert not same("redis+cluster://localhost:6379", REDIS_URL="redis://localhost:6379/0")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_hash_has_the_sums_of_all_workers(
    elsewhere: bool, tmp_path: Path, server: RedisServer, client: Any
) -> None:
    settings = {**STATS, "REDIS_URL": server.url, "SCHEDULER_PERSIST": True, "FLEET_ON_FINISH": "clear"}
    with (
        running(SHAPE) as site,
        Fleet(
            tmp_path,
            SpiderWithStats,
            url=None if elsewhere else server.url,
            start_url=site.start_url,
            settings=settings,
        ) as fleet,
    ):
        fleet.start()
        with fleet.held_open():
            fleet.start()
            site.wait(pages=SHAPE.pages)
        fleet.finish()
        for worker in fleet.workers:
            assert "ERROR" not in worker.text()
            assert "Crawled" in worker.text()
        found = {name.decode(): value.decode() for name, value in client.hgetall("site:stats").items()}
        assert int(found["response_received_count"]) == int(found["item_scraped_count"]) == SHAPE.pages
        assert (found["own/largest"], found["own/smallest"]) == (str(SHAPE.pages - 1), "0")
        assert float(found["own/half"]) == SHAPE.pages / 2
        assert (found["own/text"], found["finish_reason"]) == ("größe", "finished")
        assert float(found["start_time"]) <= float(found["finish_time"])
        assert fleet.snapshot().stats["item_scraped_count"] == SHAPE.pages


def test_stats_can_be_cleared(server: RedisServer, client: Any) -> None:
    class Named(SiteSpider):
        name = "named"

    crawler = Crawler(Named, {"REDIS_URL": server.url})
    stats = RedisStatsCollector.from_crawler(crawler)
    for _ in range(2):
        stats.inc_value("pages", 2)
        stats.max_value("most", 7)
        assert attempt(client, stats._changes()) == [None] * 2
        assert stats._changes() == []
        assert client.hgetall("named:stats") == {b"pages": b"2", b"most": b"7"}
        stats.clear_stats()
        assert (stats.get_stats(), client.exists("named:stats")) == ({}, 0)


def test_the_hash_of_a_finished_crawl_is_not_kept_if_nothing_is(
    tmp_path: Path, server: RedisServer, client: Any
) -> None:
    settings = {**STATS, "REDIS_URL": server.url, "STATS_KEY": "numbers of %(spider)s"}
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, SiteSpider, url=server.url, start_url=site.start_url, settings=settings) as fleet,
    ):
        worker = fleet.start()
        with fleet.held_open():
            site.wait(pages=SHAPE.pages)
            fleet.wait(
                lambda _: client.hget("numbers of site", "item_scraped_count") == b"%d" % SHAPE.pages,
                "the hash has all items",
            )
        fleet.finish()
        assert "ERROR" not in worker.text()
    assert not client.exists("numbers of site")
