"""scrapy-redis' names, used alone: queues, filter, connections, and what its settings mean for the fleet."""

from __future__ import annotations

import asyncio
import json
import pickle
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import FormRequest, Response
from scrapy.settings import Settings

from scrapy_fleet.errors import SettingError, Unreadable
from scrapy_fleet.scrapy_redis import connection, defaults, picklecompat, utils
from scrapy_fleet.scrapy_redis import queue as queues
from scrapy_fleet.scrapy_redis.bridge import bridge_start
from scrapy_fleet.scrapy_redis.dupefilter import RFPDupeFilter
from scrapy_fleet.scrapy_redis.requests import request_of
from scrapy_fleet.scrapy_redis.spiders import RedisSpider
from scrapy_fleet.scrapy_redis.wiring import crawl_name, queue_class, translate
from tests.servers import required, shared_server, valkey_binary

DROP_IN = "scrapy_fleet.scrapy_redis.scheduler.Scheduler"


class SomeSpider(Spider):
    name = "some"

    def parse_page(self, response: Response) -> None: ...


class Mine:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.fixture
def server() -> Iterator[Any]:
    with redis.Redis.from_url(shared_server(required(valkey_binary())).url) as client:
        yield client


@pytest.fixture
def key() -> str:
    return f"%(spider)s:{uuid.uuid4().hex}"


def urls(queue: queues.Base) -> list[str]:
    found = []
    while (request := queue.pop()) is not None:
        found.append(request.url.rpartition("/")[2])
    return found


def push(queue: queues.Base, *numbers: int, **fields: Any) -> None:
    for number in numbers:
        queue.push(Request(f"http://a/{number}", **fields))


# Queues


@pytest.mark.parametrize("serializer", [None, json, picklecompat])
def test_the_order_of_queues_is_exact(server: Any, key: str, serializer: Any) -> None:
    numbers = [5, 3, 11, 1, 2, 10]
    texts = list(map(str, numbers))
    fifo = queues.FifoQueue(server, SomeSpider(), key, None)
    push(fifo, *numbers)
    assert len(fifo) == 6
    assert urls(fifo) == texts
    lifo = queues.LifoQueue(server, SomeSpider(), key)
    push(lifo, *numbers)
    assert urls(lifo) == texts[::-1]
    first = queues.PriorityQueue(
        server, SomeSpider(), key, picklecompat if serializer is picklecompat else None
    )
    push(first, *numbers)
    push(first, 20, 21, priority=5)
    push(first, 30, 31, priority=-5)
    assert len(first) == 10
    assert urls(first) == ["20", "21", *texts, "30", "31"]
    assert len(first) == 0
    assert server.exists(first.key) == 0


def test_equal_requests_are_kept_apart(server: Any, key: str) -> None:
    for cls in (queues.PriorityQueue, queues.FifoQueue, queues.LifoQueue):
        queue = cls(server, SomeSpider(), key)
        push(queue, 1, 1, 1, dont_filter=True)
        assert len(queue) == 3
        assert urls(queue) == ["1", "1", "1"]


def test_a_request_comes_back_whole(server: Any, key: str) -> None:
    spider = SomeSpider()
    request = FormRequest(
        "http://a/", callback=spider.parse_page, formdata={"a": "b"}, meta={"x": (1, 2)}, priority=3
    )
    for serializer in (None, picklecompat):
        queue = queues.PriorityQueue(server, spider, key, serializer)
        queue.push(request)
        again = queue.pop()
        assert again is not None
        assert again.to_dict(spider=spider) == request.to_dict(spider=spider)
        assert type(again) is FormRequest
        queue.push(request)
        queue.clear()
        assert queue.pop() is None


def test_waiting_for_a_request(server: Any, key: str) -> None:
    for cls in (queues.PriorityQueue, queues.FifoQueue, queues.LifoQueue):
        queue = cls(server, SomeSpider(), key)
        push(queue, 1)
        again = queue.pop(timeout=1)
        assert again is not None
        assert again.url == "http://a/1"
        assert queue.pop(timeout=0.01) is None


def test_names_and_mistakes(server: Any) -> None:
    assert queues.SpiderQueue is queues.FifoQueue
    assert queues.SpiderStack is queues.LifoQueue
    assert queues.SpiderPriorityQueue is queues.PriorityQueue
    with pytest.raises(TypeError, match="loads"):
        queues.FifoQueue(server, SomeSpider(), "k", object())


