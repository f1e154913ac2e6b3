"""Projects that were written for scrapy-redis: fed from Redis, and without its losses."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from scrapy import Spider

from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.redis_spiders import (
    FollowingSpider,
    OrderSpider,
    OwnDataSpider,
    OwnFetchSpider,
    OwnRequestsSpider,
    PageSpider,
    PlainSpider,
)
from tests.crash.test_tasks import Mine
from tests.servers import RedisServer

pytestmark = pytest.mark.crash

SHAPE = Shape("tree", pages=60)
PAGES = list(range(SHAPE.pages))
KEY = "fed:start_urls"
DROP_IN = {
    "ADDONS": {},
    "FLEET_URL": None,
    "SCHEDULER": "scrapy_fleet.scrapy_redis.scheduler.Scheduler",
}

ON_FILE = {"ADDONS": {"scrapy_fleet.Addon": 500}, "SCHEDULER": "scrapy_fleet.crawl.scheduler.Scheduler"}


class Project:
    """A site, a server, and workers whose settings say nothing of the fleet."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder = folder
        self.server = server
        self.client: Any = redis.Redis.from_url(server.url)

    def fleet(self, spider: type[Spider], own: dict[str, Any] | None = None, **arguments: Any) -> Fleet:
        settings = {**DROP_IN, "REDIS_URL": self.server.url, **(own or {})}
        return Fleet(self.folder, spider, url=self.server.url, settings=settings, **arguments)


@pytest.fixture
def project(tmp_path: Path, server: RedisServer) -> Iterator[Project]:
    project = Project(tmp_path, server)
    yield project
    project.client.close()


def fill(client: Any, kind: str, urls: list[str]) -> None:
    if kind == "list":
        client.rpush(KEY, *urls)
    elif kind == "set":
        client.sadd(KEY, *urls)
    else:
        client.zadd(KEY, {url: number for number, url in enumerate(urls)})


@pytest.mark.parametrize("kind", ["list", "set", "zset"])
def test_every_task_is_run_once(kind: str, project: Project) -> None:
    own = {} if kind == "list" else {f"REDIS_START_URLS_AS_{kind.upper()}": True}
    with running(SHAPE) as site, project.fleet(PageSpider, own) as fleet:
        fleet.start()
        fill(project.client, kind, [site.url(f"/p/{number}") for number in PAGES])
        fleet.finish()
        assert not site.lost()
        assert site.repeats() == 0
        assert fleet.items() == PAGES
        assert project.client.exists(KEY) == 0


def test_none_is_lost_when_workers_are_killed(project: Project) -> None:
    shape = Shape("tree", pages=300, slow=0.1, delay=(0.02, 0.1))
    with running(shape) as site, project.fleet(PageSpider) as fleet:
        urls = [site.url(f"/p/{number}") for number in range(shape.pages)]
        project.client.rpush(KEY, *urls[:150])
        for _ in range(3):
            fleet.start()
        for killed in range(3):
            site.wait(pages=30 + 70 * killed)
            fleet.workers[killed].kill()
            project.client.rpush(KEY, *urls[150 + 50 * killed : 200 + 50 * killed])
            fleet.start()
        fleet.finish()
        assert not site.lost()
        assert fleet.items() == list(range(shape.pages))


def test_a_slow_page_holds_up_no_others(project: Project) -> None:
    """Tasks come in whenever there is room, not when all is done."""
    shape = Shape("tree", pages=60, slow=0.05, delay=(60, 60))
    with running(shape) as site, project.fleet(PageSpider) as fleet:
        slow = {f"/p/{number}" for number in site.site.delays}
        fast = [site.url(path) for path in sorted(site.site.pages() - slow)]
        assert 1 <= len(slow) < 8, "fewer than run at a time"
        fleet.start()
        project.client.rpush(KEY, *map(site.url, slow))
        for done in range(0, len(fast), 20):
            project.client.rpush(KEY, *fast[done : done + 20])
            site.wait(pages=min(len(fast), done + 20))
        assert not slow & site.visits().keys()


def test_bad_tasks_lose_nothing_but_themselves(project: Project, tmp_path: Path) -> None:
    mine = tmp_path / "it ran"
    bad = [b"\xff\xfe", b"no url", b"{", b"[1]", b"7", b"{}", b'{"url": ""}', b'{"url": 5}', b'{"meta": {}}']
    bad += [b'{"url": "http://a/", "meta": 1}', b'{"request": {"url": "http://a/", "callback": "__init__"}}']
    bad += [pickle.dumps(Mine(str(mine))), b"", *(b"garbage %d" % number for number in range(10))]
    with running(SHAPE) as site, project.fleet(PageSpider) as fleet:
        for number in PAGES:
            project.client.rpush(KEY, *bad[number : number + 1], site.url(f"/p/{number}"))
        fleet.start()
        fleet.finish()
        assert fleet.items() == PAGES
        dead = {row.payload[1:]: row.reason or "" for row in fleet.scan("dead")}
        assert dead.keys() == set(bad)
        assert all(dead.values())
        assert not mine.exists()


