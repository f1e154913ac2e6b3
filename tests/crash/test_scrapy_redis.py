"""Projects that were written for scrapy-redis: fed from Redis, and without its losses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.redis_spiders import (
    FollowingSpider,
    OwnDataSpider,
    OwnFetchSpider,
    PageSpider,
    PlainSpider,
)
from tests.servers import RedisServer

pytestmark = pytest.mark.crash

SHAPE = Shape("tree", pages=60)
DROP_IN = {
    "ADDONS": {},
    "FLEET_URL": None,
    "SCHEDULER": "scrapy_fleet.scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_fleet.scrapy_redis.dupefilter.RFPDupeFilter",
}


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as client:
        yield client


def drop_in(server: RedisServer, **settings: Any) -> dict[str, Any]:
    return {**DROP_IN, "REDIS_URL": server.url, **settings}


@pytest.mark.parametrize("kind", ["list", "set", "zset"])
def test_fed(kind: str, tmp_path: Path, server: RedisServer, client: Any) -> None:
    own = {} if kind == "list" else {f"REDIS_START_URLS_AS_{kind.upper()}": True}
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, PageSpider, url=server.url, settings=drop_in(server, **own)) as fleet,
    ):
        urls = [site.url(f"/p/{number}") for number in range(60)]
        fleet.start()
        if kind == "list":
            client.rpush("fed:start_urls", *urls)
        elif kind == "set":
            client.sadd("fed:start_urls", *urls)
        else:
            client.zadd("fed:start_urls", {url: -number for number, url in enumerate(urls)})
        fleet.finish()
        print(fleet.workers[0].text()[-3000:])
        assert not site.lost()
        assert site.repeats() == 0
        assert fleet.items() == list(range(60))


def test_plain(tmp_path: Path, server: RedisServer) -> None:
    with (
        running(SHAPE) as site,
        Fleet(
            tmp_path, PlainSpider, url=server.url, settings=drop_in(server), start_url=site.start_url
        ) as fleet,
    ):
        fleet.start()
        fleet.finish()
        print(fleet.workers[0].text()[-3000:])
        assert not site.lost()
        assert fleet.items() == list(range(60))