def test_nothing_in_a_queue_can_run_code(server: Any, key: str, tmp_path: Path) -> None:
    mine = tmp_path / "it ran"
    planted = pickle.dumps(Mine(mine))
    for serializer in (None, picklecompat):
        queue = queues.FifoQueue(server, SomeSpider(), key, serializer)
        server.lpush(queue.key, planted)
        with pytest.raises((Unreadable, pickle.UnpicklingError)):
            queue.pop()
    assert not mine.exists()
    for bad in (
        {"url": "http://a/", "_class": "os.system"},
        {"url": "http://a/", "_class": "this.Request"},
        {"url": "http://a/", "_class": 5},
        {"url": "http://a/", "callback": "closed"},
        {"url": "http://a/", "callback": "__init__"},
        {"url": "http://a/", "errback": "log"},
        {"url": 5},
        ["url"],
        {"url": "no scheme"},
    ):
        with pytest.raises(Unreadable):
            request_of(bad, SomeSpider())
    assert request_of({"url": "http://a/", "_class": "scrapy.FormRequest"}, SomeSpider()).url == "http://a/"


def test_pickles_of_plain_data_are_read(tmp_path: Path) -> None:
    data = {"a": [1, 2.5, b"x", None], "b": {1, 2}, "c": (True, "x")}
    assert picklecompat.loads(picklecompat.dumps(data)) == data
    for bad in (Mine(tmp_path / "it ran"), eval, SomeSpider):
        with pytest.raises(pickle.UnpicklingError, match="not plain data"):
            picklecompat.loads(pickle.dumps(bad))
    assert not (tmp_path / "it ran").exists()


# The filter


def test_the_filter_alone(server: Any) -> None:
    url = shared_server(required(valkey_binary())).url
    spider = SomeSpider.from_crawler(Crawler(SomeSpider, {"REDIS_URL": url}))
    own = RFPDupeFilter.from_spider(spider)
    assert own.key == "some:dupefilter"
    own.clear()
    one, same, other = (
        Request("http://a/?b=1&a=2"),
        Request("http://a/?a=2&b=1"),
        Request("http://a/", method="POST"),
    )
    assert [own.request_seen(each) for each in (one, same, other, other)] == [False, True, False, True]
    assert server.scard("some:dupefilter") == 2
    own.close("finished")
    assert not own.request_seen(one)
    own.clear()
    assert RFPDupeFilter.from_crawler(spider.crawler).key.startswith("dupefilter:")


# Connections


def settings(**values: Any) -> Settings:
    return Settings(values)


@pytest.mark.parametrize(
    ("values", "url"),
    [
        ({}, "redis://localhost:6379/0"),
        ({"REDIS_HOST": "h", "REDIS_PORT": 1, "REDIS_DB": 2}, "redis://h:1/2"),
        ({"REDIS_HOST": "h", "REDIS_PORT": "1", "REDIS_DB": "2"}, "redis://h:1/2"),
        ({"REDIS_URL": "redis://u:p%2F@h:1/3", "REDIS_HOST": "x"}, "redis://u:p%2F@h:1/3"),
        ({"REDIS_URL": "redis://:p@h"}, "redis://:p@h:6379/0"),
        ({"REDIS_URL": "rediss://h:1/0?ssl_ca_certs=/c"}, "rediss://h:1/0?ssl_ca_certs=%2Fc"),
        ({"REDIS_URL": "unix:///run/r.sock?db=4"}, "unix:///run/r.sock?db=4"),
        ({"REDIS_PARAMS": {"password": "a b", "host": "h"}}, "redis://:a%20b@h:6379/0"),
        ({"REDIS_PARAMS": {"redis_cls": "redis.Redis", "db": 7}}, "redis://localhost:6379/7"),
        (
            {"REDIS_URL": "redis://h:1", "REDIS_PARAMS": {"redis_cls": "redis.cluster.RedisCluster"}},
            "redis+cluster://h:1",
        ),
    ],
)
def test_the_server_of_the_settings_is_the_crawls(values: dict[str, Any], url: str) -> None:
    assert connection.fleet_url(settings(**values)) == url


class Nowhere:
    def __init__(self, **parameters: Any) -> None: ...