def test_a_project_reads_its_own_kind_of_data(project: Project) -> None:
    with running(SHAPE) as site, project.fleet(OwnDataSpider, site=site.url("")) as fleet:
        workers = [fleet.start(), fleet.start()]
        project.client.rpush(KEY, *(f"[{', '.join(map(str, range(n, n + 7)))}]" for n in range(1, 57, 7)))
        project.client.rpush(KEY, "[57]", "[58]", "[59]")
        fleet.finish()
        assert fleet.items() == PAGES
        assert site.repeats() == 0, "a start URL is for one worker"
        assert all("Traceback" not in worker.text() for worker in workers)


@pytest.mark.parametrize("spider", [OwnFetchSpider, OwnRequestsSpider])
def test_a_project_takes_tasks_in_its_own_way(spider: type[PageSpider], project: Project) -> None:
    first = 1 if spider is OwnFetchSpider else 0
    with running(SHAPE) as site, project.fleet(spider, site=site.url("")) as fleet:
        project.client.rpush(KEY, *(site.url(f"/p/{number}") for number in PAGES[first:]))
        fleet.start(MAX_IDLE_TIME_BEFORE_CLOSE=2)
        fleet.finish()
        assert fleet.items() == PAGES


@pytest.mark.parametrize("kind", ["list", "zset"])
def test_tasks_may_be_on_another_server_than_the_crawl(kind: str, project: Project) -> None:
    """No script can move them: they are read, pushed and removed."""
    with running(SHAPE) as site, project.fleet(PageSpider, ON_FILE) as fleet:
        fleet.url = f"sqlite://{project.folder}/crawl.db"
        fill(project.client, kind, [site.url(f"/p/{number}") for number in PAGES])
        fleet.start(FLEET_URL=fleet.url)
        fleet.start(FLEET_URL=fleet.url)
        fleet.finish()
        assert fleet.items() == PAGES
        assert site.repeats() == 0
        assert project.client.keys() == []


def test_rules_are_followed(project: Project) -> None:
    with running(SHAPE) as site, project.fleet(FollowingSpider) as fleet:
        project.client.lpush("following:urls", site.start_url)
        fleet.start()
        fleet.finish()
        assert fleet.items() == PAGES


@pytest.mark.parametrize(
    ("queue", "order"),
    [
        ("PriorityQueue", "0 3 9 7 5 2 4 4 1"),
        ("FifoQueue", "0 7 3 5 1 9 2 4 4"),
        ("LifoQueue", "0 4 4 2 9 1 5 3 7"),
    ],
)
def test_the_order_is_that_of_the_queue(queue: str, order: str, project: Project) -> None:
    own = {"SCHEDULER_QUEUE_CLASS": f"scrapy_fleet.scrapy_redis.queue.{queue}", "CONCURRENT_REQUESTS": 1}
    own["FLEET_COMMIT_INTERVAL"] = 30  # however slow the machine is, the links of the page go out together
    with running(SHAPE) as site, project.fleet(OrderSpider, own, site=site.url("")) as fleet:
        fleet.start()
        fleet.finish()
        paths = [line.path for line in site.log() if line.event == "arrive"]
        assert " ".join(path.removeprefix("/p/") for path in paths) == order


def test_only_the_scheduler_is_used(project: Project) -> None:
    """Nothing of ours is asked before the engine is there."""
    own = {"SCHEDULER_QUEUE_CLASS": "scrapy_fleet.scrapy_redis.queue.FifoQueue", "ROBOTSTXT_OBEY": True}
    own |= {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.001, "DOWNLOAD_DELAY": 0.001}
    own["AUTOTHROTTLE_TARGET_CONCURRENCY"] = 50
    with running(SHAPE) as site, project.fleet(PlainSpider, own, start_url=site.start_url) as fleet:
        first = fleet.start()
        site.wait(pages=20)
        first.kill()
        second = fleet.start(ADDONS={"scrapy_fleet.scrapy_redis.wiring.Addon": 500})
        fleet.finish()
        orders = [re.findall(r"order of .*", worker.text()) for worker in (first, second)]
        assert len(orders[0]) > 5
        assert orders[0] == orders[1], "the same as with the add-on"
        assert not site.lost()
        assert fleet.items() == PAGES


def test_what_was_there_can_be_flushed_at_the_start(project: Project) -> None:
    with running(SHAPE) as site, project.fleet(PlainSpider, start_url=site.start_url) as fleet:
        first = fleet.start(CLOSESPIDER_PAGECOUNT=10)
        first.ended()
        assert fleet.snapshot().counts.waiting > 0
        fleet.start(SCHEDULER_FLUSH_ON_START=True, SCHEDULER_IDLE_BEFORE_CLOSE=1)
        fleet.finish()
        assert fleet.snapshot().counts.done == SHAPE.pages
        assert site.visits()["/p/0"] == 2