def test_a_client_that_does_not_say_where_its_server_is() -> None:
    with pytest.raises(SettingError, match="FLEET_URL"):
        connection.fleet_url(settings(REDIS_PARAMS={"redis_cls": Nowhere}))


def test_clients() -> None:
    client = connection.get_redis_from_settings(settings(REDIS_HOST="h", REDIS_DECODE_RESPONSES=True))
    known = client.connection_pool.connection_kwargs
    assert (known["host"], known["decode_responses"], known["socket_timeout"]) == ("h", True, 30)
    assert connection.from_settings is connection.get_redis_from_settings
    assert connection.get_redis(url="redis://h:1/2").connection_pool.connection_kwargs["db"] == 2
    assert isinstance(connection.get_redis(redis_cls=Nowhere), Nowhere)


# What settings mean


def translated(**values: Any) -> Settings:
    made = settings(SCHEDULER=DROP_IN, **values)
    translate(made, SomeSpider)
    return made


def test_settings_are_translated() -> None:
    plain = translated()
    assert plain["FLEET_URL"] == "redis://localhost:6379/0"
    assert plain["FLEET_CRAWL"] == "some"
    assert plain["FLEET_ORDER"] == "fifo"
    queue = "scrapy_fleet.scrapy_redis.queue."
    assert translated(SCHEDULER_QUEUE_CLASS=queue + "LifoQueue")["FLEET_ORDER"] == "lifo"
    assert translated(SCHEDULER_QUEUE_CLASS=queue + "SpiderStack")["FLEET_ORDER"] == "lifo"
    own = translated(SCHEDULER_QUEUE_KEY="all:requests", FLEET_URL="sqlite:x", FLEET_ORDER="lifo")
    assert (own["FLEET_URL"], own["FLEET_CRAWL"], own["FLEET_ORDER"]) == ("sqlite:x", "all", "lifo")
    assert crawl_name(settings(SCHEDULER_QUEUE_KEY="x:%(spider)s"), SomeSpider) == "x:some"
    unused = translated(SCHEDULER_DISK_QUEUE="x.Y", SCHEDULER_PRIORITY_QUEUE="x.Y")
    assert unused["SCHEDULER_DISK_QUEUE"] == plain["SCHEDULER_DISK_QUEUE"]
    given = translated(DUPEFILTER_CLASS=defaults.SCHEDULER_DUPEFILTER_CLASS)
    assert given["DUPEFILTER_CLASS"] == "scrapy.dupefilters.RFPDupeFilter"


@pytest.mark.parametrize("addons", [{}, {"scrapy_fleet.Addon": 500}])
def test_the_add_on_may_be_listed_or_not(addons: dict[str, int]) -> None:
    class Fed(RedisSpider):
        name = "fed"

    crawler = Crawler(Fed, {"SCHEDULER": DROP_IN, "REDIS_HOST": "h", "ADDONS": addons})
    crawler.addons.load_settings(crawler.settings)
    assert crawler.settings["FLEET_URL"] == "redis://h:6379/0"
    assert crawler.settings["SCHEDULER"] == DROP_IN
    assert "scrapy_fleet.crawl.seeds.SeedsMiddleware" in crawler.settings["SPIDER_MIDDLEWARES"]


class OwnSeen(RFPDupeFilter):
    def request_seen(self, request: Request) -> bool:
        return False


@pytest.mark.parametrize(
    "wrong",
    [
        {"SCHEDULER_QUEUE_CLASS": "scrapy.Request"},
        {"DUPEFILTER_CLASS": OwnSeen},
        {"SCHEDULER_IDLE_BEFORE_CLOSE": -1},
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        translated(**wrong)


def test_a_queue_class_of_the_projects_own() -> None:
    class Mine(queues.FifoQueue): ...

    assert queue_class(settings(SCHEDULER_QUEUE_CLASS=Mine)) is Mine


# Tasks


def spider_of(**values: Any) -> RedisSpider:
    class Fed(RedisSpider):
        name = "fed"

        def parse_page(self, response: Response) -> None: ...

    return Fed.from_crawler(Crawler(Fed, {"REDIS_URL": "redis://h:1", **values}))


def test_tasks_are_read_as_ever() -> None:
    spider = spider_of()
    plain = spider.make_request_from_data(b" http://a/x \n")
    assert (plain.url, plain.method, plain.dont_filter, type(plain)) == (
        "http://a/x",
        "GET",
        True,
        FormRequest,
    )
    form = spider.make_request_from_data(
        b'{"url": "http://a/", "method": "post", "meta": {"id": 1}, "name": "x", "n": 5, "all": ["y", "z"]}'
    )
    assert (form.method, form.body, form.meta) == ("POST", b"name=x&n=5&all=y&all=z", {"id": 1})
    query = spider.make_request_from_data(b'{"url": "http://a/", "q": "x"}')
    assert (query.method, query.url) == ("GET", "http://a/?q=x")
    whole = spider.make_request_from_data(
        b'{"request": {"url": "http://a", "method": "PUT", "body": "b", "priority": 2,'
        b' "callback": "parse_page"}}'
    )
    assert (whole.method, whole.body, whole.callback, whole.priority) == ("PUT", b"b", spider.parse_page, 2)  # type: ignore[attr-defined]
    for bad in (
        b"5",
        b"{}",
        b'{"url": null}',
        b"no url",
        b'{"request": {"url": "http://a/", "callback": "start"}}',
    ):
        with pytest.raises(ValueError, match=r"url|callback"):
            spider.make_request_from_data(bad)


def test_spiders_are_set_up_as_ever() -> None:
    spider = spider_of()
    assert (spider.redis_key, spider.redis_batch_size, spider.redis_encoding) == (
        "fed:start_urls",
        16,
        "utf-8",
    )
    assert spider.max_idle_time == 0
    own = spider_of(
        REDIS_START_URLS_KEY="%(name)s:x",
        CONCURRENT_REQUESTS=5,
        REDIS_ENCODING="latin-1",
        MAX_IDLE_TIME_BEFORE_CLOSE="7",
    )
    assert (own.redis_key, own.redis_batch_size, own.redis_encoding, own.max_idle_time) == (
        "fed:x",
        5,
        "latin-1",
        7,
    )
    assert own.make_request_from_data("http://a/é".encode("latin-1")).url == "http://a/%C3%A9"
    with pytest.raises(ValueError, match="redis_key"):
        spider_of(REDIS_START_URLS_KEY=" ")
    with pytest.raises(ValueError, match="max_idle_time must be an integer"):
        spider_of(MAX_IDLE_TIME_BEFORE_CLOSE="soon")


def test_tasks_can_be_taken_by_hand(server: Any) -> None:
    url = shared_server(required(valkey_binary())).url
    name = uuid.uuid4().hex
    for kind in ("list", "set", "zset"):
        own = {} if kind == "list" else {f"REDIS_START_URLS_AS_{kind.upper()}": True}
        spider = spider_of(REDIS_URL=url, REDIS_START_URLS_KEY=name, CONCURRENT_REQUESTS=2, **own)
        tasks = ["http://a/1", "http://a/2", "http://a/3"]
        if kind == "list":
            server.rpush(name, *tasks)
        elif kind == "set":
            server.sadd(name, *tasks)
        else:
            server.zadd(name, {task: -number for number, task in enumerate(tasks)})
        assert spider.count_size(name) == 3
        found = [request.url for request in spider.next_requests()]
        assert len(found) == 2
        if kind != "set":
            assert found == tasks[:2]
        found += [request.url for request in spider.next_requests()]
        assert sorted(found) == tasks
        assert spider.count_size(name) == 0
    spider = spider_of(REDIS_URL=url, REDIS_START_URLS_KEY=name)
    server.rpush(name, "no url", "http://a/1")
    assert [request.url for request in spider.next_requests()] == ["http://a/1"], "the rest of a batch stays"


def test_helpers() -> None:
    assert utils.bytes_to_str(b"a") == utils.bytes_to_str("a") == "a"
    assert utils.is_dict('{"a": 1}')
    assert not utils.is_dict("http://a")
    assert utils.convert_bytes_to_str({b"a": (b"b", 1)}) == {"a": ("b", 1)}


# Scrapy, old and new


def test_start_requests_is_bridged() -> None:
    class Old(Spider):
        name = "old"

        def start_requests(self) -> Iterator[Request]:
            yield Request("http://a/")

    class New(Old):
        async def start(self) -> Any:
            yield Request("http://b/")

    for cls, url in ((Old, "http://a/"), (New, "http://b/")):
        spider = cls()
        bridge_start(spider)
        assert [request.url for request in asyncio.run(all_of(spider.start()))] == [url]


async def all_of(things: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in things]
